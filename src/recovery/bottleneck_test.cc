#include "recovery/bottleneck.h"

#include <gtest/gtest.h>

#include "recovery/link_testing.h"

namespace weir::recovery {
namespace {

using namespace std::chrono_literals;
using testing::LinkOptions;
using testing::SenderReport;
using testing::SharedLinkRun;

SenderReport total(SharedLinkRun& run) {
  SenderReport sum;
  for (std::size_t i = 0; i < run.size(); ++i) {
    const SenderReport& one = run.sender(i).report;
    sum.sent += one.sent;
    sum.delivered += one.delivered;
    sum.dropped += one.dropped;
  }
  return sum;
}

struct Shares {
  double dropped = 0;  // of what was sent
  double used = 0;     // of the link
};

// After two seconds in which the senders find the link.
Shares measure(const LinkOptions& options, std::size_t senders, std::uint64_t seed) {
  SharedLinkRun run(options, senders, seed);
  run.run_for(2s);
  const SenderReport before = total(run);
  run.run_for(4s);
  const SenderReport after = total(run);
  return {
      .dropped = static_cast<double>(after.dropped - before.dropped) / static_cast<double>(after.sent - before.sent),
      .used =
          static_cast<double>(after.delivered - before.delivered) / (4.0 * static_cast<double>(options.bytes_per_s))};
}

class BottleneckQueues : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(BottleneckQueues, OneSumOfPathsUsesTheLinkAndLosesLittle) {
  LinkOptions options;
  options.queue_bytes = GetParam();
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    const Shares shares = measure(options, 1, seed);
    EXPECT_LT(shares.dropped, 0.01) << seed;
    EXPECT_GT(shares.used, 0.95) << seed;
  }
}
INSTANTIATE_TEST_SUITE_P(Queues, BottleneckQueues, ::testing::Values(16 << 10, 64 << 10, 256 << 10, 1 << 20));

TEST(Bottleneck, FourSumsShareALinkWithoutMuchLoss) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    const Shares shares = measure({}, 4, seed);
    EXPECT_LT(shares.dropped, 0.01) << seed;
    EXPECT_GT(shares.used, 0.9) << seed;
  }
}

TEST(Bottleneck, FollowsALinkOfTenTimesTheRate) {
  LinkOptions options;
  options.bytes_per_s *= 10;
  options.queue_bytes *= 10;
  const Shares shares = measure(options, 1, 1);
  EXPECT_LT(shares.dropped, 0.01);
  EXPECT_GT(shares.used, 0.95);
}

TEST(Bottleneck, LossAtRandomDoesNotStarveIt) {
  LinkOptions options;
  options.random_loss = 0.001;
  EXPECT_GT(measure(options, 1, 1).used, 0.9);
  options.random_loss = 0.02;
  EXPECT_GT(measure(options, 1, 1).used, 0.4);
}

TEST(Bottleneck, LimitsNothingBeforeALossHasShownALimit) {
  Bottleneck model({});
  Instant now{1};
  for (int round = 0; round < 12; ++round) {
    const std::uint64_t bytes = model.window();
    const Bottleneck::Stamp stamp = model.on_sent(bytes, now);
    now = now + 100us;
    model.on_outcome(
        {.delivered_bytes = bytes, .left_bytes = bytes, .newest = stamp, .rtt = 100us, .prompt_rtt = 100us}, now);
    EXPECT_TRUE(model.is_searching());
    EXPECT_EQ(model.pacing_rate(), 0u);
    EXPECT_EQ(model.window(), 2 * bytes);
  }
}

TEST(Bottleneck, PausesOfTheApplicationDoNotSlowItDown) {
  SharedLinkRun run({}, 1, 1);
  run.run_for(2s);  // finds the link
  const std::uint64_t window = run.sender(0).model.window();
  for (int burst = 0; burst < 200; ++burst) {
    run.sender(0).budget = 5 * 1'500;
    run.run_for(20ms);
  }
  EXPECT_GT(run.sender(0).model.window(), window / 2);
}

TEST(Bottleneck, ForgetsItsLimitsWhenNothingIsLimitedForLong) {
  SharedLinkRun run({}, 1, 1);
  run.run_for(1s);
  ASSERT_FALSE(run.sender(0).model.is_searching());
  for (int burst = 0; burst < 400; ++burst) {
    run.sender(0).budget = 1'500;
    run.run_for(20ms);
  }
  EXPECT_TRUE(run.sender(0).model.is_searching());
}

}  // namespace
}  // namespace weir::recovery
