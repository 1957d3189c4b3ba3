#include "peer/hello_budget.h"

#include <algorithm>

#include "base/check.h"

namespace weir::peer {

HelloBudget::HelloBudget(const Options& options) : options_(options) {
  WEIR_CHECK(options.capacity > 0, "room for one address at least");
  WEIR_CHECK(options.proven_refill > Duration::zero() && options.claimed_refill > Duration::zero(),
             "durations above zero");
}

const HelloBudget::Entry* HelloBudget::find(const Address& key) const {
  const auto at = entries_.find(key);
  return at == entries_.end() ? nullptr : &at->second;
}

bool HelloBudget::is_answered(const Entry& entry, Instant now) const {
  return now - entry.answered_at < options_.answer_lasts;
}

bool HelloBudget::is_answered(const Address& key, Instant now) const {
  const Entry* entry = find(key);
  return entry != nullptr && is_answered(*entry, now);
}

std::uint32_t HelloBudget::left(const Address& key, const Entry& entry, Instant now) const {
  if (is_answered(entry, now)) return kHellos;
  const std::int64_t more = std::max<std::int64_t>((now - entry.refilled_at) / refill_of(key), 0);
  return static_cast<std::uint32_t>(std::min<std::int64_t>(entry.left + more, kHellos));
}

HelloBudget::Entry* HelloBudget::use(const Address& key, Instant now) {
  const auto at = entries_.find(key);
  if (at != entries_.end()) {
    recency_.splice(recency_.end(), recency_, at->second.recency);
    return &at->second;
  }
  if (entries_.size() >= options_.capacity && !make_room(now)) return nullptr;
  Entry& entry = entries_[key];
  entry.refilled_at = now;
  entry.recency = recency_.insert(recency_.end(), key);
  return &entry;
}

// Only what does not hold anything back may be forgotten, or naming many addresses would make room for more hellos to
// each of them.
bool HelloBudget::make_room(Instant now) {
  std::size_t looked = 0;
  for (auto at = recency_.begin(); at != recency_.end() && looked < kLongestLook; ++at, ++looked) {
    const auto found = entries_.find(*at);
    if (left(*at, found->second, now) < kHellos) continue;
    entries_.erase(found);
    recency_.erase(at);
    return true;
  }
  return false;
}

bool HelloBudget::spend(const Address& to, bool is_proven, Instant now) {
  const Address key = is_proven || is_answered(ip_of(to), now) ? to : ip_of(to);
  Entry* entry = use(key, now);
  if (entry == nullptr) return false;
  if (is_answered(*entry, now)) return true;
  const std::uint32_t room = left(key, *entry, now);
  if (room == 0) return false;
  // What has come back by now is counted; the rest of the time goes on counting.
  entry->refilled_at = room == kHellos ? now : now - (now - entry->refilled_at) % refill_of(key);
  entry->left = room - 1;
  return true;
}

void HelloBudget::on_credential(const CredentialId& id, const DataAddress& data) {
  const auto found = entries_.find(data.address);
  if (!data.validated || found == entries_.end() || found->second.credential == id) return;
  found->second.credential = id;
  found->second.left = std::max(found->second.left, 1u);
}

void HelloBudget::on_answer(const Address& from, Instant now) {
  if (Entry* entry = use(from, now)) entry->answered_at = now;
  if (const auto whole = entries_.find(ip_of(from)); whole != entries_.end()) whole->second.answered_at = now;
}

bool HelloBudget::is_proven(const DataAddress& offered, Instant now) const {
  return offered.validated || is_answered(ip_of(offered.address), now);
}

const DataAddress& HelloBudget::choose(std::span<const DataAddress> offered, std::size_t turn, Instant now) const {
  WEIR_CHECK(!offered.empty(), "one address to choose at least");
  const auto rank = [&](const DataAddress& each) {
    const bool proven = is_proven(each, now);
    const Address key = proven ? each.address : ip_of(each.address);
    const Entry* entry = find(key);
    if (entry != nullptr && left(key, *entry, now) == 0) return 0;
    return proven ? 2 : 1;
  };
  int best = 0;
  for (const DataAddress& each : offered) best = std::max(best, rank(each));
  const auto equals = static_cast<std::size_t>(
      std::ranges::count_if(offered, [&](const DataAddress& each) { return rank(each) == best; }));
  std::size_t skip = turn % equals;
  for (const DataAddress& each : offered) {
    if (rank(each) == best && skip-- == 0) return each;
  }
  return offered.front();
}

}  // namespace weir::peer
