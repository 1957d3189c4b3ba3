#include "handshake/source_shares.h"

#include <algorithm>

#include "base/check.h"

namespace weir::handshake {
namespace {

constexpr std::uint64_t kWhole = 1'000'000'000;  // one handshake, in a bucket
constexpr std::size_t kShareOfOne = 4;           // a source has one in so many

}  // namespace

void SourceShares::Bucket::fill(std::uint64_t per_second, Instant now) {
  const std::uint64_t most = per_second * kWhole;
  const std::int64_t passed = std::clamp<std::int64_t>((now - filled).count(), 0, static_cast<std::int64_t>(kWhole));
  level = std::min(most, level + static_cast<std::uint64_t>(passed) * per_second);
  filled = now;
}

bool SourceShares::Bucket::take() {
  if (level < kWhole) return false;
  level -= kWhole;
  return true;
}

SourceShares::SourceShares(std::size_t max_held, std::size_t max_per_source)
    : max_per_source_(max_per_source != 0 ? max_per_source : std::max(kLeastHeld, max_held / kShareOfOne)),
      all_{.level = kBusyPerSecond * kWhole, .filled = {}} {}

SourceShares::Key SourceShares::key_of(const Address& source) {
  Key key = source.ip;
  if (!source.is_v4()) std::fill(key.begin() + 8, key.end(), std::uint8_t{0});
  return key;
}

bool SourceShares::is_full(const Key& key) const {
  const auto found = sources_.find(key);
  return found != sources_.end() && found->second.held >= max_per_source_;
}

SourceShares::Source& SourceShares::use(const Key& key, Instant now) {
  if (const auto found = sources_.find(key); found != sources_.end()) {
    Source& known = found->second;
    known.rate.fill(kPerSecond, now);
    if (known.held == 0) idle_.splice(idle_.end(), idle_, known.idle);
    return known;
  }
  // The forgotten one would begin with a full rate again; who has so many addresses needs no such help.
  if (idle_.size() >= kMaxIdle) {
    sources_.erase(idle_.front());
    idle_.pop_front();
  }
  Source& made = sources_[key];
  made.rate = {.level = kPerSecond * kWhole, .filled = now};
  made.idle = idle_.insert(idle_.end(), key);
  return made;
}

SourceShares::Serial SourceShares::oldest_if_full(const Address& source) const {
  const auto found = sources_.find(key_of(source));
  if (found == sources_.end() || found->second.held < max_per_source_ || found->second.half_open.empty()) return 0;
  return *found->second.half_open.begin();
}

bool SourceShares::admit_unproven(const Address& source, Instant now) {
  all_.fill(kBusyPerSecond, now);
  return !is_full(key_of(source)) && all_.take();
}

bool SourceShares::admit(const Address& source, Instant now) {
  const Key key = key_of(source);
  if (key != latest_) {
    other_ = latest_;
    other_at_ = latest_at_;
    latest_ = key;
  }
  latest_at_ = now;
  const bool has_company = other_ != Key{} && now - other_at_ < kCompany;
  Source& known = use(key, now);
  all_.fill(kBusyPerSecond, now);
  if (known.held >= max_per_source_) return false;
  const bool within_rate = known.rate.take();
  const bool is_idle = all_.take();
  return within_rate || is_idle || !has_company;
}

void SourceShares::establish(const Address& source, Serial serial) {
  if (const auto found = sources_.find(key_of(source)); found != sources_.end()) found->second.half_open.erase(serial);
}

void SourceShares::hold(const Address& source, Serial serial, Instant now) {
  const Key key = key_of(source);
  Source& known = use(key, now);
  known.half_open.insert(serial);
  if (known.held++ == 0) idle_.erase(known.idle);
}

void SourceShares::release(const Address& source, Serial serial) {
  const Key key = key_of(source);
  const auto found = sources_.find(key);
  WEIR_CHECK(found != sources_.end() && found->second.held > 0, "a handshake ended that its source did not hold");
  Source& known = found->second;
  known.half_open.erase(serial);
  if (--known.held > 0) return;
  if (idle_.size() >= kMaxIdle) {
    sources_.erase(idle_.front());
    idle_.pop_front();
  }
  known.idle = idle_.insert(idle_.end(), key);
}

}  // namespace weir::handshake
