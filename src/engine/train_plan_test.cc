// How packets end that something did not fit into.
#include "engine/train_plan.h"

#include <gtest/gtest.h>

namespace weir::engine {
namespace {

using End = TrainPlan::End;

TrainPlan plan_of(std::size_t packets, std::size_t bytes) {
  TrainPlan plan;
  for (std::size_t i = 0; i < packets; ++i) plan.add(bytes, 0, false);
  return plan;
}

TEST(TrainPlan, MakesAllPacketsAsLongAsTheFirstIfMessagesLikeTheNextOneFillThem) {
  const TrainPlan plan;
  // One message of 800 bytes in each, 24 of packet and 24 of frame around it.
  EXPECT_EQ(plan.end_of({.bytes = 848, .size = 1'472, .next_bytes = 824, .may_split = true}), End::as_it_is);
  // Two of them.
  EXPECT_EQ(plan.end_of({.bytes = 1'024, .size = 1'472, .next_bytes = 500}), End::as_it_is);
}

TEST(TrainPlan, SplitsTheNextMessageIfTheFirstPacketWouldBeTooShortForIt) {
  const TrainPlan plan;
  EXPECT_EQ(plan.end_of({.bytes = 348, .size = 1'472, .next_bytes = 1'424, .may_split = true}), End::split);
  EXPECT_EQ(plan.end_of({.bytes = 1'200, .size = 1'472, .next_bytes = 700, .may_split = true}), End::split);
  EXPECT_EQ(plan.end_of({.bytes = 1'200, .size = 1'472, .next_bytes = 490}), End::as_it_is);
}

TEST(TrainPlan, SplitsForALargeRestOnlyWhereOnePacketIsATrain) {
  const TrainPlan plan;
  EXPECT_EQ(plan.end_of({.bytes = 49'248, .size = 65'507, .next_bytes = 16'408, .may_split = true}), End::split);
  EXPECT_EQ(plan.end_of({.bytes = 60'144, .size = 65'507, .next_bytes = 12'024, .may_split = true}), End::as_it_is);
  EXPECT_EQ(plan.end_of({.bytes = 49'248, .size = 65'507, .next_bytes = 16'408}), End::as_it_is);
}

TEST(TrainPlan, PadsWhatIsLittleBesideTheTrain) {
  EXPECT_EQ(plan_of(1, 1'472).end_of({.bytes = 1'400, .size = 1'472, .next_bytes = 500, .may_split = true}),
            End::padded);
  EXPECT_EQ(plan_of(1, 1'472).end_of({.bytes = 1'300, .size = 1'472, .next_bytes = 900, .may_split = true}),
            End::split);
  EXPECT_EQ(plan_of(10, 1'472).end_of({.bytes = 1'300, .size = 1'472, .next_bytes = 900, .may_split = true}),
            End::padded);
  EXPECT_EQ(plan_of(1, 1'472).end_of({.bytes = 1'100, .size = 1'472, .next_bytes = 490}), End::last);
  EXPECT_EQ(plan_of(1, 1'472).end_of({.bytes = 1'200, .size = 1'472, .next_bytes = 490}), End::padded);
}

TEST(TrainPlan, CountsThePaddingOfAllItsPackets) {
  TrainPlan plan = plan_of(1, 1'472);
  int padded = 0;
  constexpr std::size_t kRest = 300;
  for (; padded < 64; ++padded) {
    if (plan.end_of({.bytes = 1'472 - kRest, .size = 1'472, .next_bytes = 490}) != End::padded) break;
    plan.add(1'472, kRest, false);
  }
  EXPECT_EQ(padded, 1);
}

TEST(TrainPlan, EndsSoonIfAnAcknowledgementMadeTheFirstPacketLonger) {
  for (const bool has_ack : {true, false}) {
    TrainPlan plan;
    plan.add(894, 0, has_ack);
    plan.add(894, 46, false);
    EXPECT_EQ(plan.end_of({.bytes = 848, .size = 894, .next_bytes = 824}), has_ack ? End::last : End::padded);
  }
}

TEST(TrainPlan, LeavesItsLastPacketAsShortAsItIs) {
  EXPECT_EQ(
      plan_of(40, 1'472).end_of({.bytes = 700, .size = 1'472, .next_bytes = 900, .may_split = true, .is_final = true}),
      End::last);
}

}  // namespace
}  // namespace weir::engine
