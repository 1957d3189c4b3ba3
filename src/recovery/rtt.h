// Round-trip estimate as RFC 9002, section 5, computes it (docs/protocol.md, rule A-5).
#pragma once

#include <algorithm>

#include "base/time.h"
#include "recovery/short_duration.h"

namespace weir::recovery {

// One per path; single-threaded.
class RttEstimator {
 public:
  struct Options {
    Duration initial = std::chrono::milliseconds{5};        // assumed until the first sample
    Duration granularity = std::chrono::microseconds{100};  // of timers: no variance is taken to be smaller
  };

  RttEstimator() : RttEstimator(Options{}) {}
  explicit RttEstimator(Options options)
      : granularity_(options.granularity), smoothed_(options.initial), variance_(options.initial / 2) {}

  // `ack_delay` is what the peer claims to have waited; it is never believed below the minimum.
  void on_sample(Duration latest, Duration ack_delay, Instant now);

  bool has_sample() const { return has_sample_; }
  Duration latest() const { return latest_; }
  Duration smoothed() const { return smoothed_; }
  Duration variance() const { return variance_; }
  Duration minimum() const { return minimum_; }
  Duration granularity() const { return granularity_; }
  Instant first_sample_at() const { return first_sample_at_; }

  // How long to wait for an acknowledgement before probing.
  Duration pto(Duration max_ack_delay) const {
    return smoothed_ + std::max<Duration>(4 * variance_, granularity_) + max_ack_delay;
  }

 private:
  ShortDuration granularity_;
  bool has_sample_ = false;
  Duration smoothed_;
  Duration variance_;
  Duration latest_{};
  Duration minimum_{};
  Instant first_sample_at_ = Instant::never();
};

}  // namespace weir::recovery
