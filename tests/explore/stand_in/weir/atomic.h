// In place of weir/atomic.h: the atomics of public headers are explored, too.
#pragma once

#include "tests/explore/sync.h"

namespace weir::detail {

template <class T>
using Atomic = sync::Atomic<T>;

}  // namespace weir::detail
