#include <gtest/gtest.h>

#include "engine/engine_testing.h"
#include "engine/hostile_testing.h"

namespace weir::engine {
namespace {

using testing::Pair;
using testing::TestCall;
using transfer::IncomingTransfer;

void expect_nothing_left(Engine& engine) {
  const Census census = engine.census();
  EXPECT_EQ(census.calls_queued, 0u);
  EXPECT_EQ(census.calls_sent, 0u);
  EXPECT_EQ(census.incoming, 0u);
  EXPECT_EQ(census.blocks, 0u);
  EXPECT_EQ(census.reassemblies, 0u);
  EXPECT_EQ(census.frames_in_flight, 0u);
  EXPECT_EQ(census.packets_in_flight, 0u);
  EXPECT_EQ(census.credit_used, 0u);
}

TEST(Engine, ACallComesBackWithItsReply) {
  Pair pair;
  pair.serve_echo();
  TestCall call;
  pair.call(call, "echo", "hello");
  ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
  EXPECT_FALSE(call.failed) << call.reply;
  EXPECT_EQ(call.reply, "hello");
  pair.run_for(std::chrono::milliseconds(100));
  expect_nothing_left(pair.client());
  expect_nothing_left(pair.server());
}

TEST(Engine, ManyCallsOfManySizesComeBackUnderLoss) {
  for (const double loss : {0.0, 0.02, 0.2}) {
    SCOPED_TRACE(loss);
    Pair pair;
    pair.loss = loss;
    pair.serve_echo();
    std::vector<std::unique_ptr<TestCall>> calls;
    std::vector<std::string> bodies;
    for (int i = 0; i < 500; ++i) {
      bodies.push_back(std::string(static_cast<std::size_t>(pair.random.below(i % 7 == 0 ? 16'000 : 200)),
                                   static_cast<char>('a' + i % 26)));
      calls.push_back(std::make_unique<TestCall>());
      pair.call(*calls.back(), "echo", bodies.back(), i % 3 == 0 ? "header" : "", std::chrono::seconds(60));
    }
    const auto done = [&] {
      return std::all_of(calls.begin(), calls.end(), [](auto& call) { return call->completions != 0; });
    };
    ASSERT_TRUE(pair.run_until(done));
    pair.run_for(std::chrono::seconds(1));
    for (std::size_t i = 0; i < calls.size(); ++i) {
      EXPECT_EQ(calls[i]->completions, 1);
      EXPECT_FALSE(calls[i]->failed) << calls[i]->reply;
      EXPECT_EQ(calls[i]->reply, bodies[i]);
      EXPECT_EQ(calls[i]->header, i % 3 == 0 ? "header" : "");
    }
    EXPECT_EQ(pair.handled, 500);
    expect_nothing_left(pair.client());
    expect_nothing_left(pair.server());
  }
}

TEST(Engine, AHandlerMayAnswerWithAPartOfAFragmentedRequest) {
  Pair pair;
  pair.mtu = 1'200;
  pair.serve("tail", [](Engine& engine, IncomingTransfer& request, Instant at) {
    engine.reply(request, {}, {request.delivery.request + 1, request.bytes - 1u}, at);
  });
  std::string body(9'000, ' ');
  for (std::size_t i = 0; i < body.size(); ++i) body[i] = static_cast<char>('a' + i % 23);
  for (int round = 0; round < 3; ++round) {
    TestCall call;
    pair.call(call, "tail", body);
    ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
    EXPECT_EQ(call.reply, body.substr(1));
  }
}

TEST(Engine, FindsThePathsMtu) {
  for (const std::size_t mtu : {1'200u, 1'472u, 8'972u, 65'507u}) {
    Pair pair;
    pair.mtu = mtu;
    pair.serve_echo();
    std::size_t largest = 0;
    pair.on_wire = [&](int, MutableByteSpan segment) {
      if (segment.size() <= mtu) largest = std::max(largest, segment.size());
    };
    for (int round = 0; round < 40; ++round) {
      TestCall call;
      pair.call(call, "echo", std::string(16'000, 'x'));
      ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
      EXPECT_FALSE(call.failed) << call.reply;
    }
    EXPECT_GT(largest + 64, mtu) << mtu;
  }
}

TEST(Engine, UnknownMethodIsAnErrorThatDidNotRun) {
  Pair pair;
  TestCall call;
  pair.call(call, "nobody", "x");
  ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
  EXPECT_TRUE(call.failed);
  EXPECT_EQ(call.code, Code::unknown_method);
  EXPECT_FALSE(call.may_have_run);
}

TEST(Engine, AWrongSecretIsUnauthenticated) {
  Pair pair(testing::test_config(false, 1, "another secret, not the same"), testing::test_config(true, 2));
  pair.serve_echo();
  TestCall call;
  pair.call(call, "echo", "x");
  ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
  EXPECT_EQ(call.code, Code::unauthenticated);
  EXPECT_FALSE(call.may_have_run);
  EXPECT_EQ(pair.handled, 0);
}

TEST(Engine, ASilentPeerFailsAllItsCallsTogether) {
  Pair pair;
  std::vector<IncomingTransfer*> held;
  pair.serve("hold", [&](Engine&, IncomingTransfer& request, Instant) { held.push_back(&request); });
  TestCall calls[10];
  for (TestCall& call : calls) pair.call(call, "hold", "x", "", std::chrono::hours(1));
  ASSERT_TRUE(pair.run_until([&] { return held.size() == 10; }));
  pair.loss = 1;
  ASSERT_TRUE(pair.run_until([&] { return calls[0].completions != 0; }));
  for (TestCall& call : calls) {
    EXPECT_EQ(call.completions, 1);
    EXPECT_EQ(call.code, Code::peer_failed);
    EXPECT_TRUE(call.may_have_run);
  }
}

TEST(Engine, ASlowHandlerIsNotASilentPeer) {
  Pair pair;
  std::vector<IncomingTransfer*> held;
  pair.serve("hold", [&](Engine&, IncomingTransfer& request, Instant) { held.push_back(&request); });
  TestCall call;
  pair.call(call, "hold", "x", "", std::chrono::hours(1));
  ASSERT_TRUE(pair.run_until([&] { return held.size() == 1; }));
  pair.run_for(std::chrono::minutes(10));
  EXPECT_EQ(call.completions, 0);
  pair.server().reply(*held[0], {}, {}, pair.now);
  ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
  EXPECT_FALSE(call.failed);
}

TEST(Engine, NothingIsSentWhileNothingIsOutstanding) {
  Pair pair;
  pair.serve_echo();
  for (int i = 0; i < 20; ++i) {
    TestCall call;
    pair.call(call, "echo", "hello");
    ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
  }
  // Just before the initiator would forget the path. (A step may take time far ahead, but does nothing there yet.)
  const Instant idle = pair.now + pair.configs[0].timeouts.idle_peer / 2 - std::chrono::milliseconds(1);
  pair.run_for(std::chrono::milliseconds(100));
  const std::uint64_t sent[] = {pair.client().events().counters.packets_sent,
                                pair.server().events().counters.packets_sent};
  while (pair.now < idle && pair.step()) {
  }
  ASSERT_EQ(pair.client().census().paths, 1u);
  EXPECT_EQ(pair.client().events().counters.packets_sent, sent[0]);
  EXPECT_EQ(pair.server().events().counters.packets_sent, sent[1]);
}

TEST(Engine, ACancelledCallTellsTheServer) {
  Pair pair;
  std::vector<IncomingTransfer*> held;
  pair.serve("hold", [&](Engine&, IncomingTransfer& request, Instant) { held.push_back(&request); });
  TestCall call;
  pair.call(call, "hold", "x", "", std::chrono::hours(1));
  ASSERT_TRUE(pair.run_until([&] { return held.size() == 1; }));
  EXPECT_FALSE(held[0]->cancelled);
  pair.client().cancel(call, pair.now);
  ASSERT_TRUE(pair.run_until([&] { return held[0]->cancelled.load(); }));
  EXPECT_EQ(call.code, Code::cancelled);
  pair.server().reply(*held[0], {}, {}, pair.now);
  pair.run_for(std::chrono::milliseconds(50));
  EXPECT_EQ(call.completions, 1);
  expect_nothing_left(pair.server());
}

TEST(Engine, ARestartedServerResetsWhatWasSentAndServesWhatComesAfter) {
  Pair pair;
  std::vector<IncomingTransfer*> held;
  pair.serve("hold", [&](Engine&, IncomingTransfer& request, Instant) { held.push_back(&request); });
  TestCall call;
  pair.call(call, "hold", "x", "", std::chrono::hours(1));
  ASSERT_TRUE(pair.run_until([&] { return held.size() == 1; }));
  pair.start(1);
  pair.serve_echo();
  TestCall next;
  pair.call(next, "echo", "again", "", std::chrono::hours(1));
  ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
  EXPECT_EQ(call.code, Code::reset);
  EXPECT_TRUE(call.may_have_run);
  TestCall later;
  pair.call(later, "echo", "later", "", std::chrono::hours(1));
  ASSERT_TRUE(pair.run_until([&] { return later.completions != 0; }));
  EXPECT_FALSE(later.failed) << later.reply;
}

TEST(Engine, PacketsRecordedBeforeARestartRunNoHandlerAfterIt) {
  Pair pair;
  pair.serve_echo();
  std::vector<std::vector<std::byte>> recorded;
  pair.on_wire = [&](int from, MutableByteSpan segment) {
    if (from == 0) recorded.emplace_back(segment.begin(), segment.end());
  };
  for (int i = 0; i < 20; ++i) {
    TestCall call;
    pair.call(call, "echo", "hello");
    ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
  }
  EXPECT_EQ(pair.handled, 20);
  pair.on_wire = nullptr;
  for (int restarts = 0; restarts < 2; ++restarts) {
    for (int round = 0; round < 3; ++round) {
      for (const auto& datagram : recorded) {
        pair.wire.push_back({pair.now, 1, pair.addresses[0], datagram, 0});
      }
      pair.turn(1);
    }
    EXPECT_EQ(pair.handled, 20);
    pair.start(1);
    pair.serve_echo();
  }
}

TEST(Engine, KeysRotateWithoutALostCall) {
  auto client = testing::test_config(false, 1);
  auto server = testing::test_config(true, 2);
  client.rotate_packets = server.rotate_packets = 5;
  Pair pair(client, server);
  pair.loss = 0.1;
  pair.serve_echo();
  for (int i = 0; i < 300; ++i) {
    TestCall call;
    pair.call(call, "echo", "hello");
    ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
    ASSERT_FALSE(call.failed) << call.reply;
  }
  EXPECT_GT(pair.client().events().counters.key_rotations, 20u);
  EXPECT_GT(pair.server().events().counters.key_rotations, 20u);
  EXPECT_EQ(pair.handled, 300);
}

TEST(Engine, ASlowServerBoundsWhatItHolds) {
  auto server = testing::test_config(true, 2);
  server.limits.request_bytes = 256 * 1024;
  Pair pair(testing::test_config(false, 1), server);
  std::vector<IncomingTransfer*> held;
  std::size_t held_bytes = 0;
  pair.serve("hold", [&](Engine&, IncomingTransfer& request, Instant) {
    held.push_back(&request);
    held_bytes += request.bytes;
  });
  std::vector<std::unique_ptr<TestCall>> calls;
  for (int i = 0; i < 1'000; ++i) {
    calls.push_back(std::make_unique<TestCall>());
    pair.call(*calls.back(), "hold", std::string(4'000, 'x'), "", std::chrono::hours(1));
  }
  pair.run_for(std::chrono::seconds(10));
  EXPECT_LE(held_bytes, 256u * 1024);
  EXPECT_GT(held.size(), 10u);
  int answered = 0;
  while (answered < 1'000) {
    ASSERT_FALSE(held.empty()) << answered;
    for (IncomingTransfer* request : std::exchange(held, {})) {
      held_bytes -= 4'000;
      ++answered;
      pair.server().reply(*request, {}, {}, pair.now);
    }
    pair.run_for(std::chrono::milliseconds(100));
    EXPECT_LE(held_bytes, 256u * 1024);
  }
  for (auto& call : calls) EXPECT_EQ(call->completions, 1);
}

TEST(Engine, CloseFailsThePeersCallsAtOnce) {
  Pair pair;
  std::vector<IncomingTransfer*> held;
  pair.serve("hold", [&](Engine&, IncomingTransfer& request, Instant) { held.push_back(&request); });
  TestCall call;
  pair.call(call, "hold", "x", "", std::chrono::hours(1));
  ASSERT_TRUE(pair.run_until([&] { return held.size() == 1; }));
  const Instant before = pair.now;
  pair.server().close(pair.now);
  ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
  EXPECT_EQ(call.code, Code::peer_failed);
  EXPECT_LT((pair.now - before).count(), 1'000'000);
}

TEST(Engine, AnIdlePeerTakesLittleMemoryAndIsForgotten) {
  Pair pair;
  pair.serve_echo();
  TestCall call;
  pair.call(call, "echo", "x");
  ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
  EXPECT_EQ(pair.server().census().paths, 1u);
  pair.run_for(std::chrono::hours(1));
  EXPECT_EQ(pair.server().census().paths, 0u);
  EXPECT_EQ(pair.client().census().paths, 0u);
  EXPECT_EQ(pair.client().census().timers, 0u);
  TestCall again;
  pair.call(again, "echo", "y");
  ASSERT_TRUE(pair.run_until([&] { return again.completions != 0; }));
  EXPECT_FALSE(again.failed);
}

TEST(Engine, ASecondHelloThatFindsNoRoomLeavesTheOpenPathAlone) {
  auto config = testing::test_config(false, 1);
  config.limits.peers = 1;
  Pair pair(config, testing::test_config(true, 2));
  std::vector<IncomingTransfer*> held;
  pair.serve("hold", [&](Engine&, IncomingTransfer& request, Instant) { held.push_back(&request); });
  TestCall call;
  pair.call(call, "hold", "x", "", std::chrono::seconds(1));
  ASSERT_TRUE(pair.run_until([&] { return held.size() == 1; }));
  pair.loss = 1;
  TestCall second;
  pair.call(second, "hold", "y", "", std::chrono::seconds(1));
  ASSERT_TRUE(pair.run_until([&] { return call.completions != 0 && second.completions != 0; }));
  EXPECT_EQ(call.code, Code::timeout);
  EXPECT_EQ(second.code, Code::timeout);
}

TEST(Engine, AMessageThatFillsAPacketDoesNotWaitForADelayedAcknowledgement) {
  auto client = testing::test_config(false, 1);
  auto server = testing::test_config(true, 2);
  client.datagram_bytes = server.datagram_bytes = 1'472;
  Pair pair(client, server);
  pair.mtu = 1'472;
  pair.serve_echo();
  for (int i = 0; i < 20; ++i) {  // finds the MTU
    TestCall warm;
    pair.call(warm, "echo", "warm");
    ASSERT_TRUE(pair.run_until([&] { return warm.completions != 0; }));
  }
  for (std::size_t size = 1'300; size < 1'480; ++size) {
    TestCall call;
    const Instant before = pair.now;
    Instant after = Instant::never();
    call.then = [&](TestCall&) { after = pair.now; };
    pair.call(call, "echo", std::string(size, 'x'));
    ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
    EXPECT_LT((after - before).count(), 500'000) << size;  // virtual time: two crossings of 10 us, no timer
  }
}

TEST(Engine, AClientThatWasAwayForLongCallsOnAsIfNothingHadHappened) {
  Pair pair;
  pair.serve_echo();
  TestCall first;
  pair.call(first, "echo", "before");
  ASSERT_TRUE(pair.run_until([&] { return first.completions != 0; }));
  // The client is not turned for a while: what the server sent is never acknowledged, and the server gives the path up.
  for (int i = 0; i < 20'000 && pair.server().census().paths != 0; ++i) {
    const Instant next = pair.server().next_deadline();
    if (!next.is_never() && next > pair.now) pair.now = next;
    pair.turn(1);
  }
  ASSERT_EQ(pair.server().census().paths, 0u);
  TestCall second;
  pair.call(second, "echo", "after");
  ASSERT_TRUE(pair.run_until([&] { return second.completions != 0; }));
  EXPECT_FALSE(second.failed) << second.reply;
  EXPECT_EQ(pair.handled, 2);
}

TEST(Engine, APathThatHasNamedAllItsCallsIsReplaced) {
  Pair pair;
  pair.serve_echo();
  TestCall first;
  pair.call(first, "echo", "x");
  ASSERT_TRUE(pair.run_until([&] { return first.completions != 0; }));
  testing::EngineAccess::core(pair.client()).paths.for_each([](Path& path) {
    path.next_generation = wire::kMaxGeneration - 3;
  });
  for (int i = 0; i < 10; ++i) {
    TestCall call;
    pair.call(call, "echo", "y");
    ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
    EXPECT_FALSE(call.failed) << call.reply;
  }
  EXPECT_EQ(pair.handled, 11);
}

TEST(Engine, CompletionsThatSubmitEndlesslyDoNotHoldDeliverUp) {
  Pair pair;
  pair.client().close(pair.now);
  TestCall call;
  int rounds = 0;
  call.then = [&](TestCall& again) {
    if (++rounds < 1'000) pair.call(again, "echo", "x");
  };
  pair.call(call, "echo", "x");
  pair.client().deliver(pair.now);
  EXPECT_EQ(rounds, 1);
}

}  // namespace
}  // namespace weir::engine
