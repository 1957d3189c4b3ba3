// Tokens that a sender keeps (docs/protocol.md, rule G-7).
#include "token/token_cache.h"

#include <gtest/gtest.h>

#include "token/region_id.h"

namespace weir::token {
namespace {

using namespace std::chrono_literals;
using Put = TokenCache::Put;

constexpr Instant kNow{1'000};
constexpr Instant kLater{2'000};

std::uint64_t region(std::uint32_t slot, std::uint64_t generation = 1) { return RegionId{slot, generation}.packed(); }

Put put(TokenCache& cache, std::uint64_t id, std::uint64_t capacity = kSmallestToken, Instant until = kLater) {
  return cache.put({.region = id, .capacity = capacity, .usable_until = until}, kNow);
}

std::uint64_t take(TokenCache& cache, std::uint64_t bytes, Instant now = kNow) {
  const auto token = cache.take(bytes, now);
  if (!token) return 0;
  EXPECT_GE(token->capacity, bytes);
  EXPECT_GT(token->usable_until, now);
  return token->region;
}

TEST(TokenClass, MessagesGetTheNextPowerOfTwoAndLargeOnesNone) {
  EXPECT_EQ(token_capacity(0), kSmallestToken);
  EXPECT_EQ(token_capacity(kSmallestToken), kSmallestToken);
  EXPECT_EQ(token_capacity(kSmallestToken + 1), 2 * kSmallestToken);
  EXPECT_EQ(token_capacity(kLargestToken), kLargestToken);
  EXPECT_EQ(token_capacity(kLargestToken + 1), 0u);
  EXPECT_EQ(token_capacity(~std::uint64_t{0}), 0u);
  EXPECT_EQ(kLargestToken, 1u << 20);
  for (std::size_t i = 0; i < kTokenClasses; ++i) {
    EXPECT_EQ(token_class_of(kSmallestToken << i), i);
    EXPECT_EQ(token_class_of((kSmallestToken << i) + 1), i);
  }
  EXPECT_EQ(token_class_of(1), 0u);
  EXPECT_EQ(token_class_of(~std::uint64_t{0}), kTokenClasses - 1);
}

TEST(TokenCache, TakesNoMemoryBeforeItsFirstToken) {
  TokenCache cache;
  EXPECT_FALSE(cache.has_memory());
  EXPECT_EQ(take(cache, 1), 0u);
  EXPECT_FALSE(cache.has_memory());
  EXPECT_EQ(put(cache, region(1)), Put::kept);
  EXPECT_TRUE(cache.has_memory());
  cache.clear();
  EXPECT_FALSE(cache.has_memory());
}

TEST(TokenCache, GivesATokenOnce) {
  TokenCache cache;
  ASSERT_EQ(put(cache, region(1)), Put::kept);
  EXPECT_EQ(take(cache, 100), region(1));
  EXPECT_EQ(take(cache, 100), 0u);
  EXPECT_TRUE(cache.empty());
}

TEST(TokenCache, TheSmallestThatFitsGoesFirst) {
  TokenCache cache;
  put(cache, region(1), kLargestToken);
  put(cache, region(2), 2 * kSmallestToken);
  put(cache, region(3), kSmallestToken);
  EXPECT_EQ(take(cache, kSmallestToken + 1), region(2));
  EXPECT_EQ(take(cache, kSmallestToken + 1), region(1));
  EXPECT_EQ(take(cache, kSmallestToken + 1), 0u);
  EXPECT_EQ(take(cache, kSmallestToken), region(3));
}

// A receiver may grant whatever size it likes.
TEST(TokenCache, OddSizesWithinAClassAreToldApart) {
  TokenCache cache;
  put(cache, region(1), kSmallestToken + 500);
  put(cache, region(2), kSmallestToken + 100);
  put(cache, region(3), kSmallestToken);
  put(cache, region(4), 10);
  put(cache, region(5), ~std::uint64_t{0});
  EXPECT_EQ(take(cache, kSmallestToken + 101), region(1));
  EXPECT_EQ(take(cache, kSmallestToken + 1), region(2));
  EXPECT_EQ(take(cache, 5), region(4));
  EXPECT_EQ(take(cache, 50 * kLargestToken), region(5));
}

TEST(TokenCache, OfEqualOnesTheLastComesFirst) {
  TokenCache cache;
  put(cache, region(1));
  put(cache, region(2));
  EXPECT_EQ(take(cache, 1), region(2));
  EXPECT_EQ(take(cache, 1), region(1));
}

TEST(TokenCache, ATokenIsNotUsedInTheSecondHalfOfItsLife) {
  EXPECT_EQ(Token::half_of_life(kNow, 10ms), kNow + 5ms);
  TokenCache cache;
  put(cache, region(1), kSmallestToken, kNow + 5ns);
  put(cache, region(2), kSmallestToken, kNow + 3ns);
  EXPECT_EQ(take(cache, 1, kNow + 3ns), region(1));
  put(cache, region(3), kSmallestToken, kNow + 5ns);
  EXPECT_EQ(take(cache, 1, kNow + 5ns), 0u);
  EXPECT_TRUE(cache.empty());
  EXPECT_EQ(put(cache, region(4), kSmallestToken, kNow), Put::useless);
}

TEST(TokenCache, AGrantThatArrivesTwiceIsOneToken) {
  TokenCache cache;
  EXPECT_EQ(put(cache, region(1, 5)), Put::kept);
  EXPECT_EQ(put(cache, region(1, 5)), Put::known);
  EXPECT_EQ(take(cache, 1), region(1, 5));
  EXPECT_EQ(put(cache, region(1, 5)), Put::known) << "used already";
  EXPECT_EQ(put(cache, region(1, 4)), Put::known) << "older";
  EXPECT_EQ(put(cache, region(1, 6)), Put::kept);
}

TEST(TokenCache, ALaterRegionOfASlotEndsTheEarlierOne) {
  TokenCache cache;
  put(cache, region(1, 5), kSmallestToken);
  EXPECT_EQ(put(cache, region(1, 6), kLargestToken), Put::kept);
  EXPECT_EQ(cache.size(), 1u);
  EXPECT_EQ(take(cache, 1), region(1, 6));
}

TEST(TokenCache, ARevokedTokenIsGoneEvenIfItIsStillOnItsWay) {
  TokenCache cache;
  put(cache, region(1));
  EXPECT_TRUE(cache.drop(region(1)));
  EXPECT_FALSE(cache.drop(region(1)));
  EXPECT_EQ(take(cache, 1), 0u);
  EXPECT_EQ(put(cache, region(1)), Put::known);
  EXPECT_FALSE(cache.drop(region(2, 9)));
  EXPECT_EQ(put(cache, region(2, 9)), Put::known);
  EXPECT_EQ(put(cache, region(2, 10)), Put::kept);
  EXPECT_FALSE(cache.drop(region(2, 9))) << "the later one stays";
  EXPECT_EQ(cache.size(), 1u);
}

TEST(TokenCache, WhatNamesNoRegionOrNoBytesIsUseless) {
  TokenCache cache;
  EXPECT_EQ(put(cache, 0), Put::useless);
  EXPECT_EQ(put(cache, region(5, 0)), Put::useless);
  EXPECT_EQ(put(cache, region(5), 0), Put::useless);
  EXPECT_FALSE(cache.drop(0));
  EXPECT_FALSE(cache.has_memory());
}

TEST(TokenCache, AClassIsBoundedAndOldOnesMakeRoom) {
  TokenCache cache;
  for (std::uint32_t i = 0; i < TokenCache::kMaxTokens; ++i) ASSERT_EQ(put(cache, region(i)), Put::kept);
  EXPECT_EQ(put(cache, region(100)), Put::full);
  EXPECT_EQ(put(cache, region(101), kLargestToken), Put::kept) << "another class";
  EXPECT_EQ(cache.put({region(102), kSmallestToken, kLater + 5ns}, kLater), Put::kept);
  EXPECT_EQ(cache.size(), 2u) << "expired ones are not in the way";
}

TEST(TokenCache, RemembersTheSlotsThatWereMentionedLast) {
  TokenCache cache;
  constexpr auto kCount = static_cast<std::uint32_t>(TokenCache::kMaxRemembered);
  for (std::uint32_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(put(cache, region(i)), Put::kept);
    ASSERT_EQ(take(cache, 1), region(i));
  }
  EXPECT_EQ(put(cache, region(0)), Put::known);
  EXPECT_EQ(put(cache, region(0, 2)), Put::kept);    // mentioned again
  EXPECT_EQ(put(cache, region(kCount)), Put::kept);  // slot 1 is forgotten for it
  EXPECT_EQ(put(cache, region(0, 2)), Put::known);
  EXPECT_EQ(put(cache, region(2)), Put::known);
  EXPECT_EQ(put(cache, region(1)), Put::kept);
}

TEST(TokenCache, ANewPathStartsFromNothing) {
  TokenCache cache;
  put(cache, region(1));
  cache.clear();
  EXPECT_FALSE(cache.has_memory());
  EXPECT_TRUE(cache.empty());
  EXPECT_EQ(put(cache, region(1)), Put::kept);
}

}  // namespace
}  // namespace weir::token
