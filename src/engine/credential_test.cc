// Identity mode from the engine's side, and what happens when somebody has lost his state.
#include "engine/credential.h"

#include <gtest/gtest.h>

#include "engine/core.h"
#include "engine/credential_testing.h"
#include "engine/hostile_testing.h"

namespace weir::engine {
namespace {

using testing::Agreed;
using testing::Book;
using testing::IdentityMode;
using testing::Pair;
using testing::TestCall;
using namespace std::chrono_literals;

TEST_F(IdentityMode, ACallWaitsForACredentialAndThenRuns) {
  pair.serve_echo();
  TestCall call, second;
  pair.call(call, "echo", "one");
  pair.call(second, "echo", "two");
  pair.turn(0);
  EXPECT_EQ(call.completions, 0);
  EXPECT_TRUE(is_wanted(false));
  EXPECT_FALSE(is_wanted(false)) << "asked for twice";
  const Agreed agreed = agree(5);
  hand_out(agreed);
  ASSERT_TRUE(pair.run_until([&] { return call.completions != 0 && second.completions != 0; }));
  EXPECT_EQ(call.reply, "one");
  EXPECT_EQ(second.reply, "two");
  EXPECT_EQ(server_book.shown[agreed.ours.id], 1);
}

TEST_F(IdentityMode, ARefusedCredentialFailsWhatWaitsWithTheReasonGiven) {
  TestCall call;
  pair.call(call, "echo", "one");
  ASSERT_TRUE(is_wanted(false));
  {
    std::string sentence = "the certificate of db7 expired yesterday";
    pair.client().refuse(pair.peer, Code::unauthenticated, sentence, pair.now);
    std::fill(sentence.begin(), sentence.end(), '#');
  }
  ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
  EXPECT_TRUE(call.failed);
  EXPECT_EQ(call.code, Code::unauthenticated);
  EXPECT_FALSE(call.may_have_run);
  EXPECT_EQ(call.reply, "the certificate of db7 expired yesterday");
  EXPECT_EQ(pair.client().census().blocks, 0u);
  TestCall next;
  pair.call(next, "echo", "two");
  EXPECT_TRUE(is_wanted(false)) << "the next call asks again";
}

TEST_F(IdentityMode, APatientCallHasThePeerAskedForAgain) {
  pair.serve_echo();
  TestCall patient;
  patient.is_patient = true;
  pair.call(patient, "echo", "one", {}, 60s);
  ASSERT_TRUE(is_wanted(false));
  for (int i = 0; i < 5; ++i) {
    pair.client().refuse(pair.peer, Code::peer_failed, "nobody listens there", pair.now);
    EXPECT_FALSE(is_wanted(false)) << "not at once";
    for (int turn = 0; turn < 10 && !is_wanted(false); ++turn) {  // the wheel may need several turns to get there
      pair.now = std::max(pair.now, pair.client().next_deadline());
      pair.turn(0);
      ASSERT_LT(turn, 9);
    }
  }
  EXPECT_EQ(patient.completions, 0);
  hand_out(agree(5));
  ASSERT_TRUE(pair.run_until([&] { return patient.completions != 0; }));
  EXPECT_EQ(patient.reply, "one");
}

TEST_F(IdentityMode, ADeadlineThatPassesWithoutACredentialIsATimeout) {
  TestCall call;
  pair.call(call, "echo", "one", {}, 10ms);
  ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
  EXPECT_EQ(call.code, Code::timeout);
  EXPECT_FALSE(call.may_have_run);
}

TEST_F(IdentityMode, ACredentialThatTheResponderForgotIsAskedForAgainAtOnce) {
  pair.serve_echo();
  TestCall call;
  pair.call(call, "echo", "one");
  ASSERT_TRUE(is_wanted(false));
  const Instant start = pair.now;
  hand_out(agree(5), false);
  EXPECT_LE(when([&] { return is_wanted(true); }) - start, 2 * pair.latency);
  hand_out(agree(6));
  ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
  EXPECT_EQ(call.reply, "one");
}

TEST_F(IdentityMode, AHelloThatNobodyAnswersMakesTheCredentialDoubtful) {
  pair.loss = 1;
  TestCall call;
  pair.call(call, "echo", "one");
  ASSERT_TRUE(is_wanted(false));
  hand_out(agree(5));
  ASSERT_TRUE(pair.run_until([&] { return is_wanted(true); }));
  EXPECT_EQ(call.completions, 0);
}

TEST_F(IdentityMode, AClosedPortMakesTheCredentialDoubtful) {
  std::vector<std::byte> last;
  pair.on_wire = [&](int from, MutableByteSpan bytes) {
    if (from == 0) last.assign(bytes.begin(), bytes.end());
  };
  const auto report = [&] { pair.client().on_unreachable(pair.addresses[1], ByteSpan(last).first(32), pair.now); };
  pair.serve_echo();
  pair.serve("hold", [](Engine&, transfer::IncomingTransfer&, Instant) {});
  TestCall call;
  pair.call(call, "echo", "one", {}, 60s);
  ASSERT_TRUE(is_wanted(false));
  pair.loss = 1;
  hand_out(agree(5));
  pair.turn(0);
  report();  // quotes the hello
  EXPECT_TRUE(is_wanted(true));
  EXPECT_EQ(call.completions, 0) << "the peer may be back elsewhere";
  pair.loss = 0;
  hand_out(agree(6));
  ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
  EXPECT_EQ(call.reply, "one");

  TestCall held;
  pair.call(held, "hold", "two", {}, 60s);
  pair.turn(0);
  const std::vector<std::byte> quoted = last;
  last[5] ^= std::byte{1};
  report();  // another path
  EXPECT_FALSE(is_wanted(true));
  last = quoted;
  report();
  EXPECT_TRUE(is_wanted(true));
  EXPECT_EQ(held.completions, 0);
}

TEST_F(IdentityMode, ANewCredentialTakesOverWhileCallsAreInFlight) {
  std::vector<transfer::IncomingTransfer*> held;
  pair.serve("hold", [&](Engine&, transfer::IncomingTransfer& request, Instant) { held.push_back(&request); });
  pair.serve_echo();
  TestCall old;
  pair.call(old, "hold", "old", {}, 60s);
  ASSERT_TRUE(is_wanted(false));
  hand_out(agree(5));
  ASSERT_TRUE(pair.run_until([&] { return held.size() == 1; }));
  const std::uint32_t path = testing::EngineAccess::core(pair.client()).peers.at(pair.peer)->path;
  for (std::uint8_t number = 6; number < 9; ++number) {
    hand_out(agree(number));
    for (int i = 0; i < 20; ++i) call_and_expect_echo();
  }
  EXPECT_NE(testing::EngineAccess::core(pair.client()).peers.at(pair.peer)->path, path);
  pair.server().reply(*held[0], {}, as_bytes("late"), pair.now);
  ASSERT_TRUE(pair.run_until([&] { return old.completions != 0; }));
  EXPECT_FALSE(old.failed) << old.reply;
  EXPECT_EQ(old.reply, "late");
  // What was replaced goes as soon as it has nothing left to do; on both sides.
  pair.run_for(1s);
  EXPECT_EQ(pair.client().census().paths, 1u);
  EXPECT_EQ(pair.server().census().paths, 1u);
  call_and_expect_echo();
}

TEST_F(IdentityMode, APathEndsWithItsCredential) {
  for (const bool at_the_server : {false, true}) {
    SCOPED_TRACE(at_the_server);
    TestCall old;
    pair.serve("hold", [](Engine&, transfer::IncomingTransfer&, Instant) {});
    pair.call(old, "hold", "old", {}, 60s);
    Wanted wanted;
    while (pair.client().take_wanted(wanted)) {
    }
    Agreed agreed = agree(at_the_server ? 7 : 5);
    (at_the_server ? agreed.theirs.expires : agreed.ours.expires) = pair.now + 2s;
    hand_out(agreed);
    pair.run_for(1s);
    EXPECT_EQ(old.completions, 0);
    const Instant ended = when([&] { return old.completions != 0; });
    EXPECT_GE(ended, pair.now - 2s);
    EXPECT_EQ(old.completions, 1);
    EXPECT_TRUE(old.failed);
    EXPECT_TRUE(old.may_have_run);
    if (!at_the_server) {
      EXPECT_EQ(old.code, Code::unauthenticated);
    }
    pair.run_for(100ms);
    EXPECT_EQ(pair.server().census().paths, 0u);
  }
}

TEST_F(IdentityMode, ANewCredentialOfARestartedPeerResetsWhatWasSent) {
  pair.serve("hold", [](Engine&, transfer::IncomingTransfer&, Instant) {});
  TestCall old;
  pair.call(old, "hold", "old", {}, 60s);
  ASSERT_TRUE(is_wanted(false));
  hand_out(agree(5));
  ASSERT_TRUE(pair.run_until([&] { return pair.server().census().incoming == 1; }));
  restart_server(3);
  hand_out(agree(6));
  ASSERT_TRUE(pair.run_until([&] { return old.completions != 0; }));
  EXPECT_EQ(old.code, Code::reset);
  call_and_expect_echo();
}

// In shared-secret mode the signer comes from the secret, so that a restart is noticed as fast.
TEST(SharedSecretMode, ARestartIsNoticedWithinOneRoundTrip) {
  Pair pair;
  pair.serve("hold", [](Engine&, transfer::IncomingTransfer&, Instant) {});
  TestCall held;
  pair.call(held, "hold", "x", {}, 60s);
  ASSERT_TRUE(pair.run_until([&] { return pair.server().census().incoming == 1; }));
  pair.run_for(50ms);
  pair.start(1);
  Instant asked = Instant::never();
  pair.on_wire = [&](int from, MutableByteSpan) {
    if (from == 0 && asked.is_never()) asked = pair.now;
  };
  Instant last = pair.now;
  ASSERT_TRUE(pair.run_until([&] { return held.completions != 0 || (last = pair.now, false); }));
  EXPECT_EQ(held.code, Code::reset);
  EXPECT_LE(last - asked, 4 * pair.latency) << "one round trip to be told, one for the hello";
}

TEST(SharedSecretMode, AHelloThatNamesACredentialIsDropped) {
  Book book;
  Pair pair;
  EngineConfig config = testing::test_config(false, 1111);
  config.credentials = &book;
  config.secret.reset();
  Engine stranger(config, pair.entropy, nullptr, 1, pair.now);
  const std::uint32_t peer = stranger.connect(pair.addresses[1]).value();
  Credential credential;
  credential.id.fill(std::byte{4});
  credential.data = pair.addresses[1];
  TestCall call;
  call.peer = peer;
  call.deadline = pair.now + 1s;
  stranger.submit(call, pair.now);
  stranger.install(peer, credential, pair.now);
  std::vector<Train> trains;
  stranger.collect(trains, pair.now);
  ASSERT_EQ(trains.size(), 1u);
  pair.server().on_datagram(trains[0].bytes, pair.addresses[0], 0, nullptr, pair.now);
  trains.clear();
  pair.server().collect(trains, pair.now);
  EXPECT_TRUE(trains.empty());
  stranger.close(pair.now);
  stranger.deliver(pair.now);
}

}  // namespace
}  // namespace weir::engine
