// Weighted fair queue over eight priority levels, 0 the most urgent, weights 128, 64, ... 1 (self-clocked fair
// queueing). Each level has a virtual time that grows by bytes / weight as it is served; the level that is furthest
// behind goes next, the more urgent one on a tie. A level that was idle starts at the virtual time of the service, so
// it neither owes nor has saved up anything.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/check.h"

namespace weir::schedule {

inline constexpr unsigned kPriorityLevels = 8;
inline constexpr unsigned kHighestWeight = 128;
constexpr unsigned priority_weight(unsigned level) { return kHighestWeight >> level; }

// Embedded in each element.
template <class T>
struct QueueHook {
  T* next = nullptr;
  T* previous = nullptr;
  std::uint8_t level = 0;  // stays readable after the element was popped, for charge()
  bool queued = false;
};

// Links elements and owns none. Single-threaded. Every operation is O(1).
template <class T, QueueHook<T> T::*Hook>
class WeightedQueue {
 public:
  WeightedQueue() = default;
  WeightedQueue(const WeightedQueue&) = delete;
  WeightedQueue& operator=(const WeightedQueue&) = delete;

  void push_back(T& item, unsigned level) {
    QueueHook<T>& hook = enter(item, level);
    List& list = lists_[level];
    hook.next = nullptr;
    hook.previous = list.last;
    if (list.last != nullptr) {
      (list.last->*Hook).next = &item;
    } else {
      list.first = &item;
    }
    list.last = &item;
  }

  // For an element that was popped and could not go out whole.
  void push_front(T& item, unsigned level) {
    QueueHook<T>& hook = enter(item, level);
    List& list = lists_[level];
    hook.previous = nullptr;
    hook.next = list.first;
    if (list.first != nullptr) {
      (list.first->*Hook).previous = &item;
    } else {
      list.last = &item;
    }
    list.first = &item;
  }

  // Behind `other`, which is of the same level.
  void move_behind(T& item, T& other) {
    QueueHook<T>& hook = item.*Hook;
    QueueHook<T>& front = other.*Hook;
    WEIR_CHECK(&item != &other && hook.queued && front.queued && hook.level == front.level,
               "an element moves behind another of its level");
    List& list = lists_[hook.level];
    (hook.previous != nullptr ? (hook.previous->*Hook).next : list.first) = hook.next;
    (hook.next != nullptr ? (hook.next->*Hook).previous : list.last) = hook.previous;
    hook.previous = &other;
    hook.next = front.next;
    (front.next != nullptr ? (front.next->*Hook).previous : list.last) = &item;
    front.next = &item;
  }

  // The element that pop() would return; nullptr if empty. Stable until the next push, remove or charge.
  T* front() const { return occupied_ == 0 ? nullptr : lists_[next_level()].first; }

  // Removes front(). Does not charge: only the caller knows how many bytes went out.
  T* pop() {
    if (occupied_ == 0) return nullptr;
    T* item = lists_[next_level()].first;
    remove(*item);
    return item;
  }

  void remove(T& item) {
    QueueHook<T>& hook = item.*Hook;
    WEIR_CHECK(hook.queued, "only a queued element can be removed");
    List& list = lists_[hook.level];
    (hook.previous != nullptr ? (hook.previous->*Hook).next : list.first) = hook.next;
    (hook.next != nullptr ? (hook.next->*Hook).previous : list.last) = hook.previous;
    if (list.first == nullptr) occupied_ &= ~(1U << hook.level);
    hook.next = hook.previous = nullptr;
    hook.queued = false;
    --size_;
  }

  // `bytes` of `level` were served.
  void charge(unsigned level, std::uint64_t bytes) {
    std::uint64_t& time = time_[level];
    if (before(service_time_, time)) service_time_ = time;
    time += bytes << level;
  }

  // The level to be served next. The queue must not be empty.
  unsigned next_level() const {
    if ((occupied_ & (occupied_ - 1)) == 0) [[likely]]  // one level; has_single_bit() is a library call without popcnt
      return static_cast<unsigned>(std::countr_zero(occupied_));
    return furthest_behind(occupied_);
  }
  // Of these levels, a bit each, of which there must be one.
  unsigned furthest_behind(std::uint32_t rest) const {
    auto best = static_cast<unsigned>(std::countr_zero(rest));
    for (rest &= rest - 1; rest != 0; rest &= rest - 1) {
      const auto level = static_cast<unsigned>(std::countr_zero(rest));
      if (before(time_[level], time_[best])) best = level;
    }
    return best;
  }

  T* front_of(unsigned level) const { return lists_[level].first; }
  T* last_of(unsigned level) const { return lists_[level].last; }
  std::uint32_t occupied_levels() const { return occupied_; }
  bool empty() const { return occupied_ == 0; }
  std::size_t size() const { return size_; }

 private:
  struct List {
    T* first = nullptr;
    T* last = nullptr;
  };

  // Virtual times wrap around after years of service.
  static bool before(std::uint64_t a, std::uint64_t b) { return static_cast<std::int64_t>(a - b) < 0; }

  QueueHook<T>& enter(T& item, unsigned level) {
    QueueHook<T>& hook = item.*Hook;
    WEIR_CHECK(level < kPriorityLevels && !hook.queued, "an element is queued once, at a level from 0 to 7");
    hook.level = static_cast<std::uint8_t>(level);
    hook.queued = true;
    if (lists_[level].first == nullptr) {
      occupied_ |= 1U << level;
      if (before(time_[level], service_time_)) time_[level] = service_time_;
    }
    ++size_;
    return hook;
  }

  std::uint32_t occupied_ = 0;  // bit per level that holds an element
  std::size_t size_ = 0;
  std::uint64_t service_time_ = 0;
  List lists_[kPriorityLevels];
  std::uint64_t time_[kPriorityLevels] = {};
};

}  // namespace weir::schedule
