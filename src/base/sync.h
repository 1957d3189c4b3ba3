// The types that threads meet through: atomics, fences and mutexes.
//
// In every build but one these are the types of the standard library under another name. The schedule explorer of the
// tests (tests/explore/, docs/decisions/0029-schedule-explorer.md) compiles the same sources with WEIR_EXPLORE=1: each
// operation is then a scheduling point, and loads may return what the memory order allows, not only the newest value.
#pragma once

#if defined(WEIR_EXPLORE)

#include "tests/explore/sync.h"  // IWYU pragma: export

#else

#include <atomic>
#include <mutex>

namespace weir::sync {

inline constexpr bool kIsExplored = false;

template <class T>
using Atomic = std::atomic<T>;
using Mutex = std::mutex;

[[gnu::always_inline]] inline void fence(std::memory_order order) noexcept { std::atomic_thread_fence(order); }

// Plain memory that one thread hands to another: the explorer checks that the accesses are ordered.
[[gnu::always_inline]] inline void reads(const void*) noexcept {}
[[gnu::always_inline]] inline void writes(const void*) noexcept {}

}  // namespace weir::sync

#endif
