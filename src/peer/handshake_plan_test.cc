// Who shakes hands when (docs/protocol.md, rules I-9 and R-5).
#include "peer/handshake_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

namespace weir::peer {
namespace {

using namespace std::chrono_literals;
using Answer = HandshakePlan::Answer;

constexpr Instant kStart{5'000'000'000};

Address peer(std::uint32_t number) { return Address::v4(0x0a000000 + number, 4433); }

std::vector<Address> start_all(HandshakePlan& plan, Instant now) {
  std::vector<Address> started;
  while (const auto address = plan.next(now)) started.push_back(*address);
  return started;
}

using Started = std::vector<Address>;

TEST(HandshakePlan, RunsOneHandshakePerAddressAtATime) {
  HandshakePlan plan({});
  EXPECT_EQ(plan.want(peer(1), kStart), Answer::queued);
  EXPECT_EQ(plan.want(peer(1), kStart), Answer::running);
  EXPECT_LE(plan.next_deadline(), kStart);
  EXPECT_EQ(start_all(plan, kStart), Started{peer(1)});
  EXPECT_EQ(plan.want(peer(1), kStart), Answer::running);
  EXPECT_FALSE(plan.suspect(peer(1), kStart));
  EXPECT_EQ(start_all(plan, kStart), Started{});
  EXPECT_EQ(plan.running(), 1u);
  plan.on_success(peer(1), Instant::never(), kStart);
  EXPECT_EQ(plan.running(), 0u);
  EXPECT_EQ(plan.want(peer(1), kStart), Answer::queued) << "the credential may have been lost since";
}

TEST(HandshakePlan, StartsTheRestInTheirOrderAsRoomComes) {
  HandshakePlan plan({.max_running = 2, .max_queued = 3, .max_addresses = 10});
  for (std::uint32_t i = 1; i <= 3; ++i) EXPECT_EQ(plan.want(peer(i), kStart), Answer::queued);
  EXPECT_EQ(start_all(plan, kStart), (Started{peer(1), peer(2)}));
  EXPECT_TRUE(plan.next_deadline().is_never()) << "only an outcome helps now";
  EXPECT_EQ(plan.want(peer(4), kStart), Answer::queued);
  EXPECT_EQ(plan.want(peer(5), kStart), Answer::queued);
  EXPECT_EQ(plan.want(peer(6), kStart), Answer::overloaded);
  EXPECT_EQ(plan.stats().overloaded, 1u);
  plan.on_success(peer(2), Instant::never(), kStart + 1s);
  EXPECT_EQ(start_all(plan, kStart + 1s), Started{peer(3)});
  plan.on_failure(peer(1), kStart + 1s);
  plan.on_failure(peer(3), kStart + 1s);
  EXPECT_EQ(start_all(plan, kStart + 1s), (Started{peer(4), peer(5)}));
}

TEST(HandshakePlan, BacksOffTwiceAsLongAfterEachFailure) {
  HandshakePlan plan({.host_random = 3});
  Instant now = kStart;
  Duration longest = 100ms;
  std::set<Duration> waits;
  for (int i = 0; i < 12; ++i) {
    plan.want(peer(1), now);
    ASSERT_EQ(start_all(plan, now), Started{peer(1)}) << i;
    plan.on_failure(peer(1), now);
    EXPECT_EQ(plan.want(peer(1), now), Answer::backing_off);
    const Duration wait = plan.next_deadline() - now;
    EXPECT_GT(wait, longest / 2 - 1ns) << i;
    EXPECT_LE(wait, longest) << i;
    waits.insert(wait);
    EXPECT_EQ(start_all(plan, now + wait - 1ns), Started{});
    now = now + wait;
    longest = std::min<Duration>(2 * longest, 10s);
  }
  EXPECT_EQ(waits.size(), 12u) << "jitter";
  ASSERT_EQ(start_all(plan, now), Started{peer(1)}) << "wanted while backing off: comes by itself";
  plan.on_success(peer(1), Instant::never(), now);
  EXPECT_EQ(plan.want(peer(1), now), Answer::queued);
  ASSERT_EQ(start_all(plan, now), Started{peer(1)});
  plan.on_failure(peer(1), now);
  EXPECT_EQ(plan.want(peer(1), now), Answer::backing_off);
  EXPECT_LE(plan.next_deadline(), now + 100ms) << "success had reset it";
}

TEST(HandshakePlan, AFailureThatNobodyAsksAboutIsNotRepeated) {
  HandshakePlan plan({.idle = 5min});
  plan.want(peer(1), kStart);
  start_all(plan, kStart);
  plan.on_failure(peer(1), kStart);
  EXPECT_EQ(start_all(plan, kStart + 4min), Started{});
  EXPECT_EQ(plan.known(), 1u);
  EXPECT_EQ(plan.next_deadline(), kStart + 5min);
  EXPECT_EQ(start_all(plan, kStart + 5min), Started{});
  EXPECT_EQ(plan.known(), 0u) << "and in time forgotten";
  EXPECT_TRUE(plan.next_deadline().is_never());
}

TEST(HandshakePlan, RenewsWhatIsUsedInTheLastQuarterOfThePeriod) {
  HandshakePlan plan({.max_running = 2'000, .period = 1h, .idle = 30min, .host_random = 9});
  for (std::uint32_t i = 0; i < 1'000; ++i) plan.want(peer(i), kStart);
  ASSERT_EQ(start_all(plan, kStart).size(), 1'000u);
  for (std::uint32_t i = 0; i < 1'000; ++i) plan.on_success(peer(i), Instant::never(), kStart);
  for (std::uint32_t i = 0; i < 1'000; i += 2) plan.touch(peer(i), kStart + 40min);
  EXPECT_EQ(start_all(plan, kStart + 45min - 1ns), Started{});
  std::vector<int> per_minute(15);
  for (std::size_t minute = 0; minute < 15; ++minute) {
    for (const Address& address : start_all(plan, kStart + 45min + (static_cast<int>(minute) + 1) * 1min)) {
      EXPECT_EQ(address.ip[15] % 2, 0) << "only those in use";
      ++per_minute[minute];
      plan.on_success(address, Instant::never(), kStart + 1h);
    }
  }
  EXPECT_EQ(plan.stats().renewals, 500u);
  for (const int count : per_minute) {
    EXPECT_GT(count, 10) << "500 over 15 minutes";
    EXPECT_LT(count, 60);
  }
  EXPECT_EQ(plan.known(), 500u);
}

TEST(HandshakePlan, RenewsWellBeforeTheEndOfACertificate) {
  for (const Duration life : {Duration(30s), Duration(4s), Duration(90min)}) {
    HandshakePlan plan({.period = 1h, .idle = 2h, .host_random = 9});
    plan.on_renewed(peer(1), kStart + life, kStart);
    EXPECT_GE(plan.next_deadline(), kStart + life * 3 / 8);
    EXPECT_LE(plan.next_deadline(), kStart + life / 2);
  }
}

TEST(HandshakePlan, RenewsACertificateThatIsNotReplacedAtABoundedRate) {
  HandshakePlan plan({.period = 1h, .idle = 2h, .host_random = 9});
  const Instant end = kStart + 30s;
  plan.on_renewed(peer(1), end, kStart);
  int handshakes = 0;
  Instant last = kStart;
  for (Instant now = plan.next_deadline(); now < end; now = plan.next_deadline()) {
    ASSERT_EQ(start_all(plan, now), Started{peer(1)});
    EXPECT_GE(now - last, 375ms) << "three quarters of the shortest interval";
    last = now;
    plan.on_success(peer(1), end, now);
    ++handshakes;
  }
  EXPECT_GE(handshakes, 3);
  EXPECT_LE(handshakes, 12);
}

TEST(HandshakePlan, ASuspicionAfterAFailureWaitsForTheBackoffAndNoLonger) {
  HandshakePlan plan({.first_backoff = 100ms, .suspicion_burst = 1, .suspicion_interval = 1s});
  EXPECT_TRUE(plan.suspect(peer(1), kStart));
  ASSERT_EQ(start_all(plan, kStart), Started{peer(1)});
  plan.on_failure(peer(1), kStart + 1ms);  // the port is closed
  EXPECT_FALSE(plan.suspect(peer(1), kStart + 2ms));
  EXPECT_LE(plan.next_deadline(), kStart + 101ms) << "not a second later";
  EXPECT_EQ(start_all(plan, kStart + 101ms), Started{peer(1)});
  plan.on_success(peer(1), Instant::never(), kStart + 102ms);
  EXPECT_FALSE(plan.suspect(peer(1), kStart + 103ms)) << "after a success the interval counts again";
}

TEST(HandshakePlan, HostsDifferInWhenTheyRenew) {
  const auto renewal = [](std::uint64_t host, std::uint32_t number) {
    HandshakePlan plan({.host_random = host});
    plan.on_renewed(peer(number), Instant::never(), kStart);
    return plan.next_deadline();
  };
  std::set<Instant> times;
  for (std::uint64_t host = 1; host <= 50; ++host) times.insert(renewal(host, 1));
  for (std::uint32_t number = 1; number <= 50; ++number) times.insert(renewal(1, number));
  EXPECT_EQ(times.size(), 99u);
  EXPECT_GE(*times.begin(), kStart + 45min);
  EXPECT_LT(*times.rbegin(), kStart + 60min);
  EXPECT_EQ(renewal(7, 7), renewal(7, 7));
}

TEST(HandshakePlan, ARenewalThatFailsIsTriedAgainWhileInUse) {
  HandshakePlan plan({.period = 1h, .idle = 10min});
  plan.on_renewed(peer(1), Instant::never(), kStart);
  Instant now = plan.next_deadline();
  plan.touch(peer(1), now);
  const Instant last_use = now;
  int attempts = 0;
  while (plan.known() != 0) {
    now = std::max(now, plan.next_deadline());
    for (const Address& address : start_all(plan, now)) {
      ++attempts;
      plan.on_failure(address, now);
    }
    ASSERT_LT(now, last_use + 11min);
  }
  EXPECT_GT(attempts, 50);
  EXPECT_GE(now, last_use + 10min);
}

TEST(HandshakePlan, AHandshakeThatThePeerBeganTakesTheTurn) {
  HandshakePlan plan({});
  plan.want(peer(1), kStart);
  plan.on_renewed(peer(1), Instant::never(), kStart);
  EXPECT_EQ(start_all(plan, kStart), Started{}) << "no longer needed";
  plan.want(peer(1), kStart);
  EXPECT_EQ(start_all(plan, kStart), Started{peer(1)});
  plan.on_renewed(peer(1), Instant::never(), kStart);
  EXPECT_EQ(plan.running(), 1u) << "its outcome is still to come";
  plan.on_failure(peer(1), kStart);
  EXPECT_EQ(plan.running(), 0u);
}

TEST(HandshakePlan, FollowsFourSuspicionsOfAnAddressAndThenOnePerSecond) {
  HandshakePlan plan({});
  plan.on_renewed(peer(1), Instant::never(), kStart);
  int started = 0;
  for (int i = 0; i < 10'000; ++i) {  // one each millisecond
    const Instant now = kStart + i * 1ms;
    plan.suspect(peer(1), now);
    for (const Address& address : start_all(plan, now)) {
      ++started;
      plan.on_success(address, Instant::never(), now);
    }
  }
  EXPECT_EQ(started, 13);
  EXPECT_EQ(plan.stats().suspicions_followed, 13u);
  EXPECT_EQ(plan.stats().suspicions_dropped, 9'987u);
  EXPECT_TRUE(plan.suspect(peer(2), kStart)) << "another address has its own second";
}

// A process that dies at once after each of its starts, as one does whose first request makes it crash.
TEST(HandshakePlan, APeerThatRestartsTwiceWithinASecondCostsAHandshakeEachTime) {
  HandshakePlan plan({});
  plan.on_renewed(peer(1), Instant::never(), kStart);
  for (const Duration when : {0ms, 20ms, 40ms}) {
    EXPECT_TRUE(plan.suspect(peer(1), kStart + when));
    ASSERT_EQ(start_all(plan, kStart + when).size(), 1u) << "at " << when.count() << " ns";
    plan.on_success(peer(1), Instant::never(), kStart + when);
  }
}

TEST(HandshakePlan, OutcomesThatNobodyWaitsForChangeNothing) {
  HandshakePlan plan({});
  plan.on_success(peer(1), Instant::never(), kStart);
  plan.on_failure(peer(1), kStart);
  plan.touch(peer(1), kStart);
  EXPECT_EQ(plan.known(), 0u);
  plan.want(peer(1), kStart);
  plan.on_success(peer(1), Instant::never(), kStart);  // queued, not running
  EXPECT_EQ(plan.queued(), 1u);
  EXPECT_EQ(plan.running(), 0u);
}

TEST(HandshakePlan, GivesUpTheLongestUnusedAddressForANewOne) {
  HandshakePlan plan({.max_running = 1, .max_queued = 1, .max_addresses = 3});
  for (std::uint32_t i = 1; i <= 3; ++i) plan.on_renewed(peer(i), Instant::never(), kStart);
  plan.touch(peer(1), kStart + 1s);
  plan.want(peer(2), kStart + 1s);
  plan.on_renewed(peer(4), Instant::never(), kStart + 2s);
  EXPECT_EQ(plan.known(), 3u);
  plan.touch(peer(3), kStart + 3s);  // gone: ignored
  EXPECT_EQ(plan.known(), 3u);
  EXPECT_EQ(start_all(plan, kStart + 3s), Started{peer(2)});
}

// Random demand, outcomes and suspicions; the limits must hold at every step, and everybody be served in the end.
TEST(HandshakePlan, KeepsItsLimitsUnderRandomLoad) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    Random random{seed};
    const HandshakePlan::Options options{.max_running = 1 + random.below(5),
                                         .max_queued = 1 + random.below(20),
                                         .max_addresses = 26 + random.below(40),
                                         .period = 100s,
                                         .idle = 60s,
                                         .suspicion_burst = 1,
                                         .host_random = random.next()};
    HandshakePlan plan(options);
    std::set<Address> running;
    std::map<Address, Instant> suspicion, resting;
    Instant now = kStart;
    const auto any = [&random] { return peer(static_cast<std::uint32_t>(random.below(80))); };
    const auto finish = [&](bool success) {
      auto at = running.begin();
      std::advance(at, static_cast<std::ptrdiff_t>(random.below(running.size())));
      const Address address = *at;
      running.erase(at);
      if (success) {
        plan.on_success(address, Instant::never(), now);
      } else {
        plan.on_failure(address, now);
        resting[address] = now + 49ms;  // at the least
      }
    };
    for (int step = 0; step < 4'000; ++step) {
      const Address address = any();
      switch (random.below(7)) {
        case 0:
        case 1: {
          const Answer answer = plan.want(address, now);
          EXPECT_TRUE(!running.contains(address) || answer == Answer::running);
          const auto rest = resting.find(address);
          if (rest != resting.end() && rest->second >= now && plan.known() < options.max_addresses) {
            EXPECT_TRUE(answer == Answer::backing_off) << "failed a moment ago";
          }
          break;
        }
        case 2:
          if (plan.suspect(address, now)) {
            EXPECT_FALSE(running.contains(address));
            const auto last = suspicion.find(address);
            // Those who had to make room are forgotten with their history.
            if (last != suspicion.end() && plan.known() < options.max_addresses && !resting.contains(address)) {
              EXPECT_GE(now - last->second, 1s);
            }
            suspicion[address] = now;
          }
          break;
        case 3:
          plan.touch(address, now);
          break;
        case 4:
          if (!running.empty()) finish(random.chance(0.5));
          break;
        case 5:
          if (random.chance(0.1)) {
            plan.on_renewed(address, Instant::never(), now);
            resting.erase(address);
          }
          break;
        default:
          now = now + Duration{static_cast<std::int64_t>(random.below(1'500'000'000))};
          break;
      }
      const bool expects = plan.next_deadline() <= now;
      std::size_t started = 0;
      const std::uint64_t forgotten = plan.stats().forgotten;
      while (const auto next = plan.next(now)) {
        ++started;
        ASSERT_TRUE(running.insert(*next).second) << "twice at a time";
        resting.erase(*next);
      }
      ASSERT_TRUE(expects || (started == 0 && plan.stats().forgotten == forgotten)) << "nothing before the deadline";
      ASSERT_TRUE(plan.next_deadline() > now) << "everything that could be done is done";
      ASSERT_EQ(plan.running(), running.size());
      ASSERT_LE(plan.running(), options.max_running);
      ASSERT_LE(plan.queued(), options.max_queued);
      ASSERT_LE(plan.known(), options.max_addresses);
      ASSERT_TRUE(plan.queued() == 0 || plan.running() == options.max_running) << "idle hands";
    }
    while (!running.empty() || plan.known() != 0) {
      if (!running.empty()) {
        finish(true);
      } else {
        now = plan.next_deadline();
      }
      while (const auto next = plan.next(now)) running.insert(*next);
      ASSERT_LT(now, Instant::never()) << "somebody waits for nothing";
    }
  }
}

}  // namespace
}  // namespace weir::peer
