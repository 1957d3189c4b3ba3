#include "apps/weir/live_view.h"

#include <gtest/gtest.h>

namespace weir::command {
namespace {

TEST(LiveView, FillsABarByItsFraction) {
  EXPECT_EQ(bar(0, 4), "░░░░");
  EXPECT_EQ(bar(0.5, 4), "██░░");
  EXPECT_EQ(bar(7, 4), "████");
}

TEST(LiveView, ScalesASparklineToItsLargestValue) {
  EXPECT_EQ(sparkline({}), "");
  EXPECT_EQ(sparkline({0, 0}), "▁▁");
  EXPECT_EQ(sparkline({0, 50, 100}), "▁▅█");
}

}  // namespace
}  // namespace weir::command
