// Calls that say how large a reply they accept (docs/protocol.md, rule C-12): what is reserved on either side, and what
// becomes of a reply that is larger, at an honest callee and at a hostile one.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "engine/large_testing.h"

namespace weir::engine {
namespace {

using testing::Frames;
using testing::Net;
using testing::Pair;
using testing::Puppet;
using testing::TestCall;
using transfer::IncomingTransfer;

constexpr auto kForEver = std::chrono::hours(1);
constexpr std::size_t kInline = 16 * 1024;

TEST(ReplyBound, IsTheLongestMessageAndTheRoomForIt) {
  EXPECT_EQ(longest_reply_message(wire::kAnyReply, kInline), kInline + 2);
  EXPECT_EQ(longest_reply_message(0, kInline), 256u);
  EXPECT_EQ(longest_reply_message(192, kInline), 256u);
  EXPECT_EQ(longest_reply_message(193, kInline), 257u);
  EXPECT_EQ(longest_reply_message(kInline, kInline), kInline);
  EXPECT_EQ(longest_reply_message(wire::kAnyReply - 1, kInline), kInline);
  EXPECT_EQ(reply_room_of(wire::kAnyReply, kInline), kInline);
  EXPECT_EQ(reply_room_of(64, kInline), 256u + transfer::Block::kHeaderBytes);
  EXPECT_EQ(reply_room_of(wire::kAnyReply - 1, kInline), kInline);
  for (std::uint32_t bound = 0; bound < 40'000; ++bound) {
    const std::uint32_t longest = longest_reply_message(bound, kInline);
    EXPECT_GE(longest, std::min<std::size_t>(bound, kInline));
    // What is reserved is what a block for the message takes, but for the largest class, of which a call without a
    // bound reserves no more.
    EXPECT_EQ(reply_room_of(bound, kInline), std::min<std::size_t>(answer_bytes_of(longest), kInline));
  }
}

// Two hosts that call one server, whose handlers answer with as many bytes as the request says, or hold it.
class ReplyBoundFlow : public ::testing::Test {
 protected:
  void start(std::size_t reply_bytes, std::size_t answer_bytes = std::size_t{1} << 30) {
    EngineConfig serving = testing::test_config(true, 999);
    serving.limits.answer_bytes = answer_bytes;
    serving.memory = &memory;
    server = net.add(serving);
    EngineConfig calling = testing::test_config(false, 1'000);
    calling.limits.reply_bytes = reply_bytes;
    calling.memory = &memory;
    client = net.add(calling);
    other = net.add(false);
    net.serve(server, "give", [this](Engine& engine, IncomingTransfer& request, Instant now) {
      ++ran;
      const std::string wanted(reinterpret_cast<const char*>(request.delivery.request), request.bytes);
      engine.reply(request, {}, as_bytes(std::string(std::stoul(wanted), 'r')), now);
    });
    net.serve(server, "give large", [this](Engine& engine, IncomingTransfer& request, Instant now) {
      ++ran;
      const std::string wanted(reinterpret_cast<const char*>(request.delivery.request), request.bytes);
      const std::string text(std::stoul(wanted), 'l');
      crypto::KeyBytes key;
      net.entropy.fill(key);
      engine.reply_large(request, buffer::seal(memory, as_bytes(text), key, buffer::thread_key()),
                         {.bytes = text.size()}, Pattern::unary, {}, now);
    });
    net.serve(server, "fail", [](Engine& engine, IncomingTransfer& request, Instant now) {
      engine.fail(request, Code::application, std::string(5'000, 'e'), now);
    });
    net.serve(server, "hold", [this](Engine&, IncomingTransfer& request, Instant) { held.push_back(&request); });
  }
  TestCall& submit(int host, std::string_view method, std::string_view body, std::uint32_t max_reply,
                   int to_server = -1) {
    calls.push_back(std::make_unique<TestCall>());
    calls.back()->max_reply = max_reply;
    net.call(host, to_server < 0 ? server : to_server, *calls.back(), method, body, kForEver);
    return *calls.back();
  }
  TestCall& finished(std::string_view method, std::string_view body, std::uint32_t max_reply) {
    TestCall& call = submit(client, method, body, max_reply);
    EXPECT_TRUE(net.run_until([&] { return call.completions != 0; }));
    return call;
  }
  void answer_held(std::size_t count) {
    for (; count > 0 && !held.empty(); --count) {
      IncomingTransfer* const request = held.back();
      held.pop_back();
      net.engine(server).reply(*request, {}, {}, net.now);
    }
  }
  void TearDown() override {
    for (int i = 0; i < 100 && !held.empty(); ++i) {
      answer_held(held.size());
      net.run_for(std::chrono::milliseconds(10));
    }
    net.run_for(kForEver);
    for (auto& call : calls) EXPECT_EQ(call->completions, 1);
    EXPECT_EQ(net.core(client).reply_room_used, 0u);
    EXPECT_EQ(net.core(server).answers.used(), 0u);
    const Census census = net.engine(client).census();
    EXPECT_EQ(census.blocks + census.reassemblies + census.arrivals + census.regions, 0u);
    EXPECT_EQ(net.engine(server).census().incoming, 0u);
    calls.clear();
    EXPECT_EQ(memory.taken_bytes(), 0u);
  }

  buffer::HeapMemory memory{std::uint64_t{1} << 30};
  Net net;
  int server = 0, client = 0, other = 0;
  int ran = 0;
  std::vector<IncomingTransfer*> held;
  std::vector<std::unique_ptr<TestCall>> calls;
};

TEST_F(ReplyBoundFlow, ACallReservesRoomForTheReplyThatItAcceptsAndNoMore) {
  start(1u << 20);
  for (int i = 0; i < 3'000; ++i) submit(client, "hold", "x", 64);
  net.run_for(std::chrono::milliseconds(100));
  EXPECT_EQ(held.size(), 3'000u);
  EXPECT_EQ(net.core(client).reply_room_used, 3'000u * 320);
  // A call that names no bound reserves the largest inline reply.
  for (int i = 0; i < 100; ++i) submit(client, "hold", "x", wire::kAnyReply);
  net.run_for(std::chrono::milliseconds(100));
  EXPECT_EQ(held.size(), 3'000u + ((1u << 20) - 3'000u * 320) / kInline);
  EXPECT_LE(net.core(client).reply_room_used, 1u << 20);
}

TEST_F(ReplyBoundFlow, TheCalleeReservesNoMoreForItsAnswerEither) {
  start(1u << 30, 1u << 20);
  for (int i = 0; i < 1'000; ++i) submit(client, "hold", "x", 64);
  net.run_for(std::chrono::milliseconds(100));
  EXPECT_EQ(held.size(), 1'000u);
  EXPECT_EQ(net.core(server).answers.used(0), 1'000u * 320);
}

TEST_F(ReplyBoundFlow, AReplyOfTheBoundArrivesAndALargerOneIsRefusedWhereItIsMade) {
  start(1u << 30);
  for (const std::uint32_t bound : {1u, 64u, 200u, 5'000u, 16'384u}) {
    SCOPED_TRACE(bound);
    const TestCall& fits = finished("give", std::to_string(bound), bound);
    EXPECT_FALSE(fits.failed) << fits.reply;
    EXPECT_EQ(fits.reply.size(), bound);
    if (bound == kInline) continue;
    const int before = ran;
    const std::uint64_t sent_before = net.core(server).events.counters.payload_bytes_sent;
    const TestCall& refused = finished("give", std::to_string(bound + 1), bound);
    EXPECT_EQ(ran, before + 1);
    EXPECT_TRUE(refused.failed);
    EXPECT_EQ(refused.code, Code::too_large);
    EXPECT_TRUE(refused.may_have_run);
    EXPECT_EQ(refused.reply, "the reply has " + std::to_string(bound + 1) + " bytes and the call accepts " +
                                 std::to_string(bound) + ": raise CallOptions::max_reply, or let the peer send less");
    EXPECT_LE(net.core(server).events.counters.payload_bytes_sent - sent_before, 256u) << "the reply was sent";
  }
}

TEST_F(ReplyBoundFlow, ALargeReplyIsBoundedToo) {
  start(1u << 30);
  for (const std::uint32_t bound : {40u, 1'000u, 100'000u}) {
    SCOPED_TRACE(bound);
    const TestCall& fits = finished("give large", std::to_string(bound), bound);
    EXPECT_FALSE(fits.failed) << fits.reply;
    EXPECT_EQ(fits.reply, std::string(bound, 'l'));
    const TestCall& refused = finished("give large", std::to_string(bound + 1), bound);
    EXPECT_EQ(refused.code, Code::too_large);
    EXPECT_NE(refused.reply.find("accepts " + std::to_string(bound)), std::string::npos) << refused.reply;
    EXPECT_EQ(net.engine(client).census().large_bytes, 0u);
  }
}

TEST_F(ReplyBoundFlow, AnErrorHasItsSentenceWhateverTheBoundIs) {
  start(1u << 30);
  const TestCall& failed = finished("fail", "", 1);
  EXPECT_EQ(failed.code, Code::application);
  EXPECT_EQ(failed.reply, std::string(254, 'e'));
  EXPECT_EQ(finished("fail", "", wire::kAnyReply).reply, std::string(5'000, 'e'));
  EXPECT_EQ(finished("nobody serves this", "", 0).code, Code::unknown_method);
}

TEST_F(ReplyBoundFlow, TheBoundTravelsWithEveryFragmentAndEveryRepetition) {
  start(1u << 30);
  net.mtu = 1'472;
  net.loss = 0.05;
  for (int i = 0; i < 200; ++i) {
    const std::size_t size = i % 2 == 0 ? 40 : 12'000;
    submit(client, "give", std::to_string(size) + std::string(static_cast<std::size_t>(i) * 50, ' '), 6'000);
  }
  net.run_until([&] { return std::ranges::all_of(calls, [](auto& call) { return call->completions != 0; }); });
  for (std::size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(calls[i]->failed, i % 2 == 1) << calls[i]->reply;
    EXPECT_EQ(calls[i]->code, i % 2 == 1 ? Code::too_large : Code{});
  }
  net.loss = 0;
}

// Small replies would take all the room as it becomes free.
TEST_F(ReplyBoundFlow, ACallThatNeedsMoreRoomIsNotOvertakenForEver) {
  start(4 * kInline);
  const int second = net.add(true);
  std::size_t held_by_second = 0;
  net.serve(second, "hold", [&](Engine&, IncomingTransfer&, Instant) { ++held_by_second; });
  const auto refill = [&] {
    while (net.engine(client).census().calls_queued < 200) submit(client, "hold", "x", 64);
  };
  for (int i = 0; i < 2; ++i) {
    refill();
    net.run_for(std::chrono::milliseconds(10));
  }
  ASSERT_NE(net.core(client).waiting_for_room.size(), 0u);
  TestCall& large = submit(client, "hold", "x", wire::kAnyReply, second);
  for (int i = 0; i < 2'000 && held_by_second == 0; ++i) {
    answer_held(2);
    refill();
    net.run_for(std::chrono::microseconds(100));
  }
  EXPECT_EQ(held_by_second, 1u) << "the call still waits for room";
  net.engine(client).cancel(large, net.now);
}

TEST_F(ReplyBoundFlow, RoomThatIsKeptForAPathIsFreeWhenThePathHasGone) {
  start(kInline);
  const int second = net.add(true);
  net.serve_echo(second);
  TestCall& first = submit(client, "hold", "x", wire::kAnyReply);
  net.run_for(std::chrono::milliseconds(10));
  TestCall& waits = submit(client, "echo", "x", wire::kAnyReply, second);
  net.run_for(std::chrono::milliseconds(10));
  EXPECT_EQ(waits.completions, 0);
  net.engine(client).cancel(waits, net.now);
  answer_held(1);
  net.run_for(std::chrono::milliseconds(10));
  EXPECT_EQ(first.completions, 1);
  EXPECT_EQ(finished("give", "5", 64).reply.size(), 5u) << "room is kept for a path that has no calls any more";
  net.core(client).room_kept_for = 0x12345;  // as if that path had ended
  EXPECT_EQ(finished("give", "5", 64).reply.size(), 5u);
}

// The same at the callee.
TEST_F(ReplyBoundFlow, ARequestThatNeedsMoreAnswerRoomIsNotOvertakenForEver) {
  start(1u << 30, token::AnswerRoom::least(answer_bytes_of(kInline + 2)));
  // They have less than they may, so that their own requests never wait, but too much to leave room for the largest
  // answer.
  const int clients[] = {client, net.add(false), net.add(false), net.add(false)};
  const auto refill = [&] {
    for (const int host : clients) submit(host, "hold", "x", 64);
  };
  for (int i = 0; i < 18; ++i) refill();
  net.run_for(std::chrono::milliseconds(10));
  ASSERT_EQ(net.core(server).requests_waiting, 0u);
  ASSERT_TRUE(net.core(server).answers.is_full(0));
  std::size_t large_ran = 0;
  net.serve(server, "large", [&](Engine& engine, IncomingTransfer& request, Instant now) {
    ++large_ran;
    engine.reply(request, {}, {}, now);
  });
  for (int i = 0; i < 8; ++i) submit(other, "large", "x", wire::kAnyReply);
  for (int i = 0; i < 2'000 && large_ran < 8; ++i) {
    answer_held(4);
    refill();
    net.run_for(std::chrono::microseconds(100));
  }
  EXPECT_EQ(large_ran, 8u) << "requests still wait for room";
}

// ---- a hostile callee: it has learnt the bound and answers as it likes --------------------------------------------

class HostileCallee : public ReplyBoundFlow {
 protected:
  void SetUp() override {
    start(1u << 30);
    for (int i = 0; i < 6; ++i) submit(client, "hold", "x", 64);
    net.run_for(std::chrono::milliseconds(50));
    ASSERT_EQ(held.size(), 6u);
    puppet = std::make_unique<Puppet>(net, server, client);
  }
  void TearDown() override {
    for (auto& call : calls) net.engine(client).cancel(*call, net.now);
    net.run_for(kForEver);
    for (auto& call : calls) EXPECT_EQ(call->completions, 1);
    EXPECT_EQ(net.core(client).reply_room_used, 0u);
    calls.clear();
  }
  wire::TransferId id(std::size_t call) const { return {calls[call]->slot, calls[call]->generation}; }
  void expect_too_large(std::size_t call) {
    EXPECT_EQ(calls[call]->completions, 1);
    EXPECT_EQ(calls[call]->code, Code::too_large);
    EXPECT_TRUE(calls[call]->may_have_run);
    EXPECT_NE(calls[call]->reply.find("CallOptions::max_reply"), std::string::npos) << calls[call]->reply;
    EXPECT_NE(puppet->victims_path(), nullptr) << "other calls suffer";
    const Census census = net.engine(client).census();
    EXPECT_EQ(census.blocks + census.reassemblies + census.arrivals + census.large_bytes, 0u) << "it got memory";
  }

  std::unique_ptr<Puppet> puppet;
};

TEST_F(HostileCallee, AReplyBeyondTheBoundEndsItsOwnCallAndGetsNoMemory) {
  puppet->say(Frames().reply(id(0), std::string(65, 'x')));
  expect_too_large(0);
  puppet->say(Frames().reply(id(1), "part of it", 16'000, 0));
  expect_too_large(1);
  puppet->say(Frames().reply(id(2), "part of it", 257, 0));
  expect_too_large(2);
  puppet->say(Frames().reply(id(3), std::string(257, 'x'), 0, 0, true));
  expect_too_large(3);
  for (const std::size_t call : {4, 5}) EXPECT_EQ(calls[call]->completions, 0);
  puppet->say(Frames().reply(id(4), std::string(64, 'x')));
  EXPECT_EQ(calls[4]->reply, std::string(64, 'x'));
}

TEST_F(HostileCallee, ALargeReplyBeyondTheBoundIsGrantedNothing) {
  const auto open = [&](std::size_t call, std::uint64_t body_bytes, std::size_t header_bytes) {
    std::string opening(wire::kCargoBytes + header_bytes, 'h');
    wire::encode_cargo({.body_bytes = body_bytes, .payload_bytes = body_bytes, .record_bytes = buffer::kRecordBytes},
                       reinterpret_cast<std::byte*>(opening.data()));
    const wire::MessagePart whole{
        .id = id(call), .bytes = as_bytes(opening), .total = static_cast<std::uint16_t>(opening.size())};
    testing::Datagram frame(wire::kReplyBytes + opening.size());
    wire::encode(wire::ReplyFrame{.part = whole, .is_large = true}, frame.data());
    puppet->say(Frames().raw(frame));
  };
  open(0, 65, 0);
  expect_too_large(0);
  open(1, 60, 5);
  expect_too_large(1);
  open(2, 1u << 20, 0);
  expect_too_large(2);
  open(3, 1, 1'000);
  expect_too_large(3);
  open(4, 60, 4);
  EXPECT_EQ(calls[4]->completions, 0);
  EXPECT_EQ(net.engine(client).census().arrivals, 1u);
}

TEST_F(HostileCallee, ABoundedRequestWithoutABoundIsAViolation) {
  Net two;
  const int callee = two.add(true), caller = two.add(false);
  two.serve_echo(callee);
  TestCall call;
  two.call(caller, callee, call, "echo", "hello");
  ASSERT_TRUE(two.run_until([&] { return call.completions != 0; }));
  two.run_for(std::chrono::milliseconds(50));
  Puppet hostile(two, caller, callee);
  const std::string body = "x";
  testing::Datagram frame(100);
  const std::byte* const end = wire::encode(
      wire::RequestFrame{.part = {.id = {1, 9}, .bytes = as_bytes(body), .total = 1}, .method = 5, .max_reply = 7},
      frame.data());
  frame.resize(static_cast<std::size_t>(end - frame.data()));
  hostile.say(Frames().raw(frame));
  EXPECT_NE(hostile.victims_path(), nullptr);
  store<std::uint32_t>(frame.data() + wire::kRequestBytes, wire::kAnyReply);
  hostile.say(Frames().raw(frame));
  EXPECT_EQ(hostile.victims_path(), nullptr);
  EXPECT_TRUE(hostile.was_thrown_out());
}

}  // namespace
}  // namespace weir::engine
