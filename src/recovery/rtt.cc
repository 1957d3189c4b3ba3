#include "recovery/rtt.h"

namespace weir::recovery {

void RttEstimator::on_sample(Duration latest, Duration ack_delay, Instant now) {
  latest_ = std::max(latest, Duration{1});
  if (!has_sample_) {
    has_sample_ = true;
    first_sample_at_ = now;
    minimum_ = smoothed_ = latest_;
    variance_ = latest_ / 2;
    return;
  }
  minimum_ = std::min(minimum_, latest_);
  const Duration adjusted = latest_ >= minimum_ + ack_delay ? latest_ - ack_delay : latest_;
  const Duration deviation = smoothed_ > adjusted ? smoothed_ - adjusted : adjusted - smoothed_;
  variance_ = (3 * variance_ + deviation) / 4;
  smoothed_ = (7 * smoothed_ + adjusted) / 8;
}

}  // namespace weir::recovery
