// Large messages between two engines: granted, written, lost, revoked, cancelled.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "engine/core.h"
#include "engine/engine_testing.h"
#include "engine/hostile_testing.h"

namespace weir::engine {
namespace {

using testing::Pair;
using testing::TestCall;

std::string pattern(std::size_t bytes, std::uint64_t seed = 1) {
  Random random(seed);
  std::string text(bytes, 0);
  for (char& c : text) c = static_cast<char>(random.next());
  return text;
}

int revoke_all_regions(Engine& engine, Instant now) {
  Core& core = testing::EngineAccess::core(engine);
  int revoked = 0;
  core.paths.for_each([&](Path& path) {
    if (path.large == nullptr) return;
    core.regions.for_each_of_path(path.large->regions, [&](token::Region& region) {
      core.revoke_region(path, region, now);
      ++revoked;
    });
  });
  return revoked;
}

void expect_nothing_left(Pair& pair) {
  pair.run_for(std::chrono::seconds(30));  // tokens that nobody used have expired
  for (Engine* engine : {&pair.client(), &pair.server()}) {
    const Census census = engine->census();
    EXPECT_EQ(census.writers, 0u);
    EXPECT_EQ(census.arrivals, 0u);
    EXPECT_EQ(census.regions, 0u);
    EXPECT_EQ(census.regions_leaked, 0u);
    EXPECT_EQ(census.large_bytes, 0u);
    EXPECT_EQ(census.blocks, 0u);
    EXPECT_EQ(census.reassemblies, 0u);
    EXPECT_EQ(census.incoming, 0u);
    EXPECT_EQ(census.calls_sent + census.calls_queued, 0u);
  }
  EXPECT_EQ(pair.memory.taken_bytes(), 0u);
}

TEST(LargeMessage, EverySizeComesBackAsItWasSent) {
  for (const std::size_t bytes : {1ul, 16'385ul, 61'439ul, 61'440ul, 61'441ul, 1'000'000ul, 5'000'000ul}) {
    Pair pair;
    pair.serve_large_echo();
    const std::string text = pattern(bytes);
    TestCall call;
    pair.call_large(call, "echo", text, "a header");
    ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; })) << bytes;
    EXPECT_FALSE(call.failed) << call.reply;
    EXPECT_TRUE(call.opened);
    EXPECT_EQ(call.header, "a header");
    EXPECT_EQ(call.reply.size(), text.size());
    EXPECT_TRUE(call.reply == text) << bytes;
    expect_nothing_left(pair);
  }
}

TEST(LargeMessage, ASocketIsPromisedAtMostHalfForAllTogether) {
  constexpr std::uint64_t kBuffer = 8u << 20;
  EngineConfig config = testing::test_config(true, 2222);
  config.receive_buffer_bytes = kBuffer;
  Pair pair(testing::test_config(false, 1111), config);
  pair.serve_large_echo();
  Core& server = testing::EngineAccess::core(pair.server());
  TestCall call;
  pair.call_large(call, "echo", pattern(1'000'000));
  ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
  const std::uint64_t inline_promise = server.ledger.capacity() + (token::kLevels - 1) * server.nested_request_bytes;
  server.paths.for_each([&](Path& path) {
    EXPECT_EQ(server.in_flight_promise(path), kBuffer / 4);
    EXPECT_LE(inline_promise + server.in_flight_promise(path), kBuffer / 2);
  });
  testing::EngineAccess::core(pair.client()).paths.for_each([&](Path& path) {
    ASSERT_NE(path.large, nullptr);
    EXPECT_EQ(path.large->in_flight_bytes, kBuffer / 4) << "as the grant said";
  });
}

TEST(LargeMessage, SurvivesLossAtAnEthernetsMtu) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    Pair pair(testing::test_config(false, 1111), testing::test_config(true, 2222), seed);
    pair.mtu = 1'472;
    pair.loss = 0.05 * static_cast<double>(seed);
    pair.serve_large_echo();
    std::vector<std::unique_ptr<TestCall>> calls;
    std::vector<std::string> texts;
    for (std::uint64_t i = 0; i < 8; ++i) {
      texts.push_back(pattern(20'000 + i * 37'777, i));
      calls.push_back(std::make_unique<TestCall>());
      pair.call_large(*calls.back(), "echo", texts.back(), {}, std::chrono::seconds(60));
    }
    ASSERT_TRUE(pair.run_until(
        [&] { return std::all_of(calls.begin(), calls.end(), [](auto& call) { return call->completions != 0; }); },
        2'000'000));
    for (std::size_t i = 0; i < calls.size(); ++i) {
      EXPECT_FALSE(calls[i]->failed) << calls[i]->reply;
      EXPECT_TRUE(calls[i]->reply == texts[i]);
    }
    EXPECT_EQ(pair.handled, 8);
    pair.loss = 0;
    expect_nothing_left(pair);
  }
}

TEST(LargeMessage, WithATokenInHandNeedsNoRoundTripToAsk) {
  Pair pair;
  pair.serve("drop", [](Engine& engine, transfer::IncomingTransfer& request, Instant at) {
    engine.reply(request, {}, as_bytes("done"), at);
  });
  const std::string text = pattern(64 * 1024);
  const auto time_of_one = [&] {
    TestCall call;
    const Instant begin = pair.now;
    pair.call_large(call, "drop", text);
    EXPECT_TRUE(pair.run_until([&] { return call.completions != 0; }));
    EXPECT_FALSE(call.failed) << call.reply;
    return pair.now - begin;
  };
  for (int i = 0; i < 30; ++i) time_of_one();  // the path is warm
  const std::uint64_t used = pair.client().events().counters.tokens_used;
  EXPECT_GE(used, 25u);
  const Duration with_token = time_of_one();
  EXPECT_EQ(pair.client().events().counters.tokens_used, used + 1);
  testing::EngineAccess::core(pair.client()).paths.for_each([](Path& path) { path.large->tokens.clear(); });
  const Duration without = time_of_one();
  EXPECT_LE(with_token + pair.latency, without) << "less than a round trip, because the pacer may go on meanwhile";
  expect_nothing_left(pair);
}

TEST(LargeMessage, ARangeOfAPayloadIsWholeRecordsOfIt) {
  Pair pair;
  std::string got;
  pair.serve("take", [&](Engine& engine, transfer::IncomingTransfer& request, Instant at) {
    ASSERT_TRUE(buffer::open_all(*request.landing()));
    got.assign(reinterpret_cast<const char*>(request.landing()->body), request.landing()->bytes);
    engine.reply(request, {}, {}, at);
  });
  const std::string text = pattern(3 * buffer::kRecordBytes + 100);
  TestCall call;
  pair.call_large(call, "take", pair.seal(text), {.first_record = 2, .bytes = buffer::kRecordBytes + 100});
  ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
  EXPECT_FALSE(call.failed) << call.reply;
  EXPECT_TRUE(got == text.substr(2 * buffer::kRecordBytes));
  expect_nothing_left(pair);
}

TEST(LargeMessage, CanAnswerASmallRequestThatHasAHeader) {
  Pair pair;
  const std::string text = pattern(100'000);
  pair.serve("fetch", [&](Engine& engine, transfer::IncomingTransfer& request, Instant at) {
    engine.reply_large(request, pair.seal(text), {.bytes = text.size()}, Pattern::unary, {}, at);
  });
  TestCall call;
  pair.call(call, "fetch", "", std::string(1'000, 'h'));
  ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
  EXPECT_FALSE(call.failed) << call.reply;
  EXPECT_EQ(call.header, "");
  EXPECT_TRUE(call.reply == text);
  expect_nothing_left(pair);
}

TEST(LargeMessage, IsRefusedBeforeItsDataFlows) {
  Pair pair;
  TestCall call;
  pair.call_large(call, "nobody serves this", pattern(1'000'000));
  ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
  EXPECT_EQ(call.code, Code::unknown_method);
  EXPECT_FALSE(call.may_have_run);
  EXPECT_LT(pair.client().events().counters.bytes_sent, 200'000u);  // path MTU probes and the like
  expect_nothing_left(pair);
}

TEST(LargeMessage, LargerThanTheReceiversLimitIsRefused) {
  EngineConfig server = testing::test_config(true, 2222);
  server.limits.message_bytes = 100'000;
  Pair pair(testing::test_config(false, 1111), server);
  pair.serve_large_echo();
  TestCall call;
  pair.call_large(call, "echo", pattern(100'001));
  ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
  EXPECT_EQ(call.code, Code::too_large);
  EXPECT_FALSE(call.may_have_run);
  EXPECT_EQ(pair.handled, 0);
  expect_nothing_left(pair);
}

TEST(LargeMessage, AReplyLargerThanTheCallersLimitFailsTheCallAndIsLetGo) {
  EngineConfig client = testing::test_config(false, 1111);
  client.limits.message_bytes = 100'000;
  Pair pair(client);
  pair.serve("big", [&](Engine& engine, transfer::IncomingTransfer& request, Instant at) {
    const std::string text = pattern(100'001);
    engine.reply_large(request, pair.seal(text), {.bytes = text.size()}, Pattern::unary, {}, at);
  });
  TestCall call;
  pair.call(call, "big", "");
  ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
  EXPECT_EQ(call.code, Code::too_large);
  EXPECT_TRUE(call.may_have_run);
  expect_nothing_left(pair);
}

TEST(LargeMessage, MoreThanThereIsMemoryForWaitsInLine) {
  EngineConfig server = testing::test_config(true, 2222);
  server.limits.message_bytes = server.limits.large_request_bytes = server.limits.large_bytes_per_peer = 300'000;
  Pair pair(testing::test_config(false, 1111), server);
  std::size_t most = 0;
  pair.serve("take", [&](Engine& engine, transfer::IncomingTransfer& request, Instant at) {
    most = std::max<std::size_t>(most, engine.census().large_bytes);
    EXPECT_TRUE(buffer::open_all(*request.landing()));
    engine.reply(request, {}, {}, at);
  });
  std::vector<std::unique_ptr<TestCall>> calls;
  for (std::uint64_t i = 0; i < 20; ++i) {
    calls.push_back(std::make_unique<TestCall>());
    pair.call_large(*calls.back(), "take", pattern(140'000, i));
  }
  ASSERT_TRUE(pair.run_until(
      [&] { return std::all_of(calls.begin(), calls.end(), [](auto& call) { return call->completions != 0; }); }));
  for (auto& call : calls) EXPECT_FALSE(call->failed) << call->reply;
  EXPECT_LE(most, 300'000u);
  EXPECT_GT(pair.server().events().counters.regions_exhausted, 0u);
  expect_nothing_left(pair);
}

TEST(LargeMessage, CancelledAtAnyMomentLeavesNothing) {
  for (int steps = 0; steps < 120; ++steps) {
    Pair pair;
    pair.mtu = 1'472;
    pair.serve_large_echo();
    TestCall call;
    pair.call_large(call, "echo", pattern(200'000));
    for (int i = 0; i < steps && call.completions == 0; ++i) pair.step();
    if (call.completions == 0) pair.client().cancel(call, pair.now);
    ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
    EXPECT_EQ(call.completions, 1);
    EXPECT_LE(pair.handled, 1);
    expect_nothing_left(pair);
  }
}

// How far a message is when its region is taken back.
struct Phases {
  int before_the_write = 0;
  int midway = 0;
  int after_the_write = 0;  // all of it was sent, and some of it is still on the way
  int after_the_end = 0;    // all of it is there, which its sender has not heard yet

  void count(Engine& receiver, Engine& sender) {
    Core& core = testing::EngineAccess::core(receiver);
    Core& other = testing::EngineAccess::core(sender);
    core.paths.for_each([&](Path& path) {
      if (path.large == nullptr) return;
      core.regions.for_each_of_path(path.large->regions, [&](token::Region& region) {
        if (!region.is_bound() || core.regions.find(region.id) == nullptr) return;
        bool was_written = false;
        other.writers.for_each([&](transfer::Writer& writer) {
          was_written |= writer.region == region.id && writer.state == transfer::Writer::State::written;
        });
        ++(was_written ? after_the_write : region.coverage.bytes() == 0 ? before_the_write : midway);
      });
    });
    const bool has_all = receiver.events().counters.large_messages_received != 0;
    other.writers.for_each([&](const transfer::Writer& writer) { after_the_end += has_all && writer.was_written; });
  }
};

TEST(LargeMessage, RevokedAtAnyMomentIsWrittenAgain) {
  int revoked = 0;
  Phases requests, replies;
  for (int steps = 0; steps < 150; ++steps) {
    Pair pair;
    pair.mtu = 1'472;
    pair.serve_large_echo();
    const std::string text = pattern(200'000);
    TestCall call;
    pair.call_large(call, "echo", text);
    for (int i = 0; i < steps && call.completions == 0; ++i) pair.step();
    requests.count(pair.server(), pair.client());
    replies.count(pair.client(), pair.server());
    for (Engine* engine : {&pair.client(), &pair.server()}) {
      revoked += revoke_all_regions(*engine, pair.now);
    }
    ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; })) << steps;
    EXPECT_FALSE(call.failed) << steps << ": " << call.reply;
    EXPECT_TRUE(call.reply == text) << steps;
    EXPECT_EQ(pair.handled, 1) << steps;
    expect_nothing_left(pair);
  }
  EXPECT_GT(revoked, 20);
  for (const Phases& met : {requests, replies}) {
    EXPECT_GT(met.before_the_write, 0);
    EXPECT_GT(met.midway, 0);
    EXPECT_GT(met.after_the_write, 0);
    EXPECT_GT(met.after_the_end, 0);
  }
}

// The word that a region is gone may come before the word that it was granted, or alone.
TEST(LargeMessage, RevokedBeforeItsGrantArrivesAsksAgain) {
  int revoked = 0;
  for (const bool is_lost : {false, true}) {
    for (int steps = 0; steps < 150; ++steps) {
      Pair pair;
      pair.mtu = 1'472;
      pair.serve_large_echo();
      const std::string text = pattern(100'000);
      TestCall call;
      pair.call_large(call, "echo", text, {}, std::chrono::seconds(5));
      for (int i = 0; i < steps && call.completions == 0; ++i) pair.step();
      if (is_lost) {
        pair.wire.clear();
      } else {
        for (auto& datagram : pair.wire) datagram.at = datagram.at + std::chrono::milliseconds(3);
      }
      for (Engine* engine : {&pair.client(), &pair.server()}) revoked += revoke_all_regions(*engine, pair.now);
      ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; })) << steps;
      EXPECT_FALSE(call.failed) << (is_lost ? "lost" : "delayed") << " at step " << steps << ": " << call.reply;
      EXPECT_TRUE(call.reply == text) << steps;
      EXPECT_EQ(pair.handled, 1) << steps;
      expect_nothing_left(pair);
    }
  }
  EXPECT_GT(revoked, 40);
}

TEST(LargeMessage, APathThatEndsMidwayFailsTheCallOnce) {
  for (int steps = 0; steps < 100; steps += 3) {
    Pair pair;
    pair.mtu = 1'472;
    pair.serve_large_echo();
    TestCall call;
    pair.call_large(call, "echo", pattern(200'000));
    for (int i = 0; i < steps && call.completions == 0; ++i) pair.step();
    pair.server().close(pair.now);
    ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; })) << steps;
    EXPECT_EQ(call.completions, 1);
    expect_nothing_left(pair);
  }
}

TEST(LargeMessage, ThatArrivedButWasNotDeliveredEndsWithItsEngine) {
  Pair pair;
  pair.serve_large_echo();
  TestCall call;
  pair.call_large(call, "echo", pattern(100'000));
  bool ended = false;
  for (int i = 0; i < 1'000 && !ended; ++i) {
    pair.turn(1);
    for (auto& datagram : pair.wire) {
      if (datagram.to != 0 || datagram.at > pair.now) continue;
      pair.client().on_datagram(datagram.bytes, datagram.from, datagram.ecn, nullptr, pair.now);
      datagram.bytes.clear();
    }
    std::erase_if(pair.wire, [](const Pair::InFlight& datagram) { return datagram.bytes.empty(); });
    if (pair.client().undelivered() != 0) {
      ended = true;
      pair.start(0);
      break;
    }
    pair.step();
  }
  ASSERT_TRUE(ended);
  EXPECT_EQ(call.completions, 0);
  pair.server().close(pair.now);
  expect_nothing_left(pair);
}

TEST(LargeMessage, ASilentPeersWriterAndReaderAreFreed) {
  Pair pair;
  pair.mtu = 1'472;
  pair.serve_large_echo();
  TestCall call;
  pair.call_large(call, "echo", pattern(2'000'000));
  for (int i = 0; i < 60; ++i) pair.step();
  pair.loss = 1;
  ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
  EXPECT_TRUE(call.failed);
  expect_nothing_left(pair);
}

}  // namespace
}  // namespace weir::engine
