// The round-trip estimate (docs/protocol.md, rule A-5).
#include "recovery/rtt.h"

#include <gtest/gtest.h>

namespace weir::recovery {
namespace {

using namespace std::chrono_literals;

TEST(RttEstimator, AssumesTheInitialRoundTripUntilTheFirstSample) {
  RttEstimator rtt{{.initial = 5ms, .granularity = 1us}};
  EXPECT_FALSE(rtt.has_sample());
  EXPECT_EQ(rtt.smoothed(), 5ms);
  EXPECT_EQ(rtt.pto(1ms), 5ms + 10ms + 1ms);
  rtt.on_sample(100us, 50us, Instant{7});
  EXPECT_TRUE(rtt.has_sample());
  EXPECT_EQ(rtt.smoothed(), 100us);
  EXPECT_EQ(rtt.variance(), 50us);
  EXPECT_EQ(rtt.minimum(), 100us);
  EXPECT_EQ(rtt.first_sample_at(), Instant{7});
}

TEST(RttEstimator, TakesThePeersDelayOffButNotBelowTheMinimum) {
  RttEstimator rtt;
  rtt.on_sample(100us, 0us, Instant{});
  rtt.on_sample(300us, 200us, Instant{});
  EXPECT_EQ(rtt.smoothed(), 100us);
  rtt.on_sample(300us, 250us, Instant{});
  EXPECT_EQ(rtt.smoothed(), (7 * Duration{100us} + Duration{300us}) / 8);
  EXPECT_EQ(rtt.minimum(), 100us);
}

TEST(RttEstimator, ConvergesOnASteadyPathAndKeepsTheGranularity) {
  RttEstimator rtt{{.initial = 5ms, .granularity = 100us}};
  for (int i = 0; i < 200; ++i) rtt.on_sample(20us, 0us, Instant{});
  EXPECT_EQ(rtt.smoothed(), 20us);
  EXPECT_LT(rtt.variance(), 1us);
  EXPECT_EQ(rtt.pto(1ms), 20us + 100us + 1ms);
}

TEST(RttEstimator, SurvivesAClockThatDidNotMove) {
  RttEstimator rtt;
  rtt.on_sample(0us, 0us, Instant{});
  EXPECT_GT(rtt.smoothed(), 0ns);
}

}  // namespace
}  // namespace weir::recovery
