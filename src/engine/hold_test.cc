// Calls that are held back, and calls whose owner is told when the peer has their request.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/engine_testing.h"

namespace weir::engine {
namespace {

using namespace std::chrono_literals;
using testing::Pair;
using testing::TestCall;

std::vector<const transfer::OutgoingCall*> told;  // by on_sent(), of the test that runs

struct Hold : ::testing::Test {
  static EngineConfig client_config() {
    EngineConfig config = testing::test_config(false, 1111);
    config.on_sent = [](transfer::OutgoingCall& call) {
      EXPECT_EQ(static_cast<TestCall&>(call).completions, 0) << "it is told before it completes";
      told.push_back(&call);
    };
    return config;
  }
  Hold() {
    told.clear();
    pair.serve_large_echo();
    pair.serve("sink", [](Engine&, transfer::IncomingTransfer& request, Instant) { (void)request; });
    TestCall first;
    pair.call(first, "echo", "hello");
    pair.run_until([&] { return first.completions == 1; });
    pair.handled = 0;
  }
  ~Hold() override {
    pair.client().close(pair.now);
    pair.run_until([] { return false; }, 100);
    EXPECT_EQ(pair.client().census().calls_queued, 0u);
    EXPECT_EQ(pair.client().census().calls_sent, 0u);
    EXPECT_EQ(pair.client().census().timers, 0u);
  }
  // Beside the fixture's own, and so with keys of its own.
  static Pair another(const EngineConfig& config) { return Pair(config, testing::test_config(true, 2222), 77); }
  // So that the engine forgets it before it goes.
  static void give_up(Pair& pair, TestCall& call) {
    pair.client().cancel(call, pair.now);
    EXPECT_TRUE(pair.run_until([&] { return call.completions == 1; }));
  }
  static int times_told(const TestCall& call) {
    int times = 0;
    for (const auto* one : told) times += one == &call;
    return times;
  }

  Pair pair{client_config()};
};

TEST_F(Hold, NothingOfItIsSentBeforeItIsReleased) {
  TestCall call;
  call.is_held = true;
  pair.call(call, "echo", "later");
  pair.run_for(1s);
  EXPECT_EQ(pair.handled, 0);
  EXPECT_EQ(call.completions, 0);
  EXPECT_EQ(pair.client().census().calls_queued, 1u);
  EXPECT_FALSE(pair.client().is_quiet());
  pair.client().release(call, pair.now);
  EXPECT_TRUE(pair.run_until([&] { return call.completions == 1; }));
  EXPECT_EQ(call.reply, "later");
  pair.client().release(call, pair.now);  // no more than nothing
  pair.client().fail_held(call, Code::dependency_failed, "late", pair.now);
  pair.run_for(1s);
  EXPECT_EQ(call.completions, 1);
}

TEST_F(Hold, ItFailsWithoutHavingRun) {
  TestCall call;
  call.is_held = true;
  pair.call(call, "echo", "never");
  pair.client().fail_held(call, Code::dependency_failed, "the other one failed", pair.now);
  EXPECT_TRUE(pair.run_until([&] { return call.completions == 1; }));
  EXPECT_EQ(call.code, Code::dependency_failed);
  EXPECT_EQ(call.reply, "the other one failed");
  EXPECT_FALSE(call.may_have_run);
  EXPECT_EQ(pair.handled, 0);
}

TEST_F(Hold, ItsDeadlineRunsItCanBeCancelledAndItEndsWithTheEngine) {
  TestCall late, cancelled, left;
  for (TestCall* call : {&late, &cancelled, &left}) {
    call->is_held = true;
    pair.call(*call, "echo", "x", {}, call == &late ? Duration(1ms) : Duration(1h));
  }
  pair.client().cancel(cancelled, pair.now);
  pair.run_for(10ms);
  EXPECT_EQ(late.code, Code::timeout);
  EXPECT_FALSE(late.may_have_run);
  EXPECT_EQ(cancelled.code, Code::cancelled);
  EXPECT_EQ(left.completions, 0);
  pair.client().close(pair.now);
  EXPECT_TRUE(pair.run_until([&] { return left.completions == 1; }));
  EXPECT_EQ(left.code, Code::closed);
}

TEST_F(Hold, HeldCallsCountAmongThoseThatWait) {
  EngineConfig config = client_config();
  config.limits.queued_calls = 2;
  Pair small = another(config);
  TestCall calls[3];
  for (TestCall& call : calls) {
    call.is_held = true;
    small.call(call, "echo", "x");
  }
  small.run_until([&] { return calls[2].completions == 1; });
  EXPECT_EQ(calls[2].code, Code::overloaded);
  EXPECT_EQ(calls[0].completions + calls[1].completions, 0);
  small.client().close(small.now);
  small.run_until([&] { return calls[1].completions == 1; });
}

TEST_F(Hold, TheLeastUrgentOfThemIsRefusedForAMoreUrgentCall) {
  EngineConfig config = client_config();
  config.limits.queued_calls = 2;
  Pair small = another(config);
  small.serve_large_echo();
  TestCall held[2], urgent;
  for (TestCall& call : held) {
    call.is_held = true;
    call.priority = 7;
    small.call(call, "echo", "x");
  }
  urgent.priority = 0;
  small.call(urgent, "echo", "now");
  EXPECT_TRUE(small.run_until([&] { return urgent.completions == 1; }));
  EXPECT_EQ(urgent.reply, "now");
  EXPECT_EQ(held[1].code, Code::overloaded);
  EXPECT_EQ(held[0].completions, 0);
  small.client().close(small.now);
  small.run_until([&] { return held[0].completions == 1; });
}

// Also if the acknowledgement is lost and only the answer comes.
TEST_F(Hold, TellsOfARequestThatIsAnsweredWithAnErrorWhateverIsLost) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    Pair lossy(client_config(), testing::test_config(true, 2222), seed);
    lossy.serve("fail", [](Engine& engine, transfer::IncomingTransfer& request, Instant at) {
      engine.fail(request, Code::application, "no", at);
    });
    TestCall hello;
    lossy.call(hello, "fail", "x");
    ASSERT_TRUE(lossy.run_until([&] { return hello.completions == 1; }));
    lossy.loss = 0.3;
    TestCall call;
    call.tells_sent = true;
    lossy.call(call, "fail", "x", {}, 60s);
    ASSERT_TRUE(lossy.run_until([&] { return call.completions == 1; }));
    EXPECT_EQ(call.code, Code::application);
    EXPECT_EQ(times_told(call), 1) << "with seed " << seed;
    told.clear();
  }
}

TEST_F(Hold, ARequestThatIsToComeAgainIsNotThereYet) {
  TestCall call;
  call.tells_sent = true;
  call.is_patient = true;
  pair.call(call, "soon", "x", {}, 60s);
  pair.run_for(100ms);
  EXPECT_TRUE(told.empty()) << "nobody serves it yet";
  pair.serve("soon", [](Engine& engine, transfer::IncomingTransfer& request, Instant at) {
    engine.reply(request, {}, {}, at);
  });
  EXPECT_TRUE(pair.run_until([&] { return call.completions == 1; }));
  EXPECT_FALSE(call.failed);
}

TEST_F(Hold, TellsOnceThatThePeerHasARequestWhoseReplyDoesNotCome) {
  TestCall call, silent;
  call.tells_sent = true;
  pair.call(call, "sink", "x");
  pair.call(silent, "sink", "x");
  EXPECT_TRUE(pair.run_until([&] { return times_told(call) == 1; }));
  pair.run_for(100ms);
  EXPECT_EQ(told.size(), 1u) << "of those who asked for it";
  EXPECT_EQ(call.completions, 0);
  give_up(pair, call);
  give_up(pair, silent);
}

TEST_F(Hold, ARequestInFragmentsIsThereWhenAllOfThemAre) {
  EngineConfig config = client_config();
  config.datagram_bytes = 1'300;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Pair lossy(config, testing::test_config(true, 2222), seed);
    lossy.mtu = 1'300;
    lossy.loss = 0.3;
    lossy.random = Random(seed);
    int arrived = 0;
    lossy.serve("sink", [&](Engine&, transfer::IncomingTransfer&, Instant) { ++arrived; });
    TestCall call;
    call.tells_sent = true;
    lossy.call(call, "sink", std::string(12'000, 'f'), {}, 60s);
    ASSERT_TRUE(lossy.run_until([&] { return times_told(call) == 1; })) << seed;
    EXPECT_EQ(arrived, 1) << "told too early, with seed " << seed;
    EXPECT_EQ(call.completions, 0);
    give_up(lossy, call);
    told.clear();
  }
}

TEST_F(Hold, ALargeRequestIsThereWhenItsDataIs) {
  TestCall call;
  call.tells_sent = true;
  bool is_opened_only = false, is_written = false;
  pair.serve("large sink", [&](Engine&, transfer::IncomingTransfer&, Instant) { is_written = true; });
  pair.on_wire = [&](int, MutableByteSpan) { is_opened_only |= !told.empty() && !is_written; };
  pair.call_large(call, "large sink", std::string(3'000'000, 'l'), {}, 60s);
  EXPECT_TRUE(pair.run_until([&] { return times_told(call) == 1; }));
  EXPECT_TRUE(is_written);
  EXPECT_FALSE(is_opened_only);
  EXPECT_EQ(call.completions, 0);
  give_up(pair, call);
  pair.on_wire = nullptr;  // what it looks at ends before the pair
}

TEST_F(Hold, WhatCompletesAtOnceNeedNotBeToldOf) {
  TestCall calls[50];
  for (TestCall& call : calls) {
    call.tells_sent = true;
    pair.call(call, "echo", "x");
  }
  EXPECT_TRUE(pair.run_until([&] {
    for (const TestCall& call : calls) {
      if (call.completions == 0) return false;
    }
    return true;
  }));
  for (const TestCall& call : calls) {
    EXPECT_FALSE(call.failed);
    EXPECT_LE(times_told(call), 1);
  }
}

// A path that ends takes with it what the peer said there: the request goes again, and counts anew.
TEST_F(Hold, FragmentsThatAPathThatEndedHadDoNotCount) {
  EngineConfig config = client_config();
  config.datagram_bytes = 1'300;
  Pair restarting = another(config);
  restarting.mtu = 1'300;
  restarting.serve_large_echo();
  TestCall call;
  call.tells_sent = true;
  restarting.call(call, "sink", std::string(12'000, 'f'), {}, 60s);
  // Half of it is there when the server is replaced by one that knows nothing.
  int datagrams = 0;
  restarting.on_wire = [&](int from, MutableByteSpan) { datagrams += from == 0; };
  restarting.run_until([&] { return datagrams >= 8; });
  restarting.on_wire = nullptr;
  restarting.start(1);
  int arrived = 0;
  restarting.serve("sink", [&](Engine&, transfer::IncomingTransfer&, Instant) { ++arrived; });
  restarting.run_until([&] { return call.completions == 1 || times_told(call) == 1; });
  EXPECT_EQ(times_told(call), arrived);
  restarting.client().close(restarting.now);
  restarting.run_until([&] { return call.completions == 1; });
}

}  // namespace
}  // namespace weir::engine
