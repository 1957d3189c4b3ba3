// What the explored types call: one operation each, on the thread of the model that runs. See explorer.h.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <source_location>

namespace weir::explore {

using Where = std::source_location;

enum class Operation : std::uint8_t {
  load,
  store,
  exchange,  // every read-modify-write that always writes
  compare,   // a compare-exchange
  fence,
  lock,
  unlock,
  wait,
  notify,
  spawn,
  wake,
};

// The new value of a read-modify-write. `operand` is what the caller gave.
using Modify = std::uint64_t (*)(std::uint64_t before, std::uint64_t operand);

// `cell` holds the newest value in `bytes` bytes; outside of a run it is all there is.
struct Cell {
  void* address;
  std::uint8_t bytes;
};

// Whether a thread of the model runs. The explored types are ordinary objects otherwise.
bool is_running() noexcept;
std::uint64_t run_number() noexcept;

std::uint64_t load(Cell cell, std::memory_order order, const Where& where) noexcept;
void store(Cell cell, std::uint64_t value, std::memory_order order, const Where& where) noexcept;
std::uint64_t modify(Cell cell, Modify function, std::uint64_t operand, std::memory_order order,
                     const Where& where) noexcept;
bool compare_exchange(Cell cell, std::uint64_t& expected, std::uint64_t desired, std::memory_order success,
                      std::memory_order failure, bool is_weak, const Where& where) noexcept;
void fence(std::memory_order order, const Where& where) noexcept;
void begin_life(const void* address) noexcept;  // a constructor
void end_life(const void* address) noexcept;    // a destructor

void lock(const void* mutex, const Where& where) noexcept;
bool try_lock(const void* mutex, const Where& where) noexcept;
void unlock(const void* mutex, const Where& where) noexcept;
// The mutex is released and taken again. False: the time was over, which happens only when nobody else can run.
bool wait(const void* condition, const void* mutex, bool is_timed, const Where& where) noexcept;
void notify(const void* condition, bool all, const Where& where) noexcept;

void yield() noexcept;
// Blocks until wake() was called at this address since the last forget_wakes(). False: as for wait().
bool sleep(const void* at, bool is_timed, const Where& where) noexcept;
void forget_wakes(const void* at, const Where& where) noexcept;
void wake(const void* at, const Where& where) noexcept;

void note_read(const void* address, const Where& where) noexcept;
void note_write(const void* address, const Where& where) noexcept;

// The reference count of a std::shared_ptr: what it was before. One that goes down is a scheduling point; taking
// another reference commutes with all that others may do to the count, since whoever takes one has one.
int count_reference(int* count, int change) noexcept;

// Which thread of the model runs; 0 outside of a run.
std::size_t thread_index() noexcept;
inline constexpr std::size_t kMaxThreads = 6;  // with the one that prepares and judges
// Called when this thread of the model ends, last registered first.
void at_thread_end(void (*function)(void*), void* argument) noexcept;
// Advances with each question of this thread, so that it does not depend on the others.
std::int64_t read_clock_ns() noexcept;

// A defect was found. Does not return: the run is over.
[[noreturn]] void fail(const char* sentence) noexcept;
[[noreturn]] void check_failed(const char* file, int line, const char* condition, const char* sentence) noexcept;

}  // namespace weir::explore
