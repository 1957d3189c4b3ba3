// Room for answers, and nested calls that never wait for their own callers: what a peer can make an engine hold is
// bounded, and whatever the peer does, others get their calls through.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "engine/allocation_testing.h"
#include "engine/footprint.h"
#include "engine/hostile_testing.h"

namespace weir::engine {
namespace {

using testing::Frames;
using testing::Net;
using testing::Puppet;
using testing::TestCall;
using transfer::IncomingTransfer;
using weir::testing::Heap;
using wire::FrameType;

constexpr auto kForEver = std::chrono::hours(1);

// As small as a pool may be configured.
EngineConfig smallest(std::uint16_t port) {
  EngineConfig config = testing::test_config(true, port);
  config.limits.request_bytes = config.limits.request_bytes_per_peer = 2 * config.limits.inline_bytes;
  config.limits.nested_request_bytes = 2 * config.limits.inline_bytes;
  config.limits.answer_bytes = token::AnswerRoom::least(answer_bytes_of(config.limits.inline_bytes + 2));
  return config;
}

class AnswerRoomFlow : public ::testing::Test {
 protected:
  void start(EngineConfig config, int clients) {
    server = net.add(std::move(config));
    for (int i = 0; i < clients; ++i) hosts.push_back(net.add(false));
    net.serve_echo(server);
    net.serve(server, "hold", [this](Engine&, IncomingTransfer& request, Instant) { held.push_back(&request); });
    net.serve(server, "big", [this](Engine& engine, IncomingTransfer& request, Instant now) {
      ++big_run;
      engine.reply(request, {}, as_bytes(big), now);
    });
    for (const int host : hosts) expect_served(host);
    net.run_for(std::chrono::milliseconds(50));
  }
  static EngineConfig config(std::size_t answer_bytes) {
    EngineConfig config = testing::test_config(true, 999);
    config.limits.answer_bytes = answer_bytes;
    return config;
  }
  void expect_served(int host, std::size_t bytes = 100) {
    TestCall call;
    net.call(host, server, call, "echo", std::string(bytes, 'h'));
    ASSERT_TRUE(net.run_until([&] { return call.completions != 0; }));
    ASSERT_FALSE(call.failed) << call.reply;
    ASSERT_EQ(call.reply, std::string(bytes, 'h'));
  }
  TestCall& submit(int host, std::string_view method, std::string body, Duration deadline = kForEver,
                   std::uint8_t priority = 3) {
    calls.push_back(std::make_unique<TestCall>());
    calls.back()->priority = priority;
    net.call(host, server, *calls.back(), method, body, deadline);
    return *calls.back();
  }
  // Requests of an owner that takes every slot and acknowledges nothing.
  void flood(Puppet& puppet, std::string_view method, std::uint32_t count, std::uint8_t depth = 0) {
    constexpr std::uint32_t kCost = token::kRequestOverhead + 1;
    for (std::uint32_t i = 0; i < count && puppet.victims_path() != nullptr; ++i) {
      auto& account = puppet.victims_path()->accounts[depth];
      if (account.received() + kCost > account.limit()) {
        puppet.say(Frames().level(FrameType::blocked, depth, account.received() + kCost));
        if (account.received() + kCost > account.limit()) return;
      }
      puppet.say(Frames().request({.slot = next_slot++, .generation = next_generation++}, method, "x", 0, 0, depth));
      expect_within_bounds();
    }
  }
  void expect_within_bounds() {
    Core& core = net.core(server);
    for (std::uint8_t level = 0; level < token::kLevels; ++level) {
      ASSERT_LE(core.answers.used(level), core.answers.capacity(level));
      ASSERT_LE(core.ledger.promised(level),
                level == 0 ? core.ledger.options().capacity : core.ledger.nested_capacity());
    }
  }
  void answer_held(std::size_t count = ~std::size_t{0}) {
    for (; count > 0 && !held.empty(); --count) {
      IncomingTransfer* request = held.front();
      held.pop_front();
      net.engine(server).reply(*request, {}, {request->inline_bytes, 0}, net.now);
    }
  }
  bool all_done() const {
    return std::all_of(calls.begin(), calls.end(), [](auto& call) { return call->completions != 0; });
  }
  void expect_nothing_left() {
    Core& core = net.core(server);
    const Census census = net.engine(server).census();
    EXPECT_EQ(census.incoming, 0u);
    EXPECT_EQ(census.blocks, 0u);
    EXPECT_EQ(census.reassemblies, 0u);
    EXPECT_EQ(census.credit_used, 0u);
    EXPECT_EQ(core.answers.used(), 0u);
    EXPECT_EQ(core.requests_waiting, 0u);
    for (auto& line : core.answer_lines) EXPECT_EQ(line.size(), 0u);
  }

  Net net;
  int server = 0;
  int big_run = 0;
  std::uint32_t next_slot = 0;
  std::uint64_t next_generation = 1'000'000;
  std::string big = std::string(16'000, 'b');
  std::vector<int> hosts;
  std::deque<IncomingTransfer*> held;
  std::vector<std::unique_ptr<TestCall>> calls;
};

TEST_F(AnswerRoomFlow, ACallerThatNeverAcknowledgesHoldsNoMoreThanTheRoomAndOthersGoOn) {
  start(config(4u << 20), 2);
  Puppet puppet(net, hosts[1], server);
  const std::int64_t before = Heap::live_bytes;
  flood(puppet, "big", 4'000);
  Core& core = net.core(server);
  EXPECT_LE(core.answers.used(0), core.answers.capacity(0) / 2) << "one path has more than half";
  EXPECT_GT(core.answers.used(0), core.answers.capacity(0) / 2 - 2 * core.answers.largest());
  EXPECT_GT(core.requests_waiting, 1'000u);
  if (Heap::counts_bytes) {
    // Records, slots, kept requests and frames besides.
    EXPECT_LE(Heap::live_bytes - before, static_cast<std::int64_t>((4u << 20) + 4'096 * 2'048));
  }
  for (int i = 0; i < 20; ++i) expect_served(hosts[0], 16'000);
  expect_within_bounds();
  net.run_for(kForEver);  // it is deaf, and so it goes
  EXPECT_EQ(puppet.victims_path(), nullptr);
  expect_nothing_left();
}

TEST_F(AnswerRoomFlow, ManyCallersThatNeverAcknowledgeLeaveRoomForAnother) {
  start(config(4u << 20), 9);
  std::vector<std::unique_ptr<Puppet>> puppets;
  for (int i = 1; i < 9; ++i)
    puppets.push_back(std::make_unique<Puppet>(net, hosts[static_cast<std::size_t>(i)], server));
  for (auto& puppet : puppets) {
    next_slot = 0;
    flood(*puppet, "big", 400);
  }
  for (int i = 0; i < 5; ++i) expect_served(hosts[0], 16'000);
  net.run_for(kForEver);
  expect_nothing_left();
}

TEST_F(AnswerRoomFlow, ANestedLevelIsBoundedTooAndTakesNothingFromTheOthers) {
  start(config(4u << 20), 2);
  Puppet puppet(net, hosts[1], server);
  for (std::uint8_t depth = 1; depth <= kMaxDepth; ++depth) flood(puppet, "big", 400, depth);
  EXPECT_EQ(net.core(server).answers.used(0), 0u);
  for (int i = 0; i < 5; ++i) expect_served(hosts[0], 16'000);
  net.run_for(kForEver);
  expect_nothing_left();
}

TEST_F(AnswerRoomFlow, RequestsWithoutRoomWaitWithTheirBytesAndCreditAndRunInOrder) {
  start(config(1u << 20), 1);
  std::vector<std::string> ran;
  net.serve(server, "note", [&](Engine&, IncomingTransfer& request, Instant) {
    ran.emplace_back(reinterpret_cast<const char*>(request.delivery.request), request.bytes);
    held.push_back(&request);
  });
  const std::size_t sizes[] = {0, 5, 60, 200, 3'000, 12'000};
  std::vector<std::string> sent[2];
  for (std::size_t i = 0; i < 120; ++i) {
    const std::uint8_t priority = i % 3 == 0 ? 1 : 3;
    std::string body = std::to_string(i) + std::string(sizes[i % 6], static_cast<char>('a' + i % 26));
    sent[i % 3 == 0 ? 0 : 1].push_back(body);
    submit(hosts[0], "note", std::move(body), kForEver, priority);
  }
  net.run_for(std::chrono::milliseconds(200));
  Core& core = net.core(server);
  ASSERT_GT(core.requests_waiting, 20u);
  const std::uint64_t credit = net.engine(server).census().credit_used;
  EXPECT_GT(credit, core.requests_waiting * token::kRequestOverhead);
  for (int i = 0; i < 10'000 && !all_done(); ++i) {
    answer_held(1);
    net.run_for(std::chrono::microseconds(100));
    expect_within_bounds();
  }
  ASSERT_TRUE(all_done());
  // Each ran once, unchanged, and within its priority in the order in which it was called.
  std::vector<std::string> got[2];
  for (const std::string& body : ran) {
    got[std::find(sent[0].begin(), sent[0].end(), body) != sent[0].end() ? 0 : 1].push_back(body);
  }
  EXPECT_EQ(got[0], sent[0]);
  EXPECT_EQ(got[1], sent[1]);
  for (auto& call : calls) EXPECT_EQ(call->completions, 1);
  net.run_for(std::chrono::seconds(1));
  expect_nothing_left();
}

TEST_F(AnswerRoomFlow, AnswersMayQuoteARequestThatHadToWait) {
  start(config(300'000), 1);
  for (int i = 0; i < 60; ++i)
    submit(hosts[0], i < 4 ? "hold" : "echo", std::string(1'000 + 10 * static_cast<std::size_t>(i), 'q'));
  net.run_for(std::chrono::milliseconds(100));
  ASSERT_GT(net.core(server).requests_waiting, 0u);
  for (int i = 0; i < 1'000 && !all_done(); ++i) {
    answer_held(1);
    net.run_for(std::chrono::milliseconds(1));
  }
  ASSERT_TRUE(all_done());
  for (std::size_t i = 4; i < calls.size(); ++i) EXPECT_EQ(calls[i]->reply, std::string(1'000 + 10 * i, 'q'));
  net.run_for(std::chrono::seconds(1));
  expect_nothing_left();
}

TEST_F(AnswerRoomFlow, DeadlinesCancellationsAndEndsOfPathsReachRequestsThatWait) {
  start(config(1u << 20), 2);
  for (int i = 0; i < 100; ++i) submit(hosts[0], "hold", std::string(100, 'x'));
  net.run_for(std::chrono::milliseconds(50));
  const std::size_t running = held.size();
  ASSERT_LT(running, 100u);
  // Some are cancelled, some are late: neither ever runs.
  for (std::size_t i = 60; i < 80; ++i) net.engine(hosts[0]).cancel(*calls[i], net.now);
  for (int i = 0; i < 20; ++i) submit(hosts[0], "hold", "late", std::chrono::milliseconds(20));
  net.run_for(std::chrono::seconds(1));
  EXPECT_EQ(held.size(), running);
  EXPECT_EQ(net.core(server).requests_waiting, 100u - 20u - running);
  // The rest goes with its path.
  net.engine(hosts[0]).close(net.now);
  net.run_for(std::chrono::seconds(1));
  EXPECT_EQ(net.core(server).requests_waiting, 0u);
  EXPECT_EQ(held.size(), running);
  expect_served(hosts[1], 16'000);
  answer_held();
  net.run_for(std::chrono::seconds(1));
  expect_nothing_left();
}

TEST_F(AnswerRoomFlow, AnEngineMayGoWhileRequestsWait) {
  start(config(1u << 20), 1);
  for (int i = 0; i < 100; ++i) submit(hosts[0], "hold", std::string(100, 'x'));
  net.run_for(std::chrono::milliseconds(50));
  ASSERT_GT(net.core(server).requests_waiting, 10u);
  held.clear();
  net.restart(server);
  net.serve_echo(server);
  net.run_for(std::chrono::seconds(10));
  expect_served(hosts[0]);
}

// More paths wait than are looked at in one go.
TEST_F(AnswerRoomFlow, EveryPathThatWaitsGetsItsTurn) {
  start(config(token::AnswerRoom::least(answer_bytes_of(16 * 1024 + 2))), 150);
  for (int round = 0; round < 3; ++round) {
    for (const int host : hosts) submit(host, "hold", "x");
  }
  net.run_for(std::chrono::milliseconds(20));
  ASSERT_GT(net.core(server).answer_lines[0].size(), 2 * AnswerLine::kStep);
  for (int i = 0; i < 5'000 && !all_done(); ++i) {
    answer_held();
    net.run_for(std::chrono::microseconds(50));
  }
  ASSERT_TRUE(all_done());
  for (auto& call : calls) EXPECT_FALSE(call->failed) << call->reply;
}

TEST_F(AnswerRoomFlow, TheFootprintCountsTheTablesThatThereAre) {
  start(config(4u << 20), 1);
  EXPECT_EQ(net.core(server).incoming.max_objects(), kMaxTransfers);
  EXPECT_EQ(net.core(server).reassemblies.max_objects(), kMaxReassemblies);
  const Footprint footprint = footprint_of(Limits{});
  EXPECT_GT(footprint.message_bytes, Limits{}.answer_bytes + Limits{}.request_bytes);
  EXPECT_EQ(footprint.total(2) - footprint.total(1), footprint.path_bytes);
}

// Two servers that call each other, every pool as small as it may be, all of level 0 stuck in handlers that do not end.
class NestedChain : public ::testing::TestWithParam<std::uint64_t> {
 protected:
  struct Hop {
    NestedChain* test;
    Engine* engine;
    IncomingTransfer* request;
    TestCall call;
  };

  void start() {
    for (int i = 0; i < 2; ++i) servers[i] = net.add(smallest(static_cast<std::uint16_t>(900 + i)));
    for (int i = 0; i < 4; ++i) clients.push_back(net.add(false));
    for (int i = 0; i < 2; ++i) {
      net.serve(servers[i], "hold",
                [this, i](Engine&, IncomingTransfer& request, Instant) { held[i].push_back(&request); });
      net.serve(servers[i], "chain", [this, i](Engine& engine, IncomingTransfer& request, Instant now) {
        if (request.depth == kMaxDepth) {
          ++deepest;
          engine.reply(request, {}, as_bytes(body), now);
          return;
        }
        hops.push_back(std::make_unique<Hop>(Hop{.test = this, .engine = &engine, .request = &request, .call = {}}));
        Hop& hop = *hops.back();
        hop.call.then = [&hop](TestCall& call) {
          if (call.failed) {
            hop.engine->fail(*hop.request, call.code, call.reply, hop.test->net.now);
          } else {
            hop.engine->reply(*hop.request, {}, as_bytes(call.reply), hop.test->net.now);
          }
        };
        net.call(servers[i], servers[1 - i], hop.call, "chain", body, kForEver,
                 static_cast<std::uint8_t>(request.depth + 1));
      });
    }
  }
  TestCall& submit(int from, int to, std::string_view method, std::uint8_t depth) {
    calls.push_back(std::make_unique<TestCall>());
    net.call(from, to, *calls.back(), method, body, kForEver, depth);
    return *calls.back();
  }

  Net net{GetParam()};
  int servers[2] = {};
  std::vector<int> clients;
  std::string body = std::string(15'000, 'c');
  int deepest = 0;
  std::deque<IncomingTransfer*> held[2];
  std::deque<std::unique_ptr<Hop>> hops;
  std::vector<std::unique_ptr<TestCall>> calls;
};

TEST_P(NestedChain, ReachesItsEndWhileEveryPoolIsSmallAndLevelZeroIsStuck) {
  start();
  for (int round = 0; round < 8; ++round) {
    for (const int client : clients) {
      submit(client, servers[0], "hold", 0);
      submit(client, servers[1], "hold", 0);
    }
    submit(servers[0], servers[1], "hold", 0);
    submit(servers[1], servers[0], "hold", 0);
  }
  net.run_for(std::chrono::seconds(1));
  for (int i = 0; i < 2; ++i) {
    ASSERT_GT(held[i].size(), 0u);
    ASSERT_TRUE(net.core(servers[i]).ledger.starved(0) || net.core(servers[i]).requests_waiting != 0);
  }
  // As their handlers would: calls of depth 1, from the clients and from the servers themselves.
  std::vector<TestCall*> chains;
  net.loss = GetParam() % 2 == 0 ? 0.05 : 0;
  for (int i = 0; i < 24; ++i) {
    const int to = servers[i % 2];
    const int from = i % 3 == 0 ? servers[1 - i % 2] : clients[static_cast<std::size_t>(i) % clients.size()];
    chains.push_back(&submit(from, to, "chain", 1));
  }
  const bool done = net.run_until(
      [&] { return std::all_of(chains.begin(), chains.end(), [](TestCall* call) { return call->completions != 0; }); },
      2'000'000);
  ASSERT_TRUE(done);
  for (TestCall* call : chains) {
    EXPECT_FALSE(call->failed) << call->reply;
    EXPECT_EQ(call->reply, body);
  }
  EXPECT_EQ(deepest, 24);
  for (int i = 0; i < 2; ++i) {
    Core& core = net.core(servers[i]);
    for (std::uint8_t level = 0; level < token::kLevels; ++level) {
      EXPECT_LE(core.answers.used(level), core.answers.capacity(level));
      EXPECT_LE(core.ledger.promised(level),
                level == 0 ? core.ledger.options().capacity : core.ledger.nested_capacity());
    }
  }
  // And level 0 goes on when its handlers end.
  net.loss = 0;
  for (int i = 0; i < 3'000; ++i) {
    for (int at = 0; at < 2; ++at) {
      for (IncomingTransfer* request : std::exchange(held[at], {}))
        net.engine(servers[at]).reply(*request, {}, {}, net.now);
    }
    net.run_for(std::chrono::milliseconds(5));
  }
  for (auto& call : calls) {
    EXPECT_EQ(call->completions, 1);
    EXPECT_FALSE(call->failed) << call->reply;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, NestedChain, ::testing::Range<std::uint64_t>(1, 5));

}  // namespace
}  // namespace weir::engine
