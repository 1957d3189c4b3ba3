// A caller whose address changes (docs/protocol.md, rules P-9 and P-11 to P-13).
#include <gtest/gtest.h>

#include <deque>
#include <string>

#include "engine/engine_access.h"
#include "engine/engine_testing.h"

namespace weir::engine {
namespace {

using testing::EngineAccess;
using testing::Pair;
using testing::TestCall;

const Address kElsewhere = Address::v4(0x0a0000ff, 4'444);

Path& server_path(Pair& pair) {
  Path* found = nullptr;
  EngineAccess::core(pair.server()).paths.for_each([&](Path& path) { found = &path; });
  EXPECT_NE(found, nullptr);
  return *found;
}

// The client's packets come from `to` from now on; what is sent to where they came from before goes nowhere.
void rebind(Pair& pair, const Address& to) {
  pair.dead.push_back(pair.addresses[0]);
  std::erase(pair.dead, to);
  pair.addresses[0] = to;
}

void connect(Pair& pair) {
  TestCall first;
  pair.call(first, "echo", "first");
  ASSERT_TRUE(pair.run_until([&] { return first.completions == 1; }));
  ASSERT_FALSE(first.failed);
  pair.run_for(std::chrono::milliseconds(20));
}

TEST(AddressChange, RepliesGoToTheNewPortOfACaller) {
  Pair pair;
  pair.serve_echo();
  connect(pair);
  rebind(pair, Address::v4(0x0a000001, 5'555));
  TestCall call;
  const Instant begin = pair.now;
  pair.call(call, "echo", "second");
  ASSERT_TRUE(pair.run_until([&] { return call.completions == 1; }));
  EXPECT_FALSE(call.failed) << call.reply;
  EXPECT_EQ(call.reply, "second");
  EXPECT_LT(pair.now - begin, std::chrono::milliseconds(50));
  EXPECT_EQ(pair.handled, 2);
  EXPECT_EQ(server_path(pair).remote, pair.addresses[0]);
  EXPECT_EQ(pair.server().events().counters.addresses_changed, 1u);
}

TEST(AddressChange, ACallerThatOnlyWaitsIsFoundByItsKeepalive) {
  EngineConfig client = testing::test_config(false, 1111);
  client.timeouts.keepalive = std::chrono::milliseconds(50);
  Pair pair(client);
  transfer::IncomingTransfer* waiting = nullptr;
  pair.serve_echo();
  pair.serve("slow", [&](Engine&, transfer::IncomingTransfer& request, Instant) { waiting = &request; });
  connect(pair);
  TestCall call;
  pair.call(call, "slow", "x");
  ASSERT_TRUE(pair.run_until([&] { return waiting != nullptr; }));
  pair.run_for(std::chrono::milliseconds(20));
  rebind(pair, Address::v4(0x0a000001, 5'555));
  pair.run_for(std::chrono::milliseconds(200));
  EXPECT_EQ(server_path(pair).remote, pair.addresses[0]);
  pair.server().reply(*waiting, {}, as_bytes(std::string("done")), pair.now);
  const Instant begin = pair.now;
  ASSERT_TRUE(pair.run_until([&] { return call.completions == 1; }));
  EXPECT_EQ(call.reply, "done");
  EXPECT_LT(pair.now - begin, std::chrono::milliseconds(5));
}

TEST(AddressChange, AnotherHostStartsWithWhatIsKnownOfNoPath) {
  Pair pair;
  pair.serve_echo();
  connect(pair);
  for (int i = 0; i < 20; ++i) {
    TestCall call;
    pair.call(call, "echo", std::string(4'000, 'x'));
    ASSERT_TRUE(pair.run_until([&] { return call.completions == 1; }));
  }
  Path& path = server_path(pair);
  const std::uint64_t window = path.congestion.window();
  ASSERT_TRUE(path.loss.rtt().has_sample());
  ASSERT_GT(path.mtu.current(), 1'200u);
  // A port alone: a NAT. What was learnt stays.
  rebind(pair, Address::v4(0x0a000001, 5'555));
  TestCall second;
  pair.call(second, "echo", "second");
  ASSERT_TRUE(pair.run_until([&] { return path.remote == pair.addresses[0]; }));
  EXPECT_TRUE(path.loss.rtt().has_sample());
  EXPECT_GT(path.mtu.current(), 1'200u);
  EXPECT_GE(path.congestion.window(), window);
  ASSERT_TRUE(pair.run_until([&] { return second.completions == 1; }));
  rebind(pair, kElsewhere);
  TestCall third;
  pair.call(third, "echo", "third");
  ASSERT_TRUE(pair.run_until([&] { return path.remote == kElsewhere; }));
  EXPECT_FALSE(path.loss.rtt().has_sample());
  EXPECT_EQ(path.mtu.current(), 1'200u);
  EXPECT_EQ(path.congestion.window(), recovery::WindowController{}.window());
  ASSERT_TRUE(pair.run_until([&] { return third.completions == 1; }));
  EXPECT_FALSE(third.failed);
}

// Requests, replies and large messages in both directions, while the address changes again and again.
TEST(AddressChange, NothingIsLostOrRunTwiceWhileItHappensOftenAndPacketsAreLost) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    Pair pair(testing::test_config(false, 1111), testing::test_config(true, 2222), seed);
    pair.serve_large_echo();
    pair.latency = std::chrono::microseconds(200);
    connect(pair);
    pair.loss = seed % 2 == 0 ? 0.02 : 0;
    std::deque<TestCall> calls(60);
    const std::string large(300'000, 'l');
    int done = 0;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      calls[i].then = [&](TestCall&) { ++done; };
      if (i % 3 == 0) {
        pair.call_large(calls[i], "echo", large, {}, std::chrono::seconds(20));
      } else {
        pair.call(calls[i], "echo", std::string(1 + i * 100, 's'), {}, std::chrono::seconds(20));
      }
      pair.run_for(std::chrono::milliseconds(1));
      if (i % 15 == 7) rebind(pair, Address::v4(0x0a000001 + static_cast<std::uint32_t>(i % 2), 6'000 + i));
    }
    ASSERT_TRUE(pair.run_until([&] { return done == 60; }, 2'000'000)) << "seed " << seed << ", done " << done;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      EXPECT_FALSE(calls[i].failed) << "seed " << seed << ", call " << i << ": " << calls[i].reply;
      EXPECT_EQ(calls[i].reply.size(), i % 3 == 0 ? large.size() : 1 + i * 100);
    }
    EXPECT_EQ(pair.handled, 61) << "seed " << seed;
    EXPECT_GE(pair.server().events().counters.addresses_changed, 1u);
  }
}

TEST(AddressChange, BetweenTheAnswerToAHelloAndTheFirstPacketCostsOneValidation) {
  for (const Address& to : {Address::v4(0x0a000001, 5'555), kElsewhere}) {
    Pair pair;
    pair.serve_echo();
    bool is_answered = false;
    pair.on_wire = [&](int side, MutableByteSpan datagram) {
      is_answered |= side == 1 && wire::decode_header(datagram.data()).type == wire::PacketType::hello_reply;
    };
    TestCall call;
    pair.call(call, "echo", "first");
    ASSERT_TRUE(pair.run_until([&] { return is_answered; }));
    const Instant begin = pair.now;
    rebind(pair, to);
    ASSERT_TRUE(pair.run_until([&] { return call.completions == 1; }));
    EXPECT_FALSE(call.failed) << call.reply;
    // The probe timeout before the first sample, and the round trip of the handshake.
    EXPECT_LE(pair.now - begin, std::chrono::milliseconds(16) + 8 * pair.latency);
    EXPECT_EQ(pair.handled, 1);
    EXPECT_EQ(server_path(pair).remote, to);
    EXPECT_EQ(pair.client().events().counters.handshakes_completed, 1u);
  }
}

// Slices that wait would use up every packet that may leave although the window is full.
TEST(AddressChange, IsFoundOutWhileALargeMessageFillsTheWindow) {
  Pair pair;
  pair.serve_large_echo();
  pair.latency = std::chrono::milliseconds(10);
  connect(pair);
  TestCall call;
  pair.call_large(call, "echo", std::string(20'000'000, 'l'), {}, std::chrono::seconds(60));
  pair.run_for(std::chrono::milliseconds(30));  // the first window of slices is on its way
  ASSERT_EQ(call.completions, 0);
  rebind(pair, Address::v4(0x0a000001, 5'555));
  ASSERT_TRUE(pair.run_until([&] { return call.completions == 1; }, 2'000'000));
  EXPECT_FALSE(call.failed);
  EXPECT_EQ(call.reply.size(), 20'000'000u);
  EXPECT_EQ(server_path(pair).remote, pair.addresses[0]);
}

// The word that the path is closed went to an address that was gone by then.
TEST(AddressChange, ACallerThatWasNotToldThatItsPathIsClosedIsToldAtItsNewAddress) {
  Pair pair;
  pair.serve_echo();
  connect(pair);
  rebind(pair, Address::v4(0x0a000001, 5'555));
  Core& server = EngineAccess::core(pair.server());
  server.send_close(server_path(pair), wire::CloseReason::idle, pair.now);
  server.end_path(server_path(pair), Code::peer_failed, "the peer closed", true, pair.now, 0);
  pair.turn(1);
  pair.now = pair.now + std::chrono::milliseconds(2);  // longer than between two repetitions of the closing packet
  TestCall call;
  const Instant begin = pair.now;
  pair.call(call, "echo", "x");
  ASSERT_TRUE(pair.run_until([&] { return call.completions == 1; }));
  EXPECT_FALSE(call.failed) << call.reply;
  EXPECT_LT(pair.now - begin, std::chrono::milliseconds(10));
}

// ---- somebody who copies packets ----

// Copies what the client sends; each copy arrives before its original, from an address of the attacker's.
struct Copier {
  explicit Copier(Pair& pair_) : pair(pair_) {
    pair.on_wire = [this](int side, MutableByteSpan datagram) {
      if (side != 0 || !is_copying) return;
      pair.wire.push_back({pair.now, 1, kElsewhere, {datagram.begin(), datagram.end()}, 0});
      received += datagram.size();
    };
    pair.on_train = [this](int side, const Train& train) {
      if (side != 1 || train.to != kElsewhere) return;
      sent += train.bytes.size();
      for (const Segment& segment : train.segments) sent += segment.head.size() + segment.body.size();
      EXPECT_TRUE(is_on_path || sent <= 3 * received) << sent << " bytes for " << received;
      if (relays) pair.wire.push_back({pair.now, 0, pair.addresses[1], {train.bytes.begin(), train.bytes.end()}, 0});
    };
    pair.dead.push_back(kElsewhere);
  }

  Pair& pair;
  bool is_copying = true;
  bool relays = false;
  bool is_on_path = false;  // what goes to it is not bounded
  std::size_t received = 0, sent = 0;
};

TEST(AddressChange, CopiesFromAnotherAddressMoveNothing) {
  for (const bool relays : {false, true}) {
    Pair pair;
    pair.serve_large_echo();
    connect(pair);
    Copier copier(pair);
    copier.relays = relays;
    for (int i = 0; i < 50; ++i) {
      TestCall call;
      if (i % 10 == 9) {
        pair.call_large(call, "echo", std::string(100'000, 'l'));
      } else {
        pair.call(call, "echo", "x");
      }
      ASSERT_TRUE(pair.run_until([&] { return call.completions == 1; }));
      EXPECT_FALSE(call.failed) << call.reply;
      pair.run_for(std::chrono::milliseconds(15));
    }
    EXPECT_EQ(pair.handled, 51);
    EXPECT_EQ(server_path(pair).remote, pair.addresses[0]) << (relays ? "relaying" : "");
    EXPECT_EQ(pair.server().events().counters.addresses_changed, 0u);
    EXPECT_GT(copier.sent, 0u) << "the copies began no attempt: the test shows nothing";
  }
}

// All that the responder hears first comes from the copier, also of hellos and first packets.
TEST(AddressChange, CopiesThatAreQuickerThanTheirOriginalsKeepNoCallerFromBeingFound) {
  Pair pair;
  pair.serve_echo();
  Copier copier(pair);
  connect(pair);
  EXPECT_EQ(server_path(pair).remote, pair.addresses[0]);
  for (std::uint16_t port = 5'000; port < 5'010; ++port) {
    rebind(pair, Address::v4(0x0a000001, port));
    TestCall call;
    const Instant begin = pair.now;
    pair.call(call, "echo", "x");
    ASSERT_TRUE(pair.run_until([&] { return call.completions == 1; }));
    EXPECT_FALSE(call.failed) << call.reply;
    EXPECT_LT(pair.now - begin, std::chrono::milliseconds(100)) << port;
    EXPECT_EQ(server_path(pair).remote, pair.addresses[0]);
    pair.run_for(std::chrono::milliseconds(15));
  }
  EXPECT_EQ(pair.handled, 11);
  EXPECT_EQ(pair.server().events().counters.addresses_changed, 10u);
}

// The address that was to be validated is gone again; the copier's is still there.
TEST(AddressChange, ACallerIsFoundThatMovesOnWhileItIsValidated) {
  Pair pair;
  pair.serve_echo();
  connect(pair);
  Copier copier(pair);
  rebind(pair, Address::v4(0x0a000001, 5'555));
  TestCall call;
  pair.call(call, "echo", "x");
  pair.turn(0);
  rebind(pair, Address::v4(0x0a000001, 6'666));
  const Instant begin = pair.now;
  ASSERT_TRUE(pair.run_until([&] { return call.completions == 1; }));
  EXPECT_FALSE(call.failed) << call.reply;
  EXPECT_LT(pair.now - begin, std::chrono::milliseconds(200));
  EXPECT_EQ(server_path(pair).remote, pair.addresses[0]);
}

// Two addresses answer: the caller's new one, and that of somebody who hands on what he is sent.
TEST(AddressChange, NobodyIsMovedToWhoeverRelaysWhileTheCallersAddressChanges) {
  Pair pair;
  pair.serve_echo();
  connect(pair);
  Copier copier(pair);
  copier.relays = true;
  rebind(pair, Address::v4(0x0a000001, 5'555));
  TestCall call;
  pair.call(call, "echo", "x", {}, std::chrono::seconds(20));
  pair.run_for(std::chrono::milliseconds(500));
  EXPECT_NE(server_path(pair).remote, kElsewhere);
  EXPECT_EQ(pair.server().events().counters.addresses_changed, 0u);
  copier.relays = false;
  ASSERT_TRUE(pair.run_until([&] { return call.completions == 1; }));
  EXPECT_FALSE(call.failed) << call.reply;
  EXPECT_EQ(server_path(pair).remote, pair.addresses[0]);
  EXPECT_EQ(pair.handled, 2);
}

// Who relays the answer to its copy of a hello stands between the two, but only for as long as it relays (S-9).
TEST(AddressChange, ThePathOfARelayedHelloMovesToTheCallerWhenTheRelayStops) {
  Pair pair;
  pair.serve_echo();
  Copier copier(pair);
  copier.relays = copier.is_on_path = true;
  connect(pair);
  ASSERT_EQ(server_path(pair).remote, kElsewhere);
  copier.is_copying = copier.relays = false;
  TestCall call;
  pair.call(call, "echo", "x");
  ASSERT_TRUE(pair.run_until([&] { return call.completions == 1; }));
  EXPECT_FALSE(call.failed) << call.reply;
  EXPECT_EQ(server_path(pair).remote, pair.addresses[0]);
  EXPECT_EQ(pair.handled, 2);
}

TEST(AddressChange, ACopyOfAnOlderPacketBeginsNoAttempt) {
  Pair pair;
  pair.serve_echo();
  connect(pair);
  std::vector<std::byte> held;
  pair.on_wire = [&](int side, MutableByteSpan datagram) {
    if (side == 0 && held.empty()) held.assign(datagram.begin(), datagram.end());
  };
  pair.loss = 1;
  TestCall call;
  pair.call(call, "echo", "x");
  pair.turn(0);
  pair.loss = 0;
  ASSERT_TRUE(pair.run_until([&] { return call.completions == 1; }));
  pair.run_for(std::chrono::milliseconds(20));
  // Fresh, as it never arrived, but others that were sent later did.
  pair.wire.push_back({pair.now, 1, kElsewhere, held, 0});
  pair.run_for(std::chrono::milliseconds(1));
  EXPECT_FALSE(server_path(pair).is_changing);
  EXPECT_EQ(pair.server().events().counters.addresses_changed, 0u);
}

TEST(AddressChange, AnAddressThatDoesNotAnswerGetsNoMoreThanThreeTimesWhatItSent) {
  Pair pair;
  pair.serve_echo();
  connect(pair);
  Copier copier(pair);
  TestCall call;
  pair.call(call, "echo", "x");
  // The originals and all that goes to the client are lost: nobody refutes the copy.
  pair.dead.push_back(pair.addresses[0]);
  pair.loss = 1;
  pair.turn(0);
  copier.is_copying = false;
  pair.run_for(std::chrono::seconds(2));
  EXPECT_GT(copier.sent, 0u);
  EXPECT_LE(copier.sent, 3 * copier.received);
  EXPECT_EQ(server_path(pair).remote, pair.addresses[0]);
}

// ---- frames ----

TEST(AddressChange, AResponseThatAnswersNoChallengeChangesNothing) {
  Pair pair;
  pair.serve_echo();
  connect(pair);
  Path* path = EngineAccess::core(pair.client()).path_of(*EngineAccess::core(pair.client()).peers.at(pair.peer));
  EngineAccess::core(pair.client()).owe_response(*path, 4711);
  EngineAccess::core(pair.client()).touch(*path);
  pair.run_for(std::chrono::milliseconds(10));
  EXPECT_FALSE(server_path(pair).is_changing);
  EXPECT_EQ(EngineAccess::core(pair.server()).paths.live(), 1u);
}

// After a restart an answer about a lost path is believed only with the key of the address that it goes to.
TEST(AddressChange, TheResetKeyFollowsTheAddress) {
  Pair pair;
  pair.serve_echo();
  connect(pair);
  rebind(pair, Address::v4(0x0a000001, 5'555));
  TestCall second;
  pair.call(second, "echo", "second");
  ASSERT_TRUE(pair.run_until([&] { return second.completions == 1; }));
  pair.run_for(std::chrono::milliseconds(20));
  pair.start(1);
  pair.serve_echo();
  TestCall third;
  const Instant begin = pair.now;
  pair.call(third, "echo", "third");
  ASSERT_TRUE(pair.run_until([&] { return third.completions == 1; }));
  EXPECT_TRUE(third.failed);
  EXPECT_EQ(third.code, Code::reset);
  // One round trip to hear that the path is unknown, one for the hello; no probe timeout.
  EXPECT_LT(pair.now - begin, std::chrono::microseconds(200));
}

}  // namespace
}  // namespace weir::engine
