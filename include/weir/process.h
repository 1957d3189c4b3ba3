// Which process this is. A child made by fork() has another number than its parent.
#pragma once

#include <atomic>
#include <cstdint>

namespace weir::detail {

// Where the number lies: in memory that the kernel clears in a forked child, once something watches for forks (see
// base/fork_guard.h). Never null.
extern std::atomic<const std::atomic<std::uint32_t>*> process_number_at;
// Gives a number to a forked child that has none yet.
std::uint32_t number_this_process() noexcept;

// Relaxed: a thread sees the number that its own process has, and nothing else depends on it.
inline bool is_process(std::uint32_t number) noexcept {
  return process_number_at.load(std::memory_order_relaxed)->load(std::memory_order_relaxed) == number;
}

// Never 0.
inline std::uint32_t process_number() noexcept {
  const std::uint32_t number = process_number_at.load(std::memory_order_relaxed)->load(std::memory_order_relaxed);
  return number != 0 ? number : number_this_process();
}

}  // namespace weir::detail
