// The cache of tokens under operations in any order, beside a plain list.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "base/check.h"
#include "token/dice_testing.h"
#include "token/region_id.h"
#include "token/token_cache.h"

namespace weir::token {

class TokenCacheModel {
 public:
  explicit TokenCacheModel(Dice& dice) : dice_(dice) {}

  void step() {
    now_ = now_ + Duration(static_cast<std::int64_t>(dice_.below(10)));
    switch (dice_.below(8)) {
      case 0:
      case 1:
      case 2:
      case 3:
        put();
        break;
      case 4:
      case 5:
        take();
        break;
      case 6:
        drop();
        break;
      default:
        if (dice_.one_in(16)) {
          cache_.clear();
          tokens_.clear();
          heard_.clear();
        }
        break;
    }
    WEIR_CHECK(cache_.size() <= TokenCache::kMaxTokens * kTokenClasses, "more tokens than the bound");
    WEIR_CHECK(cache_.size() >= usable(), "a usable token is missing");
  }
  std::uint64_t taken() const { return taken_; }

 private:
  // Fewer slots than the cache remembers, so that it never forgets one.
  static constexpr std::uint64_t kSlots = 60;
  static_assert(kSlots < TokenCache::kMaxRemembered);

  std::uint64_t any_region() {
    return RegionId{static_cast<std::uint32_t>(dice_.below(kSlots)), dice_.below(50)}.packed();
  }
  static std::uint32_t slot_of(std::uint64_t region) { return RegionId::unpack(region).slot; }
  std::size_t usable() const {
    return static_cast<std::size_t>(
        std::count_if(tokens_.begin(), tokens_.end(), [&](const Token& one) { return one.usable_until > now_; }));
  }
  // Of a slot, up to this generation.
  bool remove_outdated(std::uint64_t region) {
    return std::erase_if(tokens_, [&](const Token& one) {
             return slot_of(one.region) == slot_of(region) && one.region <= region;
           }) != 0;
  }

  void put() {
    const Token token{.region = any_region(),
                      .capacity = dice_.one_in(8) ? dice_.below(3'000'000) : kSmallestToken << dice_.below(5),
                      .usable_until = now_ + Duration(static_cast<std::int64_t>(dice_.below(200)))};
    const TokenCache::Put result = cache_.put(token, now_);
    if (RegionId::unpack(token.region).generation == 0 || token.capacity == 0) {
      WEIR_CHECK(result == TokenCache::Put::useless, "no region or no bytes");
      return;
    }
    std::uint64_t& heard = heard_[slot_of(token.region)];
    if (token.region <= heard) {
      WEIR_CHECK(result == TokenCache::Put::known, "a token was taken twice");
      return;
    }
    heard = token.region;
    remove_outdated(token.region);
    if (token.usable_until <= now_) {
      WEIR_CHECK(result == TokenCache::Put::useless, "no time left");
      return;
    }
    const auto of_class = std::count_if(tokens_.begin(), tokens_.end(), [&](const Token& one) {
      return one.usable_until > now_ && token_class_of(one.capacity) == token_class_of(token.capacity);
    });
    const bool full = static_cast<std::size_t>(of_class) == TokenCache::kMaxTokens;
    WEIR_CHECK(result == (full ? TokenCache::Put::full : TokenCache::Put::kept), "kept while there is room");
    if (!full) tokens_.push_back(token);
  }

  void take() {
    const std::uint64_t bytes = dice_.below(dice_.one_in(4) ? 3'000'000 : kLargestToken);
    const auto token = cache_.take(bytes, now_);
    auto best = tokens_.end();
    for (auto one = tokens_.begin(); one != tokens_.end(); ++one) {
      if (one->usable_until <= now_ || one->capacity < bytes) continue;
      if (best == tokens_.end() || one->capacity <= best->capacity) best = one;
    }
    WEIR_CHECK(token.has_value() == (best != tokens_.end()), "a token is given if there is one that fits");
    if (!token) return;
    WEIR_CHECK(token->region == best->region, "the smallest, and of these the last");
    tokens_.erase(best);
    ++taken_;
  }

  void drop() {
    const std::uint64_t region = any_region();
    const bool dropped = cache_.drop(region);
    if (RegionId::unpack(region).generation == 0) {
      WEIR_CHECK(!dropped, "no region was dropped");
      return;
    }
    std::uint64_t& heard = heard_[slot_of(region)];
    heard = std::max(heard, region);
    const std::size_t usable_before = usable();
    const bool was_there = remove_outdated(region);
    WEIR_CHECK(was_there || !dropped, "a token was dropped that was not there");
    WEIR_CHECK(dropped || usable() == usable_before, "a usable token was not dropped");
  }

  Dice& dice_;
  Instant now_{};
  TokenCache cache_;
  std::vector<Token> tokens_;                     // the oldest first; expired ones too
  std::map<std::uint32_t, std::uint64_t> heard_;  // the newest region of each slot
  std::uint64_t taken_ = 0;
};

}  // namespace weir::token
