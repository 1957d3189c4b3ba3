#include "engine/reply_window.h"

#include <algorithm>

namespace weir::engine {

using recovery::Bottleneck;

Duration ReplyWindow::longest_wait() const {
  const Duration rtt = model_.minimum_rtt();
  if (rtt >= kLongestWait) return kLongestWait;  // or not known yet
  return std::clamp<Duration>(kWaitRtts * rtt, kShortestWait, kLongestWait);
}

Instant ReplyWindow::next_ask(Instant now) const {
  if (model_.has_room()) return pacer_.next_send(now);
  Bottleneck::Stamp oldest = oldest_;
  while (oldest != model_.last_stamp() && outstanding_[oldest % kStamps] == 0) ++oldest;
  return model_.sent_at(oldest) + longest_wait();
}

Bottleneck::Stamp ReplyWindow::begin(Instant now) {
  const Bottleneck::Stamp before = model_.last_stamp();
  const Bottleneck::Stamp stamp = model_.stamp(now);
  if (stamp != before && stamp - oldest_ >= kStamps) {  // its place is taken by the new one
    forget(oldest_);
    ++oldest_;
    settle_noted(now);
  }
  return stamp;
}

void ReplyWindow::forget(Bottleneck::Stamp stamp) {
  left_ += outstanding_[stamp % kStamps];
  outstanding_[stamp % kStamps] = 0;
}

void ReplyWindow::forget_old(Instant now) {
  const Duration longest = longest_wait();
  while (static_cast<std::int32_t>(model_.last_stamp() - oldest_) > 0 && now - model_.sent_at(oldest_) >= longest) {
    forget(oldest_);
    ++oldest_;
  }
  settle(now);
}

void ReplyWindow::settle_noted(Instant now) {
  Bottleneck::Outcome outcome{.delivered_bytes = arrived_, .left_bytes = left_, .newest = newest_};
  if (const Bottleneck::Stamp newest = newest_; newest != 0 && arrived_ != 0) {
    outcome.rtt = now - model_.sent_at(newest);
  }
  arrived_ = left_ = 0;
  newest_ = 0;
  model_.on_outcome(outcome, now);
  pace();
}

void ReplyWindow::on_missing(std::int64_t packets, std::uint32_t packet_bytes, Instant now) {
  model_.on_missing(packets, packet_bytes, now);
  pace();
}

void ReplyWindow::pace() {
  const std::uint64_t rate = model_.pacing_rate();
  if (rate == pacer_.rate()) return;
  pacer_.set_rate(rate);
  pacer_.set_burst(std::min(rate / kBurstsPerSecond, kLargestBurst));
}

}  // namespace weir::engine
