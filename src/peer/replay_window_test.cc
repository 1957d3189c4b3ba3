// Replays, and the numbers of packets (docs/protocol.md, rules P-4, P-5 and P-8).
#include "peer/replay_window.h"

#include <gtest/gtest.h>

#include <set>

#include "base/random.h"

namespace weir::peer {
namespace {

using namespace std::chrono_literals;

TEST(ReplayWindow, RejectsANumberSeenBefore) {
  ReplayWindow window;
  EXPECT_EQ(window.check(0), Freshness::fresh);
  window.mark(0, Instant{});
  EXPECT_EQ(window.check(0), Freshness::seen);
  EXPECT_EQ(window.check(1), Freshness::fresh);
}

TEST(ReplayWindow, ChecksWithoutMarking) {
  ReplayWindow window;
  EXPECT_EQ(window.check(5), Freshness::fresh);
  EXPECT_EQ(window.check(5), Freshness::fresh);
  EXPECT_FALSE(window.any());
}

TEST(ReplayWindow, AcceptsAStragglerWithinTheWindowOnce) {
  ReplayWindow window;
  window.mark(1'000'000, Instant{});
  EXPECT_EQ(window.check(999'900), Freshness::fresh);
  window.mark(999'900, Instant{});
  EXPECT_EQ(window.check(999'900), Freshness::seen);
}

TEST(ReplayWindow, CallsWhatItCannotRememberTooOld) {
  ReplayWindow window;
  window.mark(1'000'000, Instant{});
  EXPECT_EQ(window.check(1'000'000 - ReplayWindow::kSmallestBits), Freshness::too_old);
  EXPECT_EQ(window.check(0), Freshness::too_old);
}

TEST(ReplayWindow, GrowsUntilTenMillisecondsFitAndNoFurtherThanItsBound) {
  ReplayWindow window;
  Instant now{};
  std::uint64_t number = 0;
  // A million packets a second: ten milliseconds are ten thousand packets.
  for (int i = 0; i < 100'000; ++i) window.mark(number++, now = now + 1us);
  EXPECT_GE(window.bits(), 10'000U);
  EXPECT_LE(window.bits(), 32'768U);
  for (int i = 0; i < 1'000'000; ++i) window.mark(number++, now = now + 10ns);
  EXPECT_EQ(window.bits(), ReplayWindow::kLargestBits);
  EXPECT_EQ(window.heap_bytes(), 8'192U);
}

TEST(ReplayWindow, StaysSmallOnASlowPath) {
  ReplayWindow window;
  Instant now{};
  for (std::uint64_t number = 0; number < 20'000; ++number) window.mark(number, now = now + 1ms);
  EXPECT_EQ(window.bits(), ReplayWindow::kSmallestBits);
  EXPECT_EQ(window.heap_bytes(), 0U);
}

TEST(ReplayWindow, ForgetsNothingWhenItGrowsAndForgetsSafelyWhenItShrinks) {
  ReplayWindow window;
  Instant now{};
  std::uint64_t number = 0;
  while (window.bits() < 4'096) {
    window.mark(number++, now = now + 100ns);
    for (std::uint64_t old = 0; old < number; ++old) ASSERT_NE(window.check(old), Freshness::fresh);
  }
  window.shrink();
  EXPECT_EQ(window.bits(), ReplayWindow::kSmallestBits);
  for (std::uint64_t old = 0; old < number; ++old) ASSERT_NE(window.check(old), Freshness::fresh);
  EXPECT_EQ(window.check(number - 1), Freshness::seen);
}

TEST(ReplayWindow, RefusesNumbersBeyondItsLimit) {
  ReplayWindow window;
  EXPECT_EQ(window.check(~std::uint64_t{0}), Freshness::too_old);
  window.mark(~std::uint64_t{0}, Instant{});
  EXPECT_FALSE(window.any());
  window.mark(ReplayWindow::kLimit - 1, Instant{});
  EXPECT_EQ(window.check(ReplayWindow::kLimit - 1), Freshness::seen);
  EXPECT_EQ(window.check(ReplayWindow::kLimit), Freshness::too_old);
}

// Against a set of everything ever marked: never fresh twice, and fresh whenever the window still covers the number.
TEST(ReplayWindow, AgreesWithAModelUnderRandomArrivals) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    Random random{seed};
    ReplayWindow window;
    std::set<std::uint64_t> seen;
    std::uint64_t front = random.chance(0.5) ? 0 : random.below(1ULL << 40);
    Instant now{};
    std::uint64_t smallest_bits = window.bits();  // since when numbers could be forgotten
    for (int step = 0; step < 20'000; ++step) {
      now = now + Duration{static_cast<std::int64_t>(random.below(seed % 2 == 0 ? 2'000 : 200'000))};
      if (random.chance(0.7)) front += random.chance(0.02) ? random.below(3'000) : random.below(3);
      const std::uint64_t back = std::min(front, random.chance(0.5) ? random.below(8) : random.below(2'000));
      const std::uint64_t number = front - back;
      const Freshness freshness = window.check(number);
      if (seen.contains(number)) {
        ASSERT_NE(freshness, Freshness::fresh) << number;
      } else {
        ASSERT_NE(freshness, Freshness::seen) << number;
        const bool covered = number + smallest_bits - 64 > window.largest();
        if (covered) {
          ASSERT_EQ(freshness, Freshness::fresh) << number;
        }
      }
      if (freshness == Freshness::fresh && random.chance(0.9)) {
        window.mark(number, now);
        seen.insert(number);
      }
      if (random.chance(0.0005)) window.shrink();
    }
  }
}

TEST(ReplayWindow, RemembersAStragglerMarkedRightBeforeTheWindowMovesOn) {
  for (std::uint64_t step = 1; step < 1'200; ++step) {
    ReplayWindow window;
    window.mark(1'000, Instant{});
    window.mark(990, Instant{});
    window.mark(1'000 + step, Instant{});
    EXPECT_NE(window.check(990), Freshness::fresh) << step;
    EXPECT_NE(window.check(1'000), Freshness::fresh) << step;
  }
}

TEST(Expand, FindsTheNumberNearestToTheNextExpected) {
  constexpr std::uint64_t kWindow = 1ULL << 24;
  EXPECT_EQ(expand(0, 0), 0U);
  EXPECT_EQ(expand(1, 0), 1U);
  EXPECT_EQ(expand(kWindow - 1, 0), kWindow - 1) << "never negative";
  EXPECT_EQ(expand(0, kWindow - 1), kWindow);
  EXPECT_EQ(expand(kWindow - 1, kWindow), kWindow - 1);
  EXPECT_EQ(expand(5, kWindow - 5), kWindow + 5);
  EXPECT_EQ(expand(0xb32, 0xaabb'0000'0b31), 0xaabb'0000'0b32U);
}

TEST(Expand, RestoresEveryNumberWithinHalfAWindow) {
  constexpr std::uint64_t kHalf = 1ULL << 23;
  Random random{3};
  for (int i = 0; i < 100'000; ++i) {
    const std::uint64_t largest = random.next() >> (2 + random.below(62));
    const std::uint64_t ahead = largest + 1 + random.below(kHalf);
    EXPECT_EQ(expand(static_cast<std::uint32_t>(ahead & 0xff'ffff), largest), ahead);
    const std::uint64_t behind = largest - std::min(largest, random.below(kHalf - 2));
    EXPECT_EQ(expand(static_cast<std::uint32_t>(behind & 0xff'ffff), largest), behind);
  }
}

TEST(Expand, StaysWithinRangeAtTheVeryEnd) {
  constexpr std::uint64_t kLast = ~std::uint64_t{0};
  EXPECT_EQ(expand(0xff'ffff, kLast), kLast);
  EXPECT_EQ(expand(0, kLast - 1) & 0xff'ffff, 0U);
}

}  // namespace
}  // namespace weir::peer
