#include "base/time.h"

#include <gtest/gtest.h>

namespace weir {
namespace {

using namespace std::chrono_literals;

TEST(Instant, MovesByDurations) {
  constexpr Instant start{1'000};
  EXPECT_EQ((start + 2us).ns, 3'000);
  EXPECT_EQ((start - 1us).ns, 0);
  EXPECT_EQ((start + 5ms) - start, 5ms);
  EXPECT_LT(start, start + 1ns);
}

TEST(Instant, NeverIsAfterEverything) {
  EXPECT_TRUE(Instant::never().is_never());
  EXPECT_FALSE(Instant{}.is_never());
  EXPECT_LT(Instant{} + 24h * 365 * 200, Instant::never());
  EXPECT_EQ(earliest(Instant::never(), Instant{5}), Instant{5});
  EXPECT_EQ(earliest(Instant{4}, Instant{5}), Instant{4});
}

TEST(Instant, ADeadlineTooFarAwayIsNever) {
  EXPECT_TRUE((Instant{1'000} + Duration::max()).is_never());
  EXPECT_EQ((Instant{1'000} + Duration{5}).ns, 1'005);
}

}  // namespace
}  // namespace weir
