// Vector clocks: what happens before what.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "tests/explore/runtime.h"

namespace weir::explore {

// A place in one thread's own time.
struct Moment {
  std::uint8_t thread = 0;
  std::uint32_t time = 0;
};

// The last entry is a place in the total order of sequentially consistent operations.
struct Clock {
  static constexpr std::size_t kSequential = kMaxThreads;
  std::array<std::uint32_t, 8> times{};

  void join(const Clock& other) {
    for (std::size_t i = 0; i < times.size(); ++i) times[i] = std::max(times[i], other.times[i]);
  }
  bool knows(Moment moment) const { return times[moment.thread] >= moment.time; }
};
static_assert(kMaxThreads < 8);

}  // namespace weir::explore
