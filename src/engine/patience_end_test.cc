// CallOptions::wait_for_ready: whatever ends a path, a call that certainly did not run waits for the next one.
#include <gtest/gtest.h>

#include <deque>

#include "engine/credential_testing.h"

namespace weir::engine {
namespace {

using testing::IdentityMode;
using testing::Pair;
using testing::TestCall;
using namespace std::chrono_literals;

struct PatientCall : TestCall {
  PatientCall() { is_patient = true; }
};

// Calls of many packets each. When the window is full some are sent, one is sent in part, and others are queued.
struct PartlySent : ::testing::Test {
  PartlySent() {
    pair.mtu = 1'300;
    pair.serve_echo();
    TestCall opens;
    pair.call(opens, "echo", "opens the path");
    EXPECT_TRUE(pair.run_until([&] { return opens.completions != 0; }));
    pair.run_for(50ms);
    pair.handled = 0;
    for (int i = 0; i < 8; ++i) pair.call(calls.emplace_back(), "echo", std::string(16'000, 'x'), {}, 60s);
    pair.turn(0);
    EXPECT_NE(pair.client().census().calls_sent, 0u);
    EXPECT_NE(pair.client().census().calls_queued, 0u);
  }

  bool all_ended() const {
    return std::ranges::all_of(calls, [](const TestCall& call) { return call.completions != 0; });
  }
  void restart_server() {
    pair.start(1);
    pair.serve_echo();
  }
  void expect_that_only_what_may_have_run_failed() {
    ASSERT_TRUE(pair.run_until([&] { return all_ended(); }));
    int failed = 0;
    for (const PatientCall& call : calls) {
      failed += call.failed;
      EXPECT_TRUE(!call.failed || call.may_have_run) << name(call.code) << ": " << call.reply;
    }
    EXPECT_LT(failed, static_cast<int>(calls.size()));
    EXPECT_EQ(pair.handled + failed, static_cast<int>(calls.size()));
  }

  Pair pair;
  std::deque<PatientCall> calls;
};

TEST_F(PartlySent, SurvivesARestart) {
  pair.wire.clear();
  restart_server();
  expect_that_only_what_may_have_run_failed();
}

TEST_F(PartlySent, SurvivesSilence) {
  pair.wire.clear();
  pair.loss = 1;
  pair.run_for(10s);
  for (const PatientCall& call : calls) EXPECT_TRUE(call.completions == 0 || call.may_have_run) << call.reply;
  pair.loss = 0;
  expect_that_only_what_may_have_run_failed();
}

TEST_F(PartlySent, SurvivesAnOrderlyCloseOfThePeer) {
  pair.wire.clear();
  pair.server().close(pair.now);
  pair.run_for(10ms);
  pair.run_for(1s);
  restart_server();
  expect_that_only_what_may_have_run_failed();
}

TEST_F(PartlySent, EndsWithThePool) {
  pair.wire.clear();
  pair.client().close(pair.now);
  pair.client().deliver(pair.now);
  EXPECT_TRUE(all_ended());
  for (const PatientCall& call : calls) EXPECT_EQ(call.code, Code::closed);
  EXPECT_EQ(pair.client().census().timers, 0u);
}

// What the closing packet says was never seen has never run.
TEST(PatienceAtAnEnd, OfARequestThatAClosingPeerHasNotSeenGoesOn) {
  for (const bool patient : {false, true}) {
    Pair pair;
    pair.serve_echo();
    TestCall opens, crosses;
    pair.call(opens, "echo", "opens the path");
    ASSERT_TRUE(pair.run_until([&] { return opens.completions != 0; }));
    pair.run_for(50ms);
    crosses.is_patient = patient;
    pair.call(crosses, "echo", "crosses the closing packet", {}, 60s);
    pair.turn(0);
    pair.server().close(pair.now);
    pair.turn(1);
    pair.run_for(100ms);
    EXPECT_EQ(crosses.completions, patient ? 0 : 1);
    pair.start(1);
    pair.serve_echo();
    ASSERT_TRUE(pair.run_until([&] { return crosses.completions != 0; }));
    EXPECT_EQ(crosses.failed, !patient) << crosses.reply;
    EXPECT_FALSE(crosses.may_have_run);
  }
}

TEST(PatienceAtAnEnd, OfALargeRequestThatWasWrittenInPartGoesOn) {
  Pair pair;
  pair.mtu = 1'300;
  pair.serve_large_echo();
  PatientCall call;
  pair.call_large(call, "echo", std::string(1'000'000, 'x'), {}, 60s);
  std::uint64_t bytes = 0;
  pair.on_wire = [&](int from, MutableByteSpan datagram) { bytes += from == 0 ? datagram.size() : 0; };
  ASSERT_TRUE(pair.run_until([&] { return bytes > 200'000; }));
  pair.start(1);
  pair.serve_large_echo();
  ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
  EXPECT_FALSE(call.failed) << call.reply;
  EXPECT_EQ(call.reply, std::string(1'000'000, 'x'));
}

TEST(PatienceAtAnEnd, OfACallToAClosedPortGoesOn) {
  Pair pair;
  pair.loss = 1;
  std::vector<std::byte> hello;
  pair.on_wire = [&](int from, MutableByteSpan datagram) {
    if (from == 0) hello.assign(datagram.begin(), datagram.end());
  };
  PatientCall call;
  pair.call(call, "echo", "body", {}, 60s);
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(pair.run_until([&] { return !hello.empty() || call.completions != 0; }));
    ASSERT_EQ(call.completions, 0) << call.reply;
    pair.client().on_unreachable(pair.addresses[1], ByteSpan(hello).first(64), pair.now);
    hello.clear();
  }
  pair.loss = 0;
  pair.serve_echo();
  ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
  EXPECT_EQ(call.reply, "body");
}

TEST_F(IdentityMode, APatientCallSurvivesARefusedCredentialAndNotABadOne) {
  TestCall patient;
  patient.is_patient = true;
  pair.serve_echo();
  pair.call(patient, "echo", "body", {}, 60s);
  ASSERT_TRUE(is_wanted(false));
  for (const Code code : {Code::refused, Code::peer_failed, Code::overloaded, Code::timeout}) {
    pair.client().refuse(pair.peer, code, "not now", pair.now);
    for (int turn = 0; turn < 10 && !is_wanted(false); ++turn) {  // the wheel may need several turns to get there
      pair.now = std::max(pair.now, pair.client().next_deadline());
      pair.turn(0);
      ASSERT_LT(turn, 9) << "it is asked for again";
    }
    ASSERT_EQ(patient.completions, 0) << name(code);
  }
  hand_out(agree(5));
  ASSERT_TRUE(pair.run_until([&] { return patient.completions != 0; }));
  EXPECT_FALSE(patient.failed) << patient.reply;

  TestCall distrusted;
  distrusted.is_patient = true;
  restart_server(3);
  pair.start(0);
  pair.call(distrusted, "echo", "body", {}, 60s);
  ASSERT_TRUE(is_wanted(false));
  pair.client().refuse(pair.peer, Code::unauthenticated, "its certificate is of somebody else", pair.now);
  pair.client().deliver(pair.now);
  EXPECT_EQ(distrusted.code, Code::unauthenticated);
}

// The next handshake proves who the peer is, or shows that it cannot.
TEST_F(IdentityMode, APatientCallOfWhichAPartWasSentSurvivesTheEndOfACredential) {
  pair.mtu = 1'300;
  pair.serve_echo();
  std::deque<TestCall> calls;
  testing::Agreed agreed = agree(5);
  agreed.ours.expires = pair.now + 100ms;
  pair.call(calls.emplace_back(), "echo", "opens the path");
  ASSERT_TRUE(is_wanted(false));
  hand_out(agreed);
  ASSERT_TRUE(pair.run_until([&] { return calls[0].completions != 0; }));
  pair.now = agreed.ours.expires + -1ms;
  for (int i = 0; i < 8; ++i) {
    calls.emplace_back().is_patient = true;
    pair.call(calls.back(), "echo", std::string(16'000, 'x'), {}, 60s);
  }
  pair.turn(0);
  pair.wire.clear();
  pair.loss = 1;
  pair.run_for(10ms);
  pair.loss = 0;
  for (const TestCall& call : calls) EXPECT_TRUE(!call.failed || call.may_have_run) << call.reply;
  hand_out(agree(6));
  ASSERT_TRUE(pair.run_until(
      [&] { return std::ranges::all_of(calls, [](const TestCall& call) { return call.completions != 0; }); }));
  for (const TestCall& call : calls) EXPECT_TRUE(!call.failed || call.may_have_run) << call.reply;
}

}  // namespace
}  // namespace weir::engine
