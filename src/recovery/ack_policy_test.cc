// When acknowledgements go (docs/protocol.md, rule A-2).
#include "recovery/ack_policy.h"

#include <gtest/gtest.h>

namespace weir::recovery {
namespace {

using namespace std::chrono_literals;

constexpr Instant kNow{1'000'000};

TEST(AckPolicy, OwesNothingForPacketsThatElicitNothing) {
  AckPolicy policy;
  policy.on_received(0, 100, false, false, kNow);
  EXPECT_FALSE(policy.wanted());
  EXPECT_TRUE(policy.deadline().is_never());
}

TEST(AckPolicy, WaitsForTheDelayFromTheFirstUnacknowledgedPacket) {
  AckPolicy policy;
  policy.on_received(0, 100, true, false, kNow);
  policy.on_received(1, 100, true, false, kNow + 300us);
  EXPECT_TRUE(policy.wanted());
  EXPECT_EQ(policy.deadline(), kNow + 1ms);
  EXPECT_FALSE(policy.due(kNow + 999us));
  EXPECT_TRUE(policy.due(kNow + 1ms));
  policy.on_ack_sent();
  EXPECT_FALSE(policy.wanted());
  EXPECT_FALSE(policy.due(kNow + 10s));
}

TEST(AckPolicy, AcknowledgesEverySixteenthPacketAtOnce) {
  AckPolicy policy;
  for (std::uint64_t number = 0; number < 15; ++number) policy.on_received(number, 100, true, false, kNow);
  EXPECT_FALSE(policy.due(kNow));
  policy.on_received(15, 100, true, false, kNow);
  EXPECT_TRUE(policy.due(kNow));
}

TEST(AckPolicy, ReportsAGapAndItsFillingAtOnce) {
  AckPolicy policy;
  policy.on_received(0, 100, true, false, kNow);
  policy.on_received(2, 100, true, false, kNow);
  EXPECT_TRUE(policy.due(kNow));
  policy.on_ack_sent();
  policy.on_received(1, 100, true, false, kNow);
  EXPECT_TRUE(policy.due(kNow));
  policy.on_ack_sent();
  policy.on_received(3, 100, true, false, kNow);
  EXPECT_FALSE(policy.due(kNow));
}

// Packets that overtake each other fill the gaps that they leave.
TEST(AckPolicy, ReportsGapsALittleLaterWherePacketsOvertakeEachOther) {
  AckPolicy policy;
  policy.on_received(1, 100, true, false, kNow);
  EXPECT_TRUE(policy.due(kNow)) << "the first gap is a loss for all that is known";
  policy.on_ack_sent();
  policy.on_received(0, 100, true, false, kNow);
  policy.on_ack_sent();
  policy.on_received(3, 100, true, false, kNow);
  EXPECT_EQ(policy.deadline(), kNow + 250us);
  policy.on_received(2, 100, true, false, kNow + 100us);
  EXPECT_EQ(policy.deadline(), kNow + 250us) << "not put off";
  for (std::uint64_t number = 4; number < 18; ++number) policy.on_received(number, 100, true, false, kNow + 100us);
  EXPECT_TRUE(policy.due(kNow + 100us)) << "sixteen packets";
}

TEST(AckPolicy, ReportsGapsAtOnceAgainWhenTheyAreFilledNoMore) {
  AckPolicy policy;
  policy.on_received(1, 100, true, false, kNow);
  policy.on_received(0, 100, true, false, kNow);
  policy.on_ack_sent();
  int late = 0;
  for (std::uint64_t number = 3; number < 1'000; number += 2) {
    policy.on_received(number, 100, true, false, kNow);
    if (policy.due(kNow)) break;
    ++late;
    policy.on_ack_sent();
  }
  EXPECT_EQ(late, AckPolicy::kMostOvertaken / 4);
}

TEST(AckPolicy, ReportsTheFirstOfARunOfCongestionMarksAtOnce) {
  AckPolicy policy;
  policy.on_received(0, 100, true, true, kNow);
  EXPECT_TRUE(policy.due(kNow));
  policy.on_ack_sent();
  policy.on_received(1, 100, true, true, kNow);
  EXPECT_FALSE(policy.due(kNow));
  policy.on_received(2, 100, true, false, kNow);
  policy.on_received(3, 100, true, true, kNow);
  EXPECT_TRUE(policy.due(kNow));
}

TEST(AckPolicy, DoesNotTakeAnAcknowledgementInBetweenForAGap) {
  AckPolicy policy;
  policy.on_received(0, 100, true, false, kNow);
  policy.on_received(1, 100, false, false, kNow);
  policy.on_received(2, 100, true, false, kNow);
  EXPECT_FALSE(policy.due(kNow));
}

TEST(AckPolicy, AcknowledgesFewLargePacketsSoonAndMoreOfThemAtOnce) {
  AckPolicy policy;
  policy.on_received(0, 40'000, true, false, kNow);
  EXPECT_EQ(policy.deadline(), kNow + 1ms);
  policy.on_received(1, 40'000, true, false, kNow + 10us);
  EXPECT_EQ(policy.deadline(), kNow + 42us);
  policy.on_received(2, 40'000, true, false, kNow + 20us);
  policy.on_received(3, 40'000, true, false, kNow + 30us);
  EXPECT_EQ(policy.deadline(), kNow + 42us) << "not put off";
  policy.on_received(4, 40'000, true, false, kNow + 35us);
  EXPECT_TRUE(policy.due(kNow + 35us));
  policy.on_ack_sent();
  policy.on_received(5, 40'000, true, false, kNow);
  EXPECT_FALSE(policy.due(kNow + 50us));
}

}  // namespace
}  // namespace weir::recovery
