// How long trains are: long while nobody is kept waiting by it, at most 16 KiB while more urgent work may come.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/core.h"
#include "engine/engine_testing.h"

namespace weir::engine {
namespace {

using testing::Pair;
using testing::test_config;
using testing::TestCall;

EngineConfig config_of(bool accepts, std::size_t datagram_bytes) {
  EngineConfig config = test_config(accepts, accepts ? 2222 : 1111);
  config.datagram_bytes = datagram_bytes;
  return config;
}

// A client with a warm path to a server, and many large calls of one level to send.
struct Trains {
  explicit Trains(std::size_t datagram_bytes = 1'472)
      : pair(config_of(false, datagram_bytes), config_of(true, datagram_bytes)) {
    pair.serve_echo();
    // The path's MTU and window grow while these run.
    for (int round = 0; round < 40; ++round) call_all(30, kUsual);
  }

  // Calls that are still under way complete, and give back their blocks.
  ~Trains() {
    pair.client().close(pair.now);
    pair.client().deliver(pair.now);
  }

  static constexpr std::uint8_t kUsual = 3;

  TestCall& submit(std::uint8_t priority, std::size_t bytes) {
    calls.push_back(std::make_unique<TestCall>());
    calls.back()->priority = priority;
    pair.call(*calls.back(), "echo", std::string(bytes, 'x'));
    return *calls.back();
  }
  void call_all(int count, std::uint8_t priority, std::size_t bytes = 4'096) {
    for (int i = 0; i < count; ++i) submit(priority, bytes);
    ASSERT_TRUE(pair.run_until([this] { return calls.back()->completions == 1 && pair.client().is_quiet(); }));
    calls.clear();
  }
  std::size_t next_train_bytes() {
    std::vector<Train> trains;
    pair.client().collect(trains, pair.now);
    return trains.empty() ? 0 : trains.front().bytes.size();
  }

  std::vector<std::unique_ptr<TestCall>> calls;
  Pair pair;
};

TEST(Train, HasManyMessagesInEachPacket) {
  constexpr std::size_t kMessages = 200, kMessageBytes = 32;
  Trains trains;
  for (std::size_t i = 0; i < kMessages; ++i) trains.submit(Trains::kUsual, kMessageBytes);
  std::size_t bytes = 0, packets = 0;
  while (const std::size_t train = trains.next_train_bytes()) {
    bytes += train;
    packets += (train + 1'471) / 1'472;
  }
  for (const auto& call : trains.calls) EXPECT_EQ(call->state, transfer::OutgoingCall::State::sent);
  EXPECT_GE(bytes, kMessages * kMessageBytes);
  EXPECT_LE(packets, kMessages * (kMessageBytes + wire::kRequestBytes) / 1'400 + 2);
}

TEST(Train, LeavesAtOnceWithASingleMessage) {
  Trains trains;
  const TestCall& only = trains.submit(Trains::kUsual, 32);
  EXPECT_LT(trains.next_train_bytes(), 150u) << "it is not filled up, either";
  EXPECT_EQ(only.state, transfer::OutgoingCall::State::sent);
}

TEST(Train, IsLongWhileAllMessagesAreOfOneLevel) {
  Trains trains;
  for (int i = 0; i < 60; ++i) trains.submit(Trains::kUsual, 4'096);
  EXPECT_GT(trains.next_train_bytes(), 3 * Core::kShortTrainBytes);
  EXPECT_FALSE(trains.pair.client().has_cut_short());
}

TEST(Train, IsShortAfterSomethingMoreUrgentWasSent) {
  Trains trains;
  trains.call_all(1, 1, 32);
  for (int i = 0; i < 60; ++i) trains.submit(Trains::kUsual, 4'096);
  for (int i = 0; i < 3; ++i) {
    const std::size_t bytes = trains.next_train_bytes();
    EXPECT_LE(bytes, Core::kShortTrainBytes);
    EXPECT_GT(bytes, Core::kShortTrainBytes - 1'472);
    EXPECT_TRUE(trains.pair.client().has_cut_short());
    EXPECT_TRUE(trains.pair.client().has_work());
  }
}

TEST(Train, IsShortIfItCarriesMoreUrgentMessagesItself) {
  Trains trains;
  for (int i = 0; i < 60; ++i) trains.submit(Trains::kUsual, 4'096);
  trains.submit(0, 32);
  EXPECT_LE(trains.next_train_bytes(), Core::kShortTrainBytes);
  EXPECT_TRUE(trains.pair.client().has_cut_short());
}

TEST(Train, LetsMoreUrgentWorkGoBeforeItsRest) {
  Trains trains;
  trains.call_all(1, 1, 32);
  for (int i = 0; i < 60; ++i) trains.submit(Trains::kUsual, 4'096);
  EXPECT_LE(trains.next_train_bytes(), Core::kShortTrainBytes);
  const TestCall& urgent = trains.submit(1, 32);
  EXPECT_LE(trains.next_train_bytes(), Core::kShortTrainBytes);
  EXPECT_EQ(urgent.state, transfer::OutgoingCall::State::sent);
  EXPECT_EQ(trains.calls[59]->state, transfer::OutgoingCall::State::queued);
}

TEST(Train, OfTheMostUrgentLevelIsLongWhateverElseIsSent) {
  Trains trains;
  trains.call_all(1, Trains::kUsual, 32);
  for (int i = 0; i < 60; ++i) trains.submit(0, 4'096);
  EXPECT_GT(trains.next_train_bytes(), 3 * Core::kShortTrainBytes);
  EXPECT_FALSE(trains.pair.client().has_cut_short());
}

TEST(Train, IsLongAgainWhenNothingUrgentHasCome) {
  Trains trains;
  trains.call_all(1, 1, 32);
  trains.pair.now = trains.pair.now + Core::kUrgencyMemory;
  trains.call_all(30, Trains::kUsual);  // the path was idle for so long: acknowledgements come again
  for (int i = 0; i < 60; ++i) trains.submit(Trains::kUsual, 4'096);
  EXPECT_GT(trains.next_train_bytes(), 3 * Core::kShortTrainBytes);
}

TEST(Train, OfOneLargePacketIsShortToo) {
  Trains trains(65'507);
  for (int i = 0; i < 60; ++i) trains.submit(Trains::kUsual, 4'096);
  EXPECT_GT(trains.next_train_bytes(), 3 * Core::kShortTrainBytes);
  trains.submit(0, 32);
  EXPECT_LE(trains.next_train_bytes(), Core::kShortTrainBytes);
  EXPECT_LE(trains.next_train_bytes(), Core::kShortTrainBytes);
}

TEST(Train, HasNoStragglersBehindItThatThePacerHeldBack) {
  Trains trains;
  for (int round = 0; round < 10; ++round) trains.call_all(100, Trains::kUsual);  // the window is not what ends it
  for (int i = 0; i < 200; ++i) trains.submit(Trains::kUsual, 4'096);
  // The clock stands still while a turn sends, and the pacer's burst is not a multiple of a train.
  std::vector<std::size_t> sizes;
  while (const std::size_t bytes = trains.next_train_bytes()) sizes.push_back(bytes);
  ASSERT_FALSE(sizes.empty());
  for (const std::size_t bytes : sizes) EXPECT_GT(bytes, Core::kShortTrainBytes);
}

TEST(Train, HasTheSmallRestsOfSeveralLargeMessages) {
  constexpr std::size_t kMessages = 8, kRest = 4'096, kBytes = buffer::kRecordBytes + kRest;
  Pair pair;
  pair.serve_large_echo();
  std::size_t rests = 0, trains_of_rests = 0;
  for (int round = 0; round < 20; ++round) {  // the path's MTU and window grow meanwhile
    rests = trains_of_rests = 0;
    pair.on_train = [&](int side, const Train& train) {
      if (side != 0 || train.segments.empty() || train.segments.front().body.size() != kRest) return;
      ++trains_of_rests;
      for (const Segment& segment : train.segments) {
        EXPECT_EQ(segment.body.size(), kRest);
        EXPECT_LE(segment.head.size() + segment.body.size(), train.segment_size);
        ++rests;
      }
    };
    std::vector<std::unique_ptr<TestCall>> calls;
    for (std::size_t i = 0; i < kMessages; ++i) {
      calls.push_back(std::make_unique<TestCall>());
      pair.call_large(*calls.back(), "echo", std::string(kBytes, static_cast<char>('a' + i)));
    }
    ASSERT_TRUE(pair.run_until([&] { return calls.back()->completions == 1 && pair.client().is_quiet(); }));
    for (std::size_t i = 0; i < kMessages; ++i) {
      EXPECT_TRUE(calls[i]->reply == std::string(kBytes, static_cast<char>('a' + i)));
    }
  }
  EXPECT_EQ(rests, kMessages);
  EXPECT_LE(trains_of_rests, kMessages / 2);
}

TEST(Train, OfASmallRestAloneLeavesAtOnce) {
  Pair pair;
  pair.serve_large_echo();
  for (int round = 0; round < 20; ++round) {
    TestCall call;
    pair.call_large(call, "echo", std::string(buffer::kRecordBytes + 4'096, 'x'));
    ASSERT_TRUE(pair.run_until([&] { return call.completions == 1; }));
  }
  TestCall call;
  std::vector<Instant> sent;
  pair.on_train = [&](int side, const Train& train) {
    if (side == 0 && !train.segments.empty()) sent.push_back(pair.now);
  };
  pair.call_large(call, "echo", std::string(buffer::kRecordBytes + 4'096, 'x'));
  ASSERT_TRUE(pair.run_until([&] { return call.completions == 1; }));
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0], sent[1]);
}

}  // namespace
}  // namespace weir::engine
