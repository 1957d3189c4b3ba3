// What a thread knows about itself: whether it is inside a loop, and how deep the handler that runs on it is nested.
#pragma once

#include <cstdint>

#include "worker/sync.h"

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

#if defined(WEIR_EXPLORE)

// The explorer's threads share one thread of the system: each member is that of the thread that runs.
struct ExploredThreadContext {
  static inline sync::PerThread<ThreadContext> all;
  template <auto member>
  struct Member {
    using T = std::remove_reference_t<decltype(std::declval<ThreadContext>().*member)>;
    operator T&() const { return all.get().*member; }  // NOLINT: stands for the member
    T operator->() const { return all.get().*member; }
    T& operator=(T value) const { return all.get().*member = value; }
    T& operator++() const { return ++(all.get().*member); }
    T& operator--() const { return --(all.get().*member); }
    template <class... Arguments>
    auto operator()(Arguments... arguments) const {
      return (all.get().*member)(arguments...);
    }
  };
  Member<&ThreadContext::loops_entered> loops_entered;
  Member<&ThreadContext::turning> turning;
  Member<&ThreadContext::after_turn> after_turn;
  Member<&ThreadContext::depth> depth;
  ThreadContext* operator&() const { return &all.get(); }  // NOLINT: its address names the thread
};
inline ExploredThreadContext thread_context;

#else

inline constinit thread_local ThreadContext thread_context;

#endif

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
