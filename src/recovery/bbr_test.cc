// A model of a path (docs/protocol.md, rules N-17 to N-21), on links in virtual time. The cases of the appendix "BBR
// Example Test Cases" of draft-ietf-ccwg-bbr-06 have their number (A.1 to A.22).
#include "recovery/bbr.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <vector>

#include "recovery/lone_link_testing.h"
#include "recovery/window_controller.h"

namespace weir::recovery {
namespace {

using namespace std::chrono_literals;
using testing::LoneLinkOptions;
using testing::LoneLinkRun;
using Phase = Bbr::Phase;

constexpr std::uint32_t kPacket = 1'472;
constexpr std::uint64_t kRate = 100'000'000 / 8;
constexpr Duration kRtt = 40ms;
constexpr std::uint64_t kBandwidthDelay = kRate / 25;

// One path with a model, by default over 100 Mbit/s and 40 ms, with a queue of one bandwidth-delay product.
class BbrTest : public ::testing::Test {
 protected:
  void make(LoneLinkOptions options = {.bytes_per_s = kRate, .queue_bytes = kBandwidthDelay, .base_rtt = kRtt}) {
    run = std::make_unique<LoneLinkRun>(options, 1);
    model = &add();
  }
  Bbr& add() {
    const Bbr::Options options{.mtu = kPacket, .round_trip = run->link.base_rtt, .began_at = run->now()};
    return run->add(std::make_unique<Bbr>(options, run->random()));
  }
  void add_window() { run->add(std::make_unique<WindowController>(WindowController::Options{.mtu = kPacket})); }

  LoneLinkRun::Path& path() { return run->path(0); }
  std::uint64_t in_flight() { return path().loss.bytes_in_flight(); }
  bool reaches(Phase phase, Duration at_most) {
    return run->run_until([&] { return model->phase() == phase; }, at_most);
  }
  bool leaves(Phase phase, Duration at_most) {
    return run->run_until([&] { return model->phase() != phase; }, at_most);
  }
  // The application has so much for each interval. Returns true once `is_done`.
  template <class Done>
  bool trickle(std::uint64_t bytes, Duration interval, Duration time, Done is_done) {
    for (Duration passed{}; passed < time; passed += interval) {
      path().budget = bytes;
      if (run->run_until(is_done, interval)) return true;
    }
    return false;
  }
  double share_in(Duration time) { return run->rate_in(0, time) / static_cast<double>(run->link.bytes_per_s); }
  double dropped_in(Duration time) {
    const auto sent = path().sent, dropped = path().dropped;
    run->run_for(time);
    return static_cast<double>(path().dropped - dropped) / static_cast<double>(path().sent - sent);
  }

  std::unique_ptr<LoneLinkRun> run;
  Bbr* model = nullptr;
};

// ---- startup and drain ----

TEST_F(BbrTest, FindsTheRateInFewRoundTripsAndThenDrains) {  // A.1
  make({.bytes_per_s = kRate, .queue_bytes = 10 * kBandwidthDelay, .base_rtt = kRtt});
  ASSERT_TRUE(leaves(Phase::startup, 15 * kRtt));
  EXPECT_EQ(model->phase(), Phase::drain);
  EXPECT_NEAR(static_cast<double>(model->maximum_rate()), kRate, 0.02 * kRate);
  EXPECT_EQ(path().dropped, 0U);
}

TEST_F(BbrTest, EndsStartupOnLossesThoughTheApplicationSendsLittle) {  // A.2
  make();
  EXPECT_FALSE(trickle(40 * kPacket, kRtt, 20 * kRtt, [&] { return model->phase() != Phase::startup; }));
  run->link.random_loss = 0.2;
  EXPECT_TRUE(trickle(40 * kPacket, kRtt, 10 * kRtt, [&] { return model->phase() != Phase::startup; }));
}

TEST_F(BbrTest, StaysInStartupWhileTheApplicationSendsLittleAndNothingIsLost) {  // A.7
  make();
  EXPECT_FALSE(trickle(40 * kPacket, kRtt, 100 * kRtt, [&] { return model->phase() != Phase::startup; }));
}

TEST_F(BbrTest, DrainsUntilAnEmptyLinkHoldsWhatIsInFlight) {  // A.3
  make({.bytes_per_s = kRate, .queue_bytes = 10 * kBandwidthDelay, .base_rtt = kRtt});
  ASSERT_TRUE(reaches(Phase::drain, 15 * kRtt));
  EXPECT_GT(in_flight(), kBandwidthDelay * 3 / 2);
  EXPECT_LT(model->pacing_rate(), model->maximum_rate() * 6 / 10);
  ASSERT_TRUE(leaves(Phase::drain, 5 * kRtt));
  EXPECT_LE(in_flight(), kBandwidthDelay * 102 / 100);
}

TEST_F(BbrTest, DrainsForAFewRoundTripsOnly) {  // A.4
  make({.bytes_per_s = kRate, .queue_bytes = 10 * kBandwidthDelay, .base_rtt = kRtt});
  ASSERT_TRUE(reaches(Phase::drain, 15 * kRtt));
  run->link.bytes_per_s = kRate / 4;
  ASSERT_TRUE(leaves(Phase::drain, 30 * kRtt));
  EXPECT_GT(in_flight(), kBandwidthDelay * 102 / 100) << "it did not wait for the queue";
}

TEST_F(BbrTest, LeavesStartupWhenAShallowQueueOverflows) {
  make({.bytes_per_s = kRate, .queue_bytes = kBandwidthDelay / 4, .base_rtt = kRtt});
  ASSERT_TRUE(leaves(Phase::startup, 15 * kRtt));
  EXPECT_NE(model->bounds().high, CongestionBounds::kNone);
  EXPECT_GT(model->bounds().high, kBandwidthDelay * 8 / 10);
}

// ---- the cycle ----

TEST_F(BbrTest, EndsAProbeThatBringsNothing) {  // A.5
  make({.bytes_per_s = kRate, .queue_bytes = 10 * kBandwidthDelay, .base_rtt = kRtt});
  ASSERT_TRUE(reaches(Phase::up, 10s));
  ASSERT_TRUE(leaves(Phase::up, 10 * kRtt));
  EXPECT_EQ(model->phase(), Phase::down);
  EXPECT_EQ(path().dropped, 0U);
}

TEST_F(BbrTest, EndsAProbeThatLosesMuch) {  // A.6, A.21
  make();
  ASSERT_TRUE(reaches(Phase::up, 10s));
  run->link.random_loss = 0.3;
  ASSERT_TRUE(leaves(Phase::up, 3 * kRtt));
  EXPECT_EQ(model->phase(), Phase::down);
  EXPECT_LT(model->bounds().high, 2 * kBandwidthDelay);
}

TEST_F(BbrTest, SlowsDownAfterAProbeUntilTheQueueIsEmpty) {  // A.8
  make();
  ASSERT_TRUE(reaches(Phase::up, 10s));
  ASSERT_TRUE(reaches(Phase::down, 2s));
  run->run_until([&] { return model->pacing_rate() < model->maximum_rate(); }, kRtt);
  EXPECT_NEAR(static_cast<double>(model->pacing_rate()), 0.9 * 0.99 * static_cast<double>(model->maximum_rate()), 1e5);
  ASSERT_TRUE(leaves(Phase::down, 2s));
  EXPECT_EQ(model->phase(), Phase::cruise);
  EXPECT_LE(in_flight(), kBandwidthDelay * 102 / 100);
}

TEST_F(BbrTest, ProbesAgainThoughTheQueueDidNotBecomeEmpty) {  // A.9
  make({.bytes_per_s = kRate, .queue_bytes = 10 * kBandwidthDelay, .base_rtt = kRtt});
  ASSERT_TRUE(reaches(Phase::up, 10s));
  ASSERT_TRUE(reaches(Phase::down, 2s));
  run->link.bytes_per_s = kRate * 85 / 100;
  ASSERT_TRUE(leaves(Phase::down, 4s));
  EXPECT_EQ(model->phase(), Phase::refill);
}

TEST_F(BbrTest, EmptiesTheQueueNowAndThenToSeeTheShortestRoundTrip) {  // A.10
  make();
  ASSERT_TRUE(reaches(Phase::probe_rtt, 7s));
  const Instant began = run->now();
  run->run_for(3 * kRtt);
  EXPECT_LE(in_flight(), kBandwidthDelay * 6 / 10);
  ASSERT_TRUE(leaves(Phase::probe_rtt, 2s));
  EXPECT_GE(run->now() - began, 200ms);
  EXPECT_EQ(model->phase(), Phase::cruise);
  EXPECT_FALSE(reaches(Phase::probe_rtt, 4s)) << "not again for five seconds";
}

TEST_F(BbrTest, TakesAnIdleTimeForAnEmptyQueue) {  // A.11
  make();
  ASSERT_TRUE(reaches(Phase::cruise, 5s));
  path().budget = 0;
  run->run_for(8s);
  path().budget = LoneLinkRun::kEndless;
  EXPECT_FALSE(reaches(Phase::probe_rtt, 2s));
}

TEST_F(BbrTest, ReturnsToStartupAfterLookingForTheShortestRoundTrip) {  // A.20
  make();
  const auto is_probing = [&] { return model->phase() == Phase::probe_rtt; };
  ASSERT_TRUE(trickle(10 * kPacket, 5ms, 10s, is_probing)) << "something is always in flight";
  ASSERT_TRUE(trickle(10 * kPacket, 5ms, 2s, [&] { return !is_probing(); }));
  EXPECT_EQ(model->phase(), Phase::startup);
}

// ---- samples ----

TEST_F(BbrTest, KeepsALinkBusyWhoseAcknowledgementsComeInBursts) {  // A.12, A.13
  make({.bytes_per_s = kRate, .queue_bytes = 4 * kBandwidthDelay, .base_rtt = 20ms, .ack_gather = 15ms});
  run->run_for(3s);
  EXPECT_GT(share_in(4s), 0.9);
}

TEST_F(BbrTest, PacesASlowLinkOfLessThanAPacketPerRoundTrip) {  // A.14
  make({.bytes_per_s = 125'000, .queue_bytes = 64'000, .base_rtt = 1ms});
  run->run_for(3s);
  EXPECT_GT(share_in(4s), 0.95);
  EXPECT_EQ(dropped_in(4s), 0);
  EXPECT_NEAR(static_cast<double>(model->maximum_rate()), 125'000, 10'000);
  EXPECT_LE(model->window(), 8 * kPacket) << "but what a receiver gathers";
}

TEST_F(BbrTest, FindsTenTimesTheRate) {  // A.15
  make();
  ASSERT_TRUE(reaches(Phase::cruise, 5s));
  run->link.bytes_per_s = 10 * kRate;
  run->link.queue_bytes = 10 * kBandwidthDelay;
  EXPECT_TRUE(run->run_until([&] { return model->maximum_rate() > 9 * kRate; }, 15s));
}

TEST_F(BbrTest, FindsThreeTimesTheRateWhereRoundTripsAreShort) {
  make({.bytes_per_s = 80'000'000 / 8, .queue_bytes = 64 * 1024, .base_rtt = 50us});
  run->run_for(1s);
  run->link.bytes_per_s = 250'000'000 / 8;
  run->run_for(400ms);
  EXPECT_GT(share_in(200ms), 0.9);
}

TEST_F(BbrTest, FollowsTheRateToATenthOfIt) {  // A.16
  make();
  ASSERT_TRUE(reaches(Phase::cruise, 5s));
  run->link.bytes_per_s = kRate / 10;
  EXPECT_TRUE(run->run_until([&] { return model->pacing_rate() < kRate / 4; }, 4s))
      << "losses lower it, by 30 % in a round";
  EXPECT_TRUE(run->run_until([&] { return model->maximum_rate() < kRate / 8; }, 15s)) << "two cycles later it is known";
  EXPECT_GT(share_in(4s), 0.9);
}

TEST_F(BbrTest, SettlesBelowWhatAPolicerLetsThrough) {  // A.17
  make({.bytes_per_s = kRate, .base_rtt = kRtt, .policer_bytes = 100'000});
  run->run_for(5s);
  EXPECT_LT(dropped_in(10s), 0.02);
  EXPECT_GT(share_in(10s), 0.85);
}

TEST_F(BbrTest, GoesOnWithAProbeThatNoLossHasEndedAfterAll) {  // A.18, A.19
  make();
  ASSERT_TRUE(reaches(Phase::up, 10s));
  const CongestionBounds before = model->bounds();
  model->on_lost({.bytes = 200 * kPacket, .packets = 200, .events = 20, .largest_sent_at = run->now() - kRtt},
                 run->now());
  ASSERT_EQ(model->phase(), Phase::down);
  ASSERT_NE(model->bounds().high, before.high);
  model->on_spurious_loss(199, run->now() + 1ms);
  EXPECT_EQ(model->phase(), Phase::down);
  model->on_spurious_loss(1, run->now() + 1ms);
  EXPECT_EQ(model->phase(), Phase::refill);
  EXPECT_EQ(model->bounds().high, before.high);
}

TEST_F(BbrTest, KeepsItsEstimateWhileTheApplicationSendsLittle) {  // A.22
  make();
  ASSERT_TRUE(reaches(Phase::refill, 10s));
  const std::uint64_t rate = model->maximum_rate();
  trickle(4 * kPacket, 20ms, 30s, [] { return false; });
  EXPECT_GE(model->maximum_rate(), rate);
}

TEST_F(BbrTest, FollowsTheShortestRoundTripBothWays) {
  make();
  run->run_for(3s);
  run->link.base_rtt = 80ms;
  run->run_for(20s);
  EXPECT_NEAR(static_cast<double>(model->minimum_rtt().count()), 80e6, 10e6);
  EXPECT_GT(share_in(5s), 0.85);
  run->link.base_rtt = 10ms;
  run->run_for(1s);
  EXPECT_NEAR(static_cast<double>(model->minimum_rtt().count()), 10e6, 2e6);
  EXPECT_GT(share_in(5s), 0.85);
}

// ---- losses, marks, bursts ----

TEST_F(BbrTest, KeepsNineTenthsOfTheRateWithOnePercentOfLossAtRandom) {
  make({.bytes_per_s = kRate, .queue_bytes = kBandwidthDelay, .base_rtt = kRtt, .random_loss = 0.01});
  run->run_for(4s);
  EXPECT_GT(share_in(12s), 0.9);
}

TEST_F(BbrTest, LosesLittleWhereTheQueueIsShorterThanTheLink) {
  make({.bytes_per_s = kRate, .queue_bytes = kBandwidthDelay / 8, .base_rtt = kRtt});
  run->run_for(4s);
  EXPECT_LT(dropped_in(10s), 0.005);
  EXPECT_GT(share_in(10s), 0.85);
}

TEST_F(BbrTest, LosesLittleWhereAWindowHoldsFewPackets) {
  make({.bytes_per_s = 250'000'000 / 8, .queue_bytes = 16 * 1024, .base_rtt = 100us});
  run->run_for(500ms);
  EXPECT_LT(dropped_in(2s), 0.01);
  EXPECT_GT(share_in(2s), 0.95);
}

TEST_F(BbrTest, AnswersMarksBeforeTheQueueIsFull) {
  make({.bytes_per_s = kRate, .queue_bytes = 10 * kBandwidthDelay, .base_rtt = kRtt, .marking_bytes = 50'000});
  ASSERT_TRUE(leaves(Phase::startup, 15 * kRtt));
  EXPECT_NE(model->bounds().high, CongestionBounds::kNone) << "marks have ended it";
  run->run_for(4s);
  const double rtt_with_queue = 40e6 + 50'000 * 1e9 / kRate;
  double sum = 0;
  for (int i = 0; i < 100; ++i) {
    run->run_for(50ms);
    sum += static_cast<double>(path().loss.rtt().smoothed().count());
  }
  EXPECT_LT(sum / 100, rtt_with_queue * 1.15);
  EXPECT_GT(share_in(5s), 0.85);
  EXPECT_EQ(path().dropped, 0U);
}

TEST_F(BbrTest, SendsNoBurstAfterAnIdleTime) {
  make();
  ASSERT_TRUE(reaches(Phase::cruise, 5s));
  path().budget = 0;
  run->run_for(1s);
  path().largest_burst = 0;
  path().budget = LoneLinkRun::kEndless;
  run->run_for(kRtt);
  EXPECT_LE(path().largest_burst, 3 * kPacket) << "a train lasts a quarter of a millisecond";
  EXPECT_GT(path().sent, kBandwidthDelay / 2);
}

TEST_F(BbrTest, PersistentCongestionLeavesTwoPackets) {
  make();
  run->run_for(1s);
  model->on_persistent_congestion(run->now());
  EXPECT_EQ(model->window(), 2 * kPacket);
  run->run_for(1s);
  EXPECT_GT(share_in(1s), 0.9);
}

// ---- several paths ----

std::vector<double> shares_of(LoneLinkRun& run, std::size_t count, Duration time) {
  std::vector<std::uint64_t> before;
  for (std::size_t i = 0; i < count; ++i) before.push_back(run.path(i).delivered);
  run.run_for(time);
  const double most = static_cast<double>(run.link.bytes_per_s) * static_cast<double>(time.count()) * 1e-9;
  std::vector<double> shares;
  for (std::size_t i = 0; i < count; ++i) {
    shares.push_back(static_cast<double>(run.path(i).delivered - before[i]) / most);
  }
  return shares;
}

double fairness(const std::vector<double>& shares) {
  double sum = 0, squares = 0;
  for (const double share : shares) {
    sum += share;
    squares += share * share;
  }
  return sum * sum / (squares * static_cast<double>(shares.size()));
}

TEST_F(BbrTest, TwoAndFourPathsShareALink) {
  for (const std::size_t count : {2U, 4U}) {
    make({.bytes_per_s = kRate, .queue_bytes = kBandwidthDelay / 4, .base_rtt = 10ms});
    for (std::size_t i = 1; i < count; ++i) {
      run->run_for(200ms);
      add();
    }
    run->run_for(10s);
    const std::vector<double> shares = shares_of(*run, count, 10s);
    EXPECT_GT(fairness(shares), 0.9) << count;
    EXPECT_GT(std::accumulate(shares.begin(), shares.end(), 0.0), 0.93) << count;
  }
}

TEST_F(BbrTest, LeavesAFairPartToAWindowThatFollowsLosses) {
  make({.bytes_per_s = kRate, .queue_bytes = kBandwidthDelay / 4, .base_rtt = 10ms});
  add_window();
  run->run_for(10s);
  const std::vector<double> shares = shares_of(*run, 2, 10s);
  EXPECT_GT(shares[0], 0.3);
  EXPECT_GT(shares[1], 0.3);
}

TEST_F(BbrTest, IsFasterThanAWindowThatFollowsLossesWhereLossesAreAtRandom) {
  const auto time_of = [&](bool with_model) {
    const LoneLinkOptions options{
        .bytes_per_s = kRate, .queue_bytes = kBandwidthDelay, .base_rtt = kRtt, .random_loss = 0.005};
    run = std::make_unique<LoneLinkRun>(options, 1);
    if (with_model) {
      add();
    } else {
      add_window();
    }
    const Instant began = run->now();
    for (int i = 0; i < 20; ++i) {  // one message of 1 MiB after the other
      path().budget = 713 * kPacket;
      run->run_until([&] { return path().budget < kPacket && in_flight() == 0; }, 60s);
    }
    return run->now() - began;
  };
  const Duration with_model = time_of(true);
  EXPECT_LT(2 * with_model, time_of(false));
}

}  // namespace
}  // namespace weir::recovery
