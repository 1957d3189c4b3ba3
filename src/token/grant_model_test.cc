#include <gtest/gtest.h>

#include "token/grant_model_testing.h"

namespace weir::token {
namespace {

class GrantLedgerModel : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(GrantLedgerModel, KeepsItsBoundsAndItsOrderAndServesEverybody) {
  Dice dice(GetParam());
  GrantModel model(dice);
  for (int i = 0; i < 5'000; ++i) model.step();
  model.drain();
  EXPECT_GT(model.grants(), 500u);
  EXPECT_GT(model.stuck(), 500u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, GrantLedgerModel, ::testing::Range<std::uint64_t>(1, 21));

}  // namespace
}  // namespace weir::token
