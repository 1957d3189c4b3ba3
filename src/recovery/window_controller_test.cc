// The window (docs/protocol.md, rules N-1 to N-5 and A-10).
#include "recovery/window_controller.h"

#include <gtest/gtest.h>

namespace weir::recovery {
namespace {

using namespace std::chrono_literals;

// Fills the window and acknowledges it all, one round trip later.
Instant round(WindowController& controller, Instant now) {
  const std::uint64_t window = controller.window();
  controller.on_sent(window, window, now);
  controller.on_acked({.bytes = window, .in_flight_before = window, .largest_sent_at = now, .smoothed_rtt = 100us},
                      now + 100us);
  return now + 100us;
}

TEST(WindowController, DoublesEachRoundInSlowStart) {
  WindowController controller;
  const std::uint64_t initial = controller.window();
  EXPECT_EQ(initial, 64U * 1024);
  Instant now{};
  now = round(controller, now);
  EXPECT_EQ(controller.window(), 2 * initial);
  round(controller, now);
  EXPECT_EQ(controller.window(), 4 * initial);
}

TEST(WindowController, StartsWithAtLeastTenPackets) { EXPECT_EQ(WindowController({.mtu = 9'000}).window(), 90'000U); }

TEST(WindowController, DoesNotGrowWhileTheApplicationUsesLittleOfIt) {
  WindowController controller;
  const std::uint64_t initial = controller.window();
  Instant now{};
  for (int i = 0; i < 100; ++i) {
    controller.on_sent(2'000, 2'000, now);
    controller.on_acked({.bytes = 2'000, .in_flight_before = 2'000, .largest_sent_at = now, .smoothed_rtt = 100us},
                        now + 100us);
    now = now + 200us;
  }
  EXPECT_EQ(controller.window(), initial);
}

TEST(WindowController, ReducesOncePerRoundAndThenGrowsByAPacketARound) {
  WindowController controller;
  Instant now = round(controller, Instant{});
  const std::uint64_t before = controller.window();
  controller.on_lost({.bytes = 1'200, .packets = 1, .largest_sent_at = now}, now + 100us);
  const std::uint64_t reduced = controller.window();
  EXPECT_EQ(reduced, before * 7 / 10);
  EXPECT_FALSE(controller.in_slow_start());
  controller.on_lost({.bytes = 1'200, .packets = 1, .largest_sent_at = now + 50us}, now + 150us);
  controller.on_ecn_ce(3, now + 60us, now + 150us);
  EXPECT_EQ(controller.window(), reduced);
  now = round(controller, now + 200us);
  EXPECT_EQ(controller.window(), reduced + 1'200);
}

TEST(WindowController, ACongestionMarkReducesLikeALoss) {
  WindowController controller;
  const std::uint64_t before = controller.window();
  controller.on_ecn_ce(0, Instant{5}, Instant{10});
  EXPECT_EQ(controller.window(), before);
  controller.on_ecn_ce(1, Instant{5}, Instant{10});
  EXPECT_EQ(controller.window(), before * 7 / 10);
}

TEST(WindowController, NeverFallsBelowTwoPackets) {
  WindowController controller;
  for (int i = 1; i < 100; ++i) {
    controller.on_lost({.bytes = 1, .packets = 1, .largest_sent_at = Instant{i}}, Instant{i});
  }
  EXPECT_EQ(controller.window(), 2'400U);
  controller.set_mtu(9'000);
  EXPECT_EQ(controller.window(), 18'000U);
}

TEST(WindowController, PersistentCongestionStartsOverAtTheMinimum) {
  WindowController controller;
  controller.on_lost({.bytes = 1, .packets = 1, .largest_sent_at = Instant{1}}, Instant{2});
  controller.on_persistent_congestion(Instant{2});
  EXPECT_EQ(controller.window(), 2'400U);
  EXPECT_TRUE(controller.in_slow_start());
}

TEST(WindowController, UndoesAReductionWhenEveryLossWasSpurious) {
  WindowController controller;
  const std::uint64_t before = controller.window();
  controller.on_lost({.bytes = 2'400, .packets = 2, .largest_sent_at = Instant{1}}, Instant{2});
  controller.on_spurious_loss(1, Instant{3});
  EXPECT_LT(controller.window(), before);
  controller.on_spurious_loss(1, Instant{3});
  EXPECT_EQ(controller.window(), before);
  EXPECT_TRUE(controller.in_slow_start());
}

TEST(WindowController, UndoesReductionsThatFollowEachOtherTogether) {
  WindowController controller;
  Instant now = round(controller, Instant{});
  const std::uint64_t before = controller.window();
  controller.on_lost({.bytes = 2'400, .packets = 2, .largest_sent_at = now}, now + 100us);
  controller.on_lost({.bytes = 1'200, .packets = 1, .largest_sent_at = now + 150us}, now + 250us);
  EXPECT_LT(controller.window(), before * 6 / 10);
  controller.on_spurious_loss(3, now + 300us);
  EXPECT_EQ(controller.window(), before);
}

TEST(WindowController, KeepsAReductionThatWasNotRefutedInTime) {
  WindowController controller;
  Instant now = round(controller, Instant{});
  controller.on_lost({.bytes = 2'400, .packets = 2, .largest_sent_at = now}, now + 100us);
  const std::uint64_t reduced = controller.window();
  now = now + 100us * 20;
  controller.on_lost({.bytes = 1'200, .packets = 1, .largest_sent_at = now}, now + 100us);
  controller.on_spurious_loss(1, now + 200us);
  EXPECT_EQ(controller.window(), reduced) << "only the second one is undone";
}

TEST(WindowController, PacesFasterThanAWindowPerRoundTripOnceItKnowsOne) {
  WindowController controller;
  EXPECT_EQ(controller.pacing_rate(), 0U);
  round(controller, Instant{});
  const std::uint64_t per_s = controller.window() * 10'000;
  EXPECT_NEAR(static_cast<double>(controller.pacing_rate()), 2.0 * static_cast<double>(per_s), 10.0);
}

TEST(WindowController, KeepsToItsLargestWindow) {
  WindowController controller{{.largest_window = 200'000}};
  Instant now{};
  for (int i = 0; i < 10; ++i) now = round(controller, now);
  EXPECT_EQ(controller.window(), 200'000U);
}

}  // namespace
}  // namespace weir::recovery
