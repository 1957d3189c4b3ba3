// The end of a credential: nothing is begun, accepted or executed with it afterwards, and no other key takes its place.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "crypto/cmac.h"
#include "crypto/reset.h"
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

wire::PacketType type_of(ByteSpan datagram) { return wire::decode_header(datagram.data()).type; }

struct CredentialEnd : IdentityMode {
  Core& client() { return testing::EngineAccess::core(pair.client()); }
  Peer& peer() { return *client().peers.at(pair.peer); }
  void forget_wishes() {
    Wanted wanted;
    while (pair.client().take_wanted(wanted)) {
    }
  }
  // Both sides have a path that was used once. The credential ends at `end` for one of them.
  void open_path(Instant end, bool at_the_server) {
    pair.serve_echo();
    Agreed agreed = agree(5);
    (at_the_server ? agreed.theirs.expires : agreed.ours.expires) = end;
    TestCall call;
    pair.call(call, "echo", "one");
    hand_out(agreed);
    ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
    ASSERT_FALSE(call.failed) << call.reply;
    forget_wishes();
  }
};

// ---- the callee ----

TEST_F(CredentialEnd, ARequestThatArrivesAfterTheEndIsNotExecutedEvenIfTimersAreLate) {
  const Instant end = pair.now + 2s;
  open_path(end, true);
  const int before = pair.handled;
  pair.now = end - 5us;
  TestCall late;
  pair.call(late, "echo", "late");
  pair.turn(0);
  ASSERT_FALSE(pair.wire.empty());
  for (Pair::InFlight& datagram : pair.wire) {  // the server receives before it looks at its timers
    pair.server().on_datagram(datagram.bytes, datagram.from, 0, nullptr, end + 1us);
  }
  pair.server().deliver(end + 1us);
  EXPECT_EQ(pair.handled, before);
  EXPECT_EQ(pair.server().census().paths, 0u) << "the path has ended";
  pair.wire.clear();
}

TEST_F(CredentialEnd, ARequestThatWaitedForItsHandlerIsNotExecutedAfterTheEnd) {
  const Instant end = pair.now + 2s;
  open_path(end, true);
  const int before = pair.handled;
  pair.now = end - 20us;
  TestCall late;
  pair.call(late, "echo", "late");
  pair.turn(0);
  for (Pair::InFlight& datagram : pair.wire) {
    pair.server().on_datagram(datagram.bytes, datagram.from, 0, nullptr, end - 1us);
  }
  pair.server().on_timeout(end + 2ms);
  pair.server().deliver(end + 2ms);
  EXPECT_EQ(pair.handled, before);
  pair.wire.clear();
}

TEST_F(CredentialEnd, AHelloUnderACredentialThatHasEndedOpensNoPath) {
  pair.serve_echo();
  Agreed agreed = agree(5);
  agreed.theirs.expires = pair.now + 1s;
  pair.now = pair.now + 2s;
  TestCall call;
  pair.call(call, "echo", "one", {}, 1s);
  ASSERT_TRUE(is_wanted(false));
  hand_out(agreed);
  ASSERT_TRUE(pair.run_until([&] { return is_wanted(true); })) << "the server says that it does not know it";
  EXPECT_EQ(pair.server().census().paths, 0u);
  EXPECT_EQ(pair.handled, 0);
}

TEST_F(CredentialEnd, AFirstPacketUnderACredentialThatHasEndedMeanwhileOpensNoPath) {
  pair.serve_echo();
  Agreed agreed = agree(5);
  agreed.theirs.expires = pair.now + 15us;  // the hello arrives after 10 us, the first packet after 30
  TestCall call;
  pair.call(call, "echo", "one", {}, 1s);
  ASSERT_TRUE(is_wanted(false));
  int firsts = 0;
  pair.on_wire = [&](int from, MutableByteSpan bytes) {
    firsts += from == 0 && type_of(bytes) == wire::PacketType::first ? 1 : 0;
  };
  hand_out(agreed);
  ASSERT_TRUE(pair.run_until([&] { return is_wanted(true); }));
  EXPECT_GT(firsts, 0);
  EXPECT_EQ(pair.server().census().paths, 0u);
  EXPECT_EQ(pair.handled, 0);
}

// ---- the caller ----

TEST_F(CredentialEnd, AReplyThatArrivesAfterTheEndIsNotBelievedEvenIfTimersAreLate) {
  const Instant end = pair.now + 2s;
  open_path(end, false);
  pair.now = end - 15us;
  TestCall call;
  pair.call(call, "echo", "one");
  pair.turn(0);
  pair.now = end - 5us;
  pair.turn(1);
  ASSERT_FALSE(pair.wire.empty());
  for (Pair::InFlight& datagram : pair.wire) {
    ASSERT_EQ(datagram.to, 0);
    pair.client().on_datagram(datagram.bytes, datagram.from, 0, nullptr, end + 5us);
  }
  pair.client().deliver(end + 5us);
  EXPECT_EQ(call.completions, 1);
  EXPECT_EQ(call.code, Code::unauthenticated);
  EXPECT_TRUE(call.may_have_run);
  pair.wire.clear();
}

TEST_F(CredentialEnd, NothingIsSentUnderACredentialThatHasEndedEvenIfTimersAreLate) {
  const Instant end = pair.now + 2s;
  open_path(end, false);
  pair.run_for(10ms);  // acknowledgements
  pair.wire.clear();
  pair.now = end + 1us;
  TestCall call;
  pair.call(call, "echo", "one");
  std::vector<Train> trains;
  pair.client().collect(trains, pair.now);  // on_timeout() comes later
  for (const Train& train : trains) {
    EXPECT_LE(train.bytes.size(), 64u) << "a closing packet at most";
  }
  EXPECT_TRUE(is_wanted(false)) << "the call waits for a new credential";
  hand_out(agree(6));
  ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
  EXPECT_FALSE(call.failed) << call.reply;
}

TEST_F(CredentialEnd, AHelloIsNotRepeatedUnderACredentialThatHasEnded) {
  Agreed agreed = agree(5);
  agreed.ours.expires = pair.now + 10ms;  // the first repetition comes after 20 ms
  int hellos = 0;
  pair.on_wire = [&](int from, MutableByteSpan bytes) {
    hellos += from == 0 && type_of(bytes) == wire::PacketType::hello ? 1 : 0;
  };
  pair.loss = 1;
  TestCall call;
  pair.call(call, "echo", "one", {}, 1s);
  ASSERT_TRUE(is_wanted(false));
  hand_out(agreed);
  pair.run_for(500ms);
  EXPECT_EQ(hellos, 1);
  Wanted wanted;
  EXPECT_TRUE(pair.client().take_wanted(wanted)) << "a new credential is asked for";
}

// ---- no key that everybody knows ----

// A reply as somebody makes it who saw the hello and has a secret of 32 zeros.
std::vector<std::byte> forged_reply(const Core& core, const Peer& peer, std::uint32_t path) {
  wire::HelloReply reply{.to_path = path, .sequence = 1, .calls = 1, .inline_bytes = 1'000, .allowance = 1'000};
  reply.responder.incarnation.fill(std::byte{77});
  std::copy_n(peer.random->begin(), reply.echo.size(), reply.echo.begin());
  std::vector<std::byte> bytes(wire::kHelloBytes);
  const std::size_t size = wire::encode(reply, bytes.data());
  crypto::KeyBytes key = crypto::derive_answer_key(crypto::SharedSecret::from_secret(crypto::Secret{}));
  const crypto::Cmac mac(*core.aead, key);
  std::ranges::copy(mac({bytes.data(), size}), bytes.data() + size);
  bytes.resize(size + wire::kTagBytes);
  return bytes;
}

TEST_F(CredentialEnd, ASecondHelloThatOutlivesTheCredentialBelievesNoReplyUnderAKeyOfZeros) {
  const Instant end = pair.now + 2s;
  open_path(end, false);
  pair.now = end - 500ms;
  pair.loss = 1;  // the server falls silent
  TestCall call, queued;
  pair.call(call, "echo", "one", {}, 60s);
  ASSERT_TRUE(pair.run_until([&] { return peer().candidate != kNoPath; })) << "a second hello";
  ASSERT_LT(pair.now, end);
  pair.now = end + 1ms;
  pair.client().on_timeout(pair.now);  // the path ends, and the credential with it
  pair.client().deliver(pair.now);
  ASSERT_EQ(call.completions, 1);
  client().paths.for_each([&](Path& path) {
    std::vector<std::byte> forged = forged_reply(client(), peer(), path.id);
    pair.client().on_datagram(forged, pair.addresses[1], 0, nullptr, pair.now);
  });
  client().paths.for_each([&](Path& path) { EXPECT_EQ(path.state, Path::State::hello) << "it was believed"; });
  // The next call gets a new credential and runs.
  pair.loss = 0;
  pair.call(queued, "echo", "two", {}, 60s);
  pair.run_for(100ms);
  hand_out(agree(6));
  ASSERT_TRUE(pair.run_until([&] { return queued.completions != 0; }));
  EXPECT_FALSE(queued.failed) << queued.reply;
}

// In shared-secret mode nobody has credentials, so nobody can say that one is forgotten: not even under the reset key
// of zeros that a path without one would have.
TEST(SharedSecretMode, AnUnknownSecretUnderAKeyOfZerosIsNotBelieved) {
  Pair pair;
  pair.serve_echo();
  TestCall call;
  pair.call(call, "echo", "one", {}, 60s);
  Core& core = testing::EngineAccess::core(pair.client());
  // The call runs, and nothing of that comes back.
  pair.on_wire = [&](int from, MutableByteSpan bytes) {
    if (from == 1 && type_of(bytes) == wire::PacketType::sealed) bytes.back() ^= std::byte{1};
  };
  ASSERT_TRUE(pair.run_until([&] { return pair.handled == 1; }));
  Path* path = core.path_of(*core.peers.at(pair.peer));
  ASSERT_NE(path, nullptr);
  ASSERT_EQ(path->state, Path::State::confirming);
  wire::UnknownSecret forged{.to_path = path->id};
  const ByteSpan prefix(path->confirming->prefix);
  std::ranges::copy(prefix.subspan(prefix.size() - wire::kTagBytes - wire::kNonceBytes, wire::kNonceBytes),
                    forged.echo.begin());
  std::copy_n(path->remote_incarnation.begin(), forged.echo.size() - wire::kNonceBytes,
              forged.echo.begin() + wire::kNonceBytes);
  std::vector<std::byte> bytes(wire::kUnknownSecretBytes);
  const std::size_t size = wire::encode(forged, bytes.data());
  const crypto::KeyBytes zeros{};
  crypto::Prf prf(*core.aead, zeros);
  const auto tag = crypto::reset_tag(prf, zeros, (std::uint64_t{1} << 63) | path->confirming->sequence(), forged.echo);
  std::ranges::copy(tag, bytes.data() + size);
  pair.client().on_datagram(bytes, pair.addresses[1], 0, nullptr, pair.now);
  pair.on_wire = nullptr;
  ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
  EXPECT_EQ(pair.handled, 1) << "it ran twice";
}

}  // namespace
}  // namespace weir::engine
