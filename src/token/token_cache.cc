#include "token/token_cache.h"

#include <algorithm>

#include "token/region_id.h"

namespace weir::token {
namespace {

bool same_slot(std::uint64_t a, std::uint64_t b) { return RegionId::unpack(a).slot == RegionId::unpack(b).slot; }

}  // namespace

TokenCache::Store& TokenCache::store() {
  if (store_ == nullptr) store_ = std::make_unique<Store>();
  return *store_;
}

// Of one slot the id with the higher generation is the larger number.
bool TokenCache::is_news(std::uint64_t region) const {
  if (store_ == nullptr) return true;
  const auto end = store_->heard.begin() + store_->heard_count;
  const auto heard =
      std::find_if(store_->heard.begin(), end, [&](std::uint64_t one) { return same_slot(one, region); });
  return heard == end || *heard < region;
}

void TokenCache::remember(std::uint64_t region) {
  Store& in = store();
  const auto end = in.heard.begin() + in.heard_count;
  auto at = std::find_if(in.heard.begin(), end, [&](std::uint64_t one) { return same_slot(one, region); });
  if (at != end) {
    region = std::max(region, *at);
  } else if (in.heard_count < kMaxRemembered) {
    in.heard[in.heard_count++] = region;
    return;
  } else {
    at = in.heard.begin();  // the one that was mentioned the longest ago
  }
  std::copy(at + 1, end, at);
  in.heard[in.heard_count - 1] = region;
}

void TokenCache::remove(Class& of, std::size_t at) {
  std::copy(of.tokens.begin() + at + 1, of.tokens.begin() + of.count, of.tokens.begin() + at);
  --of.count;
  --store_->count;
}

void TokenCache::remove_expired(Class& of, Instant now) {
  for (std::size_t i = of.count; i-- > 0;) {
    if (of.tokens[i].usable_until <= now) remove(of, i);
  }
}

TokenCache::Put TokenCache::put(const Token& token, Instant now) {
  if (RegionId::unpack(token.region).generation == 0 || token.capacity == 0) return Put::useless;
  if (!is_news(token.region)) return Put::known;
  remember(token.region);
  remove_outdated(token.region);
  if (token.usable_until <= now) return Put::useless;
  Class& of = store().classes[token_class_of(token.capacity)];
  remove_expired(of, now);
  if (of.count == kMaxTokens) return Put::full;
  of.tokens[of.count++] = token;
  ++store_->count;
  return Put::kept;
}

std::optional<Token> TokenCache::take(std::uint64_t bytes, Instant now) {
  if (store_ == nullptr || store_->count == 0) return std::nullopt;
  for (std::size_t i = token_class_of(bytes); i < kTokenClasses; ++i) {
    Class& of = store_->classes[i];
    remove_expired(of, now);
    std::size_t best = of.count;
    for (std::size_t at = of.count; at-- > 0;) {
      if (of.tokens[at].capacity < bytes) continue;
      if (best == of.count || of.tokens[at].capacity < of.tokens[best].capacity) best = at;
    }
    if (best == of.count) continue;
    const Token token = of.tokens[best];
    remove(of, best);
    return token;
  }
  return std::nullopt;
}

// A slot has one region at a time: whatever is said of a later generation ends the earlier ones.
bool TokenCache::remove_outdated(std::uint64_t region) {
  for (Class& of : store_->classes) {
    for (std::size_t i = 0; i < of.count; ++i) {
      if (!same_slot(of.tokens[i].region, region) || of.tokens[i].region > region) continue;
      remove(of, i);
      return true;  // no slot has two tokens here
    }
  }
  return false;
}

bool TokenCache::drop(std::uint64_t region) {
  if (RegionId::unpack(region).generation == 0) return false;
  remember(region);
  return remove_outdated(region);
}

}  // namespace weir::token
