#include "crypto/prf.h"

#include <gtest/gtest.h>

#include <set>

#include "crypto/test_hex.h"

namespace weir::crypto {
namespace {

TEST(Prf, GivesTheSameBytesForTheSameSequenceInEveryBackend) {
  const KeyBytes key{std::byte{1}, std::byte{2}, std::byte{3}};
  const auto reference = Aead::create(Backend::openssl);
  const Prf expected{*reference, key};
  for (const BackendInfo& info : available_backends()) {
    const auto aead = Aead::create(info.backend);
    const Prf prf{*aead, key};
    for (const std::uint64_t sequence : {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}}) {
      EXPECT_EQ(prf(sequence, Prf::Context{}), expected(sequence, Prf::Context{}));
      EXPECT_EQ(prf(sequence, Prf::Context{}), prf(sequence, Prf::Context{}));
    }
  }
}

TEST(Prf, GivesDifferentBytesForDifferentSequencesAndKeys) {
  const auto aead = Aead::create(default_backend().backend);
  std::set<std::array<std::byte, 32>> seen;
  for (std::uint8_t k = 0; k < 4; ++k) {
    const Prf prf{*aead, KeyBytes{std::byte{k}}};
    for (std::uint64_t sequence = 0; sequence < 1000; ++sequence)
      EXPECT_TRUE(seen.insert(prf(sequence, Prf::Context{})).second);
  }
}

TEST(Prf, FillsBothHalves) {
  const auto aead = Aead::create(default_backend().backend);
  const Prf prf{*aead, KeyBytes{}};
  const auto bytes = prf(1, Prf::Context{});
  const std::string text = to_hex(bytes);
  EXPECT_NE(text.substr(0, 32), text.substr(32));
  EXPECT_NE(text.substr(32), std::string(32, '0'));
}

TEST(Prf, DependsOnEveryByteOfItsContext) {
  const auto aead = Aead::create(default_backend().backend);
  const Prf prf{*aead, KeyBytes{}};
  std::set<std::array<std::byte, 32>> seen{prf(1, Prf::Context{})};
  for (std::size_t i = 0; i < sizeof(Prf::Context); ++i) {
    Prf::Context context{};
    context[i] = std::byte{1};
    EXPECT_TRUE(seen.insert(prf(1, context)).second) << i;
  }
}

}  // namespace
}  // namespace weir::crypto
