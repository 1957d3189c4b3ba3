#include "schedule/nic_shaper.h"

#include <utility>

#include "base/check.h"

namespace weir::schedule {

namespace {

constexpr std::uint64_t kNsPerS = 1'000'000'000;

}  // namespace

std::uint64_t NicShaper::bytes_at(Instant now) const {
  if (now <= origin_) return 0;
  const auto elapsed = static_cast<std::uint64_t>((now - origin_).count());
  return static_cast<std::uint64_t>(static_cast<unsigned __int128>(elapsed) * rate_ / kNsPerS);
}

Instant NicShaper::time_of(std::uint64_t bytes) const {
  const unsigned __int128 product = static_cast<unsigned __int128>(bytes) * kNsPerS;
  return origin_ + Duration{static_cast<std::int64_t>((product + rate_ - 1) / rate_)};
}

std::uint64_t NicShaper::owed(Instant now) const {
  // relaxed: a figure to look at.
  const std::uint64_t drained_at = drained_at_.load(std::memory_order_relaxed);
  const std::uint64_t clock = bytes_at(now);
  return drained_at > clock ? drained_at - clock : 0;
}

// `pending`: all claims, this one included.
bool NicShaper::fits(std::uint64_t pending, std::uint64_t claim, Instant now) const {
  return owed(now) + pending <= std::max(depth(), claim);
}

void NicShaper::add(std::uint64_t bytes, std::uint64_t most_owed, Instant now) {
  const std::uint64_t clock = bytes_at(now);
  // relaxed: only the number counts; settle() publishes it by what follows.
  std::uint64_t old = drained_at_.load(std::memory_order_relaxed);
  std::uint64_t next = 0;
  do {
    next = std::max(old, std::min(std::max(old, clock) + bytes, clock + most_owed));
    // relaxed, both: as above; the exchange itself loses no addition.
  } while (!drained_at_.compare_exchange_weak(old, next, std::memory_order_relaxed, std::memory_order_relaxed));
}

NicSender::NicSender(std::shared_ptr<NicShaper> nic) : nic_(std::move(nic)) {
  for (std::size_t i = 0; i < NicShaper::kMaxSenders; ++i) {
    // relaxed: the count only grows, and whoever misses the newest places serves those in them a little later.
    std::uint32_t used = nic_->places_used_.load(std::memory_order_relaxed);
    if (i >= used) {
      // A place that nobody has had yet belongs to who raises the count past it. relaxed: it holds 0 from the start.
      if (!nic_->places_used_.compare_exchange_strong(used, static_cast<std::uint32_t>(i + 1),
                                                      std::memory_order_relaxed)) {
        continue;
      }
      place_ = i;
      return;
    }
    std::uint64_t nobody = NicShaper::kNobody;
    // relaxed: nothing but the number is handed over.
    if (nic_->line_[i].compare_exchange_strong(nobody, 0, std::memory_order_relaxed)) {
      place_ = i;
      return;
    }
  }
}

NicSender::~NicSender() {
  if (claimed_ != 0) nic_->pending_.fetch_sub(claimed_, std::memory_order_relaxed);  // relaxed: nothing was added
  // relaxed: see the constructor.
  if (place_ < NicShaper::kMaxSenders) nic_->line_[place_].store(NicShaper::kNobody, std::memory_order_relaxed);
}

// The line decides about turns, not about what fits, so whoever sees it a moment late does no harm: relaxed.
bool NicSender::is_first_in_line() const {
  const std::uint64_t mine = ticket_ != 0 ? ticket_ : NicShaper::kNobody;
  const std::uint32_t used = nic_->places_used_.load(std::memory_order_relaxed);
  for (std::uint32_t i = 0; i < used; ++i) {
    const std::uint64_t ticket = nic_->line_[i].load(std::memory_order_relaxed);
    if (ticket != 0 && ticket < mine) return false;
  }
  return true;
}

bool NicSender::claim(std::uint64_t bytes, Instant now) {
  WEIR_CHECK(claimed_ == 0 && bytes != 0, "a claim is settled before the next one");
  NicShaper& nic = *nic_;
  const Duration grace = is_first_in_line() ? Duration{0} : NicShaper::kGrace;
  // acquire: whoever no longer sees the claim of another sees what that sender added when it settled.
  const std::uint64_t pending = nic.pending_.fetch_add(bytes, std::memory_order_acquire) + bytes;
  if (nic.fits(pending, bytes, now - grace)) {
    claimed_ = bytes;
    leave_line();
    return true;
  }
  // relaxed: nothing was added.
  nic.pending_.fetch_sub(bytes, std::memory_order_relaxed);
  if (ticket_ == 0 && place_ < NicShaper::kMaxSenders) {
    // relaxed: tickets differ, which is all.
    ticket_ = nic.last_ticket_.fetch_add(1, std::memory_order_relaxed) + 1;
    nic.line_[place_].store(ticket_, std::memory_order_relaxed);
  }
  const std::uint64_t full = std::max(nic.depth(), bytes);
  // Claims of others count as if they were sent.
  retry_at_ = std::max(nic.time_of(nic.bytes_at(now - grace) + nic.owed(now - grace) + pending - full) + grace,
                       now + Duration{1});
  return false;
}

void NicSender::settle(std::uint64_t sent, Instant now) {
  NicShaper& nic = *nic_;
  if (sent != 0) nic.add(sent, NicShaper::kNobody >> 1, now);
  // release: the addition is seen by whoever does not see the claim.
  nic.pending_.fetch_sub(claimed_, std::memory_order_release);
  claimed_ = 0;
}

void NicSender::leave_line() {
  if (ticket_ == 0) return;
  ticket_ = 0;
  nic_->line_[place_].store(0, std::memory_order_relaxed);  // see is_first_in_line()
}

void NicSender::charge(std::uint64_t sent, Instant now) {
  const std::uint64_t in_that_time = nic_->rate_ / (std::chrono::seconds(1) / NicShaper::kMostOwed);
  nic_->add(sent, std::max(in_that_time, nic_->depth()), now);
}

}  // namespace weir::schedule
