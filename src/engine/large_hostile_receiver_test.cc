// What an authenticated peer that breaks the rules of large messages can do as their receiver: the calls to it end,
// each once and with a clear error if it has to be one; what was to be sent is let go of, and nothing grows.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "engine/large_testing.h"

namespace weir::engine {
namespace {

using testing::Datagram;
using testing::frame_of;
using testing::Frames;
using testing::Net;
using testing::opening_of;
using testing::Puppet;
using testing::TestCall;
using wire::FrameType;
using wire::Side;

constexpr std::size_t kBytes = 200'000;

// A client that calls an honest server and a hostile one, which is behind a Puppet.
class LargeHostileReceiver : public ::testing::Test {
 protected:
  void SetUp() override {
    EngineConfig config = testing::test_config(false, 1'000);
    config.memory = &memory;
    victim = net.add(config);
    for (int* server : {&honest, &hostile}) {
      EngineConfig other = testing::test_config(true, static_cast<std::uint16_t>(1'001 + (server == &honest)));
      other.memory = &memory;
      *server = net.add(other);
      net.serve(*server, "take", [this](Engine& engine, transfer::IncomingTransfer& request, Instant now) {
        if (buffer::Landing* const landing = request.landing()) {
          EXPECT_TRUE(buffer::open_all(*landing));
          taken.assign(reinterpret_cast<const char*>(landing->body), landing->bytes);
        }
        engine.reply(request, {}, {}, now);
      });
      TestCall call;
      net.call(victim, *server, call, "take", "hello");
      ASSERT_TRUE(net.run_until([&] { return call.completions != 0; }));
      ASSERT_FALSE(call.failed) << call.reply;
    }
    net.run_for(std::chrono::milliseconds(50));
    puppet = std::make_unique<Puppet>(net, hostile, victim);
    net.on_wire = [this](int from, const Address& to, MutableByteSpan datagram) {
      if (from != victim || to != net.address(hostile)) return;
      if (wire::decode_header(datagram.data()).is_data) ++data_packets;
    };
  }
  void TearDown() override {
    TestCall call;
    const std::string text(300'000, 'h');
    call_large(honest, call, text);
    ASSERT_TRUE(net.run_until([&] { return call.completions != 0; }));
    EXPECT_FALSE(call.failed) << call.reply;
    EXPECT_TRUE(taken == text);
    puppet.reset();
    net.run_for(std::chrono::hours(1));
    const Census census = net.engine(victim).census();
    EXPECT_EQ(census.writers + census.arrivals + census.regions + census.regions_leaked, 0u);
    EXPECT_EQ(census.calls_sent + census.calls_queued + census.blocks + census.reassemblies + census.paths, 0u);
    EXPECT_EQ(census.large_bytes, 0u);
    EXPECT_EQ(memory.taken_bytes(), 0u);
  }
  void call_large(int server, TestCall& call, std::string_view text, Duration deadline = std::chrono::seconds(2),
                  std::uint64_t piece_bytes = 0) {
    Engine& engine = net.engine(victim);
    call.method = testing::method_id("take");
    call.peer = engine.connect(net.address(server)).value();
    call.deadline = net.now + deadline;
    call.is_large = true;
    crypto::KeyBytes key;
    net.entropy.fill(key);
    buffer::Sealed* const sealed =
        buffer::seal(memory, as_bytes(text), key, buffer::thread_key(), buffer::kRecordBytes, piece_bytes);
    call.block = transfer::load_cargo(engine.blocks(), sealed, {.bytes = text.size()}, Pattern::unary, {});
    call.bytes = wire::kCargoBytes;
    engine.submit(call, net.now);
    net.run_for(std::chrono::milliseconds(1));
  }
  // Acknowledges its packets until all of it was sent.
  void write_all_of(TestCall& call) {
    for (int i = 0; i < 100 && transfer::Cargo::of(call.block).writer->next < kBytes; ++i) {
      say(Frames().ping().bytes());
      net.run_for(std::chrono::milliseconds(1));
    }
  }
  // The name under which the call has just been sent.
  wire::TransferId name_of(const TestCall& call) {
    EXPECT_EQ(call.state, transfer::OutgoingCall::State::sent);
    return {call.slot, call.generation};
  }
  void say(const Datagram& frame) {
    puppet->say(Frames().raw(frame).ack(0, path().next_number - 1));
    puppet->listen();
  }
  Path& path() { return *puppet->victims_path(); }
  void expect_fails(TestCall& call, Code code) {
    ASSERT_TRUE(net.run_until([&] { return call.completions != 0; }));
    EXPECT_EQ(call.completions, 1);
    EXPECT_TRUE(call.failed);
    EXPECT_EQ(call.code, code) << call.reply;
  }

  buffer::HeapMemory memory{std::uint64_t{1} << 32};
  Net net;
  std::string taken;
  int victim = 0, honest = 0, hostile = 0;
  std::uint64_t data_packets = 0;
  std::unique_ptr<Puppet> puppet;
};

TEST_F(LargeHostileReceiver, ThatGrantsLessThanTheMessageGetsNothing) {
  TestCall call;
  call_large(hostile, call, std::string(kBytes, 'x'));
  const wire::TransferId id = name_of(call);
  for (const std::uint64_t capacity : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{kBytes - 1}}) {
    say(frame_of(wire::GrantFrame{.side = Side::request, .id = id, .region = 77, .capacity = capacity}));
  }
  net.run_for(std::chrono::milliseconds(10));
  EXPECT_EQ(data_packets, 0u);
  expect_fails(call, Code::timeout);
  EXPECT_FALSE(call.may_have_run);
}

TEST_F(LargeHostileReceiver, ThatGrantsWhatNobodyAskedForIsIgnored) {
  TestCall call;
  call_large(hostile, call, std::string(kBytes, 'x'));
  const wire::TransferId id = name_of(call);
  for (const wire::TransferId other : {wire::TransferId{id.slot, id.generation + 1},
                                       {id.slot + 1, id.generation},
                                       {wire::kMaxSlots - 1, wire::kMaxGeneration},
                                       {}}) {
    for (const Side side : {Side::request, Side::reply}) {
      say(frame_of(wire::GrantFrame{.side = side, .id = other, .region = 77, .capacity = ~0ull}));
    }
  }
  say(frame_of(wire::GrantFrame{.side = Side::reply, .id = id, .region = 77, .capacity = ~0ull}));
  say(frame_of(wire::GrantFrame{.side = Side::request, .id = id, .region = 0, .capacity = ~0ull}));
  net.run_for(std::chrono::milliseconds(10));
  EXPECT_EQ(data_packets, 0u);
  expect_fails(call, Code::timeout);
}

// The link may have taken a train and not have sent it yet, because its socket is full.
TEST_F(LargeHostileReceiver, ThatAcknowledgesFreesNothingThatIsYetToBeSent) {
  Engine& engine = net.engine(victim);
  const auto hear = [&](const Datagram& frame) {
    Datagram packet = puppet->seal(Frames().raw(frame).ack(0, path().next_number - 1).bytes());
    engine.on_datagram(packet, net.address(hostile), 0, nullptr, net.now);
  };
  TestCall call;
  call_large(hostile, call, std::string(kBytes, 'x'));
  const wire::TransferId id = name_of(call);
  const std::uint64_t held = memory.taken_bytes();
  ASSERT_GE(held, kBytes);
  hear(frame_of(wire::GrantFrame{.side = Side::request, .id = id, .region = 77, .capacity = kBytes}));
  std::vector<Train> blocked;
  engine.collect(blocked, net.now);
  ASSERT_FALSE(blocked.empty());
  ASSERT_FALSE(blocked.front().segments.empty());
  const ByteSpan slice = blocked.front().segments.front().body;
  const Datagram before(slice.begin(), slice.end());
  hear(frame_of(FrameType::transfer_ack, wire::SideFrame{.side = Side::request, .id = id}));
  engine.deliver(net.now);
  EXPECT_EQ(memory.taken_bytes(), held);
  EXPECT_TRUE(std::equal(slice.begin(), slice.end(), before.begin()));
  for (const Train& train : blocked) engine.on_train_fate(train, TrainFate::sent, net.now);
  std::vector<Train> more;
  engine.collect(more, net.now);
  for (const Train& train : more) engine.on_train_fate(train, TrainFate::sent, net.now);
  EXPECT_LT(memory.taken_bytes(), held);
  expect_fails(call, Code::timeout);
}

TEST_F(LargeHostileReceiver, ThatAcknowledgesARangeFreesNothingThatIsYetToBeSent) {
  Engine& engine = net.engine(victim);
  const auto hear = [&](const Datagram& frame) {
    Datagram packet = puppet->seal(Frames().raw(frame).ack(0, path().next_number - 1).bytes());
    engine.on_datagram(packet, net.address(hostile), 0, nullptr, net.now);
  };
  TestCall call;
  call_large(hostile, call, std::string(kBytes, 'x'), std::chrono::seconds(2), buffer::kRecordBytes);
  const wire::TransferId id = name_of(call);
  hear(frame_of(wire::GrantFrame{.side = Side::request, .id = id, .region = 77, .capacity = kBytes}));
  const transfer::Writer* const writer = transfer::Cargo::of(call.block).writer;
  std::vector<Train> blocked;
  for (int i = 0; i < 100 && writer->next <= 2 * buffer::kRecordBytes; ++i) {
    for (const Train& train : blocked) engine.on_train_fate(train, TrainFate::sent, net.now);
    blocked.clear();
    net.run_for(std::chrono::milliseconds(1));
    hear(Frames().ping().bytes());
    engine.collect(blocked, net.now);
  }
  const std::uint64_t sent = writer->next;
  ASSERT_GT(sent, 2 * buffer::kRecordBytes);
  const std::uint64_t held = memory.taken_bytes();
  hear(frame_of(wire::RangeAckFrame{.side = Side::request, .id = id, .region = 77, .bytes = sent}));
  engine.deliver(net.now);
  EXPECT_EQ(memory.taken_bytes(), held);
  for (const Train& train : blocked) engine.on_train_fate(train, TrainFate::sent, net.now);
  blocked.clear();
  engine.collect(blocked, net.now);
  EXPECT_LT(memory.taken_bytes(), held);
  for (const Train& train : blocked) engine.on_train_fate(train, TrainFate::sent, net.now);
  expect_fails(call, Code::timeout);
}

TEST_F(LargeHostileReceiver, ThatAcknowledgesRangesTwiceOutOfOrderOrOfOthersFreesNothingMore) {
  TestCall call;
  call_large(hostile, call, std::string(kBytes, 'x'), std::chrono::seconds(2), buffer::kRecordBytes);
  const wire::TransferId id = name_of(call);
  const auto acknowledge = [&](wire::TransferId which, Side side, std::uint64_t region, std::uint64_t bytes) {
    say(frame_of(wire::RangeAckFrame{.side = side, .id = which, .region = region, .bytes = bytes}));
    net.turn(victim);
  };
  acknowledge(id, Side::request, 77, 1);  // before there is a region
  say(frame_of(wire::GrantFrame{.side = Side::request, .id = id, .region = 77, .capacity = kBytes}));
  write_all_of(call);
  const std::uint64_t all = memory.taken_bytes();
  acknowledge(id, Side::reply, 77, kBytes);
  acknowledge(id, Side::request, 78, kBytes);
  acknowledge({id.slot, id.generation + 1}, Side::request, 77, kBytes);
  acknowledge({id.slot + 1, id.generation}, Side::request, 77, kBytes);
  acknowledge({wire::kMaxSlots - 1, wire::kMaxGeneration}, Side::reply, 77, ~std::uint64_t{0});
  EXPECT_EQ(memory.taken_bytes(), all);
  ASSERT_NE(puppet->victims_path(), nullptr);
  acknowledge(id, Side::request, 77, 2 * buffer::kRecordBytes);
  const std::uint64_t less = memory.taken_bytes();
  EXPECT_EQ(less, all - buffer::kRecordBytes) << "the first piece has the payload itself";
  acknowledge(id, Side::request, 77, 2 * buffer::kRecordBytes);
  acknowledge(id, Side::request, 77, buffer::kRecordBytes);
  acknowledge(id, Side::request, 77, 1);
  EXPECT_EQ(memory.taken_bytes(), less);
  EXPECT_NE(puppet->victims_path(), nullptr) << "none of this breaks a rule: it may have been late";
  // It wants again what it has said that it has.
  say(frame_of(wire::RevokeFrame{.side = Side::request, .id = id, .region = 77}));
  net.turn(victim);
  expect_fails(call, Code::overloaded);
  EXPECT_FALSE(call.may_have_run);
  puppet->listen();
}

TEST_F(LargeHostileReceiver, GetsAllOfOnePieceAgainInAnotherRegion) {
  TestCall call;
  call_large(hostile, call, std::string(kBytes, 'x'));
  const wire::TransferId id = name_of(call);
  say(frame_of(wire::GrantFrame{.side = Side::request, .id = id, .region = 77, .capacity = kBytes}));
  write_all_of(call);
  say(frame_of(wire::RangeAckFrame{.side = Side::request, .id = id, .region = 77, .bytes = kBytes}));
  net.turn(victim);
  const std::uint64_t before = net.engine(victim).events().counters.payload_bytes_sent;
  say(frame_of(wire::GrantFrame{.side = Side::request, .id = id, .region = 78, .capacity = kBytes}));
  write_all_of(call);
  EXPECT_EQ(net.engine(victim).events().counters.payload_bytes_sent - before, kBytes);
  expect_fails(call, Code::timeout);
}

TEST_F(LargeHostileReceiver, ThatGrantsAnotherRegionForWhatItHadEndsItsCall) {
  TestCall call;
  call_large(hostile, call, std::string(kBytes, 'x'), std::chrono::seconds(2), buffer::kRecordBytes);
  const wire::TransferId id = name_of(call);
  say(frame_of(wire::GrantFrame{.side = Side::request, .id = id, .region = 77, .capacity = kBytes}));
  write_all_of(call);
  say(frame_of(wire::RangeAckFrame{.side = Side::request, .id = id, .region = 77, .bytes = 2 * buffer::kRecordBytes}));
  net.turn(victim);
  say(frame_of(wire::GrantFrame{.side = Side::request, .id = id, .region = 78, .capacity = kBytes}));
  expect_fails(call, Code::overloaded);
}

TEST_F(LargeHostileReceiver, ThatAcknowledgesMoreThanWasSentBreaksTheRules) {
  TestCall call;
  call_large(hostile, call, std::string(kBytes, 'x'), std::chrono::seconds(2), buffer::kRecordBytes);
  const wire::TransferId id = name_of(call);
  say(frame_of(wire::GrantFrame{.side = Side::request, .id = id, .region = 77, .capacity = kBytes}));
  net.turn(victim);
  const std::uint64_t rejected = net.engine(victim).events().counters.packets_rejected;
  puppet->say(
      Frames().raw(frame_of(wire::RangeAckFrame{.side = Side::request, .id = id, .region = 77, .bytes = kBytes + 1})));
  EXPECT_EQ(net.engine(victim).events().counters.packets_rejected, rejected + 1);
  EXPECT_EQ(puppet->victims_path(), nullptr);
  expect_fails(call, Code::reset);
}

TEST_F(LargeHostileReceiver, ThatGivesTokensWithoutEndFillsNoMemory) {
  for (std::uint64_t i = 1; i <= 5'000; ++i) {
    say(frame_of(wire::GrantFrame{.region = i << 24 | i, .capacity = i << 12, .lifetime_ms = ~0u}));
  }
  ASSERT_NE(path().large, nullptr);
  EXPECT_LE(path().large->tokens.size(), token::TokenCache::kMaxTokens * token::kTokenClasses);
  // A token of its imagination delays a message at most.
  TestCall call;
  call_large(hostile, call, std::string(kBytes, 'x'));
  expect_fails(call, Code::timeout);
}

TEST_F(LargeHostileReceiver, ThatTakesBackWithoutEndIsGivenUp) {
  TestCall call;
  call_large(hostile, call, std::string(kBytes, 'x'));
  const wire::TransferId id = name_of(call);
  std::uint64_t region = 1;
  for (; call.completions == 0 && region < 100; ++region) {
    say(frame_of(wire::GrantFrame{.side = Side::request, .id = id, .region = region, .capacity = kBytes}));
    say(frame_of(wire::RevokeFrame{.side = Side::request, .id = id, .region = region}));
    say(frame_of(wire::RevokeFrame{.side = Side::request, .id = id, .region = region}));  // once is enough
    net.turn(victim);
  }
  EXPECT_EQ(region, Core::kMaxLostRegions + 2u);
  expect_fails(call, Code::overloaded);
  EXPECT_EQ(call.reply, "the peer took its memory back too often");
}

TEST_F(LargeHostileReceiver, ThatTakesBackIsAskedLaterEachTime) {
  TestCall call;
  call_large(hostile, call, std::string(kBytes, 'x'), std::chrono::minutes(1));
  const wire::TransferId id = name_of(call);
  for (std::uint8_t loss = 1; loss <= Core::kMaxLostRegions; ++loss) {
    say(frame_of(wire::GrantFrame{.side = Side::request, .id = id, .region = loss, .capacity = kBytes}));
    const Instant lost = net.now;
    puppet->say(Frames()
                    .raw(frame_of(wire::RevokeFrame{.side = Side::request, .id = id, .region = loss}))
                    .ack(0, path().next_number - 1));
    while (testing::frames_in<wire::SideFrame>(puppet->listen(), FrameType::request_regions).empty()) {
      ASSERT_LT(net.now - lost, std::chrono::seconds(1));
      net.run_for(std::chrono::microseconds(50));
    }
    const Duration longest = loss == 1 ? Duration{} : Core::kFirstPause * (1 << (loss - 2));
    EXPECT_GE(net.now - lost, longest / 2) << int{loss};
    EXPECT_LE(net.now - lost, longest + std::chrono::milliseconds(1)) << int{loss};
  }
  net.engine(victim).cancel(call, net.now);
  expect_fails(call, Code::cancelled);
}

TEST_F(LargeHostileReceiver, ThatGrantsOtherRegionsWithoutEndIsBoundByTheWindow) {
  TestCall call;
  call_large(hostile, call, std::string(kBytes, 'x'));
  const wire::TransferId id = name_of(call);
  for (std::uint64_t region = 1; region < 2'000; ++region) {
    puppet->say(Frames().raw(
        frame_of(wire::GrantFrame{.side = Side::request, .id = id, .region = region, .capacity = kBytes})));
    puppet->listen();
  }
  EXPECT_LT(net.engine(victim).census().frames_in_flight, 1'000u);  // nothing was acknowledged
  expect_fails(call, Code::timeout);
}

TEST_F(LargeHostileReceiver, ThatSaysItHasAllOfItIsBelievedAtItsOwnCost) {
  TestCall call;
  call_large(hostile, call, std::string(kBytes, 'x'));
  const wire::TransferId id = name_of(call);
  EXPECT_GT(memory.taken_bytes(), kBytes);
  say(frame_of(FrameType::transfer_ack, {.side = Side::reply, .id = id}));
  EXPECT_GT(memory.taken_bytes(), kBytes);
  say(frame_of(FrameType::transfer_ack, {.side = Side::request, .id = id}));
  net.turn(victim);
  EXPECT_EQ(memory.taken_bytes(), 0u);
  say(frame_of(FrameType::transfer_ack, {.side = Side::request, .id = id}));
  say(frame_of(wire::GrantFrame{.side = Side::request, .id = id, .region = 5, .capacity = kBytes}));
  say(frame_of(wire::RevokeFrame{.side = Side::request, .id = id, .region = 5}));
  EXPECT_EQ(data_packets, 0u);
  puppet->say(Frames().reply(id, "thanks"));
  net.turn(victim);
  EXPECT_EQ(call.completions, 1);
  EXPECT_EQ(call.reply, "thanks");
}

TEST_F(LargeHostileReceiver, ThatHasAllOfItAndThenSaysItSawNothingMakesNobodySendItAgain) {
  TestCall call;
  call_large(hostile, call, std::string(kBytes, 'x'));
  say(frame_of(FrameType::transfer_ack, {.side = Side::request, .id = name_of(call)}));
  puppet->say(Frames().close(static_cast<std::uint8_t>(wire::CloseReason::idle), 0));
  net.run_for(std::chrono::milliseconds(1));
  EXPECT_EQ(call.completions, 1);
  EXPECT_TRUE(call.failed);
  EXPECT_TRUE(call.may_have_run);
}

TEST_F(LargeHostileReceiver, ThatRepliesWithWhatOnlyARequestCanBeIsThrownOut) {
  TestCall call;
  net.call(victim, hostile, call, "take", "x");
  net.run_for(std::chrono::milliseconds(1));
  const wire::TransferId id = name_of(call);
  const wire::CargoFrame cargo{
      .body_bytes = 100'000, .payload_bytes = 100'000, .record_bytes = 61'440, .pattern = Pattern::broadcast};
  puppet->say(Frames().raw(testing::large_reply(id, opening_of(cargo))));
  EXPECT_EQ(net.engine(victim).census().arrivals, 0u);
  EXPECT_EQ(puppet->victims_path(), nullptr);
  expect_fails(call, Code::reset);
}

TEST_F(LargeHostileReceiver, ThatRepliesTwiceIsHeardOnce) {
  TestCall call;
  net.call(victim, hostile, call, "take", "x");
  net.run_for(std::chrono::milliseconds(1));
  const wire::TransferId id = name_of(call);
  crypto::KeyBytes key{};
  const std::string text(100'000, 'r');
  buffer::Sealed* const sealed = buffer::seal(memory, as_bytes(text), key, buffer::thread_key());
  puppet->listen();
  puppet->say(Frames().raw(testing::large_reply(id, opening_of(testing::cargo_of(*sealed)))));
  wire::CargoFrame other = testing::cargo_of(*sealed);
  other.body_bytes = other.payload_bytes = 50;
  puppet->say(Frames().raw(testing::large_reply(id, opening_of(other))));
  puppet->say(Frames().reply(id, "and a small one"));
  EXPECT_EQ(call.completions, 0);
  EXPECT_EQ(net.engine(victim).census().arrivals, 1u);
  net.run_for(std::chrono::milliseconds(1));
  const auto grants = testing::frames_in<wire::GrantFrame>(puppet->listen(), FrameType::region_grant);
  ASSERT_EQ(grants.size(), 1u);
  for (std::uint32_t record = 0; record < 2; ++record) {
    const ByteSpan slice = sealed->at(std::uint64_t{record} * sealed->record_bytes);
    net.inject(victim, net.address(hostile),
               testing::seal_data(*puppet,
                                  frame_of(wire::SliceFrame{
                                      .region = grants[0].region, .record = record, .tag = sealed->tag_of(record)}),
                                  slice));
    net.turn(victim);
  }
  net.turn(victim);
  EXPECT_EQ(call.completions, 1);
  EXPECT_FALSE(call.failed);
  EXPECT_TRUE(call.opened);
  EXPECT_TRUE(call.reply == text);
  puppet->say(Frames().raw(testing::large_reply(id, opening_of(testing::cargo_of(*sealed)))));  // it is over
  EXPECT_NE(puppet->victims_path(), nullptr);
  EXPECT_EQ(net.engine(victim).census().arrivals, 0u);
  detail::unpin(sealed);
}

TEST_F(LargeHostileReceiver, ThatNeverWritesItsReplyDelaysItsOwnCallOnly) {
  TestCall call;
  net.call(victim, hostile, call, "take", "x", std::chrono::seconds(2));
  net.run_for(std::chrono::milliseconds(1));
  const wire::TransferId id = name_of(call);
  puppet->say(Frames().raw(
      testing::large_reply(id, opening_of({.body_bytes = 100'000, .payload_bytes = 100'000, .record_bytes = 61'440}))));
  expect_fails(call, Code::timeout);
  EXPECT_TRUE(call.may_have_run);
  EXPECT_EQ(net.engine(victim).census().arrivals, 0u);
}

TEST_F(LargeHostileReceiver, ThatBeginsWithAFragmentOfSomethingElseLeavesNothingBehind) {
  TestCall call;
  net.call(victim, hostile, call, "take", "x", std::chrono::seconds(2));
  net.run_for(std::chrono::milliseconds(1));
  const wire::TransferId id = name_of(call);
  puppet->say(Frames().reply(id, std::string(600, 'f'), 2'000, 0));
  EXPECT_EQ(net.engine(victim).census().reassemblies, 1u);
  puppet->say(Frames().raw(
      testing::large_reply(id, opening_of({.body_bytes = 100'000, .payload_bytes = 100'000, .record_bytes = 61'440}))));
  EXPECT_EQ(net.engine(victim).census().arrivals, 1u);
  EXPECT_EQ(net.engine(victim).census().reassemblies, 0u);
  expect_fails(call, Code::timeout);
}

TEST_F(LargeHostileReceiver, AFailedLargeReplyIsAViolation) {
  TestCall call;
  net.call(victim, hostile, call, "take", "x");
  net.run_for(std::chrono::milliseconds(1));
  const wire::TransferId id = name_of(call);
  const Datagram opening = opening_of({.body_bytes = 100'000, .payload_bytes = 100'000, .record_bytes = 61'440});
  puppet->say(Frames().raw(testing::large_reply(id, opening, true)));
  EXPECT_EQ(puppet->victims_path(), nullptr);
  expect_fails(call, Code::reset);
}

}  // namespace
}  // namespace weir::engine
