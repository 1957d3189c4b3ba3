#include <gtest/gtest.h>

#include "token/token_cache_model_testing.h"

namespace weir::token {
namespace {

class TokenCacheAndModel : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(TokenCacheAndModel, AgreesWithAPlainList) {
  Dice dice(GetParam());
  TokenCacheModel model(dice);
  for (int i = 0; i < 10'000; ++i) model.step();
  EXPECT_GT(model.taken(), 100u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, TokenCacheAndModel, ::testing::Range<std::uint64_t>(1, 21));

}  // namespace
}  // namespace weir::token
