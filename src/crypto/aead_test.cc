#include "crypto/aead.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <ostream>
#include <string>

#include "base/random.h"
#include "crypto/nonce_ledger.h"
#include "crypto/test_hex.h"

namespace weir::crypto {

// For the names of the tests.
void PrintTo(const BackendInfo& info, std::ostream* out) { *out << info.name; }

namespace {

using Bytes = std::vector<std::byte>;

Bytes random_bytes(Random& random, std::size_t size) {
  Bytes bytes(size);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random.next());
  return bytes;
}

KeyBytes random_key(Random& random) {
  KeyBytes key;
  for (auto& byte : key) byte = static_cast<std::byte>(random.next());
  return key;
}

KeyBytes key_from(std::string_view hex) {
  const Bytes bytes = from_hex(hex);
  KeyBytes key;
  std::copy_n(bytes.begin(), key.size(), key.begin());
  return key;
}

Nonce nonce_from(std::string_view hex) {
  const Bytes bytes = from_hex(hex);
  Nonce nonce;
  std::copy_n(bytes.begin(), nonce.size(), nonce.begin());
  return nonce;
}

bool all_zero(ByteSpan bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

std::string identifier(const BackendInfo& info) {
  std::string name = info.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

class AeadOnEachBackend : public testing::TestWithParam<BackendInfo> {
 protected:
  void SetUp() override {
    forget_recorded_nonces();
    aead_ = Aead::create(GetParam().backend);
    ASSERT_NE(aead_, nullptr);
  }
  std::unique_ptr<Aead> aead_;
};

INSTANTIATE_TEST_SUITE_P(Backends, AeadOnEachBackend, testing::ValuesIn(available_backends()),
                         [](const auto& parameter) { return identifier(parameter.param); });

struct Vector {
  const char *key, *nonce, *plain, *aad, *sealed, *tag;
};

// The AES-128 cases with a 96-bit nonce of the GCM submission to NIST (McGrew and Viega), numbers 1 to 4.
constexpr Vector kPublished[] = {
    {"00000000000000000000000000000000", "000000000000000000000000", "", "", "", "58e2fccefa7e3061367f1d57a4e7455a"},
    {"00000000000000000000000000000000", "000000000000000000000000", "00000000000000000000000000000000", "",
     "0388dace60b6a392f328c2b971b2fe78", "ab6e47d42cec13bdf53a67b21257bddf"},
    {"feffe9928665731c6d6a8f9467308308", "cafebabefacedbaddecaf888",
     "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
     "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b391aafd255",
     "",
     "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e"
     "21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091473f5985",
     "4d5c2af327cd64a62cf35abd2ba6fab4"},
    {"feffe9928665731c6d6a8f9467308308", "cafebabefacedbaddecaf888",
     "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
     "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39",
     "feedfacedeadbeeffeedfacedeadbeefabaddad2",
     "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e"
     "21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091",
     "5bc94fbc3221a5db94fae95ae7121a47"},
};

TEST_P(AeadOnEachBackend, SealsAndOpensThePublishedVectors) {
  for (const Vector& vector : kPublished) {
    forget_recorded_nonces();  // two of the vectors share key and nonce
    const auto key = aead_->make_key(key_from(vector.key));
    const Nonce nonce = nonce_from(vector.nonce);
    const Bytes aad = from_hex(vector.aad);
    Bytes text = from_hex(vector.plain);
    std::byte tag[kTagBytes];
    key->seal(nonce, aad, text, tag);
    EXPECT_EQ(to_hex(text), vector.sealed);
    EXPECT_EQ(to_hex(tag), vector.tag);
    EXPECT_TRUE(key->open(nonce, aad, text, tag));
    EXPECT_EQ(to_hex(text), vector.plain);
  }
}

TEST_P(AeadOnEachBackend, SealsAndOpensThePublishedVectorsFromOnePlaceToAnother) {
  for (const Vector& vector : kPublished) {
    forget_recorded_nonces();
    const auto key = aead_->make_key(key_from(vector.key));
    const Nonce nonce = nonce_from(vector.nonce);
    const Bytes aad = from_hex(vector.aad);
    const Bytes plain = from_hex(vector.plain);
    Bytes sealed(plain.size());
    Bytes opened(plain.size());
    std::byte tag[kTagBytes];
    key->seal_into(nonce, aad, plain, sealed.data(), tag);
    EXPECT_EQ(to_hex(sealed), vector.sealed);
    EXPECT_EQ(to_hex(tag), vector.tag);
    EXPECT_EQ(to_hex(plain), vector.plain);
    EXPECT_TRUE(key->open_into(nonce, aad, sealed, opened.data(), tag));
    EXPECT_EQ(to_hex(opened), vector.plain);
    EXPECT_EQ(to_hex(sealed), vector.sealed);
  }
}

TEST_P(AeadOnEachBackend, SealingIntoAnotherPlaceEqualsSealingInPlaceAndTouchesNothingAround) {
  Random random{15};
  for (const std::size_t size : {0, 1, 15, 16, 17, 255, 4'096, 61'439, 61'440}) {
    const auto key = aead_->make_key(random_key(random));
    const Nonce nonce = make_nonce(2, size);
    const Bytes aad = random_bytes(random, 8);
    const Bytes plain = random_bytes(random, size);
    Bytes expected = plain;
    Bytes around(size + 32, std::byte{0xa5});
    std::byte tag[kTagBytes];
    std::byte expected_tag[kTagBytes];
    key->seal(nonce, aad, expected, expected_tag);
    forget_recorded_nonces();
    key->seal_into(nonce, aad, plain, around.data() + 16, tag);
    EXPECT_EQ(to_hex(tag), to_hex(expected_tag)) << size;
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), around.begin() + 16)) << size;
    for (std::size_t i = 0; i < 16; ++i) {
      EXPECT_EQ(around[i], std::byte{0xa5});
      EXPECT_EQ(around[size + 16 + i], std::byte{0xa5});
    }
  }
}

TEST_P(AeadOnEachBackend, OpeningIntoAnotherPlaceRefusesAForgeryWithZerosAndKeepsTheSource) {
  Random random{16};
  const auto key = aead_->make_key(random_key(random));
  for (const std::size_t size : {1, 16, 300, 61'440}) {
    const Nonce nonce = make_nonce(2, size);
    const Bytes aad = random_bytes(random, 8);
    const Bytes plain = random_bytes(random, size);
    Bytes sealed(size);
    std::byte tag[kTagBytes];
    key->seal_into(nonce, aad, plain, sealed.data(), tag);
    sealed[random.below(size)] ^= std::byte{1};
    const Bytes before = sealed;
    Bytes opened(size, std::byte{0xff});
    EXPECT_FALSE(key->open_into(nonce, aad, sealed, opened.data(), tag));
    EXPECT_TRUE(all_zero(opened));
    EXPECT_EQ(sealed, before);
  }
}

TEST_P(AeadOnEachBackend, MacOfNothingIsThePublishedTag) {
  const auto key = aead_->make_key(key_from(kPublished[0].key));
  std::byte tag[kTagBytes];
  key->mac(nonce_from(kPublished[0].nonce), {}, tag);
  EXPECT_EQ(to_hex(tag), kPublished[0].tag);
}

TEST_P(AeadOnEachBackend, RejectsAChangeOfAnyByteAndWipesTheText) {
  Random random{7};
  const auto key = aead_->make_key(random_key(random));
  for (const std::size_t size : {0, 1, 15, 16, 17, 64, 300}) {
    const Nonce nonce = make_nonce(1, size);
    const Bytes aad = random_bytes(random, 21);
    const Bytes plain = random_bytes(random, size);
    Bytes sealed = plain;
    Bytes tag(kTagBytes);
    key->seal(nonce, aad, sealed, tag.data());

    const auto expect_refused = [&](const Nonce& n, const Bytes& a, Bytes text, const Bytes& t) {
      ASSERT_FALSE(key->open(n, a, text, t.data()));
      ASSERT_TRUE(all_zero(text));
    };
    const auto changed = [&](auto bytes, std::size_t at) {
      bytes[at] ^= static_cast<std::byte>(1u << random.below(8));
      return bytes;
    };
    for (std::size_t i = 0; i < size; ++i) expect_refused(nonce, aad, changed(sealed, i), tag);
    for (std::size_t i = 0; i < kTagBytes; ++i) expect_refused(nonce, aad, sealed, changed(tag, i));
    for (std::size_t i = 0; i < aad.size(); ++i) expect_refused(nonce, changed(aad, i), sealed, tag);
    for (std::size_t i = 0; i < kNonceBytes; ++i) expect_refused(changed(nonce, i), aad, sealed, tag);

    Bytes text = sealed;  // and the key still works after all these failures
    ASSERT_TRUE(key->open(nonce, aad, text, tag.data()));
    ASSERT_EQ(text, plain);
  }
}

TEST_P(AeadOnEachBackend, RejectsAMovedBorderBetweenAadAndText) {
  Random random{8};
  const auto key = aead_->make_key(random_key(random));
  Bytes all = random_bytes(random, 64);
  std::byte tag[kTagBytes];
  key->mac(make_nonce(0, 0), all, tag);
  EXPECT_TRUE(key->verify_mac(make_nonce(0, 0), all, tag));
  EXPECT_FALSE(key->open(make_nonce(0, 0), ByteSpan{all}.first(32), MutableByteSpan{all}.last(32), tag));
}

TEST_P(AeadOnEachBackend, RejectsAForgedTag) {
  Random random{9};
  const auto key = aead_->make_key(random_key(random));
  for (int i = 0; i < 2000; ++i) {
    Bytes text = random_bytes(random, random.below(200));
    const Bytes tag = random_bytes(random, kTagBytes);
    ASSERT_FALSE(key->open(make_nonce(0, random.next()), {}, text, tag.data()));
    ASSERT_TRUE(all_zero(text));
    ASSERT_FALSE(key->verify_mac(make_nonce(0, random.next()), text, tag.data()));
  }
}

TEST_P(AeadOnEachBackend, VerifiesItsMacAndRejectsAChangeOfAnyByte) {
  Random random{10};
  const auto key = aead_->make_key(random_key(random));
  for (const std::size_t size : {0, 1, 16, 40, 1472}) {
    const Nonce nonce = make_nonce(2, size);
    Bytes message = random_bytes(random, size);
    Bytes tag(kTagBytes);
    key->mac(nonce, message, tag.data());
    ASSERT_TRUE(key->verify_mac(nonce, message, tag.data()));
    for (auto* bytes : {&message, &tag}) {
      for (auto& byte : *bytes) {
        byte ^= std::byte{0x10};
        ASSERT_FALSE(key->verify_mac(nonce, message, tag.data()));
        byte ^= std::byte{0x10};
      }
    }
  }
}

TEST_P(AeadOnEachBackend, MacEqualsASealOfNoText) {
  Random random{11};
  const auto key = aead_->make_key(random_key(random));
  const Bytes message = random_bytes(random, 99);
  std::byte tag[kTagBytes];
  key->seal(make_nonce(0, 5), message, {}, tag);
  EXPECT_TRUE(key->verify_mac(make_nonce(0, 5), message, tag));
}

TEST_P(AeadOnEachBackend, KeysOutliveTheirMaker) {
  Random random{12};
  auto key = aead_->make_key(random_key(random));
  aead_.reset();
  Bytes text = random_bytes(random, 100);
  const Bytes plain = text;
  std::byte tag[kTagBytes];
  key->seal(make_nonce(0, 1), {}, text, tag);
  EXPECT_TRUE(key->open(make_nonce(0, 1), {}, text, tag));
  EXPECT_EQ(text, plain);
}

TEST_P(AeadOnEachBackend, AKeyThatBecameAnotherIsThatOtherKey) {
  Random random{14};
  const auto scratch = aead_->make_key(random_key(random));
  for (std::uint64_t round = 0; round < 50; ++round) {
    const KeyBytes bytes = random_key(random);
    const Bytes plain = random_bytes(random, random.below(2'000));
    Bytes text = plain;
    std::byte tag[kTagBytes];
    const auto key = aead_->make_key(bytes);
    key->seal(make_nonce(0, round), {}, text, tag);
    Bytes copy = text;
    EXPECT_FALSE(scratch->open(make_nonce(0, round), {}, copy, tag));
    scratch->rekey(bytes);
    EXPECT_TRUE(scratch->open(make_nonce(0, round), {}, text, tag));
    EXPECT_EQ(text, plain);
    scratch->seal(make_nonce(1, round), {}, text, tag);
    EXPECT_TRUE(key->open(make_nonce(1, round), {}, text, tag));
    EXPECT_EQ(text, plain);
    key->mac(make_nonce(2, round), plain, tag);
    EXPECT_TRUE(scratch->verify_mac(make_nonce(2, round), plain, tag));
  }
}

// It has its parent's counters, and would use the same nonces.
TEST_P(AeadOnEachBackend, AForkedChildSealsNothingUnderItsParentsKey) {
  Random random(1);
  const auto key = aead_->make_key(random_key(random));
  const auto aad = random_bytes(random, 8);
  const pid_t child = fork();
  if (child == 0) {
    Bytes text = random_bytes(random, 100);
    Bytes tag = random_bytes(random, kTagBytes);
    key->seal(make_nonce(0, 1), aad, text, tag.data());
    bool is_empty = all_zero(text) && all_zero(tag);
    text = random_bytes(random, 100);
    Bytes to = random_bytes(random, 100);
    tag = random_bytes(random, kTagBytes);
    key->seal_into(make_nonce(0, 2), aad, text, to.data(), tag.data());
    is_empty = is_empty && all_zero(to) && all_zero(tag);
    tag = random_bytes(random, kTagBytes);
    key->mac(make_nonce(0, 3), aad, tag.data());
    is_empty = is_empty && all_zero(tag);
    // Of another key it is the owner.
    key->rekey(random_key(random));
    key->seal(make_nonce(0, 1), aad, text, tag.data());
    _exit(is_empty && !all_zero(text) && key->open(make_nonce(0, 1), aad, text, tag.data()) ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  Bytes text = random_bytes(random, 100), tag(kTagBytes);
  const Bytes before = text;
  key->seal(make_nonce(0, 1), aad, text, tag.data());
  EXPECT_NE(text, before);
  EXPECT_TRUE(key->open(make_nonce(0, 1), aad, text, tag.data()));
  EXPECT_EQ(text, before);
}

TEST_P(AeadOnEachBackend, KeysAreAlignedToACacheLine) {
  const auto key = aead_->make_key(KeyBytes{});
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(key.get()) % 64, 0u);
}

// Every backend against OpenSSL, which is always there.
TEST_P(AeadOnEachBackend, AgreesWithOpensslOnRandomSizes) {
  Random random{13};
  const auto reference = Aead::create(Backend::openssl);
  for (int round = 0; round < 400; ++round) {
    const KeyBytes bytes = random_key(random);
    const auto ours = aead_->make_key(bytes);
    const auto theirs = reference->make_key(bytes);
    // Small sizes often, where the code has the most branches; up to 70,000 sometimes.
    const std::size_t size = round % 4 != 0 ? random.below(600) : random.below(70'001);
    const Bytes plain = random_bytes(random, size);
    const Bytes aad = random_bytes(random, random.below(round % 8 == 0 ? 4000 : 80));
    const Nonce nonce = make_nonce(static_cast<std::uint32_t>(random.next()), random.next());

    Bytes sealed = plain;
    Bytes expected = plain;
    std::byte tag[kTagBytes];
    std::byte expected_tag[kTagBytes];
    ours->seal(nonce, aad, sealed, tag);
    forget_recorded_nonces();
    theirs->seal(nonce, aad, expected, expected_tag);
    forget_recorded_nonces();
    ASSERT_EQ(sealed, expected) << size;
    ASSERT_EQ(to_hex(tag), to_hex(expected_tag)) << size << " aad " << aad.size();
    ASSERT_TRUE(theirs->open(nonce, aad, sealed, tag));
    ASSERT_TRUE(ours->open(nonce, aad, expected, expected_tag));
    ASSERT_EQ(sealed, plain);
    ASSERT_EQ(expected, plain);
  }
}

TEST(Aead, DefaultIsTheFirstAvailableBackend) {
  const auto all = available_backends();
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(default_backend().backend, all.front().backend);
  EXPECT_EQ(all.back().backend, Backend::openssl);
  for (const BackendInfo& info : all) {
    const auto aead = Aead::create(info.backend);
    ASSERT_NE(aead, nullptr);
    EXPECT_STREQ(aead->info().name, info.name);
    EXPECT_NE(std::string_view{info.detail}, "");
  }
}

TEST(Aead, CreatesNothingForABackendThatIsNotAvailable) {
  const auto all = available_backends();
  const bool has_ipsec_mb =
      std::any_of(all.begin(), all.end(), [](const BackendInfo& i) { return i.backend == Backend::ipsec_mb; });
  EXPECT_EQ(Aead::create(Backend::ipsec_mb) != nullptr, has_ipsec_mb);
}

#ifdef WEIR_CHECK_NONCES
TEST_P(AeadOnEachBackend, StopsTheProcessOnARepeatedNonceUnderTheSameKeyBytes) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // sanitizers run threads of their own
  const auto first = aead_->make_key(KeyBytes{});
  const auto second = aead_->make_key(KeyBytes{});
  const auto other_backend = Aead::create(Backend::openssl)->make_key(KeyBytes{});
  std::byte tag[kTagBytes];
  first->seal(make_nonce(3, 9), {}, {}, tag);
  second->seal(make_nonce(3, 10), {}, {}, tag);
  second->mac(make_nonce(4, 9), {}, tag);
  EXPECT_DEATH(first->seal(make_nonce(3, 9), {}, {}, tag), "used twice under one key");
  EXPECT_DEATH(first->seal_into(make_nonce(3, 9), {}, {}, nullptr, tag), "used twice under one key");
  EXPECT_DEATH(second->seal(make_nonce(3, 9), {}, {}, tag), "used twice under one key");
  EXPECT_DEATH(second->mac(make_nonce(3, 9), {}, tag), "used twice under one key");
  EXPECT_DEATH(other_backend->seal(make_nonce(3, 10), {}, {}, tag), "used twice under one key");
  EXPECT_DEATH(first->mac(make_nonce(4, 9), {}, tag), "used twice under one key");
}

TEST_P(AeadOnEachBackend, AKeyThatBecameAnotherIsWatchedAsThatOtherKey) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  KeyBytes other{};
  other[0] = std::byte{1};
  const auto scratch = aead_->make_key(KeyBytes{});
  std::byte tag[kTagBytes];
  scratch->seal(make_nonce(5, 1), {}, {}, tag);
  scratch->rekey(other);
  scratch->seal(make_nonce(5, 1), {}, {}, tag);
  EXPECT_DEATH(aead_->make_key(other)->seal(make_nonce(5, 1), {}, {}, tag), "used twice under one key");
  scratch->rekey(KeyBytes{});
  EXPECT_DEATH(scratch->seal(make_nonce(5, 1), {}, {}, tag), "used twice under one key");
}
#endif

}  // namespace
}  // namespace weir::crypto
