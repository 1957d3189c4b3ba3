// Credit between engines, as a property over seeds: a server's memory stays within what it prints, nobody starves,
// nothing that fails on the way takes credit with it.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "engine/hostile_testing.h"

namespace weir::engine {
namespace {

using testing::Net;
using testing::TestCall;
using transfer::IncomingTransfer;

constexpr auto kForEver = std::chrono::hours(1);

// What the engine tells its operator, read back.
std::uint64_t printed_limit(const Engine& engine, std::string_view what) {
  const std::string text = engine.describe_limits();
  const std::size_t at = text.find(what);
  if (at == std::string::npos) return 0;
  return std::stoull(text.substr(at + what.size() + 2));
}
std::uint64_t printed_limit(const Engine& engine) {
  return printed_limit(engine, "requests received and unanswered, all peers, bytes");
}

class CreditFlow : public ::testing::TestWithParam<std::uint64_t> {
 protected:
  void start(int clients, EngineConfig config) {
    server = net.add(config);
    for (int i = 0; i < clients; ++i) hosts.push_back(net.add(false));
    serve();
  }
  void serve() {
    net.serve_echo(server);
    net.serve(server, "hold", [this](Engine&, IncomingTransfer& request, Instant) { held.push_back(&request); });
  }
  static EngineConfig config(std::size_t request_bytes, std::size_t per_peer = 4u << 20) {
    EngineConfig server = testing::test_config(true, 999);
    server.limits.request_bytes = request_bytes;
    server.limits.request_bytes_per_peer = per_peer;
    return server;
  }
  TestCall& submit(int host, std::string_view method, std::size_t bytes, Duration deadline = kForEver,
                   std::uint8_t depth = 0) {
    calls.push_back(std::make_unique<TestCall>());
    net.call(host, server, *calls.back(), method, std::string(bytes, 'x'), deadline, depth);
    return *calls.back();
  }
  bool all_done() const {
    return std::all_of(calls.begin(), calls.end(), [](auto& call) { return call->completions != 0; });
  }
  void answer(std::size_t count) {
    for (; count > 0 && !held.empty(); --count) {
      net.engine(server).reply(*held.front(), {}, {}, net.now);
      held.pop_front();
    }
  }
  std::uint64_t unanswered() { return net.engine(server).census().credit_used; }
  void expect_all_succeeded() {
    for (auto& call : calls) {
      ASSERT_EQ(call->completions, 1);
      ASSERT_FALSE(call->failed) << call->reply;
    }
  }
  // Both ends of every path count the same, and the ledger has promised what the accounts say.
  void expect_books_balance() {
    Core& core = net.core(server);
    EXPECT_EQ(unanswered(), 0u);
    for (const int host : hosts) {
      net.core(host).paths.for_each([&](Path& mine) {
        Path* theirs = core.find_path(mine.remote_id);
        if (mine.state != Path::State::open || theirs == nullptr || theirs->remote != net.address(host)) return;
        for (std::size_t level = 0; level < mine.credit.in_use(); ++level) {
          EXPECT_EQ(mine.credit[level].used, theirs->accounts[level].received()) << "level " << level;
        }
      });
    }
  }

  Net net{GetParam()};
  Random dice{GetParam() * 977};
  int server = 0;
  std::vector<int> hosts;
  std::deque<IncomingTransfer*> held;
  std::vector<std::unique_ptr<TestCall>> calls;
};

TEST_P(CreditFlow, ASlowServerNeverHoldsMoreThanItPrints) {
  start(5, config(200'000));
  net.loss = GetParam() % 3 == 0 ? 0.1 : 0;
  const std::uint64_t limit = printed_limit(net.engine(server));
  ASSERT_EQ(limit, 200'000u);
  for (int i = 0; i < 400; ++i) submit(hosts[dice.below(5)], "hold", dice.below(16'000));
  for (int i = 0; i < 100'000 && !all_done(); ++i) {
    net.run_for(std::chrono::microseconds(200));
    ASSERT_LE(unanswered(), limit);
    if (dice.chance(0.2)) answer(dice.below(8));
  }
  expect_all_succeeded();
  net.run_for(std::chrono::seconds(1));
  expect_books_balance();
}

TEST_P(CreditFlow, AHundredClientsShareOneServerWithinItsBound) {
  start(100, config(300'000));
  const std::uint64_t limit = printed_limit(net.engine(server));
  for (int round = 0; round < 4; ++round) {
    for (const int host : hosts) submit(host, "hold", 1'000 + dice.below(7'000));
  }
  for (int i = 0; i < 20'000 && !all_done(); ++i) {
    net.run_for(std::chrono::microseconds(500));
    ASSERT_LE(unanswered(), limit);
    answer(dice.below(16));
  }
  expect_all_succeeded();
  net.run_for(std::chrono::seconds(1));
  expect_books_balance();
}

TEST_P(CreditFlow, CancelledAndLateCallsUnderLossLeakNoCredit) {
  start(1, config(1 << 20, 128 * 1024));
  submit(hosts[0], "echo", 10);
  ASSERT_TRUE(net.run_until([&] { return all_done(); }));
  net.loss = 0.2;
  for (int i = 0; i < 3'000; ++i) {
    const std::size_t bytes = dice.below(dice.chance(0.1) ? 12'000 : 400);
    TestCall& call = submit(hosts[0], dice.chance(0.3) ? "hold" : "echo", bytes,
                            dice.chance(0.5) ? kForEver : std::chrono::microseconds(1 + dice.below(3'000)),
                            static_cast<std::uint8_t>(dice.chance(0.2) ? dice.below(5) : 0));
    if (dice.chance(0.5)) net.run_for(std::chrono::microseconds(dice.below(200)));
    if (dice.chance(0.7)) net.engine(hosts[0]).cancel(call, net.now);
    if (dice.chance(0.3)) answer(dice.below(20));
  }
  for (int i = 0; i < 2'000 && !all_done(); ++i) {
    net.run_for(std::chrono::milliseconds(2));
    answer(held.size());
  }
  ASSERT_TRUE(all_done());
  net.loss = 0;
  net.run_for(std::chrono::seconds(2));
  answer(held.size());
  net.run_for(std::chrono::seconds(2));
  expect_books_balance();
  int ended_on_the_way = 0;
  for (auto& call : calls) {
    EXPECT_EQ(call->completions, 1);
    ended_on_the_way += call->failed && call->may_have_run ? 1 : 0;
  }
  EXPECT_GT(ended_on_the_way, 300);
  EXPECT_EQ(net.engine(hosts[0]).events().counters.handshakes_started, 1u);
  // A window full of calls still fits, on every level.
  calls.clear();
  for (int i = 0; i < 300; ++i)
    submit(hosts[0], "echo", 1'000, std::chrono::seconds(30), static_cast<std::uint8_t>(i % 5));
  ASSERT_TRUE(net.run_until([&] { return all_done(); }));
  expect_all_succeeded();
}

TEST_P(CreditFlow, NestedCallsGoOnWhileTheOutermostLevelIsExhausted) {
  start(2, config(100'000, 100'000));
  for (int i = 0; i < 60; ++i) submit(hosts[dice.below(2)], "hold", 8'000);
  net.run_for(std::chrono::seconds(1));
  ASSERT_GT(held.size(), 2u);
  ASSERT_LT(held.size(), 60u);
  std::vector<std::unique_ptr<TestCall>> outer;
  outer.swap(calls);
  for (int i = 0; i < 200; ++i) {
    submit(hosts[i % 2], "echo", dice.below(8'000), std::chrono::seconds(20), static_cast<std::uint8_t>(1 + i % 4));
  }
  ASSERT_TRUE(net.run_until([&] { return all_done(); }));
  expect_all_succeeded();
  for (auto& call : outer) EXPECT_EQ(call->completions, 0);
  outer.swap(calls);
  for (int i = 0; i < 1'000 && !all_done(); ++i) {
    answer(held.size());
    net.run_for(std::chrono::milliseconds(5));
  }
  expect_all_succeeded();
}

TEST_P(CreditFlow, ABlockedSenderGoesOnWhenOthersAreAnswered) {
  start(4, config(70'000, 70'000));
  for (int i = 0; i < 40; ++i) submit(hosts[static_cast<std::size_t>(i) % 3], "hold", 6'000);
  net.run_for(std::chrono::milliseconds(500));
  ASSERT_GT(held.size(), 1u);
  TestCall& blocked = submit(hosts[3], "echo", 16'000);
  net.run_for(std::chrono::seconds(2));
  EXPECT_EQ(blocked.completions, 0);
  for (int i = 0; i < 1'000 && blocked.completions == 0; ++i) {
    answer(1);
    net.run_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(blocked.completions, 1);
  for (int i = 0; i < 1'000 && !all_done(); ++i) {
    answer(held.size());
    net.run_for(std::chrono::milliseconds(20));
  }
  expect_all_succeeded();
}

// Idle paths keep what they were promised. When others need it they are closed, and their owners come back.
TEST_P(CreditFlow, IdlePathsGiveWayToTheBlocked) {
  start(20, config(80'000, 80'000));
  for (const int host : hosts) {
    submit(host, "echo", 100);
    ASSERT_TRUE(net.run_until([&] { return all_done(); }));
  }
  net.run_for(std::chrono::milliseconds(50));
  for (int round = 0; round < 20; ++round) {
    submit(hosts[dice.below(20)], "echo", 16'000, std::chrono::seconds(20));
    if (dice.chance(0.5)) net.run_for(std::chrono::milliseconds(dice.below(40)));
  }
  ASSERT_TRUE(net.run_until([&] { return all_done(); }));
  expect_all_succeeded();
}

// Each keeps a part of a message from its first call, and wants a whole one at the same moment as the others. If each
// waited for the rest and kept its part, all would wait for ever.
TEST_P(CreditFlow, CallersThatHoldPartsOfMessagesDoNotWaitForEachOther) {
  start(16, config(65'792));
  for (const int host : hosts) submit(host, "echo", 100);
  ASSERT_TRUE(net.run_until([&] { return all_done(); }));
  for (const int host : hosts) submit(host, "echo", 16'000, std::chrono::seconds(20));
  ASSERT_TRUE(net.run_until([&] { return all_done(); }));
  expect_all_succeeded();
}

// More callers than paths: each newcomer closes somebody's idle path, often while a call is on its way to it. Such a
// call surely did not run, so it goes back to the queue and out again on a new path.
TEST_P(CreditFlow, CallsOfAClosedIdlePathAreSentAgainAndRunOnce) {
  EngineConfig small = config(1 << 20);
  small.limits.peers = 6;
  start(18, small);
  net.loss = GetParam() % 2 == 0 ? 0.02 : 0;
  int expected = 0;
  for (int i = 0; i < 600; ++i) {
    submit(hosts[dice.below(18)], "echo", dice.below(500), std::chrono::seconds(60));
    ++expected;
    net.run_for(std::chrono::microseconds(dice.below(20'000)));
  }
  ASSERT_TRUE(net.run_until([&] { return all_done(); }));
  expect_all_succeeded();
  EXPECT_EQ(net.handled, expected);
  EXPECT_LE(net.engine(server).census().paths, 6u);
  std::uint64_t handshakes = 0;
  for (const int host : hosts) handshakes += net.engine(host).events().counters.handshakes_completed;
  EXPECT_GT(handshakes, 30u);
}

// A cold sender was told what was free when it said hello. Others have it by the time it calls from inside a handler.
TEST_P(CreditFlow, ANestedRequestThatFindsNoRoomIsTakenLater) {
  EngineConfig small = config(1 << 20);
  small.limits.nested_request_bytes = 320'000;
  start(30, small);
  const auto level = static_cast<std::uint8_t>(1 + GetParam() % kMaxDepth);
  for (const int host : hosts) submit(host, "echo", 10);  // everybody has been told now
  ASSERT_TRUE(net.run_until([&] { return all_done(); }));
  const std::uint64_t told = net.core(hosts[0]).paths.at(0)->credit[level].limit;
  EXPECT_GT(told, 0u);
  calls.clear();
  for (int i = 0; i < 90; ++i) {
    submit(hosts[static_cast<std::size_t>(i) % 30], "hold",
           i < 60 ? 16'000 : dice.below(std::min<std::uint64_t>(told, 16'000)), kForEver, level);
    if (i % 10 == 0) net.run_for(std::chrono::milliseconds(5));
  }
  net.run_for(std::chrono::seconds(1));
  EXPECT_TRUE(net.core(server).ledger.starved(level));
  EXPECT_GT(held.size(), 10u);
  for (int i = 0; i < 20'000 && !all_done(); ++i) {
    answer(1);
    net.run_for(std::chrono::milliseconds(2));
    ASSERT_LE(net.core(server).ledger.promised(level), 320'000u);
  }
  expect_all_succeeded();
  std::uint64_t handshakes = 0;
  for (const int host : hosts) handshakes += net.engine(host).events().counters.handshakes_started;
  EXPECT_EQ(net.engine(server).census().credit_used, 0u);
  EXPECT_GE(handshakes, 30u);
}

TEST(NestedCreditFlow, AThousandPathsStayWithinThePoolsOfTheirLevels) {
  Net net(1);
  EngineConfig config = testing::test_config(true, 999);
  config.limits.nested_request_bytes = 256 * 1024;
  const int server = net.add(config);
  std::deque<IncomingTransfer*> held;
  net.serve(server, "hold", [&](Engine&, IncomingTransfer& request, Instant) { held.push_back(&request); });
  std::vector<std::unique_ptr<TestCall>> calls;
  for (int i = 0; i < 1'000; ++i) {
    const int host = net.add(false);
    for (std::uint8_t depth = 0; depth <= kMaxDepth; ++depth) {
      calls.push_back(std::make_unique<TestCall>());
      net.call(host, server, *calls.back(), "hold", std::string(2'000, 'x'), kForEver, depth);
    }
  }
  token::CreditLedger& ledger = net.core(server).ledger;
  std::size_t done = 0;
  std::uint64_t most = 0;
  for (int i = 0; i < 4'000 && done < calls.size(); ++i) {
    net.run_for(std::chrono::microseconds(500));
    std::uint64_t unanswered[token::kLevels] = {};
    net.core(server).paths.for_each([&](Path& path) {
      for (std::size_t level = 0; level < path.accounts.in_use(); ++level) {
        unanswered[level] += path.accounts[level].unanswered();
      }
    });
    for (std::uint8_t level = 1; level < token::kLevels; ++level) {
      ASSERT_LE(ledger.promised(level), 256u * 1024);
      ASSERT_LE(unanswered[level], ledger.promised(level));
      most = std::max(most, unanswered[level]);
    }
    for (std::size_t count = held.size() / 2 + 1; count > 0 && !held.empty(); --count) {
      net.engine(server).reply(*held.front(), {}, {}, net.now);
      held.pop_front();
    }
    done = static_cast<std::size_t>(
        std::count_if(calls.begin(), calls.end(), [](auto& call) { return call->completions != 0; }));
  }
  for (auto& call : calls) {
    ASSERT_EQ(call->completions, 1);
    ASSERT_FALSE(call->failed) << call->reply;
  }
  EXPECT_GT(most, 128u * 1024);
  for (std::uint8_t level = 0; level < token::kLevels; ++level)
    EXPECT_LE(ledger.promised(level), ledger.options().capacity);
}

INSTANTIATE_TEST_SUITE_P(Seeds, CreditFlow, ::testing::Range<std::uint64_t>(1, 7));

}  // namespace
}  // namespace weir::engine
