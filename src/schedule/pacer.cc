#include "schedule/pacer.h"

#include <algorithm>

namespace weir::schedule {

namespace {

constexpr std::uint64_t kNsPerS = 1'000'000'000;
// Slower than any path that works; keeps the fixed-point product of a packet far from overflow.
constexpr std::uint64_t kSlowestRate = 1'000;

}  // namespace

Pacer::Pacer(std::uint64_t bytes_per_s, std::uint64_t burst_bytes) {
  set_burst(burst_bytes);
  set_rate(bytes_per_s);
}

void Pacer::set_rate(std::uint64_t bytes_per_s) {
  if (bytes_per_s == rate_) return;
  if (bytes_per_s == kUnlimited) {
    rate_ = kUnlimited;
    drained_at_ = last_sent_at_;
    return;
  }
  bytes_per_s = std::max(bytes_per_s, kSlowestRate);
  if (rate_ != kUnlimited && drained_at_ > last_sent_at_) {
    const auto owed = static_cast<unsigned __int128>((drained_at_ - last_sent_at_).count());
    drained_at_ = last_sent_at_ + Duration{static_cast<std::int64_t>(owed * rate_ / bytes_per_s)};
  }
  rate_ = bytes_per_s;
  ns_per_byte_ = std::max<std::uint64_t>((kNsPerS << kFractionBits) / rate_, 1);
  set_burst(burst_bytes_);
}

void Pacer::set_burst(std::uint64_t burst_bytes) {
  burst_bytes_ = static_cast<std::uint32_t>(std::min(burst_bytes, kMostBurstBytes));
  burst_time_ =
      Duration{static_cast<std::int64_t>(static_cast<unsigned __int128>(burst_bytes_) * ns_per_byte_ >> kFractionBits)};
}

}  // namespace weir::schedule
