// The explored types of weir::sync: what base/sync.h and worker/sync.h give under WEIR_EXPLORE.
//
// An explored atomic has the size and the layout of its value; what else the explorer knows about it is kept elsewhere,
// by its address.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <type_traits>
#include <utility>

#include "base/time.h"
#include "tests/explore/runtime.h"

namespace weir::sync {

inline constexpr bool kIsExplored = true;

using explore::Where;

template <class T>
class Atomic {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);

 public:
  using value_type = T;

  Atomic() noexcept : Atomic(T{}) {}
  Atomic(T value) noexcept : value_(value) { explore::begin_life(this); }  // NOLINT: as std::atomic
  Atomic(const Atomic&) = delete;
  Atomic& operator=(const Atomic&) = delete;
  ~Atomic() { explore::end_life(this); }

  T load(std::memory_order order = std::memory_order_seq_cst, Where where = Where::current()) const noexcept {
    return from(explore::load(cell(), order, where));
  }
  void store(T value, std::memory_order order = std::memory_order_seq_cst, Where where = Where::current()) noexcept {
    explore::store(cell(), bits(value), order, where);
  }
  T exchange(T value, std::memory_order order = std::memory_order_seq_cst, Where where = Where::current()) noexcept {
    return from(explore::modify(
        cell(), [](std::uint64_t, std::uint64_t operand) { return operand; }, bits(value), order, where));
  }
  bool compare_exchange_strong(T& expected, T desired, std::memory_order success, std::memory_order failure,
                               Where where = Where::current()) noexcept {
    return compare(expected, desired, success, failure, false, where);
  }
  bool compare_exchange_strong(T& expected, T desired, std::memory_order order = std::memory_order_seq_cst,
                               Where where = Where::current()) noexcept {
    return compare(expected, desired, order, on_failure(order), false, where);
  }
  bool compare_exchange_weak(T& expected, T desired, std::memory_order success, std::memory_order failure,
                             Where where = Where::current()) noexcept {
    return compare(expected, desired, success, failure, true, where);
  }
  bool compare_exchange_weak(T& expected, T desired, std::memory_order order = std::memory_order_seq_cst,
                             Where where = Where::current()) noexcept {
    return compare(expected, desired, order, on_failure(order), true, where);
  }
  T fetch_add(T operand, std::memory_order order = std::memory_order_seq_cst, Where where = Where::current()) noexcept
    requires std::is_integral_v<T>
  {
    return change<[](T before, T by) { return static_cast<T>(before + by); }>(operand, order, where);
  }
  T fetch_sub(T operand, std::memory_order order = std::memory_order_seq_cst, Where where = Where::current()) noexcept
    requires std::is_integral_v<T>
  {
    return change<[](T before, T by) { return static_cast<T>(before - by); }>(operand, order, where);
  }
  T fetch_or(T operand, std::memory_order order = std::memory_order_seq_cst, Where where = Where::current()) noexcept
    requires std::is_integral_v<T>
  {
    return change<[](T before, T by) { return static_cast<T>(before | by); }>(operand, order, where);
  }
  T fetch_and(T operand, std::memory_order order = std::memory_order_seq_cst, Where where = Where::current()) noexcept
    requires std::is_integral_v<T>
  {
    return change<[](T before, T by) { return static_cast<T>(before & by); }>(operand, order, where);
  }

  operator T() const noexcept { return load(); }  // NOLINT: as std::atomic
  T operator=(T value) noexcept {
    store(value);
    return value;
  }

 private:
  static constexpr std::memory_order on_failure(std::memory_order order) {
    if (order == std::memory_order_acq_rel) return std::memory_order_acquire;
    return order == std::memory_order_release ? std::memory_order_relaxed : order;
  }
  static std::uint64_t bits(T value) {
    std::uint64_t word = 0;
    std::memcpy(&word, &value, sizeof value);
    return word;
  }
  static T from(std::uint64_t word) {
    T value;
    std::memcpy(&value, &word, sizeof value);
    return value;
  }
  explore::Cell cell() const { return {const_cast<T*>(&value_), sizeof(T)}; }
  bool compare(T& expected, T desired, std::memory_order success, std::memory_order failure, bool is_weak,
               const Where& where) noexcept {
    std::uint64_t word = bits(expected);
    const bool is_done = explore::compare_exchange(cell(), word, bits(desired), success, failure, is_weak, where);
    if (!is_done) expected = from(word);
    return is_done;
  }
  template <auto function>
  T change(T operand, std::memory_order order, const Where& where) noexcept {
    const auto on_words = [](std::uint64_t before, std::uint64_t by) { return bits(function(from(before), from(by))); };
    return from(explore::modify(cell(), on_words, bits(operand), order, where));
  }

  T value_;
};

inline void fence(std::memory_order order, Where where = Where::current()) noexcept { explore::fence(order, where); }
inline void reads(const void* address, Where where = Where::current()) noexcept { explore::note_read(address, where); }
inline void writes(const void* address, Where where = Where::current()) noexcept {
  explore::note_write(address, where);
}

class Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;
  ~Mutex() { explore::end_life(this); }
  void lock(Where where = Where::current()) noexcept { explore::lock(this, where); }
  bool try_lock(Where where = Where::current()) noexcept { return explore::try_lock(this, where); }
  void unlock(Where where = Where::current()) noexcept { explore::unlock(this, where); }

 private:
  std::uint64_t unused_ = 0;
};

class ConditionVariable {
 public:
  ConditionVariable() = default;
  ConditionVariable(const ConditionVariable&) = delete;
  ConditionVariable& operator=(const ConditionVariable&) = delete;
  ~ConditionVariable() { explore::end_life(this); }

  void notify_one(Where where = Where::current()) noexcept { explore::notify(this, false, where); }
  void notify_all(Where where = Where::current()) noexcept { explore::notify(this, true, where); }
  void wait(std::unique_lock<Mutex>& lock, Where where = Where::current()) {
    explore::wait(this, lock.mutex(), false, where);
  }
  template <class Predicate>
  void wait(std::unique_lock<Mutex>& lock, Predicate predicate, Where where = Where::current()) {
    while (!predicate()) wait(lock, where);
  }
  bool wait_for(std::unique_lock<Mutex>& lock, Duration, Where where = Where::current()) {
    return explore::wait(this, lock.mutex(), true, where);
  }
  template <class Predicate>
  bool wait_for(std::unique_lock<Mutex>& lock, Duration duration, Predicate predicate, Where where = Where::current()) {
    while (!predicate()) {
      if (!wait_for(lock, duration, where)) return predicate();
    }
    return true;
  }

 private:
  std::uint64_t unused_ = 0;
};

inline void yield() noexcept { explore::yield(); }
inline void sleep_for(Duration) { explore::yield(); }
inline Instant read_clock() { return {explore::read_clock_ns()}; }

// One T for each thread of the model; as at its first use when a thread begins.
template <class T>
class PerThread {
 public:
  T& get() const {
    Slot& slot = slots_[explore::thread_index()];
    if (slot.run != explore::run_number()) slot = {.run = explore::run_number()};
    return slot.value;
  }
  operator T&() const { return get(); }  // NOLINT: stands for the thread's own
  T operator->() const { return get(); }
  T& operator=(T value) const { return get() = value; }

 private:
  struct Slot {
    T value{};
    std::uint64_t run = 0;
  };
  mutable std::array<Slot, explore::kMaxThreads> slots_{};
};

// An object that lives until the thread of the model ends, as a thread_local one does.
template <class T>
T& make_for_thread() {
  T* const made = new T;
  explore::at_thread_end([](void* object) { delete static_cast<T*>(object); }, made);
  return *made;
}

}  // namespace weir::sync
