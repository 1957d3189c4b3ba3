#include "crypto/hkdf.h"

#include <gtest/gtest.h>

#include "crypto/test_hex.h"

namespace weir::crypto {
namespace {

std::vector<std::byte> counting(unsigned first, std::size_t size) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < size; ++i) bytes.push_back(static_cast<std::byte>(first + i));
  return bytes;
}

struct Case {
  std::vector<std::byte> input, salt, info;
  const char *extracted, *expanded;
};

void expect_case(const Case& c) {
  const Secret extracted = hkdf_extract(c.salt, c.input);
  EXPECT_EQ(to_hex(extracted.bytes()), c.extracted);
  std::vector<std::byte> out(std::string_view{c.expanded}.size() / 2);
  hkdf_expand(extracted, c.info, out);
  EXPECT_EQ(to_hex(out), c.expanded);
}

// RFC 5869, appendix A.
TEST(Hkdf, GivesThePublishedBasicVector) {
  expect_case({std::vector<std::byte>(22, std::byte{0x0b}), counting(0x00, 13), counting(0xf0, 10),
               "077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5",
               "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"});
}

TEST(Hkdf, GivesThePublishedVectorWithLongInputs) {
  expect_case({counting(0x00, 80), counting(0x60, 80), counting(0xb0, 80),
               "06a6b88c5853361a06104c9ceb35b45cef760014904671014a193f40c15fc244",
               "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c"
               "59045a99cac7827271cb41c65e590e09da3275600c2f09b8367793a9aca3db71"
               "cc30c58179ec3e87c14c01d5c1f3434f1d87"});
}

TEST(Hkdf, GivesThePublishedVectorWithoutSaltAndInfo) {
  expect_case({std::vector<std::byte>(22, std::byte{0x0b}),
               {},
               {},
               "19ef24a32c717b167f33a91d6f648bdf96596776afdb6377ac434c1c293ccb04",
               "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8"});
}

TEST(Hkdf, ShorterOutputIsAPrefixOfLongerOutput) {
  const Secret key = hkdf_extract({}, counting(1, 40));
  std::vector<std::byte> whole(kMaxExpandBytes);
  hkdf_expand(key, counting(9, 5), whole);
  for (const std::size_t size : {0, 1, 31, 32, 33, 64, 8159}) {
    std::vector<std::byte> part(size);
    hkdf_expand(key, counting(9, 5), part);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin())) << size;
  }
}

}  // namespace
}  // namespace weir::crypto
