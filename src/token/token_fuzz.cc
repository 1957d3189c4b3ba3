// The input chooses operations on a ledger, a table of regions or a cache of tokens, each beside its model. The first
// byte says which.
#include <cstddef>
#include <cstdint>

#include "token/grant_model_testing.h"
#include "token/region_model_testing.h"
#include "token/token_cache_model_testing.h"

namespace {

using namespace weir::token;

constexpr int kMostSteps = 1'000;

template <class Model>
void run(Model& model, const Dice& dice) {
  for (int i = 0; i < kMostSteps && !dice.used_up(); ++i) model.step();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  Dice dice(data + 1, size - 1);
  switch (data[0] % 3) {
    case 0: {
      GrantModel model(dice);
      run(model, dice);
      model.drain();
      break;
    }
    case 1: {
      RegionModel model(dice);
      run(model, dice);
      break;
    }
    default: {
      TokenCacheModel model(dice);
      run(model, dice);
      break;
    }
  }
  return 0;
}
