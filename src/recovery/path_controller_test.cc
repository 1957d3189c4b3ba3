// Which controller a path has (docs/protocol.md, rule N-17).
#include "recovery/path_controller.h"

#include <gtest/gtest.h>

namespace weir::recovery {
namespace {

using namespace std::chrono_literals;

constexpr Instant kSent{1'000'000'000};

TEST(PathController, AModelGoesOnFromTheWindow) {
  Random random(1);
  PathController controller;
  controller.set_mtu(1'472);
  const std::uint64_t window = controller.window();
  const AckedBatch batch{.bytes = 2 * 1'472,
                         .in_flight_before = window,
                         .in_flight = window - 2 * 1'472,
                         .largest_sent_at = kSent,
                         .smoothed_rtt = 10ms,
                         .prompt_rtt = 10ms};
  controller.start_model(batch, random);
  ASSERT_TRUE(controller.has_model());
  EXPECT_EQ(controller.window(), window);
  EXPECT_GT(controller.pacing_rate(), window * 100) << "more than a window in a round trip";
  controller.on_acked(batch, kSent + 10ms);
  EXPECT_EQ(controller.model()->maximum_rate(), 2 * 1'472 * 100U) << "the first sample counts";
  EXPECT_EQ(controller.window(), window + batch.bytes);
}

TEST(PathController, WithoutAModelTheWindowIsWhatItWas) {
  Random random(1);
  PathController controller;
  const std::uint64_t window = controller.window();
  controller.start_model({.in_flight_before = window, .largest_sent_at = kSent, .smoothed_rtt = 10ms}, random);
  controller.on_persistent_congestion(kSent);
  EXPECT_LT(controller.window(), window);
  controller.stop_model();
  EXPECT_FALSE(controller.has_model());
  EXPECT_EQ(controller.window(), window);
}

}  // namespace
}  // namespace weir::recovery
