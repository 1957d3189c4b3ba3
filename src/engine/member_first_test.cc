// Members before strangers: a flood of hellos keeps nobody who has the secret from opening a path (H-13).
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <vector>

#include "engine/core.h"
#include "engine/credential_testing.h"
#include "engine/engine_access.h"

namespace weir::engine {
namespace {

using testing::Agreed;
using testing::IdentityMode;
using testing::Pair;
using testing::TestCall;
using namespace std::chrono_literals;

// What the server receives from others in each millisecond, before the member's hello has its turn.
using Flood = std::function<std::vector<std::byte>(std::uint32_t number)>;

// How long the member's call took, while 64 hellos of others come at the beginning of each millisecond.
Duration call_under_flood(Pair& pair, TestCall& call, const Flood& flood) {
  const Instant start = pair.now;
  std::uint32_t number = 0;
  Instant last_burst{}, done = Instant::never();
  call.then = [&](TestCall&) { done = pair.now; };
  EXPECT_TRUE(pair.run_until([&] {
    if (pair.now - last_burst >= 1ms) {
      last_burst = pair.now;
      for (int i = 0; i < 64; ++i) {
        std::vector<std::byte> bytes = flood(++number);
        pair.server().on_datagram(bytes, Address::v4(0x0b000000 + number, 5), 0, nullptr, pair.now);
      }
    }
    return call.completions != 0;
  }));
  EXPECT_FALSE(call.failed) << call.reply;
  return done - start;
}

std::vector<std::byte> forged_hello(Pair& pair, std::uint32_t number, const CredentialId& credential) {
  wire::Hello hello{.initiator = {.path = number, .port = 5}, .credential = credential};
  pair.entropy.fill(hello.initiator.random);
  std::vector<std::byte> bytes(wire::kHelloBytes);
  wire::encode(hello, bytes.data());
  pair.entropy.fill(std::span(bytes).subspan(wire::covered_bytes(hello), wire::kTagBytes));
  return bytes;
}

TEST(MembersFirst, AMemberOpensAPathWithinAFewRoundTripsUnderForgedHellosWithASharedSecret) {
  Pair pair;
  pair.serve_echo();
  TestCall call;
  pair.call(call, "echo", "x");
  const std::uint64_t before = testing::EngineAccess::core(pair.server()).next_sequence;
  const Duration took =
      call_under_flood(pair, call, [&](std::uint32_t number) { return forged_hello(pair, number, {}); });
  EXPECT_LE(took, 8 * pair.latency);
  EXPECT_LE(testing::EngineAccess::core(pair.server()).next_sequence - before, 1u) << "strangers number no exchange";
}

struct MembersFirstWithIdentity : IdentityMode {
  // Both are members; `other`'s id is known to the attacker.
  Agreed member = agree(5), other = agree(6);
  Duration call_under(const Flood& flood) {
    pair.serve_echo();
    server_book.known[other.ours.id] = other.theirs;
    TestCall call;
    pair.call(call, "echo", "x");
    hand_out(member);
    return call_under_flood(pair, call, flood);
  }
};

TEST_F(MembersFirstWithIdentity, UnderHellosThatNameCredentialsWhichNobodyKnows) {
  EXPECT_LE(call_under([&](std::uint32_t number) {
              CredentialId made_up;
              pair.entropy.fill(made_up);
              return forged_hello(pair, number, made_up);
            }),
            8 * pair.latency);
}

TEST_F(MembersFirstWithIdentity, UnderForgedHellosThatNameItsOwnCredential) {
  EXPECT_LE(call_under([&](std::uint32_t number) { return forged_hello(pair, number, member.ours.id); }),
            8 * pair.latency);
}

TEST_F(MembersFirstWithIdentity, UnderCopiesOfAHelloThatSomebodyHasRecorded) {
  const auto aead = crypto::Aead::create(crypto::default_backend().backend);
  for (const Agreed* of : {&other, &member}) {
    wire::Hello hello{.initiator = {.path = 9, .port = 5}, .credential = of->ours.id};
    pair.entropy.fill(hello.initiator.random);
    std::vector<std::byte> recorded(wire::kHelloBytes);
    testing::sign_hello(*aead, of->theirs.hello_key, hello, recorded.data());
    EXPECT_LE(call_under([&](std::uint32_t) { return recorded; }), 8 * pair.latency);
    pair.client().close(pair.now);
    pair.start(0);
  }
}

TEST(HelloGate, BoundsWhatOneCredentialAndOneHelloTake) {
  HelloGate gate;
  const Instant now{1'000'000'000};
  Random random(1);
  const auto drawn = [&] {
    std::array<std::byte, 32> bytes;
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next());
    return bytes;
  };
  wire::CredentialId credential;
  credential.fill(std::byte{3});
  int admitted = 0;
  for (int i = 0; i < 100; ++i) admitted += gate.admit_member(credential, drawn(), now) ? 1 : 0;
  EXPECT_EQ(admitted, HelloGate::kPerCredential);
  const auto one = drawn();
  admitted = 0;
  for (int i = 0; i < 100; ++i) admitted += gate.admit_member({}, one, now) ? 1 : 0;
  EXPECT_LE(admitted, HelloGate::kPerHello);
  for (int i = 0; i < 1'000; ++i) gate.admit_stranger(now);
  EXPECT_FALSE(gate.admit_stranger(now));
  credential.fill(std::byte{4});
  EXPECT_TRUE(gate.admit_member(credential, drawn(), now)) << "strangers take nothing from members";
  EXPECT_TRUE(gate.admit_stranger(now + 1ms));
}

}  // namespace
}  // namespace weir::engine
