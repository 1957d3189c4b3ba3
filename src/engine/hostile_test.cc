// What an authenticated peer that breaks every rule can do: to itself, and to nobody else. Each frame of its own has a
// defined outcome: the path is closed as a violation, or the frame is ignored.
#include <gtest/gtest.h>

#include <string>

#include "engine/hostile_testing.h"
#include "engine/large_testing.h"

namespace weir::engine {
namespace {

using testing::Datagram;
using testing::Frames;
using testing::Net;
using testing::Puppet;
using testing::TestCall;
using transfer::IncomingTransfer;
using wire::FrameType;

constexpr auto kForEver = std::chrono::hours(1);

// A server, an honest client with a path of its own, and a hostile client behind a Puppet.
class HostileInitiator : public ::testing::Test {
 protected:
  void SetUp() override {
    server = net.add(server_config());
    honest = net.add(false);
    hostile = net.add(false);
    net.serve_echo(server);
    net.serve(server, "hold", [this](Engine&, IncomingTransfer& request, Instant) { held.push_back(&request); });
    for (const int host : {honest, hostile}) {
      TestCall call;
      net.call(host, server, call, "echo", "hello");
      ASSERT_TRUE(net.run_until([&] { return call.completions != 0; }));
      ASSERT_FALSE(call.failed) << call.reply;
    }
    net.run_for(std::chrono::milliseconds(50));
    puppet = std::make_unique<Puppet>(net, hostile, server);
    handled_before = net.handled;
  }
  virtual EngineConfig server_config() { return testing::test_config(true, 999); }

  void TearDown() override {
    expect_the_other_is_well();
    for (IncomingTransfer* request : std::exchange(held, {})) net.engine(server).reply(*request, {}, {}, net.now);
    puppet.reset();
    net.run_for(kForEver);
    const Census census = net.engine(server).census();
    EXPECT_EQ(census.incoming, 0u);
    EXPECT_EQ(census.blocks, 0u);
    EXPECT_EQ(census.reassemblies, 0u);
    EXPECT_EQ(census.credit_used, 0u);
    EXPECT_EQ(census.paths, 0u);
    EXPECT_EQ(net.core(server).ledger.promised(), 0u);
  }
  void expect_the_other_is_well() {
    for (const std::size_t size : {0u, 32u, 16'000u}) {
      TestCall call;
      net.call(honest, server, call, "echo", std::string(size, 'h'));
      ASSERT_TRUE(net.run_until([&] { return call.completions != 0; }));
      EXPECT_FALSE(call.failed) << call.reply;
      EXPECT_EQ(call.reply, std::string(size, 'h'));
    }
  }
  void expect_thrown_out(const Frames& frames) {
    puppet->say(frames);
    EXPECT_EQ(puppet->victims_path(), nullptr);
    net.turn(server);
    EXPECT_TRUE(puppet->was_thrown_out());
  }
  void expect_ignored(const Frames& frames) {
    puppet->say(frames);
    EXPECT_NE(puppet->victims_path(), nullptr);
    EXPECT_FALSE(puppet->was_thrown_out());
  }
  // Slots and generations that the hostile client's own engine has not used.
  wire::TransferId id(std::uint32_t slot, std::uint64_t generation = 1) const { return {slot, generation + 1'000}; }
  Path& path() { return *puppet->victims_path(); }

  Net net;
  int server = 0, honest = 0, hostile = 0, handled_before = 0;
  std::vector<IncomingTransfer*> held;
  std::unique_ptr<Puppet> puppet;
};

TEST_F(HostileInitiator, AnEmptyOrUnknownFrameIsAViolation) {
  expect_thrown_out(Frames().raw(Datagram{std::byte{200}}));
}

TEST_F(HostileInitiator, AFrameThatIsCutShortIsAViolation) {
  Datagram cut = Frames().request(id(1), "echo", "hello").bytes();
  cut.pop_back();
  expect_thrown_out(Frames().raw(cut));
  EXPECT_EQ(net.handled, handled_before);
}

TEST_F(HostileInitiator, AnAcknowledgementOfAPacketNeverSentIsAViolation) {
  expect_thrown_out(Frames().ack(0, path().next_number));
}

TEST_F(HostileInitiator, AnAcknowledgementOfTheDistantFutureIsAViolation) {
  expect_thrown_out(Frames().ack(~std::uint64_t{0} - 1, ~std::uint64_t{0}));
}

TEST_F(HostileInitiator, ARequestBeyondItsCreditIsAViolation) {
  const std::uint64_t left = path().accounts[0].limit();
  const std::string body(16'000, 'x');
  std::uint64_t used = 0;
  for (std::uint32_t slot = 0; used <= left && puppet->victims_path() != nullptr; ++slot) {
    puppet->say(Frames().request(id(slot), "hold", body));
    used += token::request_cost(16'000);
  }
  EXPECT_EQ(puppet->victims_path(), nullptr);
  EXPECT_TRUE(puppet->was_thrown_out());
  EXPECT_LE(held.size() * token::request_cost(16'000), left);
}

TEST_F(HostileInitiator, AnsweredRequestsDoNotEarnMoreCreditThanTheyCost) {
  const std::string body(1'000, 'x');
  for (std::uint32_t i = 0; i < 2'000; ++i) {
    ASSERT_NE(puppet->victims_path(), nullptr) << i;
    if (path().accounts[0].limit() < (i + 1) * token::request_cost(1'000) + 100) break;
    puppet->say(Frames().request(id(i % 64, i), "echo", body).ack(path().next_number - 1, path().next_number - 1));
    EXPECT_LE(path().accounts[0].unanswered(), net.core(server).ledger.options().per_path);
    puppet->listen();
  }
}

TEST_F(HostileInitiator, ASlotBeyondTheNegotiatedNumberIsAViolation) {
  expect_thrown_out(Frames().request(id(Limits{}.calls_per_peer), "echo", "x"));
  EXPECT_EQ(net.handled, handled_before);
}

TEST_F(HostileInitiator, ACancellationBeyondTheNegotiatedSlotsIsAViolation) {
  expect_thrown_out(Frames().cancel(id(Limits{}.calls_per_peer)));
}

TEST_F(HostileInitiator, ARequestLargerThanTheLimitIsAViolation) {
  expect_thrown_out(Frames().request(id(1), "echo", std::string(16 * 1024 + 1, 'x')));
  EXPECT_EQ(net.handled, handled_before);
}

TEST_F(HostileInitiator, AFragmentOfARequestLargerThanTheLimitIsAViolation) {
  expect_thrown_out(Frames().request(id(1), "echo", "x", 60'000, 59'999));
}

TEST_F(HostileInitiator, AFragmentThatReachesBeyondItsMessageIsAViolation) {
  expect_thrown_out(Frames().request(id(1), "echo", "xxxx", 2'000, 1'998));
}

TEST_F(HostileInitiator, FragmentsWithDifferentTotalsAreAViolation) {
  puppet->say(Frames().request(id(1), "echo", "xxxx", 2'000, 0));
  expect_thrown_out(Frames().request(id(1), "echo", "xxxx", 2'001, 4));
  EXPECT_EQ(net.handled, handled_before);
}

TEST_F(HostileInitiator, AWholeMessageAfterAFragmentRunsOnce) {
  expect_ignored(Frames().request(id(1), "echo", "xxxx", 2'000, 0));
  expect_ignored(Frames().request(id(1), "echo", std::string(2'000, 'x')));
  expect_ignored(Frames().request(id(1), "echo", "xxxx", 2'000, 4));
  EXPECT_EQ(net.handled, handled_before + 1);
}

TEST_F(HostileInitiator, OverlappingFragmentsMakeOneMessage) {
  expect_ignored(Frames().request(id(1), "echo", std::string(1'500, 'a'), 2'000, 0));
  expect_ignored(Frames().request(id(1), "echo", std::string(1'500, 'b'), 2'000, 500));
  EXPECT_EQ(net.handled, handled_before + 1);
  expect_ignored(Frames().request(id(1), "echo", std::string(1'500, 'c'), 2'000, 500));
  EXPECT_EQ(net.handled, handled_before + 1);
}

TEST_F(HostileInitiator, AMessageInTooManyPiecesIsAViolation) {
  bool thrown_out = false;
  for (std::uint16_t i = 0; i < 200 && !thrown_out; ++i) {
    puppet->say(Frames().request(id(1), "echo", "x", 2'000, static_cast<std::uint16_t>(2 * i)));
    thrown_out = puppet->victims_path() == nullptr;
  }
  EXPECT_TRUE(thrown_out);
}

// A reassembly costs more than ten times what a tiny request does, and no honest sender cuts what fits into a packet.
TEST_F(HostileInitiator, ATinyMessageInFragmentsIsAViolation) {
  expect_thrown_out(Frames().request(id(1), "echo", "x", 2, 0));
}

TEST_F(HostileInitiator, ARequestSaidTwiceRunsOnce) {
  for (int i = 0; i < 3; ++i) puppet->say(Frames().request(id(1), "echo", "x"));
  EXPECT_EQ(net.handled, handled_before + 1);
  EXPECT_NE(puppet->victims_path(), nullptr);
}

TEST_F(HostileInitiator, AnOlderGenerationNeverRuns) {
  puppet->say(Frames().request(id(1, 50), "echo", "x"));
  puppet->say(Frames().request(id(1, 49), "echo", "x"));
  EXPECT_EQ(net.handled, handled_before + 1);
  EXPECT_NE(puppet->victims_path(), nullptr);
}

TEST_F(HostileInitiator, ARequestAfterItsCancellationNeverRuns) {
  puppet->say(Frames().cancel(id(1), 0, 1));
  puppet->say(Frames().request(id(1), "echo", "x"));
  EXPECT_EQ(net.handled, handled_before);
  EXPECT_NE(puppet->victims_path(), nullptr);
}

TEST_F(HostileInitiator, CancellationsOfOtherGenerationsAreIgnored) {
  puppet->say(Frames().request(id(1, 50), "hold", "x"));
  ASSERT_EQ(held.size(), 1u);
  expect_ignored(Frames().cancel(id(1, 49)).cancel(id(2, 49)));
  EXPECT_FALSE(held[0]->cancelled);
  expect_ignored(Frames().cancel(id(1, 50)));
  EXPECT_TRUE(held[0]->cancelled);
}

TEST_F(HostileInitiator, CancellationsOfWhatWasNeverSentEarnNoCredit) {
  const std::uint64_t promised = net.core(server).ledger.promised();
  for (std::uint32_t i = 0; i < 100 && puppet->victims_path() != nullptr; ++i) {
    const std::uint64_t window = path().accounts[0].limit() - path().accounts[0].received();
    Frames frames;
    for (std::uint32_t j = 0; j < 50; ++j) frames.cancel(id(i, j), 0, 16'000);
    puppet->say(frames);
    if (puppet->victims_path() == nullptr) break;
    EXPECT_EQ(path().accounts[0].unanswered(), 0u);
    EXPECT_LE(path().accounts[0].limit() - path().accounts[0].received(), window);
  }
  EXPECT_LE(net.core(server).ledger.promised(), promised);
}

TEST_F(HostileInitiator, ACancellationOfAnUnknownLevelIsAViolation) { expect_thrown_out(Frames().cancel(id(1), 5)); }

TEST_F(HostileInitiator, RepliesNobodyAskedForAreAViolation) {
  // A responder that has never called has no slot that could be answered.
  expect_thrown_out(Frames().reply(id(1), "x"));
}

TEST_F(HostileInitiator, ThePathFrameIsForInitiatorsOnly) { expect_thrown_out(Frames().path(7)); }

TEST_F(HostileInitiator, CreditAndBlockedOfUnknownLevelsAreViolations) {
  expect_thrown_out(Frames().level(FrameType::credit, token::kLevels, 1));
}

TEST_F(HostileInitiator, ABlockedFrameOfAnUnknownLevelIsAViolation) {
  expect_thrown_out(Frames().level(FrameType::blocked, token::kLevels, 1));
}

TEST_F(HostileInitiator, ImpossibleWishesForCreditAreCutToWhatIsSane) {
  for (int i = 0; i < 1'000; ++i) {
    for (std::uint8_t level = 0; level < token::kLevels; ++level) {
      puppet->say(Frames().level(FrameType::blocked, level, ~std::uint64_t{0}));
    }
    ASSERT_NE(puppet->victims_path(), nullptr);
  }
  EXPECT_LE(path().accounts[0].limit(), net.core(server).ledger.options().per_path);
}

TEST_F(HostileInitiator, CreditForCallsNobodyMakesIsIgnored) {
  for (std::uint8_t level = 0; level < token::kLevels; ++level) {
    expect_ignored(Frames().level(FrameType::credit, level, ~std::uint64_t{0}));
  }
}

TEST_F(HostileInitiator, AFlowResetOfNothingIsIgnored) {
  expect_ignored(Frames().u64(FrameType::flow_reset, id(3).packed()).u64(FrameType::flow_reset, ~std::uint64_t{0}));
}

TEST_F(HostileInitiator, ARequestWhoseTransferIsGoneIsAnsweredWithAReset) {
  const Counters& counters = net.engine(server).events().counters;
  const auto resets_heard = [&] {
    std::vector<std::uint64_t> named;
    for (const Datagram& heard : puppet->listen()) {
      const std::byte* const end = heard.data() + heard.size();
      for (const std::byte* at = heard.data(); at != nullptr && at != end; at = testing::end_of_frame(at, end)) {
        std::uint64_t value = 0;
        if (*at != static_cast<std::byte>(FrameType::flow_reset)) continue;
        wire::decode_u64(at, end, value);
        named.push_back(value);
      }
    }
    return named;
  };
  puppet->say(Frames().request(id(1), "echo", "x"));
  EXPECT_EQ(net.handled, handled_before + 1);
  (void)puppet->listen();
  puppet->say(Frames().request(id(1), "echo", "x"));
  EXPECT_EQ(counters.flow_resets_sent, 0u) << "its answer is still on its way";
  puppet->say(Frames().ack(0, path().next_number - 1));
  (void)puppet->listen();
  puppet->say(Frames().request(id(1), "echo", "x"));
  EXPECT_EQ(net.handled, handled_before + 1);
  EXPECT_EQ(counters.flow_resets_sent, 1u);
  EXPECT_EQ(resets_heard(), std::vector<std::uint64_t>{id(1).packed()});
  // Each copy is worth one, but not more are owed than have room.
  Frames many;
  for (int i = 0; i < 200; ++i) many.request(id(1), "echo", "x");
  puppet->say(many);
  const std::uint64_t owed = counters.flow_resets_sent - 1 + path().again.size();
  EXPECT_GT(owed, 0u);
  EXPECT_LE(owed, 64u);
  EXPECT_EQ(net.handled, handled_before + 1);
  puppet->say(Frames().ack(0, path().next_number - 1));
}

TEST_F(HostileInitiator, AnUnknownCloseReasonIsAViolation) { expect_thrown_out(Frames().close(77)); }

TEST_F(HostileInitiator, WhatFollowsACloseIsNotLookedAt) {
  puppet->say(Frames().close(0).request(id(1), "echo", "x"));
  EXPECT_EQ(net.handled, handled_before);
  EXPECT_EQ(puppet->victims_path(), nullptr);
}

TEST_F(HostileInitiator, AFloodOfClosesIsAnsweredSparingly) {
  net.engine(server).events().counters.packets_sent = 0;
  for (int i = 0; i < 1'000; ++i) puppet->say(Frames().close(static_cast<std::uint8_t>(i % 3)));
  EXPECT_LE(net.engine(server).events().counters.packets_sent, Core::kUnknownPathsPerMillisecond);
}

TEST_F(HostileInitiator, ABrokenFrameAfterARequestClosesThePathAndTheAnswerGoesNowhere) {
  puppet->say(Frames().request(id(1), "hold", "x").raw(Datagram{std::byte{99}}));
  EXPECT_EQ(puppet->victims_path(), nullptr);
}

TEST_F(HostileInitiator, CallsNestedTooDeepAreRefusedWithoutRunning) {
  puppet->say(Frames().request(id(1), "echo", "x", 0, 0, 7));
  EXPECT_EQ(net.handled, handled_before);
  EXPECT_NE(puppet->victims_path(), nullptr);
}

// It sends for ever and never acknowledges: neither its own packets' acknowledgements nor the probes for the reply that
// it ignores may fill the record of sent packets.
TEST_F(HostileInitiator, OneThatNeverAcknowledgesFillsNothing) {
  puppet->say(Frames().request(id(1), "echo", "x"));
  for (int i = 0; i < 40'000; ++i) {
    if (puppet->victims_path() == nullptr) break;
    puppet->path().next_number += 2;  // gaps are acknowledged at once
    puppet->say(Frames().ping());
    net.now = net.now + std::chrono::microseconds(100);
    net.inbox(hostile).clear();
    if (i % 100 == 0) net.turn(honest);
  }
  EXPECT_LE(net.engine(server).census().frames_in_flight, 1u << 15);
}

TEST_F(HostileInitiator, OneThatOnlyPingsNowAndThenIsProbedWithinBounds) {
  puppet->say(Frames().request(id(1), "echo", "x"));
  for (int i = 0; i < 100'000; ++i) {
    if (puppet->victims_path() == nullptr) break;
    if (i % 10 == 0) puppet->send(Frames().ping());
    net.now = net.now + std::chrono::milliseconds(4);
    net.turn(server);
    net.inbox(hostile).clear();
  }
  EXPECT_LE(net.engine(server).census().packets_in_flight, 1u << 12);
}

// Half a request, and then nothing more, for ever.
TEST_F(HostileInitiator, OneThatVanishesInTheMiddleOfARequestIsForgotten) {
  puppet->say(Frames().request(id(1), "echo", std::string(1'000, 'x'), 2'000, 0));
  EXPECT_EQ(net.engine(server).census().incoming, 1u);
  net.run_for(kForEver);
  EXPECT_EQ(puppet->victims_path(), nullptr);
  EXPECT_EQ(net.engine(server).census().incoming, 0u);
}

class HostileInitiatorWithRoomForAnswers : public HostileInitiator {
  EngineConfig server_config() override {
    EngineConfig config = testing::test_config(true, 999);
    config.limits.answer_bytes = std::size_t{4} << 30;  // so that credit is what ends first
    return config;
  }
};

TEST_F(HostileInitiatorWithRoomForAnswers, RequestsThatRetireHeldOnesStayWithinTheirCredit) {
  const std::uint64_t limit = net.core(server).ledger.options().per_path;
  for (std::uint32_t i = 0; i < 30'000 && puppet->victims_path() != nullptr; ++i) {
    puppet->say(Frames()
                    .request(id(1, i), "hold", std::string(100, 'x'))
                    .level(FrameType::blocked, 0, ~std::uint64_t{0})
                    .ack(path().next_number - 1, path().next_number - 1));
    ASSERT_LE(held.size() * token::request_cost(100), limit);
  }
  EXPECT_EQ(puppet->victims_path(), nullptr);
}

class HostileInitiatorAgainstASmallServer : public HostileInitiator {
  EngineConfig server_config() override {
    EngineConfig config = testing::test_config(true, 999);
    config.limits.peers = 4;
    return config;
  }
};

// A handler holds a request while its path ends and the path's place is taken so often that its number comes again.
TEST_F(HostileInitiatorAgainstASmallServer, AnAnswerAfterThousandsOfReconnectsPaysNobodyElsesCredit) {
  puppet->say(Frames().request(id(1), "hold", std::string(8'000, 'x')));
  ASSERT_EQ(held.size(), 1u);
  const std::uint32_t number = puppet->victims_path()->id;
  puppet->say(Frames().close(1));
  // The place is the same at once; its number comes again after so many that nobody waits for them here.
  Path* const made = net.core(server).make_path(net.address(hostile), false, net.now);
  ASSERT_NE(made, nullptr);
  ASSERT_EQ(net.core(server).path_numbers.index_of(made->id), net.core(server).path_numbers.index_of(number));
  ASSERT_NE(made->id, number);
  made->id = number;
  Path& other = *net.core(server).find_path(number);
  net.core(server).ledger.open_reserve(other.accounts[0]);
  const std::uint64_t limit = other.accounts[0].limit();
  net.engine(server).reply(*std::exchange(held, {})[0], {}, {}, net.now);
  EXPECT_EQ(other.accounts[0].limit(), limit);
  net.core(server).end_path(other, Code::reset, "", false, net.now);
}

}  // namespace
}  // namespace weir::engine
