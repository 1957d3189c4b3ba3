// What a thread knows about itself: whether it is inside a loop, and how deep the handler that runs on it is nested.
#pragma once

#include <cstdint>

namespace weir::worker {

class Worker;

// One per thread, for that thread only; its address names the thread. Constant-initialised, so that reaching it costs
// one addition.
struct ThreadContext {
  std::uint32_t loops_entered = 0;  // inside Worker::poll(): handlers and continuations run in here
  Worker* turning = nullptr;        // the loop it is inside of
  bool (*after_turn)() = nullptr;   // resumes what this thread awaits elsewhere; true if there was anything
  std::uint8_t depth = 0;           // of the calls made now: 0 outside handlers, a handler's own depth + 1 inside
};

inline constinit thread_local ThreadContext thread_context;

// Sets the depth while a handler runs or is resumed.
class DepthScope {
 public:
  explicit DepthScope(std::uint8_t depth) : saved_(thread_context.depth) { thread_context.depth = depth; }
  DepthScope(const DepthScope&) = delete;
  DepthScope& operator=(const DepthScope&) = delete;
  ~DepthScope() { thread_context.depth = saved_; }

 private:
  std::uint8_t saved_;
};

}  // namespace weir::worker
