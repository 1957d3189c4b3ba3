#include "sim/histogram.h"

#include <gtest/gtest.h>

namespace weir::sim {
namespace {

TEST(LogHistogram, KnowsValuesOfAnySizeToWithinAThirtySecond) {
  for (std::uint64_t value : {0ull, 1ull, 63ull, 64ull, 1'000ull, 123'456ull, 1ull << 40}) {
    LogHistogram histogram;
    histogram.add(value, 99);
    histogram.add(2 * value + 1'000);
    EXPECT_GE(histogram.quantile(0.5), value);
    EXPECT_LE(histogram.quantile(0.5), value + value / 32);
    EXPECT_EQ(histogram.largest(), 2 * value + 1'000);
    EXPECT_EQ(histogram.quantile(1), histogram.largest());
  }
}

TEST(LogHistogram, FindsQuantilesOfManyValues) {
  LogHistogram histogram;
  for (std::uint64_t i = 1; i <= 1'000; ++i) histogram.add(i);
  EXPECT_NEAR(static_cast<double>(histogram.quantile(0.5)), 500, 500 / 32 + 1);
  EXPECT_NEAR(static_cast<double>(histogram.quantile(0.99)), 990, 990 / 32 + 1);
  EXPECT_EQ(histogram.cumulative().back().second, 1'000u);
  EXPECT_EQ(LogHistogram{}.quantile(0.99), 0u);
}

TEST(TimeSeries, KeepsSumsWhenItsSpansBecomeLonger) {
  TimeSeries series;
  series.start(Instant{1'000});
  std::uint64_t sum = 0;
  for (std::int64_t us = 0; us < 10'000; ++us) {
    series.add(Instant{1'000 + us * 1'000}, static_cast<std::uint64_t>(us % 17));
    sum += static_cast<std::uint64_t>(us % 17);
  }
  std::uint64_t kept = 0, count = 0;
  for (const TimeSeries::Span& span : series.spans()) {
    kept += span.sum;
    count += span.count;
    EXPECT_EQ(span.largest, 16u);
  }
  EXPECT_EQ(kept, sum);
  EXPECT_EQ(count, 10'000u);
  EXPECT_LE(series.spans().size(), 400u);
  EXPECT_GE(series.width() * static_cast<std::int64_t>(series.spans().size()), std::chrono::microseconds(9'999));
}

}  // namespace
}  // namespace weir::sim
