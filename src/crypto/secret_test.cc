#include "crypto/secret.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <new>

namespace weir::crypto {
namespace {

Secret sevens() {
  std::array<std::byte, kSecretBytes> bytes;
  bytes.fill(std::byte{7});
  return Secret{bytes};
}

bool all_zero(ByteSpan bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

TEST(Secret, IsWipedWhenMovedFrom) {
  Secret from = sevens();
  Secret to = std::move(from);
  EXPECT_TRUE(all_zero(from.bytes()));  // NOLINT(bugprone-use-after-move): that is the promise
  EXPECT_TRUE(to == sevens());
  Secret assigned;
  assigned = std::move(to);
  EXPECT_TRUE(all_zero(to.bytes()));  // NOLINT(bugprone-use-after-move)
  EXPECT_TRUE(assigned == sevens());
}

TEST(Secret, IsWipedWhenDestroyed) {
  alignas(Secret) std::array<std::byte, sizeof(Secret)> memory;
  Secret* const secret = new (memory.data()) Secret{sevens()};
  EXPECT_FALSE(all_zero(memory));
  std::destroy_at(secret);
  EXPECT_TRUE(all_zero(memory));
}

TEST(Secret, ComparesEveryByteAndTheLength) {
  const Secret left = sevens();
  for (std::size_t i = 0; i < kSecretBytes; ++i) {
    Secret right = left;
    EXPECT_TRUE(left == right);
    right.writable()[i] ^= std::byte{0x80};
    EXPECT_FALSE(left == right);
  }
  EXPECT_FALSE(equal_in_constant_time(left.bytes(), left.bytes().first(31)));
  EXPECT_TRUE(equal_in_constant_time({}, {}));
}

}  // namespace
}  // namespace weir::crypto
