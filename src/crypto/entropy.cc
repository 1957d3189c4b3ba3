#include "crypto/entropy.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>

#include "base/check.h"

namespace weir::crypto {

void SystemEntropy::fill(MutableByteSpan out) {
  constexpr std::size_t kBytesPerCall = 256;  // what getentropy gives at most
  while (!out.empty()) {
    const std::size_t take = std::min(out.size(), kBytesPerCall);
    const int refused = getentropy(out.data(), take);
    WEIR_CHECK(refused == 0, "the operating system gave no random bytes");
    out = out.subspan(take);
  }
}

}  // namespace weir::crypto
