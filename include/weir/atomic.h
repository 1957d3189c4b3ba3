// The atomics of public headers. They have a name of their own because the library's tests of thread schedules compile
// these headers with another type in its place.
#pragma once

#include <atomic>

namespace weir::detail {

template <class T>
using Atomic = std::atomic<T>;

}  // namespace weir::detail
