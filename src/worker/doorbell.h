// Doorbell: how other threads tell a worker that something is waiting for it, and wake it if it sleeps.
//
// The dance (both sides use sequentially consistent fences, so at least one of two sees the other):
//   other thread: put the work in place; fence; set `rung`; fence; if `sleeping`, write to the descriptor.
//   worker, turn: if `rung`, clear it; fence; look for work everywhere.
//   worker, rest: set `sleeping`; fence; sleep only if not `rung`; clear `sleeping`.
// A wake costs the waker a system call (15 us when the worker is on another core), so it is made for sleepers only.
#pragma once

#include "base/fork_guard.h"
#include "base/sync.h"

namespace weir::worker {

// Shared by a worker and everybody who may still hold something of it. ring() is for any thread, the rest for the
// worker's.
class Doorbell {
 public:
  Doorbell();
  ~Doorbell();
  Doorbell(const Doorbell&) = delete;
  Doorbell& operator=(const Doorbell&) = delete;

  void ring() noexcept {
    sync::fence(std::memory_order_seq_cst);
    // Seen as set: the worker will clear it and fence before it looks, and then it sees our work.
    if (!rung_.load(std::memory_order_relaxed)) {
      rung_.store(true, std::memory_order_relaxed);
      sync::fence(std::memory_order_seq_cst);
    }
    if (sleeping_.load(std::memory_order_relaxed)) wake();
  }

  // True once after any number of rings.
  bool answer() noexcept {
    if (!rung_.load(std::memory_order_relaxed)) return false;
    rung_.store(false, std::memory_order_relaxed);
    sync::fence(std::memory_order_seq_cst);
    return true;
  }

  // Announces sleep; false if somebody rang meanwhile. get_up() in either case.
  bool lie_down() noexcept {
    sleeping_.store(true, std::memory_order_relaxed);
    sync::fence(std::memory_order_seq_cst);
    return !rung_.load(std::memory_order_relaxed);
  }
  void get_up() noexcept { sleeping_.store(false, std::memory_order_relaxed); }
  // For the watchdog: a sleeper makes no progress and is none the worse for it.
  bool is_sleeping() const noexcept { return sleeping_.load(std::memory_order_relaxed); }

  // False if the process had no descriptor left for it; then nothing else may be called.
  bool is_open() const { return read_end_ >= 0; }
  int descriptor() const { return read_end_; }
  void clear_descriptor() noexcept;  // after the poller reported it readable
  // In a forked child, where it wakes nobody: closes this process's copies of the descriptors.
  void close_in_child() noexcept;

 private:
  void wake() noexcept;
  void close_ends() noexcept;

  sync::Atomic<bool> rung_{false};
  sync::Atomic<bool> sleeping_{false};
  int read_end_ = -1;
  int write_end_ = -1;  // the same where there is eventfd
  const ForkGuard fork_guard_;
};

}  // namespace weir::worker
