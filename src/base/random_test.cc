#include "base/random.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>

namespace weir {
namespace {

TEST(Random, GivesTheSameStreamForTheSameSeed) {
  Random one(42), two(42), other(43);
  int equal_to_other = 0;
  for (int i = 0; i < 100; ++i) {
    const auto value = one.next();
    EXPECT_EQ(value, two.next());
    equal_to_other += value == other.next();
  }
  EXPECT_EQ(equal_to_other, 0);
}

TEST(Random, StaysBelowItsBoundAndReachesEveryValue) {
  Random random(7);
  std::array<int, 10> seen{};
  for (int i = 0; i < 10'000; ++i) {
    const auto value = random.below(seen.size());
    ASSERT_LT(value, seen.size());
    ++seen[value];
  }
  for (int count : seen) EXPECT_NEAR(count, 1'000, 200);
  EXPECT_EQ(random.below(0), 0u);
  EXPECT_EQ(random.below(1), 0u);
}

TEST(Random, ChanceFollowsItsProbability) {
  Random random(9);
  int hits = 0;
  for (int i = 0; i < 10'000; ++i) {
    hits += random.chance(0.25);
    EXPECT_FALSE(random.chance(0.0));
    EXPECT_TRUE(random.chance(1.0));
  }
  EXPECT_NEAR(hits, 2'500, 250);
}

}  // namespace
}  // namespace weir
