#include "buffer/range_allocator.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/random.h"

namespace weir::buffer {
namespace {

constexpr std::size_t kUnit = RangeAllocator::kUnit;

TEST(RangeAllocator, TakesTheSmallestRangeThatIsLargeEnough) {
  RangeAllocator ranges{16 * kUnit};
  ASSERT_EQ(ranges.take(4 * kUnit), 0u);
  ASSERT_EQ(ranges.take(kUnit), 4 * kUnit);
  ASSERT_EQ(ranges.take(2 * kUnit), 5 * kUnit);
  ASSERT_EQ(ranges.take(kUnit), 7 * kUnit);
  ranges.give_back(0, 4 * kUnit);
  ranges.give_back(5 * kUnit, 2 * kUnit);
  EXPECT_EQ(ranges.take(2 * kUnit), 5 * kUnit);
  EXPECT_EQ(ranges.take(3 * kUnit), 0u);
  EXPECT_EQ(ranges.take(9 * kUnit), std::nullopt);
}

TEST(RangeAllocator, NeighboursGrowTogetherAgain) {
  RangeAllocator ranges{3 * kUnit};
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(ranges.take(kUnit));
  EXPECT_EQ(ranges.take(kUnit), std::nullopt);
  ranges.give_back(0, kUnit);
  ranges.give_back(2 * kUnit, kUnit);
  EXPECT_EQ(ranges.free_ranges(), 2u);
  EXPECT_EQ(ranges.take(2 * kUnit), std::nullopt);
  ranges.give_back(kUnit, kUnit);
  EXPECT_EQ(ranges.free_ranges(), 1u);
  EXPECT_EQ(ranges.take(3 * kUnit), 0u);
}

TEST(RangeAllocator, NeverHandsOutAPageTwiceAndEndsWhole) {
  constexpr std::size_t kPages = 256;
  RangeAllocator ranges{kPages * kUnit};
  struct Taken {
    std::size_t offset, bytes;
  };
  std::vector<Taken> taken;
  std::vector<bool> used(kPages);
  Random random{1};
  for (int round = 0; round < 20'000; ++round) {
    if (taken.empty() || random.below(2) == 0) {
      const std::size_t pages = 1 + random.below(24);
      const auto offset = ranges.take(pages * kUnit);
      if (!offset) continue;
      for (std::size_t page = *offset / kUnit; page < *offset / kUnit + pages; ++page) {
        ASSERT_FALSE(used[page]);
        used[page] = true;
      }
      taken.push_back({*offset, pages * kUnit});
    } else {
      std::swap(taken[random.below(taken.size())], taken.back());
      const Taken last = taken.back();
      taken.pop_back();
      ranges.give_back(last.offset, last.bytes);
      for (std::size_t page = last.offset / kUnit; page < (last.offset + last.bytes) / kUnit; ++page) {
        used[page] = false;
      }
    }
  }
  for (const Taken& one : taken) ranges.give_back(one.offset, one.bytes);
  EXPECT_EQ(ranges.free_bytes(), kPages * kUnit);
  EXPECT_EQ(ranges.free_ranges(), 1u);
}

TEST(RangeAllocatorDeath, ARangeThatIsGivenBackTwiceIsOurOwnBug) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  RangeAllocator ranges{4 * kUnit};
  ASSERT_TRUE(ranges.take(2 * kUnit));
  ranges.give_back(0, kUnit);
  EXPECT_DEATH(ranges.give_back(0, kUnit), "given back once");
}

}  // namespace
}  // namespace weir::buffer
