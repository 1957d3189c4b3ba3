// An engine that nobody turned for a while must not blame its peers for that.
#include <gtest/gtest.h>

#include "engine/engine_testing.h"

namespace weir::engine {
namespace {

using testing::Pair;
using testing::TestCall;
using namespace std::chrono_literals;

// The peer goes on, the client does not.
void stall_client(Pair& pair, Duration length) {
  for (const Instant end = pair.now + length; pair.now < end; pair.now = pair.now + 10ms) pair.turn(1);
}

struct Absence : ::testing::Test {
  Absence() {
    pair.serve("slow", [this](Engine&, transfer::IncomingTransfer& request, Instant) { waiting = &request; });
    pair.call(call, "slow", "takes ten seconds", {}, 60s);
    EXPECT_TRUE(pair.run_until([this] { return waiting != nullptr; }));
    pair.run_for(100ms);
  }
  Pair pair;
  TestCall call;
  transfer::IncomingTransfer* waiting = nullptr;
};

TEST_F(Absence, IsNoReasonToGiveUpAPeerThatHadNothingToSay) {
  stall_client(pair, 5s);
  pair.run_for(5s);
  ASSERT_EQ(call.completions, 0) << call.reply;
  pair.server().reply(*waiting, {}, weir::as_bytes("done"), pair.now);
  ASSERT_TRUE(pair.run_until([this] { return call.completions != 0; }));
  EXPECT_FALSE(call.failed) << call.reply;
}

TEST_F(Absence, DoesNotHideThatThePeerIsGone) {
  pair.dead = {pair.addresses[1]};
  stall_client(pair, 5s);
  const Instant back = pair.now;
  Instant failed_at{};
  call.then = [&](TestCall&) { failed_at = pair.now; };
  ASSERT_TRUE(pair.run_until([this] { return call.completions != 0; }));
  EXPECT_EQ(call.code, Code::peer_failed);
  // Until the next timer was due, 750 ms after the last packet, nobody was absent; of the rest 1/32 of 3 s counts.
  EXPECT_GE(failed_at - back, 2'156ms);
  EXPECT_LE(failed_at - back, 2'157ms);
}

// The absence comes at the very end of what a peer may be silent for.
TEST_F(Absence, LeavesAQuarterOfTheLimit) {
  pair.dead = {pair.addresses[1]};
  pair.run_for(2'200ms);
  ASSERT_EQ(call.completions, 0) << call.reply;
  stall_client(pair, 5s);
  const Instant back = pair.now;
  Instant failed_at{};
  call.then = [&](TestCall&) { failed_at = pair.now; };
  ASSERT_TRUE(pair.run_until([this] { return call.completions != 0; }));
  EXPECT_EQ(call.code, Code::peer_failed);
  EXPECT_GE(failed_at - back, 750ms);
  EXPECT_LE(failed_at - back, 751ms);
}

// A machine with too much to do: both sides run for moments, and what the peer says takes several of them.
TEST_F(Absence, IsNotHeldAgainstAPeerHoweverOftenItComes) {
  pair.dead = {pair.addresses[1]};
  for (int moment = 0; moment < 8; ++moment) {
    pair.now = pair.now + 700ms;
    pair.run_for(20ms);
  }
  ASSERT_EQ(call.completions, 0) << call.reply;
  pair.dead.clear();
  pair.run_for(100ms);
  pair.server().reply(*waiting, {}, weir::as_bytes("done"), pair.now);
  ASSERT_TRUE(pair.run_until([this] { return call.completions != 0; }));
  EXPECT_FALSE(call.failed) << call.reply;
}

// A program that polls too rarely, for ever.
TEST_F(Absence, ThatComesAgainAndAgainDoesNotHideItEither) {
  pair.dead = {pair.addresses[1]};
  const Instant begin = pair.now;
  while (call.completions == 0 && pair.now - begin < 60s) {
    stall_client(pair, 1s);
    pair.turn(0);
  }
  EXPECT_EQ(call.code, Code::peer_failed);
  EXPECT_LE(pair.now - begin, 35s);
}

TEST(AbsenceBeforeAnAnswer, LeavesTimeForTheHello) {
  Pair pair;
  pair.serve_echo();
  pair.dead = {pair.addresses[1]};
  TestCall call;
  pair.call(call, "echo", "body", {}, 60s);
  pair.run_for(100ms);
  stall_client(pair, 5s);
  pair.dead.clear();
  ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
  EXPECT_FALSE(call.failed) << call.reply;
}

TEST(AbsenceBeforeAnAnswer, LeavesTimeForTheHelloHoweverOftenItComes) {
  Pair pair;
  pair.serve_echo();
  pair.dead = {pair.addresses[1]};
  TestCall call;
  pair.call(call, "echo", "body", {}, 60s);
  pair.run_for(100ms);
  for (int moment = 0; moment < 8; ++moment) {
    pair.now = pair.now + 700ms;
    pair.run_for(20ms);
  }
  pair.dead.clear();
  ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
  EXPECT_FALSE(call.failed) << call.reply;
}

}  // namespace
}  // namespace weir::engine
