// Places: what one post has of the executor's queue. A request that finds no place of its priority waits at its worker.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "schedule/priority_queue.h"

namespace weir::pool {

// Part of a gate. Each post and each priority has its own, so that nobody waits for a place that only others can free,
// and nobody behind the less urgent. Under the executor's mutex, but for the flag.
class Places {
 public:
  // False: there is none. The worker is told when half of them are free again.
  bool take(unsigned priority, std::size_t most) {
    if (taken_[priority] >= most) {
      wanted_ |= 1u << priority;
      return false;
    }
    ++taken_[priority];
    return true;
  }
  // True: the worker waits for it and is to be woken.
  [[nodiscard]] bool give_back(unsigned priority, std::size_t most) {
    --taken_[priority];
    if ((wanted_ & 1u << priority) == 0 || taken_[priority] > most / 2) return false;
    wanted_ &= ~(1u << priority);
    look_again();
    return true;
  }

  // Relaxed: whoever sets it rings the worker's doorbell, which orders it.
  void look_again() { are_free_.store(true, std::memory_order_relaxed); }
  // On the worker: whether some have become free since it last asked.
  bool were_freed() {
    return are_free_.load(std::memory_order_relaxed) && are_free_.exchange(false, std::memory_order_relaxed);
  }

 private:
  std::array<std::size_t, schedule::kPriorityLevels> taken_{};
  std::uint32_t wanted_ = 0;  // bit per priority
  std::atomic<bool> are_free_{false};
};

}  // namespace weir::pool
