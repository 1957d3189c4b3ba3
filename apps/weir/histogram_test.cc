#include "apps/weir/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

namespace weir::command {
namespace {

TEST(Histogram, IsZeroWhenNothingWasRecorded) {
  Histogram histogram;
  EXPECT_EQ(histogram.count(), 0u);
  EXPECT_EQ(histogram.at(0.5), 0u);
  EXPECT_EQ(histogram.min(), 0u);
  EXPECT_EQ(histogram.max(), 0u);
  EXPECT_EQ(histogram.mean(), 0);
}

TEST(Histogram, IsExactForSmallValues) {
  Histogram histogram;
  for (std::uint64_t value = 1; value <= 100; ++value) histogram.record(value);
  EXPECT_EQ(histogram.at(0.0), 1u);
  EXPECT_EQ(histogram.at(0.5), 50u);
  EXPECT_EQ(histogram.at(0.99), 99u);
  EXPECT_EQ(histogram.at(1.0), 100u);
  EXPECT_DOUBLE_EQ(histogram.mean(), 50.5);
}

TEST(Histogram, IsWithinOnePercentOfTheSortedValues) {
  std::mt19937_64 dice(7);
  std::uniform_real_distribution<double> exponent(0, 40);
  Histogram histogram;
  std::vector<std::uint64_t> values;
  for (int i = 0; i < 20'000; ++i) {
    values.push_back(static_cast<std::uint64_t>(std::exp2(exponent(dice))));
    histogram.record(values.back());
  }
  std::ranges::sort(values);
  for (double fraction : {0.001, 0.1, 0.25, 0.5, 0.9, 0.99, 0.999}) {
    auto rank = static_cast<std::size_t>(std::ceil(fraction * static_cast<double>(values.size())));
    auto truth = static_cast<double>(values[rank - 1]);
    EXPECT_NEAR(static_cast<double>(histogram.at(fraction)), truth, 0.01 * truth + 1) << fraction;
  }
  EXPECT_EQ(histogram.max(), values.back());
  EXPECT_EQ(histogram.min(), values.front());
}

TEST(Histogram, CountsValuesBeyondItsRangeAsItsLargest) {
  Histogram histogram;
  histogram.record(UINT64_MAX);
  histogram.record(Histogram::kLargest);
  EXPECT_EQ(histogram.count(), 2u);
  EXPECT_EQ(histogram.at(0.5), Histogram::kLargest);
}

TEST(Histogram, MergedEqualsRecordedTogether) {
  Histogram first, second, both;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    std::uint64_t value = i * i * 977;
    (i % 3 == 0 ? first : second).record(value);
    both.record(value);
  }
  first.merge(second);
  EXPECT_EQ(first.count(), both.count());
  EXPECT_EQ(first.min(), both.min());
  EXPECT_EQ(first.max(), both.max());
  EXPECT_DOUBLE_EQ(first.mean(), both.mean());
  for (double fraction = 0; fraction <= 1; fraction += 0.01) EXPECT_EQ(first.at(fraction), both.at(fraction));
}

TEST(Histogram, ForgetsEverythingWhenCleared) {
  Histogram histogram;
  histogram.record(5);
  histogram.clear();
  EXPECT_EQ(histogram.count(), 0u);
  histogram.record(9);
  EXPECT_EQ(histogram.min(), 9u);
  EXPECT_EQ(histogram.max(), 9u);
}

TEST(Histogram, HasNoTimeOfNothing) {
  Histogram histogram;
  EXPECT_EQ(time_at(histogram, 0.5), "-");
  histogram.record(12'000);
  EXPECT_EQ(time_at(histogram, 0.5), "12.0 us");
}

}  // namespace
}  // namespace weir::command
