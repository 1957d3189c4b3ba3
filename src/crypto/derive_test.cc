#include "crypto/derive.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>

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
