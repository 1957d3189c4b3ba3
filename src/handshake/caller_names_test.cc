#include "handshake/caller_names.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace weir::handshake {
namespace {

CredentialId id_of(std::uint32_t number) {
  CredentialId id{};
  std::memcpy(id.data(), &number, sizeof number);
  return id;
}

TEST(CallerNames, AreThereForAsLongAsTheCredentialIs) {
  CallerNames names;
  const auto is_known = [](const CredentialId& id) { return id == id_of(7); };
  for (std::uint32_t i = 0; i < 1'000; ++i) {
    names.keep(id_of(i), {"a.test", std::to_string(i) + ".test"}, is_known);
    EXPECT_LE(names.size(), CallerNames::kAtLeast);
    ASSERT_NE(names.find(id_of(i)), nullptr);
    EXPECT_EQ(names.find(id_of(i))->back(), std::to_string(i) + ".test");
  }
  EXPECT_EQ(*names.find(id_of(7)), (std::vector<std::string>{"a.test", "7.test"}));
  EXPECT_EQ(names.find(id_of(8)), nullptr);
}

// Whoever makes many handshakes would otherwise have us keep all its names as often.
TEST(CallerNames, OfOneCertificateAreKeptOnce) {
  CallerNames names;
  const auto is_known = [](const CredentialId&) { return true; };
  for (std::uint32_t i = 0; i < 1'000; ++i) names.keep(id_of(i), {"a.test", "b.test"}, is_known);
  EXPECT_EQ(names.size(), 1'000u);
  for (std::uint32_t i = 1; i < 1'000; ++i) EXPECT_EQ(names.find(id_of(i)), names.find(id_of(0)));
}

TEST(CallerNames, OfTooManyCertificatesProveNothing) {
  CallerNames names;
  bool are_known = true;
  const auto is_known = [&](const CredentialId&) { return are_known; };
  const auto many = [](std::uint32_t number) {
    return std::vector<std::string>(64, std::string(200, 'a') + std::to_string(number));
  };
  std::uint32_t number = 0;
  for (; number < 2'000; ++number) {
    names.keep(id_of(number), many(number), is_known);
    if (names.find(id_of(number))->empty()) break;
  }
  EXPECT_GT(number, 900u);
  ASSERT_LT(number, 1'100u);
  EXPECT_EQ(*names.find(id_of(0)), many(0));
  names.keep(id_of(number), many(0), is_known);  // which is there
  EXPECT_EQ(*names.find(id_of(number)), many(0));
  are_known = false;
  names.keep(id_of(number), many(number), is_known);
  EXPECT_EQ(*names.find(id_of(number)), many(number));
  EXPECT_EQ(names.size(), 1u);
}

}  // namespace
}  // namespace weir::handshake
