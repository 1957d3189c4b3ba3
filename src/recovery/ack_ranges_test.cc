// What is acknowledged, and what is forgotten (docs/protocol.md, rule A-3).
#include "recovery/ack_ranges.h"

#include <gtest/gtest.h>

#include <set>

#include "base/random.h"

namespace weir::recovery {
namespace {

TEST(AckRanges, ExtendsOneRangeWhileNumbersComeInOrder) {
  AckRanges ranges;
  for (std::uint64_t number = 10; number < 1'000; ++number) EXPECT_TRUE(ranges.insert(number));
  ASSERT_EQ(ranges.size(), 1U);
  EXPECT_EQ(ranges[0], (PacketRange{10, 999}));
  EXPECT_EQ(ranges.largest(), 999U);
}

TEST(AckRanges, OpensAGapAndClosesIt) {
  AckRanges ranges;
  for (const std::uint64_t number : {1, 2, 5, 4}) EXPECT_TRUE(ranges.insert(number));
  ASSERT_EQ(ranges.size(), 2U);
  EXPECT_EQ(ranges[0], (PacketRange{4, 5}));
  EXPECT_EQ(ranges[1], (PacketRange{1, 2}));
  EXPECT_TRUE(ranges.insert(3));
  ASSERT_EQ(ranges.size(), 1U);
  EXPECT_EQ(ranges[0], (PacketRange{1, 5}));
}

TEST(AckRanges, TellsADuplicate) {
  AckRanges ranges;
  EXPECT_TRUE(ranges.insert(7));
  EXPECT_FALSE(ranges.insert(7));
  EXPECT_TRUE(ranges.insert(9));
  EXPECT_FALSE(ranges.insert(7));
  EXPECT_FALSE(ranges.insert(9));
}

TEST(AckRanges, DropsTheOldestRangeAtItsBoundAndDoesNotTakeItBack) {
  AckRanges ranges;
  for (std::uint64_t i = 0; i < AckRanges::kMaxRanges + 5; ++i) EXPECT_TRUE(ranges.insert(i * 2));
  EXPECT_EQ(ranges.size(), AckRanges::kMaxRanges);
  EXPECT_EQ(ranges[AckRanges::kMaxRanges - 1].first, 10U);
  EXPECT_FALSE(ranges.insert(8));
  EXPECT_EQ(ranges.size(), AckRanges::kMaxRanges);
  for (std::uint64_t i = 6; i < 20; ++i) EXPECT_TRUE(ranges.insert(i * 2 + 1));
  EXPECT_LT(ranges.size(), AckRanges::kMaxRanges);
  EXPECT_FALSE(ranges.insert(8)) << "room alone does not bring a forgotten number back";
}

TEST(AckRanges, ForgetsWhatThePeerKnowsToBeAcknowledged) {
  AckRanges ranges;
  for (const std::uint64_t number : {1, 2, 3, 6, 7, 8, 9}) ranges.insert(number);
  ranges.prune_below(8);
  ASSERT_EQ(ranges.size(), 1U);
  EXPECT_EQ(ranges[0], (PacketRange{8, 9}));
  EXPECT_FALSE(ranges.insert(2));
  ranges.prune_below(100);
  EXPECT_TRUE(ranges.empty());
  EXPECT_TRUE(ranges.insert(100));
}

TEST(AckRanges, AgreesWithASetUnderRandomArrivals) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    Random random{seed};
    AckRanges ranges;
    std::set<std::uint64_t> model;
    std::uint64_t front = 0;
    std::uint64_t floor = 0;
    for (int step = 0; step < 3'000; ++step) {
      front += random.below(seed % 3 == 0 ? 5 : 2);
      const std::uint64_t number = front - std::min(front, random.below(40));
      const bool inserted = ranges.insert(number);
      if (inserted) {
        ASSERT_GE(number, floor);
        ASSERT_TRUE(model.insert(number).second) << number;
      } else if (number >= floor) {
        const bool older_than_kept = ranges.size() == AckRanges::kMaxRanges && number < ranges.ascending()[0].first;
        ASSERT_TRUE(model.contains(number) || older_than_kept) << number;
      }
      if (random.chance(0.01)) {
        floor = std::max(floor, front - std::min(front, random.below(100)));
        ranges.prune_below(floor);
        model.erase(model.begin(), model.lower_bound(floor));
      }
      if (ranges.empty()) {
        ASSERT_TRUE(model.empty());
        continue;
      }
      // What the bound dropped is the oldest.
      const std::uint64_t kept_from = ranges.ascending()[0].first;
      if (!model.empty() && *model.begin() < kept_from) {
        ASSERT_EQ(ranges.size(), AckRanges::kMaxRanges);
        model.erase(model.begin(), model.lower_bound(kept_from));
        floor = std::max(floor, *model.begin());
      }
      std::uint64_t total = 0;
      for (std::size_t i = 0; i < ranges.size(); ++i) {
        ASSERT_LE(ranges[i].first, ranges[i].last);
        if (i != 0) {
          ASSERT_LT(ranges[i].last + 1, ranges[i - 1].first);
        }
        total += ranges[i].last - ranges[i].first + 1;
      }
      ASSERT_EQ(total, model.size());
      ASSERT_EQ(ranges.largest(), *model.rbegin());
      ASSERT_EQ(ranges.contains(number), model.contains(number));
    }
  }
}

}  // namespace
}  // namespace weir::recovery
