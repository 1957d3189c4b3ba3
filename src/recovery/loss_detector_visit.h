// The parts of LossDetector that call a visitor. Included by loss_detector.h only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "recovery/loss_detector.h"

namespace weir::recovery {

template <class Visitor>
LossReport LossDetector::on_ack(const AckView& ack, Instant now, Visitor&& visitor) {
  LossReport report;
  report.status = judge(ack);
  if (report.status != AckStatus::ok) return report;
  report.in_flight_before = bytes_in_flight_;
  report.largest_advanced = largest_acked_ == kNoPacket || ack.largest > largest_acked_;

  const bool largest_is_new = sent_.contains(ack.largest) && sent_[ack.largest].state != PacketState::acked;
  const Instant largest_sent_at = largest_is_new ? sent_[ack.largest].sent_at : Instant{};
  AckNews news{.overtaken_below = largest_acked_ == kNoPacket ? 0 : largest_acked_};
  for (const PacketRange& range : ack.ranges) {
    if (range.last < sent_.first()) break;
    ack_range(range, report, news, visitor);
  }
  const bool is_stale = ack.is_stale && rtt_.has_sample();
  if (largest_is_new && news.eliciting && !is_stale) {
    const Duration delay = std::clamp<Duration>(ack.delay, Duration{0}, max_ack_delay_);
    rtt_.on_sample(now - largest_sent_at, delay, now);
    report.rtt_sampled = true;
    // What it claims beyond what it may wait could be time in a queue that it wants to hide.
    const Duration allowed = AckPolicy::delay_at(rtt_.smoothed(), max_ack_delay_);
    report.prompt_rtt = std::max(rtt_.latest() - std::min(delay, allowed), Duration{1});
  }
  if (report.largest_advanced) largest_acked_ = ack.largest;
  if (report.acked_packets != 0) learn(news, report, is_stale, now);

  // What came late, because this side did not run, may be followed by more: the timer looks again after that.
  detect_lost(now, report, visitor, !is_stale);
  advance_head();
  retire(now);
  return report;
}

template <class Visitor>
LossReport LossDetector::on_timeout(Instant now, Visitor&& visitor) {
  LossReport report;
  report.in_flight_before = bytes_in_flight_;
  if (deadline() > now) return report;
  if (loss_time_.is_never()) {
    on_probe_timeout(now);
    report.action = TimeoutAction::probe;
    return report;
  }
  detect_lost(now, report, visitor);
  advance_head();
  retire(now);
  report.action = TimeoutAction::loss_declared;
  return report;
}

template <class Visitor>
void LossDetector::abandon(Visitor&& visitor) {
  for (; head_ < sent_.end(); ++head_) {
    SentPacket& packet = sent_[head_];
    if (packet.state != PacketState::outstanding) continue;
    packet.state = PacketState::lost;
    leave_flight(packet);
    if (packet.in_flight) visitor.lost(head_, packet);
  }
  while (!sent_.empty()) sent_.pop_front();
  loss_time_ = Instant::never();
  pto_count_ = 0;
}

template <class Visitor>
void LossDetector::ack_range(PacketRange range, LossReport& report, AckNews& news, Visitor& visitor) {
  const std::uint64_t low = std::max(range.first, sent_.first());
  std::uint64_t number = range.last;
  bool eliciting = false, probed = false;
  std::uint32_t frames = 0;
  while (true) {
    SentPacket& packet = sent_[number];
    std::uint64_t step = 1;
    if (packet.state == PacketState::acked) {
      step += packet.acked_below;
    } else {
      const bool was_told_lost = packet.state == PacketState::lost && packet.in_flight;
      const bool was_outstanding = packet.state == PacketState::outstanding;
      packet.state = PacketState::acked;
      // True once this loop is through, and nobody looks before.
      packet.acked_below = acked_below(number - low);
      report.largest_acked_sent_at = std::max(report.largest_acked_sent_at, packet.sent_at);
      report.acked_ect0 += packet.ecn == EcnMark::ect0;
      report.acked_ect1 += packet.ecn == EcnMark::ect1;
      eliciting |= packet.ack_eliciting;
      frames |= packet.frames_count;
      ++report.acked_packets;
      if (number < news.overtaken_below && packet.in_flight) [[unlikely]]
        news.overtaken_sent_at = earliest(news.overtaken_sent_at, packet.sent_at);
      if (was_outstanding) {
        leave_flight(packet);
        probed |= packet.probed;
        if (packet.in_flight) {
          report.acked_bytes += packet.bytes;
          if (Bottleneck::is_later(packet.stamp, report.newest_stamp)) report.newest_stamp = packet.stamp;
        }
      }
      if (was_told_lost) {
        ++report.spurious_packets;
        visitor.spurious(number, packet);
      } else {
        visitor.acked(number, packet);
      }
    }
    if (number - low < step) break;
    number -= step;
  }
  news.eliciting |= eliciting;
  news.probed |= probed;
  news.frames |= frames != 0;
  SentPacket& top = sent_[range.last];
  top.acked_below = std::max(top.acked_below, acked_below(range.last - low));
}

template <class Visitor>
void LossDetector::detect_lost(Instant now, LossReport& report, Visitor& visitor, bool by_time) {
  loss_time_ = Instant::never();
  if (largest_acked_ == kNoPacket) return;
  const Duration delay = loss_delay();
  const std::uint64_t packet_threshold = reordering_.is_known() ? kNoPacket : packet_threshold_;
  const std::uint64_t end = std::min(sent_.end(), largest_acked_);
  Instant run_start = Instant::never();  // of consecutive losses, for persistent congestion
  std::uint64_t run_end = kNoPacket;     // behind the last loss
  for (std::uint64_t number = head_; number < end; ++number) {
    SentPacket& packet = sent_[number];
    if (packet.state == PacketState::acked) run_start = Instant::never();
    if (packet.state != PacketState::outstanding) continue;
    if (largest_acked_ - number < packet_threshold && (!by_time || packet.sent_at + delay > now)) {
      if (packet.in_flight) loss_time_ = earliest(loss_time_, packet.sent_at + delay);
      continue;
    }
    packet.state = PacketState::lost;
    packet.acked_below = 0;
    if (!packet.in_flight) continue;
    leave_flight(packet);
    if (!packet.mtu_probe) {
      ++report.lost_packets;
      report.loss_events += number != std::exchange(run_end, number + 1);
      report.lost_bytes += packet.bytes;
      report.largest_lost_sent_at = std::max(report.largest_lost_sent_at, packet.sent_at);
      if (packet.ack_eliciting) {
        run_start = earliest(run_start, packet.sent_at);
        report.persistent_congestion = report.persistent_congestion || is_persistent(run_start, packet.sent_at);
      }
    }
    visitor.lost(number, packet);
  }
  if (report.lost_packets != 0) lossy_until_ = now + kLossMemory;
}

}  // namespace weir::recovery
