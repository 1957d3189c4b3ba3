// A duration of up to 4.29 s in four bytes, for options that every path has. A longer one is kept as the longest.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "base/time.h"

namespace weir::recovery {

class ShortDuration {
 public:
  ShortDuration(Duration duration)  // NOLINT(google-explicit-constructor): it stands for a Duration
      : ns_(static_cast<std::uint32_t>(
            std::clamp<std::int64_t>(duration.count(), 0, std::numeric_limits<std::uint32_t>::max()))) {}
  operator Duration() const { return Duration{ns_}; }  // NOLINT(google-explicit-constructor): likewise

 private:
  std::uint32_t ns_;
};

}  // namespace weir::recovery
