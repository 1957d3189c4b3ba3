// How late packets are that are overtaken (docs/protocol.md, rule A-6).
#include "recovery/reordering.h"

#include <gtest/gtest.h>

namespace weir::recovery {
namespace {

using namespace std::chrono_literals;

TEST(Reordering, KnowsOfNoneAtFirst) {
  Reordering reordering;
  EXPECT_FALSE(reordering.is_known());
  EXPECT_EQ(reordering.delay(), 0ns);
}

TEST(Reordering, WaitsLongerThanTheLongestTimeSeen) {
  Reordering reordering;
  reordering.on_overtaken(4ms);
  EXPECT_TRUE(reordering.is_known());
  EXPECT_EQ(reordering.delay(), 5ms);
  reordering.on_overtaken(1ms);
  EXPECT_EQ(reordering.delay(), 5ms);
}

TEST(Reordering, ForgetsSlowlyAndOnlyWhileThereAreAcknowledgements) {
  Reordering reordering;
  Instant now{1'000'000};
  reordering.on_overtaken(8ms);
  for (int i = 0; i < 1'000; ++i) reordering.on_ack(2ms, now);
  EXPECT_GT(reordering.delay(), 9'980us) << "one step in a round trip";
  reordering.on_ack(2ms, now + 1h);
  EXPECT_GT(reordering.delay(), 9'960us) << "idle time does not count";
  now = now + 2h;
  for (int i = 0; i < 300; ++i, now = now + 2ms) reordering.on_ack(2ms, now);
  EXPECT_GT(reordering.delay(), 5ms);
  for (int i = 0; i < 1'000; ++i, now = now + 2ms) reordering.on_ack(2ms, now);
  EXPECT_FALSE(reordering.is_known());
}

}  // namespace
}  // namespace weir::recovery
