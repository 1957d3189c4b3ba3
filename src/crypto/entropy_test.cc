#include "crypto/entropy.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <vector>

namespace weir::crypto {
namespace {

TEST(SystemEntropy, NeverGivesTheSameBytesTwice) {
  SystemEntropy entropy;
  std::set<std::array<std::byte, 16>> seen;
  for (int i = 0; i < 1000; ++i) {
    std::array<std::byte, 16> bytes{};
    entropy.fill(bytes);
    EXPECT_TRUE(seen.insert(bytes).second);
  }
}

TEST(SystemEntropy, FillsABufferToItsEnd) {
  SystemEntropy entropy;
  for (const std::size_t size : {0, 1, 255, 256, 257, 1000}) {
    // A byte that stays zero in eight fills was not filled: by chance that happens to one in 2^64.
    std::vector<std::byte> joined(size);
    for (int i = 0; i < 8; ++i) {
      std::vector<std::byte> bytes(size);
      entropy.fill(bytes);
      for (std::size_t at = 0; at < size; ++at) joined[at] |= bytes[at];
    }
    for (const std::byte byte : joined) ASSERT_NE(byte, std::byte{0});
  }
}

}  // namespace
}  // namespace weir::crypto
