#include "recovery/loss_detector.h"

#include <algorithm>

#include "base/check.h"

namespace weir::recovery {

LossDetector::LossDetector(Options options, Random& random)
    : options_(options),
      random_(random),
      sent_(options.sent_packets_bound),
      rtt_(options.rtt),
      jitter_(static_cast<std::uint32_t>(random.below(kMaxJitter))) {}

void LossDetector::on_sent(std::uint64_t number, const SentPacket& packet, Instant now) {
  if (number != sent_.end()) [[unlikely]] {
    sent_.start_at(number);
    head_ = number;
  }
  // Packets that elicit no acknowledgement may never be heard of: a side that only acknowledges must not fill its ring.
  while (sent_.end() - head_ >= kMaxRetained && !sent_[head_].in_flight) {
    if (sent_[head_].state == PacketState::outstanding) sent_[head_].state = PacketState::lost;
    ++head_;
    advance_head();
    retire(now);
  }
  if (sent_.full()) [[unlikely]] {
    WEIR_CHECK(sent_.first() < head_, "ask full() before sending");
    sent_.pop_front();
  }
  SentPacket& record = sent_.push(packet);
  record.sent_at = now;
  record.state = PacketState::outstanding;
  record.acked_below = 0;
  if (packet.in_flight) {
    bytes_in_flight_ += packet.bytes;
    if (packet.mtu_probe) [[unlikely]]
      probe_bytes_in_flight_ += packet.bytes;
    if (packet.ack_eliciting) {
      ++eliciting_in_flight_;
      last_eliciting_sent_at_ = now;
    }
  }
}

AckStatus LossDetector::judge(const AckView& ack) const {
  if (ack.ranges.empty() || ack.ranges.front().last != ack.largest) return AckStatus::malformed;
  if (ack.largest >= sent_.end()) return AckStatus::never_sent;
  std::uint64_t above = kNoPacket;
  for (const PacketRange& range : ack.ranges) {
    if (range.first > range.last || range.last >= above) return AckStatus::malformed;
    above = range.first;
  }
  return AckStatus::ok;
}

Instant LossDetector::pto_deadline() const {
  if (eliciting_in_flight_ == 0) return Instant::never();
  const Duration single = pto();
  const Duration wait = std::min(single * (std::int64_t{1} << std::min(pto_count_, kMaxBackoffDoublings)),
                                 std::max(options_.longest_pto, single));
  return last_eliciting_sent_at_ + wait + wait * jitter_ / kJitterUnits;
}

void LossDetector::on_probe_timeout(Instant now) {
  ++pto_count_;
  // The next timeout counts from here even if the caller has nothing to send, so that waiting on it cannot spin.
  last_eliciting_sent_at_ = now;
  jitter_ = static_cast<std::uint32_t>(random_.below(kMaxJitter));
}

Duration LossDetector::loss_delay() const {
  const Duration rtt = std::max(rtt_.smoothed(), rtt_.latest());
  return std::max(rtt + rtt / 8, rtt_.granularity());
}

void LossDetector::leave_flight(const SentPacket& packet) {
  if (!packet.in_flight) return;
  bytes_in_flight_ -= packet.bytes;
  if (packet.mtu_probe) [[unlikely]]
    probe_bytes_in_flight_ -= packet.bytes;
  if (packet.ack_eliciting) --eliciting_in_flight_;
}

void LossDetector::advance_head() {
  while (head_ < sent_.end() && sent_[head_].state != PacketState::outstanding) ++head_;
}

void LossDetector::retire(Instant now) {
  while (sent_.first() < head_) {
    const SentPacket& packet = sent_[sent_.first()];
    const bool worth_keeping = packet.state == PacketState::lost && packet.in_flight &&
                               head_ - sent_.first() <= kMaxRetained && now - packet.sent_at < 3 * pto();
    if (worth_keeping) return;
    sent_.pop_front();
  }
}

bool LossDetector::is_persistent(Instant first_sent_at, Instant last_sent_at) const {
  return rtt_.has_sample() && first_sent_at >= rtt_.first_sample_at() &&
         last_sent_at - first_sent_at > kPersistentCongestionThreshold * pto();
}

const SentPacket* LossDetector::oldest_outstanding(std::uint64_t* number) const {
  if (eliciting_in_flight_ == 0) return nullptr;
  for (std::uint64_t at = head_; at < sent_.end(); ++at) {
    const SentPacket& packet = sent_[at];
    if (packet.state != PacketState::outstanding || !packet.ack_eliciting || !packet.in_flight) continue;
    if (number != nullptr) *number = at;
    return &packet;
  }
  return nullptr;
}

void LossDetector::release_memory() {
  while (sent_.first() < head_) sent_.pop_front();
  sent_.release_memory();
}

}  // namespace weir::recovery
