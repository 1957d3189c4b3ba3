// Leaky bucket. Keeps the instant at which everything sent so far will have drained at the rate, and allows a packet
// while that instant is at most a burst ahead of now.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/time.h"

namespace weir::schedule {

// One per path; single-threaded.
class Pacer {
 public:
  static constexpr std::uint64_t kUnlimited = 0;
  static constexpr std::uint64_t kDefaultBurstBytes = 64 * 1024;
  static constexpr std::uint64_t kMostBurstBytes = ~std::uint32_t{0};  // a longer burst is this one
  // What a fast path may burst: as much as drains within 50 us. Less would cost its sender a turn of the loop for each
  // train; more could fill a switch.
  static constexpr std::uint64_t burst_at(std::uint64_t bytes_per_s) {
    constexpr std::uint64_t kBurstsPerSecond = 20'000;
    constexpr std::uint64_t kLargestBurstBytes = 256 * 1024;
    return std::clamp(bytes_per_s / kBurstsPerSecond, kDefaultBurstBytes, kLargestBurstBytes);
  }

  explicit Pacer(std::uint64_t bytes_per_s = kUnlimited, std::uint64_t burst_bytes = kDefaultBurstBytes);

  // kUnlimited switches pacing off. What is owed is kept in bytes, so a faster rate pays it off faster.
  void set_rate(std::uint64_t bytes_per_s);
  void set_burst(std::uint64_t burst_bytes);

  // When the next packet may go: `now` or later. A packet that may go may be of any size; a large one delays the next.
  Instant next_send(Instant now) const {
    if (rate_ == kUnlimited) return now;
    const Instant at = drained_at_ - burst_time_;
    return at < now ? now : at;
  }

  void on_sent(std::uint64_t bytes, Instant now) {
    if (rate_ == kUnlimited) return;
    if (drained_at_ < now) {
      drained_at_ = now;
      fraction_ = 0;
    }
    const std::uint64_t cost = bytes * ns_per_byte_ + fraction_;
    drained_at_ = drained_at_ + Duration{static_cast<std::int64_t>(cost >> kFractionBits)};
    fraction_ = static_cast<std::uint32_t>(cost & ((std::uint64_t{1} << kFractionBits) - 1));
    last_sent_at_ = now;
  }

  std::uint64_t rate() const { return rate_; }
  bool unlimited() const { return rate_ == kUnlimited; }

 private:
  static constexpr unsigned kFractionBits = 16;

  std::uint64_t rate_ = kUnlimited;
  std::uint64_t ns_per_byte_ = 0;  // fixed point, kFractionBits
  std::uint32_t burst_bytes_ = 0;
  std::uint32_t fraction_ = 0;  // of a nanosecond, not yet in drained_at_
  Duration burst_time_{};
  Instant drained_at_{};
  Instant last_sent_at_{};
};

}  // namespace weir::schedule
