#include "recovery/loss_detector.h"

#include <algorithm>

#include "base/check.h"

namespace weir::recovery {

LossDetector::LossDetector(Options options, Random& random)
    : max_ack_delay_(options.max_ack_delay),
      longest_pto_(options.longest_pto),
      initial_rtt_(options.rtt.initial),
      packet_threshold_(options.packet_threshold),
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
  const std::uint32_t doublings = std::min(pto_count_, kMaxBackoffDoublings);
  Duration wait = single * (std::int64_t{1} << doublings);
  if (doublings != 0 && rtt_.has_sample() && last_eliciting_sent_at_ >= lossy_until_) {
    wait = std::max<Duration>(wait, kStandstill);
  }
  wait = std::min(wait, std::max<Duration>(longest_pto_, single));
  return last_eliciting_sent_at_ + wait + wait * jitter_ / kJitterUnits;
}

void LossDetector::on_probe_timeout(Instant now) {
  ++pto_count_;
  sent_[first_outstanding()].probed = true;
  // The next timeout counts from here even if the caller has nothing to send, so that waiting on it cannot spin.
  last_eliciting_sent_at_ = now;
  jitter_ = static_cast<std::uint32_t>(random_.below(kMaxJitter));
}

Duration LossDetector::loss_delay() const {
  const Duration rtt = std::max(rtt_.smoothed(), rtt_.latest());
  const Duration plain = std::max(rtt + rtt / 8, rtt_.granularity());
  if (!reordering_.is_known()) [[likely]]
    return plain;
  return std::max(plain, std::min(reordering_.delay(), kLongestLossDelay * pto()));
}

// Packets were acknowledged.
void LossDetector::learn(const AckNews& news, LossReport& report, bool is_stale, Instant now) {
  if (news.probed) [[unlikely]]
    report.needless_probes = pto_count_;
  if (news.frames || eliciting_in_flight_ == 0) pto_count_ = 0;
  if (!news.overtaken_sent_at.is_never() && !is_stale) [[unlikely]]
    reordering_.on_overtaken(now - news.overtaken_sent_at);
  if (reordering_.is_known()) [[unlikely]]
    reordering_.on_ack(rtt_.smoothed(), now);
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

// Ack-eliciting; of at least one.
std::uint64_t LossDetector::first_outstanding() const {
  std::uint64_t at = head_;
  while (sent_[at].state != PacketState::outstanding || !sent_[at].ack_eliciting || !sent_[at].in_flight) ++at;
  return at;
}

const SentPacket* LossDetector::oldest_outstanding(std::uint64_t* number) const {
  if (eliciting_in_flight_ == 0) return nullptr;
  const std::uint64_t first = first_outstanding();
  if (number != nullptr) *number = first;
  return &sent_[first];
}

const SentPacket* LossDetector::take_for_repetition() {
  if (eliciting_in_flight_ == 0) return nullptr;
  for (std::uint64_t at = first_outstanding(); at < sent_.end(); ++at) {
    SentPacket& packet = sent_[at];
    if (packet.state != PacketState::outstanding || packet.frames_count == 0 || packet.repeated) continue;
    packet.repeated = true;
    return &packet;
  }
  return nullptr;
}

void LossDetector::release_memory() {
  while (sent_.first() < head_) sent_.pop_front();
  sent_.release_memory();
}

}  // namespace weir::recovery
