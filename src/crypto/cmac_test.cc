#include "crypto/cmac.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/random.h"
#include "crypto/test_hex.h"

namespace weir::crypto {
namespace {

KeyBytes key_of(std::string_view hex) {
  KeyBytes key;
  std::ranges::copy(from_hex(hex), key.begin());
  return key;
}

// RFC 4493, section 4.
TEST(Cmac, GivesThePublishedTagsInEveryBackend) {
  const KeyBytes key = key_of("2b7e151628aed2a6abf7158809cf4f3c");
  const auto message = from_hex(
      "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51"
      "30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710");
  for (const BackendInfo& info : available_backends()) {
    SCOPED_TRACE(info.name);
    const Cmac mac(*Aead::create(info.backend), key);
    for (int again = 0; again < 2; ++again) {
      EXPECT_EQ(to_hex(mac(ByteSpan(message).first(0))), "bb1d6929e95937287fa37d129b756746");
      EXPECT_EQ(to_hex(mac(ByteSpan(message).first(16))), "070a16b46b4d4144f79bdd9dd04a287c");
      EXPECT_EQ(to_hex(mac(ByteSpan(message).first(40))), "dfa66747de9ae63030ca32611497c827");
      EXPECT_EQ(to_hex(mac(message)), "51f0bebf7e3b9d92fc49741779363cfe");
    }
  }
}

TEST(Cmac, IsTheSameInEveryBackendForEveryLengthAndAfterAChangeOfKey) {
  const auto reference = Aead::create(Backend::openssl);
  Random random{3};
  std::array<std::byte, Cmac::kMaxBytes> message;
  for (std::byte& byte : message) byte = static_cast<std::byte>(random.next());
  for (const BackendInfo& info : available_backends()) {
    SCOPED_TRACE(info.name);
    Cmac scratch(*Aead::create(info.backend), KeyBytes{});
    for (std::size_t bytes = 0; bytes <= message.size(); ++bytes) {
      KeyBytes key;
      for (std::byte& byte : key) byte = static_cast<std::byte>(random.next());
      scratch.rekey(key);
      EXPECT_EQ(scratch(ByteSpan(message).first(bytes)), Cmac(*reference, key)(ByteSpan(message).first(bytes)));
    }
  }
}

TEST(Cmac, DependsOnEveryBitAndOnTheLength) {
  for (const BackendInfo& info : available_backends()) {
    const Cmac mac(*Aead::create(info.backend), KeyBytes{});
    std::array<std::byte, 40> message{};
    std::set<Cmac::Tag> seen;
    for (std::size_t bytes = 0; bytes <= message.size(); ++bytes) {
      EXPECT_TRUE(seen.insert(mac(ByteSpan(message).first(bytes))).second);
    }
    for (std::size_t bit = 0; bit < 8 * message.size(); ++bit) {
      message[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
      EXPECT_TRUE(seen.insert(mac(message)).second);
      message[bit / 8] = std::byte{0};
    }
  }
}

TEST(Cmac, VerifiesItsOwnTagAndNoOther) {
  for (const BackendInfo& info : available_backends()) {
    const Cmac mac(*Aead::create(info.backend), KeyBytes{});
    const auto message = from_hex("000102030405060708090a0b0c0d0e0f10");
    Cmac::Tag tag = mac(message);
    EXPECT_TRUE(mac.verify(message, tag.data()));
    for (std::size_t bit = 0; bit < 8 * tag.size(); ++bit) {
      tag[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
      EXPECT_FALSE(mac.verify(message, tag.data()));
      tag[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    }
    EXPECT_FALSE(mac.verify(ByteSpan(message).first(16), tag.data()));
  }
}

}  // namespace
}  // namespace weir::crypto
