// What threads sleep with: see base/sync.h, which protocol code may use, too.
#pragma once

#include "base/sync.h"
#include "base/time.h"

#if !defined(WEIR_EXPLORE)

#include <sched.h>

#include <condition_variable>
#include <thread>

namespace weir::sync {

using ConditionVariable = std::condition_variable;

inline void yield() noexcept { sched_yield(); }
inline void sleep_for(Duration duration) { std::this_thread::sleep_for(duration); }

}  // namespace weir::sync

#endif
