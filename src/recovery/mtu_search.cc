#include "recovery/mtu_search.h"

#include <algorithm>

namespace weir::recovery {

namespace {

// UDP payloads over IPv4 of links with MTU 1,500, 9,000 and 65,535.
constexpr std::uint32_t kLadder[] = {1'472, 8'972, 65'507};
constexpr std::uint32_t kExtraHeaderV6 = 20;

}  // namespace

MtuSearch::MtuSearch(Options options)
    : base_(options.base),
      maximum_(std::max(options.maximum, options.base)),
      raise_interval_(std::chrono::duration_cast<Seconds>(options.raise_interval)),
      current_(base_),
      failed_(maximum_ + 1),
      is_v6_(options.v6) {
  start(Instant{});
}

void MtuSearch::start(Instant now) {
  failed_ = maximum_ + 1;
  bisecting_ = false;
  in_flight_ = false;
  choose_target(now);
}

std::uint32_t MtuSearch::next_rung() const {
  const std::uint32_t extra = is_v6_ ? kExtraHeaderV6 : 0;
  std::uint32_t rung = maximum_;
  for (const std::uint32_t step : kLadder) {
    if (step - extra > current_) rung = std::min(rung, step - extra);
  }
  return rung > current_ && rung < failed_ ? rung : 0;
}

void MtuSearch::choose_target(Instant now) {
  attempts_ = 0;
  target_ = bisecting_ ? 0 : next_rung();
  if (target_ == 0 && failed_ - current_ > kGranularity && current_ < maximum_) {
    target_ = bisecting_ ? current_ + (failed_ - current_) / 2 : current_ + kGranularity;
  }
  if (target_ != 0) {
    probe_at_ = now;
  } else {
    probe_at_ = current_ == maximum_ ? Instant::never() : now + raise_interval_;
  }
}

std::optional<std::uint32_t> MtuSearch::next_probe(Instant now) {
  if (in_flight_ || now < probe_at_) return std::nullopt;
  if (verifying_) return current_;
  if (target_ == 0) start(now);
  if (target_ == 0) return std::nullopt;
  return target_;
}

void MtuSearch::on_probe_sent(std::uint32_t size, Instant) {
  in_flight_ = in_flight_ || size == (verifying_ ? current_ : target_);
}

bool MtuSearch::on_probe_acked(std::uint32_t size, Instant now) {
  const bool grew = size > current_ && size <= maximum_;
  if (verifying_) {
    if (size < current_) return false;
    forget_losses();
    start(now);
  }
  if (grew) {
    bisecting_ = bisecting_ || size == current_ + kGranularity;
    current_ = size;
    if (failed_ <= size) {  // given up too early
      failed_ = maximum_ + 1;
      bisecting_ = false;
    }
  }
  if (grew || (in_flight_ && size == target_)) {
    in_flight_ = false;
    choose_target(now);
  }
  return grew;
}

bool MtuSearch::on_probe_lost(std::uint32_t size, Instant now) {
  if (!in_flight_ || size != (verifying_ ? current_ : target_)) return false;
  in_flight_ = false;
  probe_at_ = now;
  if (!verifying_) {
    if (++attempts_ >= kProbesPerSize) fail_target(now);
    return false;
  }
  if (++verifications_lost_ < kVerifications) {
    probe_at_ = now + kFirstVerification * (1 << (verifications_lost_ - 1));
    return false;
  }
  forget_losses();
  current_ = base_;
  start(now);
  probe_at_ = now + kBlackHoleHold;
  return true;
}

void MtuSearch::on_probe_refused(std::uint32_t size, Instant now) {
  if (verifying_ || size != target_ || target_ == 0) return;
  in_flight_ = false;
  fail_target(now);
}

void MtuSearch::fail_target(Instant now) {
  failed_ = target_;
  choose_target(now);
}

void MtuSearch::on_packet_acked(std::uint64_t number, std::uint32_t size, Instant now) {
  if (size <= base_) {
    newest_small_acked_ = std::max(newest_small_acked_, number + 1);
    return;
  }
  if (number < newest_large_acked_) return;
  newest_large_acked_ = number + 1;
  if (verifying_) [[unlikely]]
    start(now);
  forget_losses();
}

void MtuSearch::on_packet_lost(std::uint64_t number, std::uint32_t size, Instant now) {
  if (verifying_ || number < newest_large_acked_ || current_ == base_) return;
  if (size <= base_) {  // a full queue or socket drops packets of every size
    forget_losses();
    return;
  }
  if (loss_rounds_ == 0 || (number >= round_end_ && newest_small_acked_ > round_end_)) {
    loss_rounds_ += loss_rounds_ < kBlackHoleRounds;
    round_end_ = newest_small_acked_;
  }
  large_losses_ += large_losses_ < kBlackHoleLosses;
  if (large_losses_ < kBlackHoleLosses || loss_rounds_ < kBlackHoleRounds) return;
  // The search upwards has to wait.
  verifying_ = true;
  verifications_lost_ = 0;
  in_flight_ = false;
  probe_at_ = now;
}

}  // namespace weir::recovery
