#include "crypto/derive.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "crypto/aead.h"
#include "crypto/cmac.h"
#include "crypto/hkdf.h"
#include "crypto/reset.h"
#include "crypto/test_hex.h"

namespace weir::crypto {
namespace {

ByteSpan bytes_of(std::string_view text) { return std::as_bytes(std::span{text}); }

SharedSecret shared(std::string_view text = "correct horse battery staple") {
  return SharedSecret::from_text(text).value();
}

PathNames some_path() {
  PathNames names{.initiator_id = bytes_of("10.0.0.1:4433"), .responder_id = bytes_of("10.0.0.2:4433")};
  names.initiator_incarnation.fill(std::byte{1});
  names.responder_incarnation.fill(std::byte{2});
  names.initiator_random.fill(std::byte{3});
  names.responder_random.fill(std::byte{4});
  names.initiator_path = 5;
  names.responder_path = 6;
  return names;
}

KeyNames some_key() {
  return {.from_initiator = true,
          .sender_worker = 1,
          .sender_port = 2,
          .receiver_worker = 3,
          .receiver_port = 4,
          .key_id = 5};
}

std::string path_hex(const PathNames& names) { return to_hex(derive_path_secret(shared(), names).bytes()); }

TEST(SharedSecret, RefusesAShortText) {
  const auto short_one = SharedSecret::from_text("fifteen bytes..");
  ASSERT_FALSE(short_one.has_value());
  EXPECT_EQ(short_one.error().code(), Code::invalid_argument);
  EXPECT_TRUE(SharedSecret::from_text("sixteen bytes...").has_value());
}

TEST(SharedSecret, UsesTheWholeText) {
  EXPECT_FALSE(shared(std::string(100, 'a') + "x").secret() == shared(std::string(100, 'a') + "y").secret());
}

// Peers of different builds must agree. If this fails, the protocol changed: raise its version, not the expectation.
TEST(Derive, GivesTheKnownAnswers) {
  const Secret path = derive_path_secret(shared(), some_path());
  EXPECT_EQ(to_hex(shared().secret().bytes()), "16fd55c453339959f615922e862c0bfb040dddd87095ff40d3ef723d6cf89731");
  EXPECT_EQ(to_hex(path.bytes()), "29cb3c3cdaf77acebd10ca4dc8daac38306537c0d6444f6ea46caff22da5a0bc");
  EXPECT_EQ(to_hex(derive_control_key(path, some_key())), "8f9ba46ccec954a1a606b1a579dac158");
  EXPECT_EQ(to_hex(derive_hello_key(shared())), "50a43e1c7b7b4f3c17bfd93fb17fbca8");
}

// The section "Test vectors" of docs/protocol.md: the same inputs, the same bytes. Another implementation checks itself
// against that page, so page and test change together, with the protocol's version.
template <std::size_t N>
std::array<std::byte, N> counting_from(unsigned first) {
  std::array<std::byte, N> bytes;
  for (std::size_t i = 0; i < N; ++i) bytes[i] = static_cast<std::byte>(first + i);
  return bytes;
}

struct Documented {
  Incarnation initiator = counting_from<16>(0x10);
  Incarnation responder = counting_from<16>(0x20);
  HandshakeRandom initiator_random = counting_from<32>(0x40);
  HandshakeRandom responder_random = counting_from<32>(0x60);

  Secret path() const {
    return derive_path_secret(shared(), {.initiator_id = bytes_of("client"),
                                         .responder_id = bytes_of("server"),
                                         .initiator_incarnation = initiator,
                                         .responder_incarnation = responder,
                                         .initiator_random = initiator_random,
                                         .responder_random = responder_random,
                                         .initiator_path = 0x00100000,
                                         .responder_path = 17});
  }
  KeyBytes control(bool from_initiator, std::uint32_t key_id) const {
    constexpr std::uint16_t kInitiatorPort = 40'000;
    constexpr std::uint16_t kResponderPort = 4'433;
    KeyNames names{.from_initiator = from_initiator,
                   .sender_worker = 0,
                   .sender_port = kInitiatorPort,
                   .receiver_worker = 2,
                   .receiver_port = kResponderPort,
                   .key_id = key_id};
    if (!from_initiator) {
      std::swap(names.sender_worker, names.receiver_worker);
      std::swap(names.sender_port, names.receiver_port);
    }
    return derive_control_key(path(), names);
  }
};

std::string cmac_hex(const KeyBytes& key, ByteSpan bytes) {
  return to_hex(Cmac(*Aead::create(default_backend().backend), key)(bytes));
}

std::string mac_hex(const KeyBytes& key, const Nonce& nonce, ByteSpan bytes) {
  std::array<std::byte, kTagBytes> tag;
  Aead::create(default_backend().backend)->make_key(key)->mac(nonce, bytes, tag.data());
  return to_hex(tag);
}

TEST(DocumentedVectors, KeysAreThoseOfThePage) {
  const Documented page;
  EXPECT_EQ(to_hex(shared().secret().bytes()), "16fd55c453339959f615922e862c0bfb040dddd87095ff40d3ef723d6cf89731");
  EXPECT_EQ(to_hex(derive_hello_key(shared())), "50a43e1c7b7b4f3c17bfd93fb17fbca8");
  EXPECT_EQ(to_hex(derive_answer_key(shared())), "810e5a3030a961ddad50e20ee068dbba");
  EXPECT_EQ(to_hex(hkdf_extract(counting_from<64>(0x40), shared().secret().bytes()).bytes()),
            "c1515d50f1c3be414d758ec1d54f034357602b4c44c672fab34084358d4ed3f1");
  EXPECT_EQ(to_hex(page.path().bytes()), "48e3b3ad285d57466717ef5a927ca199169832837fa49b7a243435005c71e7cd");
  EXPECT_EQ(to_hex(page.control(true, 0)), "293e0756e5289a3b1e931a87d4a08594");
  EXPECT_EQ(to_hex(page.control(true, 1)), "fa76e1b38b396e548cebe0cd51480931");
  EXPECT_EQ(to_hex(page.control(false, 0)), "083ef8faadf0a05a0f8b8d29d6533b7a");
}

TEST(DocumentedVectors, TheRetirementIsThatOfThePage) {
  const Secret path = Documented{}.path();
  EXPECT_EQ(to_hex(derive_retire_key(path, true)), "0156af73be81a64cc1ef31d49395efd8");
  EXPECT_EQ(to_hex(derive_retire_key(path, false)), "c604a87a7d686339ed3e00a17dc0a732");
  EXPECT_EQ(mac_hex(derive_retire_key(path, true), make_nonce(0, 1), from_hex("0d01000000")),
            "ce02f2277e6090f535c174b65ce32d4f");
}

TEST(DocumentedVectors, TheReplysMacIsThatOfThePage) {
  const auto reply = from_hex(
      "03010000000010001100000000000000404142434445464748494a4b4c4d4e4f0000000002005111"
      "606162636465666768696a6b6c6d6e6f707172737475767778797a7b7c7d7e7f202122232425262728292a2b2c2d2e2f"
      "0673657276657200100000004000000000010080800000");
  EXPECT_EQ(cmac_hex(derive_answer_key(shared()), reply), "04febb53eab035091e05ce6d06c91125");
}

TEST(DocumentedVectors, ThePrefixsMacIsThatOfThePageAndCoversTheUnsentRandom) {
  auto covered = from_hex(
      "110000000000000000000100000010000000409c"
      "404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f101112131415161718191a1b1c1d1e1f"
      "06636c69656e7400000000000000000000000000000000a0a1a2a3a4a5a6a7a8a9aaab");
  const auto random = Documented{}.responder_random;
  covered.insert(covered.end(), random.begin(), random.end());
  EXPECT_EQ(cmac_hex(derive_hello_key(shared()), covered), "9321ea0d875b31895be5116af0b0e6eb");
}

TEST(DocumentedVectors, TheSealedPacketIsThatOfThePage) {
  auto packet = from_hex("00050000070020000c");  // header and one `ping` frame
  packet.resize(packet.size() + kTagBytes);
  const std::span bytes(packet);
  Aead::create(default_backend().backend)
      ->make_key(Documented{}.control(true, 0))
      ->seal(make_nonce(0, 5), bytes.first(8), bytes.subspan(8, 1), bytes.data() + 9);
  EXPECT_EQ(to_hex(packet), "00050000070020001a215c0e3c9d57e3594f816164e63d7d00");
}

// The signer of the shared secret; the initiator at 10.0.0.1:40000 was given path 0x00200007, credential b0 b1 ... bf.
TEST(DocumentedVectors, ResetKeysAndTheirTagsAreThoseOfThePage) {
  const auto aead = Aead::create(default_backend().backend);
  const KeyBytes signer_key = derive_signer(shared());
  EXPECT_EQ(to_hex(signer_key), "3cd4094acb653ae268b14b76036a3355");
  const Prf signer(*aead, signer_key);
  EXPECT_EQ(to_hex(signer(17, counting_from<20>(0xc0))),
            "3b3043ccca59836c0219c2f5d5d0a606c3fd3cdac86799aeefc872d7d6384e39");
  Prf scratch(*aead, KeyBytes{});
  const auto address = from_hex("00000000000000000000ffff0a000001409c0000");
  Prf::Context context;
  std::copy(address.begin(), address.end(), context.begin());
  const KeyBytes of_path = path_reset_key(signer, 0x00200007, context);
  EXPECT_EQ(to_hex(of_path), "2b8fa3f9d63e9d7554d980d23751fd30");
  const KeyBytes of_credential = credential_reset_key(signer, counting_from<16>(0xb0));
  EXPECT_EQ(to_hex(of_credential), "1207a844126832933fd7a6bbc0938a83");
  // UNKNOWN_SECRET, which echoes the initiator's hello, and UNKNOWN_PATH, which answers its packet 5: their tags.
  constexpr std::uint64_t kUnknownSecret = std::uint64_t{1} << 32;
  EXPECT_EQ(to_hex(reset_tag(scratch, of_credential, kUnknownSecret | 0x00100000, counting_from<16>(0x40))),
            "cef6649f31100680dd354b21ba2d512f");
  EXPECT_EQ(to_hex(reset_tag(scratch, of_path, 5, from_hex("07002000"))), "6760c957b8aea4fa70695b76dab122dc");
}

TEST(DocumentedVectors, TheOrderOfASecretIsThatOfThePage) {
  EXPECT_EQ(derive_order(shared().secret()), 0x7cf37578961b6b30u);
}

TEST(Derive, KeysOfHelloAnswerAndSignerDiffer) {
  std::set<KeyBytes> keys;
  for (const char* text : {"one shared secret", "another shared secret"}) {
    keys.insert({derive_hello_key(shared(text)), derive_answer_key(shared(text)), derive_signer(shared(text))});
  }
  EXPECT_EQ(keys.size(), 6u);
}

TEST(Derive, PathSecretDependsOnEveryField) {
  const std::function<void(PathNames&)> changes[] = {
      [](PathNames&) {},
      [](PathNames& n) { n.initiator_id = bytes_of("10.0.0.1:4434"); },
      [](PathNames& n) { n.responder_id = bytes_of("10.0.0.2:4434"); },
      [](PathNames& n) { std::swap(n.initiator_id, n.responder_id); },
      [](PathNames& n) { n.initiator_incarnation[15] ^= std::byte{1}; },
      [](PathNames& n) { n.responder_incarnation[0] ^= std::byte{1}; },
      [](PathNames& n) { std::swap(n.initiator_incarnation, n.responder_incarnation); },
      [](PathNames& n) { n.initiator_random[31] ^= std::byte{1}; },
      [](PathNames& n) { n.responder_random[31] ^= std::byte{1}; },
      [](PathNames& n) { std::swap(n.initiator_random, n.responder_random); },
      [](PathNames& n) { n.initiator_path ^= 0x80000000; },
      [](PathNames& n) { n.responder_path ^= 1; },
      [](PathNames& n) { std::swap(n.initiator_path, n.responder_path); },
  };
  std::set<std::string> seen;
  for (const auto& change : changes) {
    PathNames names = some_path();
    change(names);
    EXPECT_TRUE(seen.insert(path_hex(names)).second) << "change " << &change - changes;
  }
  EXPECT_TRUE(seen.insert(to_hex(derive_path_secret(shared("another shared secret"), some_path()).bytes())).second);
}

TEST(Derive, AByteCannotMoveFromOneIdentityToTheOther) {
  PathNames left = some_path();
  left.initiator_id = bytes_of("ab");
  left.responder_id = bytes_of("c");
  PathNames right = some_path();
  right.initiator_id = bytes_of("a");
  right.responder_id = bytes_of("bc");
  EXPECT_NE(path_hex(left), path_hex(right));
}

TEST(Derive, ControlKeyDependsOnEveryField) {
  const std::function<void(KeyNames&)> changes[] = {
      [](KeyNames&) {},
      [](KeyNames& n) { n.from_initiator = false; },
      [](KeyNames& n) { n.sender_worker ^= 0x8000; },
      [](KeyNames& n) { n.sender_port ^= 0x8000; },
      [](KeyNames& n) { n.receiver_worker ^= 0x8000; },
      [](KeyNames& n) { n.receiver_port ^= 0x8000; },
      [](KeyNames& n) { n.key_id ^= 0x80000000; },
      [](KeyNames& n) { std::swap(n.sender_worker, n.receiver_worker); },
      [](KeyNames& n) { std::swap(n.sender_port, n.receiver_port); },
      [](KeyNames& n) { std::swap(n.sender_worker, n.sender_port); },
  };
  const Secret path = derive_path_secret(shared(), some_path());
  std::set<KeyBytes> seen;
  for (const auto& change : changes) {
    KeyNames names = some_key();
    change(names);
    EXPECT_TRUE(seen.insert(derive_control_key(path, names)).second) << "change " << &change - changes;
  }
  EXPECT_TRUE(seen.insert(derive_control_key(Secret{}, some_key())).second);
}

TEST(Derive, KeysOfDifferentPurposesDiffer) {
  const Secret path = derive_path_secret(shared(), some_path());
  const std::set<KeyBytes> keys{derive_control_key(path, some_key()), derive_hello_key(shared()),
                                derive_hello_key(shared("another shared secret")), derive_retire_key(path, true),
                                derive_retire_key(path, false)};
  EXPECT_EQ(keys.size(), 5u);
}

}  // namespace
}  // namespace weir::crypto
