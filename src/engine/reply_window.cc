#include "engine/reply_window.h"

#include <algorithm>
#include <limits>

namespace weir::engine {

using recovery::Bottleneck;

Duration ReplyWindow::longest_wait() const {
  const Duration rtt = model_.minimum_rtt();
  if (rtt >= kLongestWait) return kShortestWait;  // or not known yet: what is slow then is the handler, or nothing
  return std::clamp<Duration>(kWaitRtts * rtt, kShortestWait, kLongestWait);
}

Instant ReplyWindow::next_ask(Instant now) const {
  if (model_.has_room()) return pacer_.next_send(now);
  Stamp oldest = oldest_;
  while (static_cast<std::int32_t>(model_.last_stamp() - oldest) > 0 && outstanding_[oldest % kStamps] == 0) ++oldest;
  return model_.sent_at(oldest) + longest_wait();
}

void ReplyWindow::add(transfer::OutgoingCall& call, Instant now) {
  const Stamp before = model_.last_stamp();
  call.reply_stamp = model_.stamp(now);
  // The place of the oldest is taken by the new one.
  if (call.reply_stamp != before && call.reply_stamp - oldest_ >= kStamps) {
    while (call.reply_stamp - oldest_ >= kStamps) forget_oldest();
    settle_noted(now);
  }
  // Even the present stamp may have been forgotten.
  if (static_cast<std::int32_t>(call.reply_stamp - oldest_) < 0) oldest_ = call.reply_stamp;
  const Expected& expected = expected_of(call);
  const std::uint32_t units = std::min(expected.bytes / kUnit, kMostUnits) + 1;
  std::uint32_t& outstanding = outstanding_[call.reply_stamp % kStamps];
  if (outstanding > std::numeric_limits<std::uint32_t>::max() - units * kUnit) return;
  call.reply_units = static_cast<std::uint16_t>(units);
  outstanding += units * kUnit;
  model_.add_in_flight(std::uint64_t{units} * kUnit);
  pacer_.on_sent(std::uint64_t{units} * kUnit, now);
}

void ReplyWindow::on_reply(const transfer::OutgoingCall& call, std::uint32_t reply_bytes) {
  Expected& expected = expected_of(call);
  const auto known = static_cast<std::int64_t>(expected.bytes);
  const std::int64_t difference = static_cast<std::int64_t>(reply_bytes) - known;
  expected.bytes = static_cast<std::uint32_t>(expected.is_known ? known + difference / kAverage : reply_bytes);
  expected.is_known = true;
  if (Bottleneck::is_later(call.reply_stamp, newest_)) newest_ = call.reply_stamp;
  arrived_ += reply_bytes + kUnit;
  take_out(call);
}

void ReplyWindow::take_out(const transfer::OutgoingCall& call) {
  const std::uint32_t bytes = call.reply_units * kUnit;
  if (bytes == 0 || static_cast<std::int32_t>(call.reply_stamp - oldest_) < 0) return;  // it has left before
  std::uint32_t& outstanding = outstanding_[call.reply_stamp % kStamps];
  const std::uint32_t left = std::min(outstanding, bytes);
  outstanding -= left;
  left_ += left;
}

// What was asked for and is slow stands for what has come: the window grows if only slow handlers fill it.
void ReplyWindow::forget_oldest() {
  std::uint32_t& outstanding = outstanding_[oldest_ % kStamps];
  if (outstanding != 0 && Bottleneck::is_later(oldest_, newest_)) newest_ = oldest_;
  left_ += outstanding;
  arrived_ += outstanding;
  outstanding = 0;
  ++oldest_;
}

void ReplyWindow::forget_old(Instant now) {
  const Duration longest = longest_wait();
  while (static_cast<std::int32_t>(model_.last_stamp() - oldest_) >= 0 && now - model_.sent_at(oldest_) >= longest) {
    forget_oldest();
  }
  settle(now);
}

void ReplyWindow::settle_noted(Instant now) {
  const Bottleneck::Outcome outcome{.delivered_bytes = arrived_, .left_bytes = left_, .newest = newest_};
  arrived_ = left_ = 0;
  newest_ = 0;
  model_.on_outcome(outcome, now);
  pace();
}

void ReplyWindow::pace() {
  const std::uint64_t rate = model_.pacing_rate();
  if (rate == pacer_.rate()) return;
  pacer_.set_rate(rate);
  pacer_.set_burst(std::min(rate / kBurstsPerSecond, kLargestBurst));
}

}  // namespace weir::engine
