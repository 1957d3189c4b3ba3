// A server that dies while a path to it is being made, and is back at once (docs/protocol.md, rules H-4 and H-12).
#include <gtest/gtest.h>

#include <deque>
#include <vector>

#include "engine/credential_testing.h"

namespace weir::engine {
namespace {

using testing::IdentityMode;
using testing::Pair;
using testing::TestCall;
using namespace std::chrono_literals;

constexpr Duration kFirstProbe = 16ms;  // the probe timeout before the first sample: 5 ms, four times 2.5 ms, and 1 ms

bool is_first(ByteSpan datagram) { return wire::decode_header(datagram.data()).type == wire::PacketType::first; }

// Lets the client say hello and send its first packet, which the dying server takes with it.
void kill_with_first_packet(Pair& pair) {
  bool sent = false;
  pair.on_wire = [&sent](int from, MutableByteSpan datagram) { sent = sent || (from == 0 && is_first(datagram)); };
  ASSERT_TRUE(pair.run_until([&] { return sent; }));
  pair.on_wire = nullptr;
  pair.wire.clear();
}

// When the client's next packet leaves.
struct NextPacket {
  explicit NextPacket(Pair& pair) {
    pair.on_wire = [this, &pair](int from, MutableByteSpan) {
      if (from == 0 && at.is_never()) at = pair.now;
    };
  }
  Instant at = Instant::never();
};

TEST(RestartWhileConfirming, CostsOneProbeIntervalAndOneHandshake) {
  Pair pair;
  TestCall killer;
  pair.call(killer, "echo", "kills", {}, 60s);
  kill_with_first_packet(pair);
  pair.start(1);
  pair.serve_echo();
  NextPacket reached(pair);
  Instant last = pair.now;
  ASSERT_TRUE(pair.run_until([&] { return killer.completions != 0 || (last = pair.now, false); }));
  EXPECT_EQ(killer.code, Code::reset);
  EXPECT_TRUE(killer.may_have_run) << "the process before may have run it";
  EXPECT_LE(last - reached.at, kFirstProbe + 2 * pair.latency);

  TestCall next;
  pair.call(next, "echo", "lives", {}, 60s);
  ASSERT_TRUE(pair.run_until([&] { return next.completions != 0 || (last = pair.now, false); }));
  EXPECT_FALSE(next.failed) << next.reply;
  EXPECT_LE(last - reached.at, kFirstProbe + 6 * pair.latency) << "three round trips";
}

// A sender that never pauses puts off its probe timeout with every packet.
TEST(RestartWhileConfirming, IsNoticedByACallerThatKeepsSending) {
  Pair pair;
  TestCall killer;
  pair.call(killer, "echo", "kills", {}, 60s);
  kill_with_first_packet(pair);
  pair.start(1);
  pair.serve_echo();
  NextPacket reached(pair);
  std::deque<TestCall> calls;
  Instant answered = Instant::never();
  for (int i = 0; i < 100 && answered.is_never(); ++i) {
    pair.call(calls.emplace_back(), "echo", "more", {}, 60s);
    const Instant next = pair.now + 1ms;
    while (pair.now < next && answered.is_never() && pair.step(next)) {
      const bool has_reply =
          std::ranges::any_of(calls, [](const TestCall& call) { return call.completions != 0 && !call.failed; });
      if (has_reply) answered = pair.now;
    }
  }
  ASSERT_FALSE(answered.is_never());
  EXPECT_LE(answered - reached.at, kFirstProbe + 6 * pair.latency + 2ms) << "the next call may be 1 ms away";
  pair.run_until(
      [&] { return std::ranges::all_of(calls, [](const TestCall& call) { return call.completions != 0; }); });
  for (const TestCall& call : calls) {
    EXPECT_TRUE(!call.failed || (call.code == Code::reset && call.may_have_run)) << call.reply;
  }
}

TEST(RestartWhileConfirming, KeepsWhatWasNeverSent) {
  Pair pair;
  pair.configs[1].limits.calls_per_peer = 2;
  pair.start(1);
  TestCall sent, unsent;
  pair.call(sent, "echo", "sent", {}, 60s);
  pair.call(unsent, "echo", "unsent", {}, 60s);
  kill_with_first_packet(pair);
  ASSERT_EQ(pair.client().census().calls_queued, 1u);
  pair.start(1);
  pair.serve_echo();
  ASSERT_TRUE(pair.run_until([&] { return sent.completions + unsent.completions == 2; }));
  EXPECT_EQ(sent.code, Code::reset);
  EXPECT_FALSE(unsent.failed) << unsent.reply;
  EXPECT_EQ(pair.handled, 1);
}

TEST(RestartWhileConfirming, MayHappenAgainAndAgain) {
  Pair pair;
  std::deque<TestCall> calls;
  for (int i = 0; i < 10; ++i) {
    pair.call(calls.emplace_back(), "echo", "kills", {}, 60s);
    kill_with_first_packet(pair);
    pair.start(1);
    pair.serve_echo();
    const Instant restarted = pair.now;
    Instant last = pair.now;
    ASSERT_TRUE(pair.run_until([&] { return calls.back().completions != 0 || (last = pair.now, false); }));
    EXPECT_EQ(calls.back().code, Code::reset);
    EXPECT_LE(last - restarted, 2 * kFirstProbe);
  }
}

// The first packets are lost, the server lives: what the second hello finds changes nothing, and it is not repeated in
// every round trip.
TEST(RestartWhileConfirming, IsNotBelievedOfAServerThatOnlyHearsNothing) {
  Pair pair;
  pair.serve_echo();
  TestCall call;
  int hellos = 0;
  bool deaf = true;
  pair.on_wire = [&](int from, MutableByteSpan datagram) {
    hellos += from == 0 && wire::decode_header(datagram.data()).type == wire::PacketType::hello;
    if (from == 0 && deaf && is_first(datagram)) datagram[wire::kHeaderBytes] ^= std::byte{1};
  };
  pair.call(call, "echo", "body", {}, 60s);
  pair.run_for(1s);
  EXPECT_EQ(call.completions, 0);
  EXPECT_LE(hellos, 10);
  deaf = false;
  ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
  EXPECT_FALSE(call.failed) << call.reply;
  EXPECT_EQ(pair.handled, 1);
}

// The server stays away for so long that the hellos that look for it have become rare. What then finds it first, a
// repeated `first` packet, brings a hello along.
TEST(RestartWhileConfirming, TakesNoLongerAfterALongAbsence) {
  for (const Duration absence : {150ms, 250ms, 300ms, 350ms, 500ms}) {
    Pair pair;
    TestCall killer;
    pair.call(killer, "echo", "kills", {}, 60s);
    kill_with_first_packet(pair);
    pair.dead = {pair.addresses[1]};
    pair.run_for(absence);
    pair.dead.clear();
    pair.start(1);
    pair.serve_echo();
    NextPacket reached(pair);
    Instant last = pair.now;
    ASSERT_TRUE(pair.run_until([&] { return killer.completions != 0 || (last = pair.now, false); }));
    EXPECT_EQ(killer.code, Code::reset);
    EXPECT_LE(last - reached.at, kFirstProbe + 2 * pair.latency) << absence / 1ms << " ms away";
  }
}

// The same of an open path: the word that the path is not known brings the hello.
TEST(RestartOfAnOpenPath, TakesNoLongerAfterALongAbsence) {
  for (const Duration absence : {150ms, 250ms, 300ms, 350ms, 500ms}) {
    Pair pair;
    pair.serve_echo();
    TestCall before, lost;
    pair.call(before, "echo", "body", {}, 60s);
    ASSERT_TRUE(pair.run_until([&] { return before.completions != 0; }));
    pair.run_for(50ms);
    pair.dead = {pair.addresses[1]};
    pair.call(lost, "echo", "lost", {}, 60s);
    pair.run_for(absence);
    pair.dead.clear();
    pair.start(1);
    pair.serve_echo();
    NextPacket reached(pair);
    Instant last = pair.now;
    ASSERT_TRUE(pair.run_until([&] { return lost.completions != 0 || (last = pair.now, false); }));
    EXPECT_EQ(lost.code, Code::reset);
    EXPECT_LE(last - reached.at, 4 * pair.latency) << absence / 1ms << " ms away";
  }
}

// The caller has given the path up, and a hello that nobody answered has its place. Who calls then does not wait for
// the hello's next repetition.
TEST(RestartOfAnOpenPath, IsNoticedByTheFirstCallAfterThePathWasGivenUp) {
  for (const Duration silence : {400ms, 600ms, 900ms}) {
    Pair pair;
    pair.configs[0].timeouts.silence = silence;
    pair.start(0);
    pair.serve_echo();
    TestCall before, lost, after;
    pair.call(before, "echo", "body", {}, 60s);
    ASSERT_TRUE(pair.run_until([&] { return before.completions != 0; }));
    pair.run_for(50ms);
    pair.dead = {pair.addresses[1]};
    pair.call(lost, "echo", "lost", {}, 60s);
    Instant last = pair.now, called;
    lost.then = [&](TestCall&) {
      pair.dead.clear();
      pair.start(1);
      pair.serve_echo();
      called = pair.now;
      pair.call(after, "echo", "after", {}, 60s);
    };
    ASSERT_TRUE(pair.run_until([&] { return after.completions != 0 || (last = pair.now, false); }));
    EXPECT_EQ(lost.code, Code::peer_failed);
    EXPECT_FALSE(after.failed) << after.reply;
    EXPECT_LE(last - called, 4 * pair.latency) << silence / 1ms << " ms of silence";
  }
}

// Whoever repeats the word that a path is not known has one hello said by it.
TEST(RestartOfAnOpenPath, IsNotLookedForEachTimeThatItsWordIsRepeated) {
  Pair pair;
  pair.serve_echo();
  TestCall before, lost;
  pair.call(before, "echo", "body", {}, 60s);
  ASSERT_TRUE(pair.run_until([&] { return before.completions != 0; }));
  pair.run_for(50ms);
  pair.start(1);
  pair.call(lost, "echo", "lost", {}, 60s);
  std::vector<std::byte> word;
  int hellos = 0;
  pair.on_wire = [&](int from, MutableByteSpan datagram) {
    if (from == 1 && datagram[0] == wire::kUnknownPathByte) word.assign(datagram.begin(), datagram.end());
    hellos += from == 0 && wire::decode_header(datagram.data()).type == wire::PacketType::hello;
  };
  ASSERT_TRUE(pair.run_until([&] { return hellos != 0; }));
  ASSERT_FALSE(word.empty());
  for (int i = 0; i < 100; ++i) {
    std::vector<std::byte> copy = word;
    pair.client().on_datagram(copy, pair.addresses[1], 0, nullptr, pair.now);
    pair.turn(0);
  }
  EXPECT_EQ(hellos, 1);
}

TEST_F(IdentityMode, ARestartWhileAPathIsConfirmedCostsOneHandshake) {
  TestCall killer;
  pair.call(killer, "echo", "kills", {}, 60s);
  ASSERT_TRUE(is_wanted(false));
  hand_out(agree(5));
  kill_with_first_packet(pair);
  restart_server(3);
  NextPacket reached(pair);
  Instant last = pair.now;
  Wanted wanted;
  ASSERT_TRUE(pair.run_until([&] { return pair.client().take_wanted(wanted) || (last = pair.now, false); }));
  EXPECT_TRUE(wanted.suspects);
  EXPECT_EQ(wanted.hurry, Hurry::heard_from);
  EXPECT_LE(last - reached.at, kFirstProbe + 2 * pair.latency);
  hand_out(agree(6));
  ASSERT_TRUE(pair.run_until([&] { return killer.completions != 0 || (last = pair.now, false); }));
  EXPECT_EQ(killer.code, Code::reset);
  EXPECT_TRUE(killer.may_have_run);
  call_and_expect_echo();
}

// It kept its credentials, as one does that restarts with a file of them, or is another worker of the same process.
TEST_F(IdentityMode, ARestartThatKeepsCredentialsWhileAPathIsConfirmedCostsOneHello) {
  TestCall killer;
  pair.call(killer, "echo", "kills", {}, 60s);
  ASSERT_TRUE(is_wanted(false));
  const testing::Agreed agreed = agree(5);
  hand_out(agreed);
  kill_with_first_packet(pair);
  restart_server(3);
  server_book.known[agreed.ours.id] = agreed.theirs;
  NextPacket reached(pair);
  Instant last = pair.now;
  ASSERT_TRUE(pair.run_until([&] { return killer.completions != 0 || (last = pair.now, false); }));
  EXPECT_EQ(killer.code, Code::reset);
  EXPECT_LE(last - reached.at, kFirstProbe + 2 * pair.latency);
  call_and_expect_echo();
}

}  // namespace
}  // namespace weir::engine
