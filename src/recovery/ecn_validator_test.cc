// Whom to trust with marks (docs/protocol.md, rule N-6).
#include "recovery/ecn_validator.h"

#include <gtest/gtest.h>

namespace weir::recovery {
namespace {

using State = EcnValidator::State;

AckView counts(std::uint64_t ect0, std::uint64_t ce, std::uint64_t ect1 = 0) {
  return {.has_ecn = true, .ecn = {.ect0 = ect0, .ect1 = ect1, .ce = ce}};
}
LossReport acked(std::uint32_t ect0, bool advanced = true) {
  return {.largest_advanced = advanced, .acked_ect0 = ect0};
}

TEST(EcnValidator, MarksAFewPacketsAndWaitsForTheVerdict) {
  EcnValidator validator;
  for (std::uint32_t i = 0; i < EcnValidator::kTestPackets; ++i) {
    EXPECT_EQ(validator.mark(), EcnMark::ect0);
    validator.on_sent(validator.mark());
  }
  EXPECT_EQ(validator.mark(), EcnMark::none);
  EXPECT_EQ(validator.on_ack(counts(4, 0), acked(4)), 0U);
  EXPECT_EQ(validator.state(), State::capable);
  EXPECT_EQ(validator.mark(), EcnMark::ect0);
}

TEST(EcnValidator, ReportsNewCongestionMarksOnce) {
  EcnValidator validator;
  EXPECT_EQ(validator.on_ack(counts(3, 1), acked(4)), 1U);
  EXPECT_EQ(validator.on_ack(counts(5, 3), acked(4)), 2U);
  EXPECT_EQ(validator.on_ack(counts(6, 3), acked(1)), 0U);
}

TEST(EcnValidator, DistrustsAPathThatBleachesMarks) {
  EcnValidator none;
  none.on_ack({.has_ecn = false}, acked(4));
  EXPECT_EQ(none.state(), State::failed);
  EXPECT_EQ(none.mark(), EcnMark::none);
  EcnValidator some;
  some.on_ack(counts(3, 0), acked(4));
  EXPECT_EQ(some.state(), State::failed);
}

TEST(EcnValidator, DistrustsCountsThatDecreaseOrWereInvented) {
  EcnValidator decreasing;
  decreasing.on_ack(counts(10, 2), acked(4));
  EXPECT_EQ(decreasing.on_ack(counts(20, 1), acked(1)), 0U);
  EXPECT_EQ(decreasing.state(), State::failed);
  EcnValidator inventing;
  inventing.on_ack(counts(4, 0, 1), acked(4));
  EXPECT_EQ(inventing.state(), State::failed);
}

TEST(EcnValidator, DoesNotJudgeAnAcknowledgementThatWasOvertaken) {
  EcnValidator validator;
  validator.on_ack(counts(10, 0), acked(10));
  EXPECT_EQ(validator.on_ack(counts(5, 0), acked(1, false)), 0U);
  EXPECT_EQ(validator.state(), State::capable);
}

TEST(EcnValidator, DistrustsAPathThatDropsAllMarkedPackets) {
  EcnValidator validator;
  for (std::uint32_t i = 0; i < EcnValidator::kTestPackets; ++i) {
    EXPECT_EQ(validator.state(), State::testing);
    validator.on_lost(EcnMark::ect0);
  }
  EXPECT_EQ(validator.state(), State::failed);
}

TEST(EcnValidator, StaysUndecidedWhileOnlyUnmarkedPacketsAreAcknowledged) {
  EcnValidator validator;
  validator.on_ack({.has_ecn = false}, acked(0));
  EXPECT_EQ(validator.state(), State::testing);
}

}  // namespace
}  // namespace weir::recovery
