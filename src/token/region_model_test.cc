#include <gtest/gtest.h>

#include "token/region_model_testing.h"

namespace weir::token {
namespace {

class RegionTableModel : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(RegionTableModel, AgreesWithARecordOfEveryGrant) {
  Dice dice(GetParam());
  RegionModel model(dice);
  for (int i = 0; i < 8'000; ++i) model.step();
  EXPECT_GT(model.writes(), 100u);
  EXPECT_GT(model.refusals(), 100u);
  EXPECT_GT(model.completed(), 20u);
  EXPECT_GT(model.expired(), 20u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RegionTableModel, ::testing::Range<std::uint64_t>(1, 21));

}  // namespace
}  // namespace weir::token
