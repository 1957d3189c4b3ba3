// What an authenticated peer can make us hold by large messages that it opens, asks for and does not go on with: its
// share, for a while.
#include <string>

#include "engine/large_hostile_testing.h"

namespace weir::engine {
namespace {

using testing::Datagram;
using testing::frame_of;
using testing::Frames;
using testing::kMessageBytes;
using testing::kPeerBytes;
using testing::kReplyBytes;
using testing::LargeHostileSender;
using testing::opening_of;
using testing::pattern;
using testing::TestCall;
using wire::FrameType;
using wire::Side;

TEST_F(LargeHostileSender, ThatDoesNotAskAgainLosesItsPlace) {
  const buffer::Sealed& payload = seal(pattern(50'000));
  ASSERT_NE(open_and_listen(id(1), testing::cargo_of(payload)), 0u);
  let_pass(std::chrono::milliseconds(2'500));  // without a byte: its region is taken back
  EXPECT_EQ(net->engine(server).census().arrivals, 1u);
  let_pass(Core::kLongestUnasked);
  EXPECT_EQ(net->engine(server).census().arrivals, 0u);
}

TEST_F(LargeHostileSender, ThatFetchesNoRepliesHoldsItsShareForAWhile) {
  const std::size_t fitting = 2 * kMessageBytes / kReplyBytes;
  puppet->listen();
  for (std::uint32_t i = 0; i < 10; ++i) puppet->say(Frames().request(id(i), "give", "x"));
  net->run_for(std::chrono::milliseconds(1));
  const auto heard = puppet->listen();
  EXPECT_EQ(testing::frames_in<wire::ReplyFrame>(heard, FrameType::large_reply).size(), fitting);
  const auto errors = testing::frames_in<wire::ReplyFrame>(heard, FrameType::reply);
  EXPECT_EQ(errors.size(), 10 - fitting);
  for (const wire::ReplyFrame& error : errors) EXPECT_TRUE(error.failed);
  EXPECT_LE(memory.taken_bytes(), 3 * kMessageBytes);
  let_pass(Core::kLongestUnfetched + std::chrono::seconds(5));
  EXPECT_EQ(net->engine(server).census().writers, 0u);
  EXPECT_LT(memory.taken_bytes(), kReplyBytes);
  for (std::uint32_t i = 0; i < fitting; ++i) puppet->say(Frames().request(id(i, 2), "give", "x"));
  net->run_for(std::chrono::milliseconds(1));
  EXPECT_EQ(testing::frames_in<wire::ReplyFrame>(puppet->listen(), FrameType::large_reply).size(), fitting);
}

// What it has said that it has is free, and no part of its share any more.
TEST_F(LargeHostileSender, MayHaveMoreRepliesOnceItHasTheBeginningOfTheFirst) {
  reply_piece_bytes = buffer::kRecordBytes;
  const std::uint64_t share = 2 * kMessageBytes, fitting = share / kReplyBytes;
  const auto ask = [&](std::uint32_t round) {
    puppet->listen();
    for (std::uint32_t i = 0; i < 10; ++i) puppet->say(Frames().request(id(10 * round + i), "give", "x"));
    net->run_for(std::chrono::milliseconds(1));
    return testing::frames_in<wire::ReplyFrame>(puppet->listen(), FrameType::large_reply).size();
  };
  ASSERT_EQ(ask(0), fitting);  // the first of them
  for (std::uint32_t i = 0; i < fitting; ++i) {
    say(frame_of(wire::GrantFrame{
        .side = Side::reply, .id = id(i), .region = 77 + i, .capacity = kReplyBytes, .in_flight_bytes = 1u << 20}));
  }
  const std::uint64_t all = fitting * kReplyBytes;
  for (int i = 0; i < 200 && net->engine(server).events().counters.payload_bytes_sent < all; ++i) {
    puppet->say(Frames().ack(0, puppet->victims_path()->next_number - 1));
    net->run_for(std::chrono::microseconds(100));
  }
  ASSERT_GE(net->engine(server).events().counters.payload_bytes_sent, all);
  const LargePath& large = *puppet->victims_path()->large;
  EXPECT_EQ(large.reply_bytes, all);
  for (std::uint32_t i = 0; i < fitting; ++i) {
    say(frame_of(
        wire::RangeAckFrame{.side = Side::reply, .id = id(i), .region = 77 + i, .bytes = 4 * buffer::kRecordBytes}));
  }
  net->run_for(std::chrono::milliseconds(1));
  const std::uint64_t rest = fitting * (kReplyBytes - 3 * buffer::kRecordBytes);  // the first piece goes last
  EXPECT_EQ(large.reply_bytes, rest);
  EXPECT_LT(memory.taken_bytes(), rest + kReplyBytes);
  EXPECT_EQ(ask(1), (share - rest) / kReplyBytes);
  let_pass(2 * Core::kLongestUnfetched + std::chrono::seconds(10));
  EXPECT_EQ(net->engine(server).census().writers, 0u);
  EXPECT_EQ(large.reply_bytes, 0u);
}

TEST_F(LargeHostileSender, ThatGrantsAndNeverSaysThatItHasAReplyHoldsItForAWhile) {
  puppet->say(Frames().request(id(0), "give", "x"));
  net->run_for(std::chrono::milliseconds(1));
  ASSERT_EQ(testing::frames_in<wire::ReplyFrame>(puppet->listen(), FrameType::large_reply).size(), 1u);
  say(frame_of(wire::GrantFrame{
      .side = Side::reply, .id = id(0), .region = 77, .capacity = kReplyBytes, .in_flight_bytes = 1u << 20}));
  for (int i = 0; i < 100; ++i) {
    puppet->say(Frames().ack(0, puppet->victims_path()->next_number - 1));
    net->run_for(std::chrono::microseconds(100));
  }
  EXPECT_GE(net->engine(server).events().counters.payload_bytes_sent, kReplyBytes);
  EXPECT_EQ(net->engine(server).census().writers, 1u);
  // The first look finds that it went on, the second that it does not.
  let_pass(2 * Core::kLongestUnfetched + std::chrono::seconds(10));
  EXPECT_EQ(net->engine(server).census().writers, 0u);
}

TEST_F(LargeHostileSender, MayHaveManyRepliesWhileMemoryIsPlentiful) {
  is_short = false;
  puppet->listen();
  for (std::uint32_t i = 0; i < 10; ++i) puppet->say(Frames().request(id(i), "give", "x"));
  net->run_for(std::chrono::milliseconds(1));
  EXPECT_EQ(testing::frames_in<wire::ReplyFrame>(puppet->listen(), FrameType::large_reply).size(), 10u);
}

TEST_F(LargeHostileSender, IsRefusedWhatNobodyCouldHaveMemoryFor) {
  const std::uint64_t huge = std::uint64_t{1} << 44;
  open(id(1), {.body_bytes = huge, .payload_bytes = huge, .record_bytes = 4'096});
  net->run_for(std::chrono::milliseconds(1));
  EXPECT_NE(puppet->victims_path(), nullptr);
  const auto replies = testing::frames_in<wire::ReplyFrame>(puppet->listen(), FrameType::reply);
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_TRUE(replies[0].failed);
  EXPECT_EQ(memory.taken_bytes(), 0u);
}

TEST_F(LargeHostileSender, WithoutEndStaysWithinTheBounds) {
  const wire::CargoFrame cargo{
      .body_bytes = 400'000, .payload_bytes = 400'000, .record_bytes = 61'440, .wants_token = true};
  for (std::uint32_t slot = 0; slot < 200; ++slot) {
    open(id(slot), cargo, slot % 5);
    ASSERT_NE(puppet->victims_path(), nullptr) << slot;
    const Census census = net->engine(server).census();
    EXPECT_LE(census.large_bytes, 5 * kPeerBytes);  // levels of nesting have purses of their own
  }
  EXPECT_GT(net->engine(server).events().counters.regions_exhausted, 0u);
}

TEST_F(LargeHostileSender, ThatOpensAndCancelsWithoutEndLeavesNothingToBeSaid) {
  const wire::CargoFrame cargo{
      .body_bytes = 100'000, .payload_bytes = 100'000, .record_bytes = 61'440, .wants_token = true};
  const Datagram opening = opening_of(cargo);
  for (std::uint64_t round = 1; round <= 400; ++round) {  // and never acknowledges anything
    Frames frames;
    for (std::uint32_t slot = 0; slot < 100; ++slot) {
      frames.raw(testing::large_request(id(slot, round), "take", opening))
          .cancel(id(slot, round), 0, wire::kCargoBytes);
    }
    puppet->say(frames);
    if (puppet->victims_path() == nullptr) break;  // it may be thrown out
    expect_within_bounds();
  }
}

TEST_F(LargeHostileSender, WhoseRegionIsNeverWrittenLosesItToWhoWaits) {
  const wire::CargoFrame cargo{.body_bytes = kMessageBytes, .payload_bytes = kMessageBytes, .record_bytes = 61'440};
  ASSERT_NE(open_and_listen(id(1), cargo), 0u);
  TestCall calls[2];
  std::string texts[2] = {pattern(kMessageBytes, 5), pattern(kMessageBytes, 6)};
  for (int i = 0; i < 2; ++i) honest_call(calls[i], texts[i]);
  net->run_for(std::chrono::milliseconds(200));
  EXPECT_GT(net->engine(server).census().arrivals, 0u);
  let_pass(std::chrono::seconds(3));
  for (TestCall& call : calls) {
    EXPECT_EQ(call.completions, 1);
    EXPECT_FALSE(call.failed) << call.reply;
  }
  expect_within_bounds();
}

TEST_F(LargeHostileSender, IsRefusedByAnEngineThatHasNoMemoryForLargeMessages) {
  disconnect();
  connect(nullptr);
  open(id(1), {.body_bytes = 100'000, .payload_bytes = 100'000, .record_bytes = 61'440});
  net->run_for(std::chrono::milliseconds(1));
  const auto replies = testing::frames_in<wire::ReplyFrame>(puppet->listen(), FrameType::reply);
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_TRUE(replies[0].failed);
  disconnect();
}

TEST_F(LargeHostileSender, IsRefusedWhenTheSystemHasLessMemoryThanWasPromised) {
  disconnect();
  buffer::HeapMemory little{150'000};
  connect(&little);
  const wire::CargoFrame cargo{.body_bytes = 100'000, .payload_bytes = 100'000, .record_bytes = 61'440};
  EXPECT_NE(open_and_listen(id(1), cargo), 0u);
  open(id(2), cargo);
  net->run_for(std::chrono::milliseconds(1));
  const auto replies = testing::frames_in<wire::ReplyFrame>(puppet->listen(), FrameType::reply);
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_EQ(replies[0].part.id.slot, 2u);
  EXPECT_TRUE(replies[0].failed);
  disconnect();
}

}  // namespace
}  // namespace weir::engine
