// How long trains are: long while nobody is kept waiting by it, at most 16 KiB while more urgent work may come.
#include <gtest/gtest.h>

#include <algorithm>
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

TEST(Train, OfSmallRestsDoesNotWaitForLongMessages) {
  Pair pair;
  pair.serve_large_echo();
  for (int round = 0; round < 20; ++round) {
    TestCall call;
    pair.call_large(call, "echo", std::string(1'000'000, 'x'));
    ASSERT_TRUE(pair.run_until([&] { return call.completions == 1; }));
  }
  pair.run_for(std::chrono::seconds(5));  // its tokens are gone: all of these ask, and are granted regions together
  TestCall first;
  std::vector<std::unique_ptr<TestCall>> others;
  pair.call_large(first, "echo", std::string(buffer::kRecordBytes + 64, 'x'));
  for (int i = 0; i < 4; ++i) {
    others.push_back(std::make_unique<TestCall>());
    pair.call_large(*others.back(), "echo", std::string(4u << 20, 'y'), {}, std::chrono::seconds(60));
  }
  ASSERT_TRUE(pair.run_until([&] { return first.completions == 1; }));
  for (const auto& other : others) EXPECT_EQ(other->completions, 0);
  ASSERT_TRUE(pair.run_until([&] { return std::ranges::all_of(others, [](auto& one) { return one->completions; }); }));
}

// Whatever is lost and comes again: nothing is cut as small as the rests that began its train.
TEST(Train, OfSmallRestsHasNothingElse) {
  for (const std::size_t rest : {1u, 16u, 64u, 4'096u}) {
    for (const std::size_t mtu : {1'472u, 9'000u, 65'507u}) {
      for (const double loss : {0.0, 0.02, 0.05}) {
        Pair pair(config_of(false, mtu), config_of(true, mtu), rest + mtu);
        pair.serve_large_echo();
        pair.loss = loss;
        const std::size_t bytes = buffer::kRecordBytes + rest;
        std::size_t packets = 0;
        pair.on_train = [&](int, const Train& train) {
          for (const Segment& segment : train.segments) {
            ASSERT_FALSE(segment.body.empty());
            ++packets;
          }
        };
        std::vector<std::unique_ptr<TestCall>> calls;
        constexpr std::size_t kCalls = 100, kOutstanding = 16;
        const auto finished = [&] { return std::ranges::count_if(calls, [](auto& one) { return one->completions; }); };
        while (calls.size() < kCalls) {
          calls.push_back(std::make_unique<TestCall>());
          pair.call_large(*calls.back(), "echo", std::string(bytes, 'x'), {}, std::chrono::seconds(60));
          ASSERT_TRUE(pair.run_until([&] { return calls.size() - finished() < kOutstanding; }, 2'000'000));
        }
        ASSERT_TRUE(pair.run_until([&] { return finished() == kCalls; }, 2'000'000));
        for (const auto& call : calls) EXPECT_TRUE(call->reply == std::string(bytes, 'x')) << call->reply.substr(0, 99);
        // Both ways; the first packets are of the smallest MTU, and some come twice.
        const std::size_t needed = 2 * kCalls * (1 + (bytes + mtu - 101) / (mtu - 100)) + 2'000;
        EXPECT_LE(packets, needed + needed / 4) << rest << " bytes, MTU " << mtu << ", " << loss;
      }
    }
  }
}

}  // namespace
}  // namespace weir::engine
