// Priorities in the engine's queues: who is sent, granted credit, given room, run and refused first.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "engine/hostile_testing.h"

namespace weir::engine {
namespace {

using testing::Net;
using testing::TestCall;
using transfer::IncomingTransfer;

constexpr auto kForEver = std::chrono::hours(1);

class Priorities : public ::testing::Test {
 protected:
  void start(int clients, EngineConfig config) {
    server = net.add(std::move(config));
    net.serve_echo(server);
    net.serve(server, "hold", [this](Engine&, IncomingTransfer& request, Instant) {
      order.push_back(request.priority);
      held.push_back(&request);
    });
    for (int i = 0; i < clients; ++i) {
      hosts.push_back(net.add(false));
      TestCall call;
      net.call(hosts.back(), server, call, "echo", "hello");
      ASSERT_TRUE(net.run_until([&] { return call.completions != 0; }));
    }
  }
  TestCall& submit(int host, std::uint8_t priority, std::size_t bytes = 10, std::uint8_t depth = 0) {
    calls.push_back(std::make_unique<TestCall>());
    calls.back()->priority = priority;
    net.call(host, server, *calls.back(), "hold", std::string(bytes, 'x'), kForEver, depth);
    return *calls.back();
  }
  void answer_one() {
    ASSERT_FALSE(held.empty());
    net.engine(server).reply(*held.front(), {}, {}, net.now);
    held.pop_front();
    net.run_for(std::chrono::milliseconds(1));
  }
  std::ptrdiff_t count(std::size_t from, std::size_t until, int priority) {
    return std::count(order.begin() + static_cast<std::ptrdiff_t>(from),
                      order.begin() + static_cast<std::ptrdiff_t>(std::min(until, order.size())), priority);
  }
  // Answers one after the other until all have run and every caller has its answer.
  void answer_all() {
    const auto is_done = [](const auto& call) { return call->completions != 0; };
    for (int i = 0; i < 10'000 && !std::all_of(calls.begin(), calls.end(), is_done); ++i) {
      if (held.empty()) {
        net.run_for(std::chrono::milliseconds(1));
      } else {
        answer_one();
      }
    }
    ASSERT_TRUE(std::all_of(calls.begin(), calls.end(), is_done)) << "somebody starves";
    ASSERT_EQ(order.size(), calls.size());
  }

  Net net;
  int server = 0;
  std::vector<int> hosts;
  std::deque<IncomingTransfer*> held;
  std::vector<int> order;  // in which requests were run
  std::vector<std::unique_ptr<TestCall>> calls;
};

class CreditPriorities : public Priorities {
 protected:
  // Ten messages fill the server, and one host has sent so many that it is full.
  void fill() {
    EngineConfig config = testing::test_config(true, 999);
    config.limits.request_bytes = config.limits.request_bytes_per_peer = 70'000;
    start(3, config);
    for (int i = 0; i < 14; ++i) submit(hosts[0], 3, kBytes);
    net.run_for(std::chrono::milliseconds(300));
    ASSERT_LT(order.size(), 14u);
    ASSERT_GT(net.core(server).ledger.promised() + kBytes, 70'000u);
  }
  static constexpr std::size_t kBytes = 6'000;
};

TEST_F(CreditPriorities, AnUrgentPeerIsServedBeforeABulkOneThatCameFirst) {
  fill();
  for (int i = 0; i < 30; ++i) submit(hosts[1], 7, kBytes);
  net.run_for(std::chrono::milliseconds(100));
  const std::size_t before = order.size();
  for (int i = 0; i < 30; ++i) submit(hosts[2], 0, kBytes);
  net.run_for(std::chrono::milliseconds(10));
  answer_all();
  EXPECT_GE(count(before, before + 30, 0), 24);
}

TEST_F(CreditPriorities, ABulkPeerHasItsShareWhileAMoreUrgentOneAlwaysHasMore) {
  fill();
  for (int i = 0; i < 100; ++i) {
    submit(hosts[1], 6, kBytes);
    submit(hosts[2], 4, kBytes);
  }
  net.run_for(std::chrono::milliseconds(100));
  const std::size_t before = order.size() + 10;
  answer_all();
  EXPECT_GE(count(before, before + 50, 6), 5) << "one in five is its share";
  EXPECT_GE(count(before, before + 50, 4), 30);
}

// The path is in line already, with bulk. One small urgent call must not wait for the bulk's turn.
TEST_F(CreditPriorities, AnUrgentCallMovesItsPathForward) {
  fill();
  for (int i = 0; i < 20; ++i) {
    submit(hosts[1], 7, kBytes);
    submit(hosts[2], 7, kBytes);
  }
  net.run_for(std::chrono::milliseconds(100));
  const std::size_t before = order.size();
  submit(hosts[2], 0, kBytes);
  net.run_for(std::chrono::milliseconds(3));
  while (order.size() == before) answer_one();
  EXPECT_EQ(order[before], 0);
  answer_all();
}

// One grant is for as many small calls as one largest message would take: they do not go one by one, a round trip each.
TEST_F(CreditPriorities, SmallUrgentCallsAreGrantedTogether) {
  constexpr int kCalls = 30;
  fill();
  for (int i = 0; i < 20; ++i) submit(hosts[2], 7, kBytes);
  net.run_for(std::chrono::milliseconds(100));
  const std::size_t before = order.size();
  const std::uint64_t complaints = net.engine(hosts[1]).events().counters.credit_blocked;
  for (int i = 0; i < kCalls; ++i) submit(hosts[1], 0, 100);
  net.run_for(std::chrono::milliseconds(3));
  for (int i = 0; i < 1'000 && count(before, order.size(), 0) < kCalls; ++i) answer_one();
  ASSERT_EQ(count(before, order.size(), 0), kCalls);
  EXPECT_LE(net.engine(hosts[1]).events().counters.credit_blocked - complaints, 4u);
  answer_all();
}

// Whatever waits there, calls that are sent nowhere must not stand in the way of others.
TEST_F(CreditPriorities, ACallThatIsTooLargeForThePeerDoesNotHoldUpTheOthers) {
  fill();
  for (int i = 0; i < 5; ++i) submit(hosts[1], 7, kBytes);
  net.run_for(std::chrono::milliseconds(10));
  Core& caller = net.core(hosts[1]);
  Path* const path = caller.path_of(*caller.peers.at(0));
  ASSERT_NE(path, nullptr);
  path->max_bytes = 8'000;
  TestCall large;
  large.priority = 0;
  net.call(hosts[1], server, large, "hold", std::string(9'000, 'x'), kForEver);
  net.run_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(large.failed);
  EXPECT_EQ(large.code, Code::too_large);
  answer_all();
}

TEST_F(Priorities, NestedCallsOfOneDepthGoByPriority) {
  EngineConfig config = testing::test_config(true, 999);
  config.limits.calls_per_peer = 16;
  start(1, config);
  for (int i = 0; i < 20; ++i) submit(hosts[0], 7, 10, 2);
  net.run_for(std::chrono::milliseconds(10));
  const std::size_t before = order.size();
  ASSERT_LT(before, 20u) << "the slots are taken";
  for (const int priority : {6, 5, 1, 0}) submit(hosts[0], static_cast<std::uint8_t>(priority), 10, 2);
  for (int i = 0; i < 4; ++i) answer_one();
  EXPECT_EQ(std::vector<int>(order.begin() + static_cast<std::ptrdiff_t>(before), order.end()),
            (std::vector<int>{0, 1, 5, 6}));
  answer_all();
}

TEST_F(Priorities, ADeeperCallGoesBeforeAMoreUrgentOne) {
  EngineConfig config = testing::test_config(true, 999);
  config.limits.calls_per_peer = 16;
  start(1, config);
  for (int i = 0; i < 20; ++i) submit(hosts[0], 3, 10, 3);
  net.run_for(std::chrono::milliseconds(10));
  const std::size_t before = order.size();
  submit(hosts[0], 0, 10, 1);
  submit(hosts[0], 7, 10, 4);
  net.run_for(std::chrono::milliseconds(1));
  ASSERT_EQ(order.size(), before + 1) << "the last slots are the deepest calls'";
  EXPECT_EQ(order.back(), 7);
  answer_all();
}

class AnswerPriorities : public Priorities {
 protected:
  // Room for two answers, which is taken.
  void fill(int waiting) {
    EngineConfig config = testing::test_config(true, 999);
    config.limits.answer_bytes = token::AnswerRoom::least(answer_bytes_of(config.limits.inline_bytes + 2));
    start(2 + waiting, config);
    submit(hosts[0], 3);
    submit(hosts[1], 3);
    net.run_for(std::chrono::milliseconds(10));
    ASSERT_EQ(order.size(), 2u);
    ASSERT_TRUE(net.core(server).answers.is_full(0));
  }
};

TEST_F(AnswerPriorities, RoomGoesToTheMoreUrgentPathAlthoughItCameLater) {
  fill(3);
  submit(hosts[2], 6);
  net.run_for(std::chrono::milliseconds(10));
  submit(hosts[3], 4);
  net.run_for(std::chrono::milliseconds(10));
  submit(hosts[4], 1);
  net.run_for(std::chrono::milliseconds(10));
  ASSERT_EQ(net.core(server).requests_waiting, 3u);
  for (int i = 0; i < 3; ++i) answer_one();
  EXPECT_EQ(order, (std::vector<int>{3, 3, 1, 4, 6}));
}

TEST_F(AnswerPriorities, RoomIsSharedByWeightAndPathsOfOnePriorityTakeTurns) {
  fill(4);
  for (int i = 0; i < 40; ++i) {
    submit(hosts[2], 5);
    submit(hosts[3], 3);
    submit(hosts[4], 3);
  }
  net.run_for(std::chrono::milliseconds(10));
  for (int i = 0; i < 52; ++i) answer_one();
  EXPECT_NEAR(static_cast<double>(count(2, 52, 5)), 10, 2);
  answer_all();
  EXPECT_EQ(net.core(server).answer_lines[0].size(), 0u);
  EXPECT_FALSE(net.core(server).has_unseen_requests());
}

class Shedding : public Priorities {
 protected:
  void fill() {
    EngineConfig config = testing::test_config(true, 999);
    server = net.add(config);
    other = net.add(testing::test_config(true, 998));
    EngineConfig caller = testing::test_config(false, 1234);
    caller.limits.queued_calls = 10;
    hosts.push_back(net.add(caller));
    net.freeze(server);
    net.freeze(other);
    for (int i = 0; i < 10; ++i) submit(hosts[0], 5);
  }
  void deliver() { net.turn(hosts[0]); }
  int other = 0;
};

TEST_F(Shedding, TheNewestOfTheLeastUrgentCallsMakesRoom) {
  fill();
  TestCall urgent;
  urgent.priority = 1;
  net.call(hosts[0], other, urgent, "hold", "x", kForEver);  // to somebody else
  deliver();
  EXPECT_EQ(urgent.completions, 0);
  for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(calls[i]->completions, i == 9 ? 1 : 0) << i;
  EXPECT_EQ(calls[9]->code, Code::overloaded);
  EXPECT_FALSE(calls[9]->may_have_run);
  EXPECT_EQ(net.core(hosts[0]).calls_queued, 10u);
  net.engine(hosts[0]).cancel(urgent, net.now);
  deliver();
}

TEST_F(Shedding, ACallThatIsNoMoreUrgentThanTheOthersIsRefused) {
  fill();
  for (const int priority : {5, 7}) {
    TestCall& call = submit(hosts[0], static_cast<std::uint8_t>(priority));
    deliver();
    EXPECT_EQ(call.completions, 1);
    EXPECT_EQ(call.code, Code::overloaded);
  }
  for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(calls[i]->completions, 0);
}

TEST_F(Shedding, CallsFromInsideHandlersAreNotShed) {
  fill();
  for (std::size_t i = 0; i < 10; ++i) net.engine(hosts[0]).cancel(*calls[i], net.now);
  for (int i = 0; i < 10; ++i) submit(hosts[0], 7, 10, 1);
  TestCall& urgent = submit(hosts[0], 0);
  deliver();
  EXPECT_EQ(urgent.completions, 1);
  for (std::size_t i = 10; i < 20; ++i) EXPECT_EQ(calls[i]->completions, 0);
}

TEST_F(Priorities, OfRequestsThatArriveTogetherTheMostUrgentRunFirst) {
  start(2, testing::test_config(true, 999));
  for (const int priority : {6, 2, 7, 0, 5}) submit(hosts[0], static_cast<std::uint8_t>(priority));
  for (const int priority : {4, 1, 3}) submit(hosts[1], static_cast<std::uint8_t>(priority));
  net.run_for(std::chrono::milliseconds(1));
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}));
  answer_all();
}

TEST_F(Priorities, AnUrgentReplyOvertakesBulkOnesThatWaitToBeSent) {
  start(1, testing::test_config(true, 999));
  for (int i = 0; i < 40; ++i) submit(hosts[0], 7);
  TestCall& urgent = submit(hosts[0], 1);
  net.run_for(std::chrono::milliseconds(1));
  ASSERT_EQ(held.size(), 41u);
  std::size_t bulk_before = 0;
  urgent.then = [&](TestCall&) {
    for (auto& call : calls) bulk_before += call->completions != 0 && call.get() != &urgent;
  };
  const std::string large(16'000, 'x');
  std::stable_partition(held.begin(), held.end(), [](const IncomingTransfer* one) { return one->priority == 7; });
  for (IncomingTransfer* request : held) net.engine(server).reply(*request, {}, as_bytes(large), net.now);
  EXPECT_TRUE(net.run_until([&] { return urgent.completions != 0; }));
  EXPECT_LT(bulk_before, 10u);
  EXPECT_TRUE(net.run_until(
      [&] { return std::all_of(calls.begin(), calls.end(), [](auto& call) { return call->completions == 1; }); }));
}

TEST_F(Priorities, OfManyPathsTheOneWithTheMostUrgentMessageIsSentFirst) {
  std::vector<int> servers;
  const int caller = net.add(false);
  for (int i = 0; i < 3; ++i) {
    servers.push_back(net.add(true));
    net.serve_echo(servers.back());
    TestCall call;
    net.call(caller, servers.back(), call, "echo", "hello");
    ASSERT_TRUE(net.run_until([&] { return call.completions != 0; }));
  }
  net.run_for(std::chrono::milliseconds(50));
  std::vector<Address> sent;
  net.on_wire = [&](int from, const Address& to, MutableByteSpan) {
    if (from == caller && (sent.empty() || sent.back() != to)) sent.push_back(to);
  };
  TestCall bulk, middle, urgent;
  bulk.priority = 7;
  middle.priority = 4;
  urgent.priority = 0;
  net.call(caller, servers[0], bulk, "echo", std::string(15'000, 'x'));
  net.call(caller, servers[1], middle, "echo", "x");
  net.call(caller, servers[2], urgent, "echo", "x");
  net.turn(caller);
  EXPECT_EQ(sent, (std::vector<Address>{net.address(servers[2]), net.address(servers[1]), net.address(servers[0])}));
  EXPECT_TRUE(net.run_until([&] { return bulk.completions + middle.completions + urgent.completions == 3; }));
}

}  // namespace
}  // namespace weir::engine
