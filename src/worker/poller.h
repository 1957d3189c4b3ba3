// Poller: waits for many descriptors at once; epoll on Linux, poll() elsewhere and in builds with WEIR_PORTABLE_UDP.
#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/fork_guard.h"
#include "base/time.h"

namespace weir::worker {

// One per worker, used by its thread only. Level-triggered. In a forked child it does nothing: both processes would
// change one set of descriptors.
class Poller {
 public:
  static constexpr std::size_t kMaxReady = 64;  // reported by one wait(); the rest come with the next one

  struct Ready {
    void* tag = nullptr;
    bool error = false;
  };

  struct Wanted {
    bool read = true;
    bool write = false;
  };

  Poller();
  ~Poller();
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  void add(int descriptor, void* tag);
  void want(int descriptor, void* tag, Wanted wanted);
  // False if the process had no descriptor left for it; then nothing else may be called.
  bool is_open() const;
  void remove(int descriptor);
  // In a forked child: closes this process's copy of the set.
  void close_in_child() noexcept;

  // Waits up to `at_most` (zero: only looks; Duration::max(): for ever) and returns how many of ready() are set.
  std::size_t wait(Duration at_most);
  const Ready& ready(std::size_t index) const { return ready_[index]; }

 private:
  Ready ready_[kMaxReady];
  const ForkGuard fork_guard_;
  // The same members in every build, so that only poller.cc needs to know which.
  [[maybe_unused]] int epoll_ = -1;
  [[maybe_unused]] bool has_nanoseconds_ = true;  // epoll_pwait2
  std::vector<pollfd> watched_;
  std::vector<void*> tags_;                 // of watched_, in its order
  [[maybe_unused]] std::size_t first_ = 0;  // of watched_: where the next wait() begins to report
};

}  // namespace weir::worker
