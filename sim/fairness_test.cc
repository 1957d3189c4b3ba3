// How fair bulk flows are to each other at one bottleneck of 250 Mbit/s, in virtual time: exact for each seed. The
// bounds say what holds today, with a margin; docs/congestion.md has the like on real sockets.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>

#include "sim/fairness_run.h"

namespace weir::sim {
namespace {

using namespace std::chrono_literals;

constexpr FairnessPlan kNoDelay{};
constexpr FairnessPlan kTenMilliseconds{.latency = 1'250us, .queue_bytes = 305 * 1024};

FairnessPlan plan(FairnessPlan base, std::uint32_t flows, std::uint32_t paths = 1, Duration apart = Duration{0},
                  std::uint64_t seed = 1) {
  base.flows = flows;
  base.paths = paths;
  base.apart = apart;
  base.seed = seed;
  return base;
}

FairnessReport settle_and_run(const FairnessPlan& plan, Duration settle, Duration time) {
  FairnessRun run(plan);
  const FairnessReport before = run.run_for(settle);
  const FairnessReport report = run.run_for(time);
  std::printf(
      "%u flows, %u paths each: settling: Jain's index %.3f, dropped %.2f %%; then %.3f, one flow %.2f to %.2f "
      "of an equal share, link used %.3f, dropped %.2f %%\n",
      plan.flows, plan.paths, before.jain(), 100 * before.dropped_share(), report.jain(), report.least(), report.most(),
      report.link_used, 100 * report.dropped_share());
  EXPECT_EQ(run.failed(), 0u);
  return report;
}

TEST(FairnessReport, RatesWhatEachFlowGot) {
  const FairnessReport equal{.bytes = {5, 5, 5, 5}}, one_has_all{.bytes = {8, 0, 0, 0}};
  const FairnessReport report{.bytes = {1, 3}, .packets = 90, .drops = 10};
  EXPECT_DOUBLE_EQ(equal.jain(), 1);
  EXPECT_DOUBLE_EQ(one_has_all.jain(), 0.25);
  EXPECT_DOUBLE_EQ(report.least(), 0.5);
  EXPECT_DOUBLE_EQ(report.most(), 1.5);
  EXPECT_DOUBLE_EQ(report.dropped_share(), 0.1);
}

TEST(Fairness, IsTheSameUnderTheSameSeed) {
  const FairnessPlan two = plan(kNoDelay, 2);
  EXPECT_EQ(FairnessRun(two).run_for(300ms).bytes, FairnessRun(two).run_for(300ms).bytes);
}

TEST(Fairness, TwoFlowsHaveEqualSharesOfAShortQueueOneSecondAfterTheSecondCame) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    const FairnessReport report = settle_and_run(plan(kNoDelay, 2, 1, 1s, seed), 2s, 2s);
    EXPECT_GT(report.jain(), 0.95);
    EXPECT_GT(report.link_used, 0.97);
    EXPECT_LT(report.dropped_share(), 0.002);
  }
}

TEST(Fairness, TwoFlowsComeNearEachOtherOverALongRoundTrip) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    const FairnessReport report = settle_and_run(plan(kTenMilliseconds, 2, 1, 1s, seed), 2s, 2s);
    EXPECT_GT(report.least(), 0.25) << "they learn of each other's rate when they look for the shortest round trip";
    EXPECT_GT(report.link_used, 0.97);
    EXPECT_LT(report.dropped_share(), 0.012);
  }
}

TEST(Fairness, NoneOfFiftyFlowsStarves) {
  const FairnessReport report = settle_and_run(plan(kNoDelay, 50), 2s, 2s);
  EXPECT_GT(report.jain(), 0.8);
  EXPECT_GT(report.least(), 0.12);
  EXPECT_GT(report.link_used, 0.97);
  EXPECT_LT(report.dropped_share(), 0.3) << "fifty windows of two packets are three times what the queue holds";
}

TEST(Fairness, NoneOfFiftyFlowsStarvesOverALongRoundTrip) {
  const FairnessReport report = settle_and_run(plan(kTenMilliseconds, 50), 2s, 2s);
  EXPECT_GT(report.jain(), 0.85);
  EXPECT_GT(report.least(), 0.25);
  EXPECT_GT(report.link_used, 0.97);
  EXPECT_LT(report.dropped_share(), 0.08);
}

// The windows of the paths, which losses reduce, keep a full queue if the one that they share never limits them.
TEST(Fairness, TwoWindowsOfFourPathsEachShareALinkAndDropNothing) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    const FairnessReport report = settle_and_run(plan(kNoDelay, 2, 4, 1s, seed), 4s, 2s);
    EXPECT_GT(report.jain(), 0.97);
    EXPECT_GT(report.link_used, 0.97);
    EXPECT_EQ(report.drops, 0u);
  }
}

TEST(Fairness, NoneOfTwoWindowsOfFourPathsEachStarvesOverALongRoundTrip) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    const FairnessReport report = settle_and_run(plan(kTenMilliseconds, 2, 4, 1s, seed), 4s, 2s);
    EXPECT_GT(report.least(), 0.3);
    EXPECT_GT(report.link_used, 0.97);
    EXPECT_LT(report.dropped_share(), 0.001);
  }
}

}  // namespace
}  // namespace weir::sim
