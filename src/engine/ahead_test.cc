// Memory ahead of its use: how many of one sender's large messages have a region at a time (docs/protocol.md, rule
// G-3).
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/core.h"
#include "engine/engine_testing.h"
#include "engine/hostile_testing.h"

namespace weir::engine {
namespace {

using testing::Pair;
using testing::TestCall;

class LargeMessagesAhead : public ::testing::Test {
 protected:
  static constexpr std::size_t kBytes = 2'000'000;
  static_assert(kBytes > token::kLargestToken);
  static constexpr int kCalls = 6;

  static EngineConfig server_config() {
    EngineConfig config = testing::test_config(true, 2222);
    config.ahead_bytes = 1;
    return config;
  }
  void SetUp() override {
    pair.mtu = 1'472;
    pair.serve("take", [this](Engine& engine, transfer::IncomingTransfer& request, Instant at) {
      EXPECT_TRUE(buffer::open_all(*request.landing()));
      taken.push_back(static_cast<char>(request.landing()->body[0]));
      engine.reply(request, {}, {}, at);
    });
    for (int i = 0; i < kCalls; ++i) {
      calls.push_back(std::make_unique<TestCall>());
      pair.call_large(*calls.back(), "take", std::string(kBytes, static_cast<char>('a' + i)));
    }
  }
  void TearDown() override {
    pair.run_for(std::chrono::seconds(30));
    for (Engine* engine : {&pair.client(), &pair.server()}) {
      const Census census = engine->census();
      EXPECT_EQ(census.writers + census.arrivals + census.regions + census.regions_leaked, 0u);
      EXPECT_EQ(census.large_bytes + census.blocks + census.incoming + census.calls_sent + census.calls_queued, 0u);
    }
    EXPECT_EQ(pair.memory.taken_bytes(), 0u);
  }
  bool all_done() const {
    return std::all_of(calls.begin(), calls.end(), [](const auto& call) { return call->completions != 0; });
  }
  token::Ahead* ahead() {
    token::Ahead* found = nullptr;
    testing::EngineAccess::core(pair.server()).paths.for_each([&](Path& path) {
      if (path.large != nullptr) found = &path.large->ahead;
    });
    return found;
  }
  // That messages are being written into.
  std::size_t regions() {
    std::size_t count = 0;
    Core& core = testing::EngineAccess::core(pair.server());
    core.paths.for_each([&](Path& path) {
      if (path.large == nullptr) return;
      core.regions.for_each_of_path(path.large->regions, [&](token::Region& region) {
        count += region.state == token::RegionState::granted && region.is_bound();
      });
    });
    return count;
  }

  Pair pair{testing::test_config(false, 1111), server_config()};
  std::vector<std::unique_ptr<TestCall>> calls;
  std::string taken;
};

TEST_F(LargeMessagesAhead, HaveRegionsForTheNextFewAndComeInOrder) {
  std::size_t most = 0;
  std::uint64_t held = 0;
  ASSERT_TRUE(pair.run_until([&] {
    most = std::max(most, regions());
    if (ahead() != nullptr) held = std::max(held, ahead()->held());
    return all_done();
  }));
  for (const auto& call : calls) EXPECT_FALSE(call->failed) << call->reply;
  EXPECT_EQ(taken, "abcdef");
  EXPECT_GE(most, 2u);
  EXPECT_LE(most, 3u) << "what comes within four round trips is less than another message";
  EXPECT_EQ(held, kCalls - 2u);
  EXPECT_EQ(pair.server().events().counters.regions_exhausted, 0u) << "there was memory all the time";
}

TEST_F(LargeMessagesAhead, CanBeCancelledWhileTheyWait) {
  ASSERT_TRUE(pair.run_until([&] { return ahead() != nullptr && ahead()->held() == kCalls - 2; }));
  for (const int i : {0, 3, 5}) pair.client().cancel(*calls[static_cast<std::size_t>(i)], pair.now);
  ASSERT_TRUE(pair.run_until([&] { return all_done(); }));
  for (const int i : {1, 2, 4}) EXPECT_FALSE(calls[static_cast<std::size_t>(i)]->failed) << i;
  EXPECT_EQ(taken, "bce");
}

TEST_F(LargeMessagesAhead, GoOnWhenThoseBeforeThemLoseTheirRegions) {
  ASSERT_TRUE(pair.run_until([&] { return ahead() != nullptr && ahead()->held() == kCalls - 2; }));
  Core& core = testing::EngineAccess::core(pair.server());
  core.paths.for_each([&](Path& path) {
    core.regions.for_each_of_path(path.large->regions,
                                  [&](token::Region& region) { core.revoke_region(path, region, pair.now); });
  });
  ASSERT_TRUE(pair.run_until([&] { return all_done(); }));
  for (const auto& call : calls) EXPECT_FALSE(call->failed) << call->reply;
  EXPECT_EQ(taken.substr(0, 4), "cdef") << "who lost its place stands at the end";
}

TEST_F(LargeMessagesAhead, EndWithTheirPath) {
  ASSERT_TRUE(pair.run_until([&] { return ahead() != nullptr && ahead()->held() == kCalls - 2; }));
  pair.client().close(pair.now);
  ASSERT_TRUE(pair.run_until([&] { return all_done(); }));
  EXPECT_EQ(taken, "");
}

TEST_F(LargeMessagesAhead, LetMoreUrgentOnesPass) {
  ASSERT_TRUE(pair.run_until([&] { return ahead() != nullptr && ahead()->held() == kCalls - 2; }));
  TestCall urgent;
  urgent.priority = 0;
  pair.call_large(urgent, "take", std::string(kBytes, 'u'));
  ASSERT_TRUE(pair.run_until([&] { return all_done() && urgent.completions != 0; }));
  EXPECT_EQ(taken.find('u'), 0u) << taken;
}

// The caller has memory for a few at a time, and the path is slow: the others wait longer than a reply of which nothing
// goes is kept.
TEST(LargeRepliesAhead, WaitForThoseBeforeThemHoweverLongThatTakes) {
  EngineConfig client = testing::test_config(false, 1111);
  client.receive_buffer_bytes = 512u << 10;
  client.ahead_bytes = 1;
  Pair pair(client, testing::test_config(true, 2222));
  pair.latency = std::chrono::milliseconds(100);
  const std::string text(6u << 20, 'x');
  pair.serve("big", [&](Engine& engine, transfer::IncomingTransfer& request, Instant at) {
    engine.reply_large(request, pair.seal(text), {.bytes = text.size()}, Pattern::unary, {}, at);
  });
  const Instant begin = pair.now;
  std::vector<std::unique_ptr<TestCall>> calls;
  for (int i = 0; i < 8; ++i) {
    calls.push_back(std::make_unique<TestCall>());
    pair.call(*calls.back(), "big", "", {}, std::chrono::seconds(300));
  }
  ASSERT_TRUE(pair.run_until(
      [&] { return std::all_of(calls.begin(), calls.end(), [](const auto& call) { return call->completions != 0; }); },
      2'000'000));
  for (const auto& call : calls) EXPECT_FALSE(call->failed) << call->reply;
  EXPECT_GT(pair.now - begin, std::chrono::seconds(40)) << "the test is about those that wait for longer than that";
}

// A caller that takes next to nothing would keep all the others in our memory.
TEST(LargeRepliesAhead, AreGivenUpWhenHardlyAnythingGoes) {
  EngineConfig client = testing::test_config(false, 1111);
  client.receive_buffer_bytes = 16u << 10;
  client.ahead_bytes = 1;
  Pair pair(client, testing::test_config(true, 2222));
  pair.mtu = 1'472;
  pair.latency = std::chrono::milliseconds(200);
  const std::string text(2u << 20, 'x');
  pair.serve("big", [&](Engine& engine, transfer::IncomingTransfer& request, Instant at) {
    engine.reply_large(request, pair.seal(text), {.bytes = text.size()}, Pattern::unary, {}, at);
  });
  const Instant begin = pair.now;
  std::vector<std::unique_ptr<TestCall>> calls;
  for (int i = 0; i < 8; ++i) {
    calls.push_back(std::make_unique<TestCall>());
    pair.call(*calls.back(), "big", "", {}, std::chrono::seconds(3'000));
  }
  std::size_t given_up = 0;
  ASSERT_TRUE(pair.run_until([&] {
    given_up = 0;
    for (const auto& call : calls) given_up += call->failed && call->code == Code::reset;
    return given_up >= 6;
  })) << given_up;
  EXPECT_LT(pair.now - begin, std::chrono::minutes(2));
  pair.client().close(pair.now);
  pair.run_for(std::chrono::seconds(1));
}

// Those who wait for their turn are not overtaken by messages that are written with tokens.
TEST(LargeMessagesWithTokens, DoNotOvertakeThoseThatWait) {
  EngineConfig server = testing::test_config(true, 2222);
  server.ahead_bytes = 1;
  Pair pair(testing::test_config(false, 1111), server);
  pair.latency = std::chrono::milliseconds(1);
  pair.serve("take", [&](Engine& engine, transfer::IncomingTransfer& request, Instant at) {
    EXPECT_TRUE(buffer::open_all(*request.landing()));
    engine.reply(request, {}, {}, at);
  });
  const std::string text(token::kLargestToken, 'x');
  std::vector<std::unique_ptr<TestCall>> calls;
  std::vector<std::size_t> finished;
  std::function<void()> more = [&] {
    if (calls.size() >= 100) return;
    const std::size_t i = calls.size();
    calls.push_back(std::make_unique<TestCall>());
    calls.back()->then = [&, i](TestCall& call) {
      EXPECT_FALSE(call.failed) << call.reply;
      finished.push_back(i);
      more();
    };
    pair.call_large(*calls.back(), "take", text);
  };
  for (int i = 0; i < 32; ++i) more();
  ASSERT_TRUE(pair.run_until([&] { return finished.size() == 100; }));
  // Two had tokens, that were given before anybody waited.
  const auto place = std::find(finished.begin(), finished.end(), 31u) - finished.begin();
  EXPECT_LE(place, 31 + 2);
}

}  // namespace
}  // namespace weir::engine
