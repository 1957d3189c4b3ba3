// The other role: what a hostile server can do to a client that has calls outstanding at it and at an honest one.
#include <gtest/gtest.h>

#include <string>

#include "engine/hostile_testing.h"

namespace weir::engine {
namespace {

using testing::Frames;
using testing::Net;
using testing::Puppet;
using testing::TestCall;
using transfer::IncomingTransfer;
using wire::FrameType;

constexpr auto kForEver = std::chrono::hours(1);

class HostileResponder : public ::testing::Test {
 protected:
  void SetUp() override {
    client = net.add(false);
    honest = net.add(true);
    hostile = net.add(true);
    for (const int host : {honest, hostile}) {
      net.serve_echo(host);
      net.serve(host, "hold", [this, host](Engine&, IncomingTransfer& request, Instant) {
        if (host == honest) held_by_honest = &request;
        ++held;
      });
      TestCall call;
      net.call(client, host, call, "echo", "hello");
      ASSERT_TRUE(net.run_until([&] { return call.completions != 0; }));
    }
    for (TestCall& call : calls) net.call(client, hostile, call, "hold", "x", kForEver);
    net.call(client, honest, other, "hold", "x", kForEver);
    ASSERT_TRUE(net.run_until([&] { return held == std::size(calls) + 1; }));
    net.run_for(std::chrono::milliseconds(50));
    puppet = std::make_unique<Puppet>(net, hostile, client);
  }
  void TearDown() override {
    TestCall echo;
    net.call(client, honest, echo, "echo", std::string(16'000, 'x'));
    EXPECT_TRUE(net.run_until([&] { return echo.completions != 0; }));
    EXPECT_FALSE(echo.failed) << echo.reply;
    EXPECT_EQ(other.completions, 0);
    net.engine(honest).reply(*held_by_honest, {}, {}, net.now);
    net.run_for(kForEver);
    for (TestCall& call : calls) EXPECT_EQ(call.completions, 1);
    const Census census = net.engine(client).census();
    EXPECT_EQ(census.calls_sent + census.calls_queued, 0u);
    EXPECT_EQ(census.incoming, 0u);
    EXPECT_EQ(census.blocks, 0u);
    EXPECT_EQ(census.reassemblies, 0u);
    EXPECT_EQ(census.timers, 0u);
    EXPECT_EQ(net.core(client).reply_room_used, 0u);
  }
  wire::TransferId id(int call) const { return {calls[call].slot, calls[call].generation}; }
  // All its calls fail at once; that is the victim's only reaction.
  void expect_thrown_out(const Frames& frames) {
    puppet->say(frames);
    EXPECT_EQ(puppet->victims_path(), nullptr);
    for (const TestCall& call : calls) {
      EXPECT_EQ(call.completions, 1);
      EXPECT_TRUE(call.failed);
      EXPECT_EQ(call.code, Code::reset);
      EXPECT_TRUE(call.may_have_run);
    }
  }
  void expect_ignored(const Frames& frames) {
    puppet->say(frames);
    EXPECT_NE(puppet->victims_path(), nullptr);
    for (const TestCall& call : calls) EXPECT_EQ(call.completions, 0);
  }

  Net net;
  int client = 0, honest = 0, hostile = 0;
  std::size_t held = 0;
  IncomingTransfer* held_by_honest = nullptr;
  TestCall calls[4];
  TestCall other;
  std::unique_ptr<Puppet> puppet;
};

TEST_F(HostileResponder, AReplySaidTwiceCompletesOnce) {
  for (int i = 0; i < 3; ++i) puppet->say(Frames().reply(id(0), "answer"));
  EXPECT_EQ(calls[0].completions, 1);
  EXPECT_EQ(calls[0].reply, "answer");
}

TEST_F(HostileResponder, RepliesToOtherGenerationsAreIgnored) {
  wire::TransferId older = id(0), newer = id(0);
  --older.generation;
  ++newer.generation;
  expect_ignored(Frames().reply(older, "x").reply(newer, "x"));
}

TEST_F(HostileResponder, AReplyInASlotBeyondTheNegotiatedNumberIsAViolation) {
  expect_thrown_out(Frames().reply({Limits{}.calls_per_peer, 1}, "x"));
}

// The other side may honestly have a larger limit than ours: only the call it answers suffers.
TEST_F(HostileResponder, AReplyLargerThanReservedFailsItsOwnCallAlone) {
  puppet->say(Frames().reply(id(0), std::string(16 * 1024 + 3, 'x')));
  puppet->say(Frames().reply(id(1), "x", 65'000, 0));
  EXPECT_NE(puppet->victims_path(), nullptr);
  for (const int call : {0, 1}) {
    EXPECT_EQ(calls[call].completions, 1);
    EXPECT_EQ(calls[call].code, Code::too_large);
    EXPECT_TRUE(calls[call].may_have_run);
  }
  for (const int call : {2, 3}) EXPECT_EQ(calls[call].completions, 0);
}

TEST_F(HostileResponder, ReplyFragmentsWithDifferentTotalsAreAViolation) {
  puppet->say(Frames().reply(id(0), "xx", 2'000, 0));
  expect_thrown_out(Frames().reply(id(0), "xx", 2'001, 2));
}

TEST_F(HostileResponder, AReplyInTooManyPiecesIsAViolation) {
  for (std::uint16_t i = 0; i < 200 && puppet->victims_path() != nullptr; ++i) {
    puppet->say(Frames().reply(id(0), "x", 2'000, static_cast<std::uint16_t>(2 * i)));
  }
  EXPECT_EQ(puppet->victims_path(), nullptr);
}

TEST_F(HostileResponder, AnErrorWithoutACodeIsAViolation) { expect_thrown_out(Frames().reply(id(0), "x", 0, 0, true)); }

TEST_F(HostileResponder, AnErrorWithAnUnknownCodeIsAnApplicationsError) {
  puppet->say(Frames().reply(id(0), std::string("\xff\x01what", 6), 0, 0, true));
  EXPECT_EQ(calls[0].completions, 1);
  EXPECT_EQ(calls[0].code, Code::application);
  EXPECT_TRUE(calls[0].may_have_run);
}

TEST_F(HostileResponder, AFlowResetEndsTheCallThatItNamesOnce) {
  for (int i = 0; i < 3; ++i) puppet->say(Frames().u64(FrameType::flow_reset, id(0).packed()));
  EXPECT_EQ(calls[0].completions, 1);
  EXPECT_EQ(calls[0].code, Code::reset);
  EXPECT_EQ(calls[1].completions, 0);
}

TEST_F(HostileResponder, ASecondPathFrameIsIgnored) {
  const std::uint32_t before = puppet->victims_path()->remote_id;
  expect_ignored(Frames().path(12'345));
  EXPECT_EQ(puppet->victims_path()->remote_id, before);
}

// Whom we call has not asked whether it may call us; it must come with a hello of its own.
TEST_F(HostileResponder, ItsRequestsAreViolations) {
  int ran = 0;
  net.serve(client, "ours", [&](Engine&, IncomingTransfer&, Instant) { ++ran; });
  expect_thrown_out(Frames().request({0, 1}, "ours", "x"));
  EXPECT_EQ(ran, 0);
}

// A fragment, then the whole, then again: what the fragments took is given back each time.
TEST_F(HostileResponder, APutOffCallKeepsNothingOfItsReply) {
  calls[0].is_patient = true;
  const std::string not_served{static_cast<char>(Code::unknown_method), 0, 'x'};
  puppet->say(Frames().reply(id(0), "xx", 2'000, 0));
  puppet->say(Frames().reply(id(0), not_served, 0, 0, true));
  EXPECT_EQ(calls[0].completions, 0);
  EXPECT_EQ(net.engine(client).census().reassemblies, 0u);
  EXPECT_EQ(net.engine(client).census().blocks, 0u);
}

TEST_F(HostileResponder, ACloseForAViolationFailsItsCallsOnly) {
  puppet->say(Frames().close(2));
  for (const TestCall& call : calls) EXPECT_EQ(call.code, Code::reset);
}

// It says that it was idle, over and over: calls go back to the queue, a new path is made, until the deadline.
TEST_F(HostileResponder, ACloseForIdlenessGivesTheCallsBackToTheQueue) {
  puppet->say(Frames().close(1));
  for (const TestCall& call : calls) EXPECT_EQ(call.completions, 0);
  EXPECT_EQ(net.engine(client).census().calls_queued, 4u);
}

TEST_F(HostileResponder, EndlessCreditDoesNotOverflow) {
  expect_ignored(Frames().level(FrameType::credit, 0, ~std::uint64_t{0}));
  TestCall more[50];
  for (TestCall& call : more)
    net.call(client, hostile, call, "hold", std::string(16'000, 'x'), std::chrono::seconds(1));
  net.run_for(std::chrono::seconds(2));
  for (TestCall& call : more) EXPECT_EQ(call.completions, 1);
}

TEST_F(HostileResponder, AFalseAcknowledgementOfEverythingHarmsItselfOnly) {
  expect_ignored(Frames().ack(0, puppet->victims_path()->next_number - 1));
}

// Somebody sees the hello, and answers it before and more often than the one it was sent to.
TEST(ForgedReply, DoesNotShutOutTheTrueOne) {
  Net net;
  const int caller = net.add(false);
  const int server = net.add(true);
  net.serve_echo(server);
  TestCall call;
  net.call(caller, server, call, "echo", "hello");
  net.turn(caller);
  const auto hello = wire::decode_hello(net.inbox(server).front().bytes);
  ASSERT_TRUE(hello.has_value());
  wire::HelloReply reply{.to_path = hello->initiator.path, .sequence = 1};
  std::copy_n(hello->initiator.random.begin(), reply.echo.size(), reply.echo.begin());
  for (int i = 0; i < 1'000; ++i) {
    reply.responder.incarnation[0] = static_cast<std::byte>(1 + i % 200);
    testing::Datagram forged(wire::kHelloBytes);
    forged.resize(wire::encode(reply, forged.data()) + wire::kTagBytes);
    net.inject(caller, net.address(server), std::move(forged));
  }
  EXPECT_TRUE(net.run_until([&] { return call.completions != 0; }));
  EXPECT_FALSE(call.failed) << call.reply;
  EXPECT_EQ(net.engine(caller).events().counters.handshakes_started, 1u);
}

}  // namespace
}  // namespace weir::engine
