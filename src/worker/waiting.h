// How long to wait at a time for what shall have happened by some instant.
#pragma once

#include <algorithm>
#include <chrono>

#include "base/time.h"
#include "worker/clock.h"

namespace weir::worker {

// In pieces: what is added to the time of day must not overflow it.
inline Duration wait_until(Instant until) { return std::min<Duration>(until - read_clock(), std::chrono::seconds(1)); }

}  // namespace weir::worker
