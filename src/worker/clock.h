// The one place that reads the clock for production code: once per turn of a loop, and once per call that is made
// outside of a turn.
#pragma once

#include <chrono>

#include "base/time.h"
#include "worker/sync.h"

namespace weir::worker {

#if defined(WEIR_EXPLORE)

inline Instant read_clock() { return sync::read_clock(); }
inline void relax_cpu() { sync::yield(); }

#else

inline Instant read_clock() {
  return {std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch()).count()};
}

inline void relax_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

#endif

}  // namespace weir::worker
