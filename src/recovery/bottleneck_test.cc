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
  double dropped = 0;          // of what was sent
  double used = 0;             // of the link
  double least_over_most = 0;  // of what the senders delivered
};

// After two seconds in which the senders find the link.
Shares measure(const LinkOptions& options, std::size_t senders, std::uint64_t seed) {
  SharedLinkRun run(options, senders, seed);
  // Each one sees the link without a queue once.
  for (std::size_t i = 0; i < senders; ++i) run.sender(i).budget = 0;
  for (std::size_t i = 0; i < senders; ++i) {
    run.sender(i).budget = 4 * options.packet_bytes;
    run.run_for(5ms);
  }
  for (std::size_t i = 0; i < senders; ++i) run.sender(i).budget = ~std::uint64_t{0};
  run.run_for(2s);
  const SenderReport before = total(run);
  run.run_for(4s);
  const SenderReport after = total(run);
  std::uint64_t least = ~std::uint64_t{0};
  std::uint64_t most = 0;
  for (std::size_t i = 0; i < run.size(); ++i) {
    least = std::min(least, run.sender(i).report.delivered);
    most = std::max(most, run.sender(i).report.delivered);
  }
  return {
      .dropped = static_cast<double>(after.dropped - before.dropped) / static_cast<double>(after.sent - before.sent),
      .used =
          static_cast<double>(after.delivered - before.delivered) / (4.0 * static_cast<double>(options.bytes_per_s)),
      .least_over_most = static_cast<double>(least) / static_cast<double>(most)};
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

TEST(Bottleneck, KeepsTheQueueShort) {
  LinkOptions options;
  options.queue_bytes = 1 << 20;
  SharedLinkRun run(options, 1, 1);
  run.run_for(1s);
  run.forget_longest_queue();
  run.run_for(4s);
  // A millisecond, of 33 that the queue holds.
  EXPECT_LT(run.longest_queue(), options.bytes_per_s / 1'000);
}

TEST(Bottleneck, FourSumsShareALinkWithoutMuchLoss) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    const Shares shares = measure({}, 4, seed);
    EXPECT_LT(shares.dropped, 0.01) << seed;
    EXPECT_GT(shares.used, 0.95) << seed;
    EXPECT_GT(shares.least_over_most, 0.1) << seed;
  }
}

TEST(Bottleneck, ManySumsShareALink) {
  const Shares thirty = measure({}, 30, 1);
  EXPECT_LT(thirty.dropped, 0.02);
  EXPECT_GT(thirty.used, 0.95);
  const Shares hundred = measure({}, 100, 1);
  EXPECT_LT(hundred.dropped, 0.10);
  EXPECT_GT(hundred.used, 0.95);
}

// Each has a quarter of what takes a second, and those that end first leave the link to the others.
TEST(Bottleneck, OthersTakeWhatACompetitorLeaves) {
  LinkOptions options;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    SharedLinkRun run(options, 4, seed);
    run.run_for(500ms);
    for (std::size_t i = 0; i < run.size(); ++i) run.sender(i).budget = options.bytes_per_s / 4;
    run.run_for(1'100ms);
    for (std::size_t i = 0; i < run.size(); ++i) {
      EXPECT_LT(run.sender(i).budget, options.packet_bytes) << "sender " << i << ", seed " << seed;
    }
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

// A sender of which each packet is known at once.
struct Echo {
  explicit Echo(Bottleneck::Options options = {}) : model(options) {}
  // So many bytes wait in the queue for so long; false: they are lost.
  void round(std::uint64_t bytes, Duration rtt, bool delivered = true) {
    const Instant sent_at = now;
    for (int part = 0; part < 8; ++part) {
      const Bottleneck::Stamp stamp = model.on_sent(bytes / 8, sent_at);
      if (part == 0) now = now + rtt;
      if (delivered) {
        model.on_outcome(
            {.delivered_bytes = bytes / 8, .left_bytes = bytes / 8, .newest = stamp, .rtt = rtt, .prompt_rtt = rtt},
            now);
      } else {
        model.on_outcome({.left_bytes = bytes / 8, .lost_bytes = bytes / 8, .lost_packets = 1, .lost_sent_at = sent_at},
                         now);
      }
    }
    now = now + 1us;
  }
  Bottleneck model;
  Instant now{1'000'000'000};
};

TEST(Bottleneck, DelayAloneLeavesSomethingToSend) {
  Echo echo;
  for (int i = 0; i < 10; ++i) echo.round(echo.model.window(), 100us);
  for (int i = 0; i < 300; ++i) echo.round(echo.model.window(), 10ms);
  const auto least = static_cast<std::uint64_t>(Bottleneck::kLosslessWindow);
  EXPECT_GE(echo.model.window(), least);
  EXPECT_LT(echo.model.window(), least + least / 8);
}

TEST(Bottleneck, DelayAndLossesLeaveLessThanAPacketWhichIsPaced) {
  Echo echo;
  for (int i = 0; i < 10; ++i) echo.round(echo.model.window(), 100us);
  for (int i = 0; i < 300; ++i) echo.round(std::max<std::uint64_t>(echo.model.window(), 8), 10ms, i % 10 != 0);
  const auto& model = echo.model;
  EXPECT_LT(model.window(), Bottleneck::Options{}.packet_bytes / 4);
  EXPECT_GT(model.window(), 0u);
  // One window in a round trip, or a packet in 23 ms.
  const double window_per_s =
      static_cast<double>(model.window()) * 1e9 / static_cast<double>(model.round_time().count());
  EXPECT_LE(static_cast<double>(model.pacing_rate()), std::max(64'000.0, 1.1 * window_per_s));
}

TEST(Bottleneck, GrowsAgainWhenTheQueueIsShort) {
  Echo echo;
  for (int i = 0; i < 10; ++i) echo.round(echo.model.window(), 100us);
  for (int i = 0; i < 300; ++i) echo.round(echo.model.window(), 10ms);
  for (int i = 0; i < 100; ++i) echo.round(echo.model.window(), 100us);
  EXPECT_GT(echo.model.window(), 20u * Bottleneck::Options{}.packet_bytes);
}

TEST(Bottleneck, WorksOnWhenStampsWrapAround) {
  Echo early;
  Echo late({.first_stamp = 0xffff'ffff - 40});
  for (int i = 0; i < 100; ++i) {
    for (Echo* const echo : {&early, &late}) echo->round(echo->model.window(), i < 50 ? 100us : 1ms);
  }
  EXPECT_LT(late.model.last_stamp(), 1'000u);
  EXPECT_EQ(late.model.window(), early.model.window());
  EXPECT_FALSE(late.model.is_searching());
}

TEST(Bottleneck, MarksMakeTheWindowSmaller) {
  Echo echo;
  for (int i = 0; i < 4; ++i) echo.round(echo.model.window(), 100us);
  const std::uint64_t window = echo.model.window();
  for (int i = 0; i < 20; ++i) {
    echo.model.on_marked(echo.model.window());
    echo.round(echo.model.window(), 100us);
  }
  EXPECT_FALSE(echo.model.is_searching());
  EXPECT_LT(echo.model.window(), window / 3);
}

// So that senders that see the same marks get the same, whatever they had before.
TEST(Bottleneck, AFewMarksLeaveEqualWindowsToUnequalSenders) {
  Echo small;
  Echo large({.initial_window = 1024 * 1024});
  for (int i = 0; i < 200; ++i) {
    for (Echo* const echo : {&small, &large}) {
      echo->model.on_marked(echo->model.window() / 8);
      echo->round(echo->model.window(), 100us);
    }
  }
  // Eight packets more in each round, and half of an eighth less.
  const std::uint64_t expected = 128 * Bottleneck::Options{}.packet_bytes;
  for (const Echo* const echo : {&small, &large}) {
    EXPECT_GT(echo->model.window(), expected * 9 / 10);
    EXPECT_LT(echo->model.window(), expected * 11 / 10);
  }
}

TEST(Bottleneck, MarksInTheFirstRoundLeaveTheFirstWindow) {
  Echo echo;
  for (int i = 0; i < 2; ++i) {
    echo.model.on_marked(8 * 1'024);
    echo.round(32 * 1'024, 100us);  // half of the window
  }
  EXPECT_FALSE(echo.model.is_searching());
  EXPECT_GT(echo.model.window(), Bottleneck::Options{}.initial_window * 9 / 10);
}

TEST(Bottleneck, BeginsWithWhatTheInterfaceSendsInOneAndAHalfRoundTrips) {
  constexpr std::uint64_t kRate = 25'000'000'000 / 8;
  Echo told({.nic_rate = kRate});
  EXPECT_EQ(told.model.window(), Bottleneck::Options{}.initial_window);  // no round trip is known
  const auto hear = [&](Duration rtt) {
    for (int i = 0; i < 100; ++i) {
      const Bottleneck::Stamp stamp = told.model.on_sent(100, told.now);
      told.now = told.now + rtt;
      told.model.on_outcome(
          {.delivered_bytes = 100, .left_bytes = 100, .newest = stamp, .rtt = rtt, .prompt_rtt = rtt, .path_rtt = rtt},
          told.now);
      told.model.on_nothing_to_send();
    }
  };
  hear(10us);
  EXPECT_EQ(told.model.window(), Bottleneck::Options{}.initial_window);
  hear(40us);
  EXPECT_GT(told.model.window(), kRate * 55 / 1'000'000);
  EXPECT_LE(told.model.window(), kRate * 60 / 1'000'000);
  hear(1ms);
  EXPECT_EQ(told.model.window(), Bottleneck::kLargestFirstWindow);
}

TEST(Bottleneck, AQueueOfOthersDoesNotShrinkAWindowThatLimitsNothing) {
  Echo echo;
  for (int i = 0; i < 4; ++i) echo.round(echo.model.window(), 100us);
  const std::uint64_t window = echo.model.window();
  for (int i = 0; i < 100; ++i) {
    echo.model.on_nothing_to_send();
    echo.round(1'600, 5ms);
    echo.model.on_nothing_to_send();
  }
  EXPECT_EQ(echo.model.window(), window);
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
