// Places: what a post knows of the executor's queue. A request whose member has no place there waits at its worker.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

namespace weir::pool {

// Part of a gate. Under the executor's mutex, but for the flag.
class Places {
 public:
  std::uint64_t bit = 0;  // that names the gate to the executor; several may share one

  // Requests of that member wait at the worker, and have places again. The worker is to be woken.
  void free(std::uint64_t member) {
    // A gate that shares its bit with another is told once more whenever the other has asked again.
    if (std::ranges::find(freed_, member) == freed_.end()) freed_.push_back(member);
    are_free_.store(true, std::memory_order_relaxed);  // whoever sets it rings the worker's doorbell, which orders it
  }
  // Adds them to `members`.
  void take_freed(std::vector<std::uint64_t>& members) {
    members.insert(members.end(), freed_.begin(), freed_.end());
    freed_.clear();
  }

  // On the worker: whether some have become free since it last asked.
  bool were_freed() {
    return are_free_.load(std::memory_order_relaxed) && are_free_.exchange(false, std::memory_order_relaxed);
  }

 private:
  std::vector<std::uint64_t> freed_;  // each member once
  std::atomic<bool> are_free_{false};
};

}  // namespace weir::pool
