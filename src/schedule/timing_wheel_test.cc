#include "schedule/timing_wheel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "base/random.h"

namespace weir::schedule {
namespace {

using namespace std::chrono_literals;

std::vector<Timer*> advance(TimingWheel& wheel, Instant now) {
  std::vector<Timer*> fired;
  wheel.advance(now, [&](Timer& timer) { fired.push_back(&timer); });
  return fired;
}

TEST(TimingWheel, FiresATimerNotBeforeItsTimeAndAtMostATickAfter) {
  TimingWheel wheel;
  Timer timer;
  const Instant at{1'000'001};
  wheel.arm(timer, at);
  EXPECT_TRUE(timer.armed());
  EXPECT_TRUE(advance(wheel, at - 1ns).empty());
  EXPECT_EQ(advance(wheel, at + wheel.tick()), std::vector{&timer});
  EXPECT_FALSE(timer.armed());
  EXPECT_TRUE(wheel.empty());
}

TEST(TimingWheel, ReportsNeverWhenEmptyAndAgainAfterTheLastCancellation) {
  TimingWheel wheel;
  Timer timer;
  EXPECT_TRUE(wheel.next_deadline().is_never());
  wheel.arm(timer, Instant{50'000});
  EXPECT_FALSE(wheel.next_deadline().is_never());
  wheel.cancel(timer);
  EXPECT_TRUE(wheel.next_deadline().is_never());
  wheel.cancel(timer);
  EXPECT_EQ(wheel.size(), 0U);
}

TEST(TimingWheel, FiresWhenAdvancedToItsDeadlineWhereverTheTimerLies) {
  for (const std::int64_t delay : {1LL, 4'096LL, 300'000LL, 20'000'000LL, 3'600'000'000'000LL, 864'000'000'000'000LL}) {
    TimingWheel wheel{TimingWheel::kDefaultTick, Instant{123'456'789}};
    Timer timer;
    const Instant at{123'456'789 + delay};
    wheel.arm(timer, at);
    const Instant deadline = wheel.next_deadline();
    EXPECT_GE(deadline, at);
    EXPECT_LE(deadline, at + wheel.tick());
    EXPECT_EQ(advance(wheel, deadline), std::vector{&timer}) << delay;
  }
}

TEST(TimingWheel, ArmingForNeverCancels) {
  TimingWheel wheel;
  Timer timer;
  wheel.arm(timer, Instant{10'000});
  wheel.arm(timer, Instant::never());
  EXPECT_FALSE(timer.armed());
  EXPECT_TRUE(wheel.empty());
}

TEST(TimingWheel, HoldsTheLatestInstantThereIs) {
  TimingWheel wheel;
  Timer timer;
  wheel.arm(timer, Instant{Instant::never().ns - 1});
  EXPECT_FALSE(wheel.next_deadline().is_never());
  EXPECT_TRUE(advance(wheel, Instant{1LL << 62}).empty());
  EXPECT_TRUE(timer.armed());
}

TEST(TimingWheel, ATimerArmedForThePastFiresAtTheNextAdvanceAndNotWithinThisOne) {
  TimingWheel wheel;
  Timer timer;
  const Instant now{10'000'000};
  wheel.arm(timer, Instant{1});
  int fired = 0;
  const auto again = [&](Timer& t) {
    ++fired;
    wheel.arm(t, Instant{1});
  };
  wheel.advance(now, again);
  EXPECT_EQ(fired, 1);
  EXPECT_LE(wheel.next_deadline(), now);
  wheel.advance(now, again);
  EXPECT_EQ(fired, 2);
}

TEST(TimingWheel, ACallbackMayCancelAndPostponeOthersThatAreDueToo) {
  TimingWheel wheel;
  Timer first, cancelled, postponed, last;
  const Instant at{5'000};
  for (Timer* timer : {&first, &cancelled, &postponed, &last}) wheel.arm(*timer, at);
  std::vector<Timer*> fired;
  wheel.advance(at + wheel.tick(), [&](Timer& timer) {
    fired.push_back(&timer);
    if (&timer != &first) return;
    wheel.cancel(cancelled);
    wheel.arm(postponed, at + 1s);
  });
  EXPECT_EQ(fired, (std::vector{&first, &last}));
  EXPECT_EQ(advance(wheel, at + 2s), std::vector{&postponed});
}

TEST(TimingWheel, JumpsOverHoursFiringEverythingInOrder) {
  TimingWheel wheel;
  std::vector<std::unique_ptr<Timer>> timers;
  Random random{7};
  for (int i = 0; i < 1'000; ++i) {
    timers.push_back(std::make_unique<Timer>());
    wheel.arm(*timers.back(), Instant{static_cast<std::int64_t>(random.below(7'200'000'000'000ULL))});
  }
  const auto fired = advance(wheel, Instant{} + 3h);
  ASSERT_EQ(fired.size(), timers.size());
  const auto tick_of = [&](Timer* timer) { return (timer->at.ns + wheel.tick().count() - 1) / wheel.tick().count(); };
  EXPECT_TRUE(std::is_sorted(fired.begin(), fired.end(), [&](Timer* a, Timer* b) { return tick_of(a) < tick_of(b); }));
}

TEST(TimingWheel, RoundsTheTickUpToAPowerOfTwo) {
  EXPECT_EQ(TimingWheel(Duration{1}).tick(), Duration{1'024});
  EXPECT_EQ(TimingWheel(Duration{4'096}).tick(), Duration{4'096});
  EXPECT_EQ(TimingWheel(Duration{4'097}).tick(), Duration{8'192});
}

// Against the obvious model: a list of timers with their times.
TEST(TimingWheel, AgreesWithAModelUnderRandomUse) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    Random random{seed};
    Instant now{static_cast<std::int64_t>(random.below(1ULL << 40))};
    TimingWheel wheel{Duration{std::int64_t{1} << (10 + random.below(6))}, now};
    std::vector<Timer> timers(64);
    std::vector<Instant> expected(timers.size(), Instant::never());
    const auto some_time = [&] {
      const auto span = std::int64_t{1} << random.below(46);
      return now + Duration{static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(span)))} -
             Duration{random.chance(0.1) ? 5'000 : 0};
    };
    const auto change = [&] {
      const auto index = random.below(timers.size());
      if (random.chance(0.3)) {
        wheel.cancel(timers[index]);
        expected[index] = Instant::never();
      } else {
        expected[index] = some_time();
        wheel.arm(timers[index], expected[index]);
      }
    };
    for (int step = 0; step < 2'000; ++step) {
      if (!random.chance(0.3)) {
        change();
        continue;
      }
      const Instant deadline = wheel.next_deadline();
      const Instant target = random.chance(0.5) && !deadline.is_never() ? std::max(now, deadline) : some_time();
      now = std::max(now, target);
      bool touched = false;
      std::vector<std::size_t> due;
      for (std::size_t i = 0; i < timers.size(); ++i) {
        if (!expected[i].is_never() && expected[i] + wheel.tick() <= now) due.push_back(i);
      }
      wheel.advance(now, [&](Timer& timer) {
        const auto index = static_cast<std::size_t>(&timer - timers.data());
        ASSERT_FALSE(timer.armed());
        ASSERT_LE(expected[index], now) << "fired early";
        expected[index] = Instant::never();
        if (random.chance(0.2)) {
          change();
          touched = true;
        }
      });
      if (!touched) {
        for (const auto index : due) ASSERT_TRUE(expected[index].is_never()) << "fired late";
      }
      std::size_t armed = 0;
      Instant first = Instant::never();
      for (std::size_t i = 0; i < timers.size(); ++i) {
        ASSERT_EQ(timers[i].armed(), !expected[i].is_never());
        armed += timers[i].armed();
        first = earliest(first, expected[i]);
      }
      ASSERT_EQ(wheel.size(), armed);
      // Never later than a tick after the first timer: nobody oversleeps.
      if (armed != 0) {
        ASSERT_LE(wheel.next_deadline(), std::max(first + wheel.tick(), now));
      }
    }
    // Following the deadlines alone empties the wheel in few steps.
    for (int steps = 0; !wheel.empty(); ++steps) {
      ASSERT_LT(steps, 64 * 9);
      now = std::max(now, wheel.next_deadline());
      wheel.advance(now, [](Timer&) {});
    }
  }
}

}  // namespace
}  // namespace weir::schedule
