// Time as the protocol sees it: a strong instant on a monotonic clock that somebody else reads.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <limits>

namespace weir {

using Duration = std::chrono::nanoseconds;

// Nanoseconds since an arbitrary origin. Protocol code receives it as an argument and never asks for it.
struct Instant {
  std::int64_t ns = 0;

  static constexpr Instant never() { return {std::numeric_limits<std::int64_t>::max()}; }
  constexpr bool is_never() const { return ns == std::numeric_limits<std::int64_t>::max(); }

  constexpr auto operator<=>(const Instant&) const = default;
  // Saturates: a deadline that is too far away is never.
  constexpr Instant operator+(Duration d) const {
    std::int64_t sum = 0;
    if (__builtin_add_overflow(ns, d.count(), &sum)) [[unlikely]]
      return d.count() > 0 ? never() : Instant{std::numeric_limits<std::int64_t>::min()};
    return {sum};
  }
  constexpr Instant operator-(Duration d) const { return {ns - d.count()}; }
  constexpr Duration operator-(Instant other) const { return Duration{ns - other.ns}; }
};

constexpr Instant earliest(Instant a, Instant b) { return a < b ? a : b; }

}  // namespace weir
