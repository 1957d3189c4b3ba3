// Large messages with zero worker threads: opened as they come, or a record at a time, between everything else that
// the loop does.
#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "buffer/work.h"
#include "pool/bulk_testing.h"
#include "pool/large_testing.h"

namespace weir {
namespace {

using namespace std::chrono_literals;
using testing::client_config;
using testing::forged_payload;
using testing::is_same;
using testing::kInline;
using testing::kMiB;
using testing::kRecord;
using testing::open;
using testing::pattern;
using testing::payload_of;
using testing::serve_echo;
using testing::server_config;
using testing::total;

// Both on this thread, on one loop.
struct Loop {
  Loop() {
    Config listening = server_config(0), calling = client_config(0);
    listening.on = calling.on = &workers;
    server.emplace(open(listening));
    client.emplace(open(calling));
    serve_echo(*server);
    EXPECT_TRUE(server->serve("task", [](Request r) -> Task<Reply> { co_return Reply{r.body(), r.header()}; }));
  }
  Peer to() const { return client->peer(server->listen_address()); }
  void turn_until(const auto& is_done) const {
    while (!is_done()) workers.poll_for(1ms);
  }

  Workers workers = Workers::open({.threads = 0}).value();
  std::optional<Pool> server, client;
};

TEST(LargeThreadless, MessagesOfEverySizeComeBackWhole) {
  Loop loop;
  for (const char* method : {"echo", "task"}) {
    for (const std::size_t size : {kInline, kInline + 1, kRecord - 1, kRecord, kRecord + 1, 3 * kMiB + 1}) {
      const std::string body = pattern(size, size);
      const Result<Reply> reply = loop.to().unary(method, body, {.header = "header"}).get();
      ASSERT_TRUE(reply) << method << " " << size << ": " << reply.error().to_string();
      EXPECT_TRUE(is_same(reply->text(), body)) << method << " " << size;
      EXPECT_EQ(reply->header_text(), "header");
    }
  }
}

TEST(LargeThreadless, CanBeAwaitedContinuedAndGathered) {
  Loop loop;
  loop.workers.poll();  // the loop is this thread's: calls from here on are direct
  const std::string body = pattern(kMiB);
  const auto task = [&]() -> Task<int> {
    int same = 0;
    Call call = loop.to().unary("task", body, {.header = "h"});
    const Result<Bytes> header = co_await call.header();
    same += header && header->size() == 1;
    const Result<Reply> reply = co_await call;
    same += reply && is_same(reply->text(), body);
    std::vector<Call> calls;
    for (int i = 0; i < 8; ++i) calls.push_back(loop.to().unary(i % 2 == 0 ? "echo" : "task", body));
    for (const Result<Reply>& each : co_await all(std::move(calls))) same += each && is_same(each->text(), body);
    co_return same;
  };
  EXPECT_EQ(loop.client->run(task()), 10);
  std::optional<bool> continued;
  loop.to().unary("echo", body).then([&](Result<Reply> reply) { continued = reply && is_same(reply->text(), body); });
  loop.turn_until([&] { return continued.has_value(); });
  EXPECT_TRUE(*continued);
}

// Times that the server's seat read more than one burst in a turn, because this thread had not run for a while.
std::uint64_t catch_ups(const Loop& loop) {
  const Counters counters = total(*loop.server);
  return counters.receive_calls - counters.polls;
}

// Asks for urgent answers until `is_done`: how many there were, what turns that took in all, and what the worst of
// these opened. Turns that did nothing, or caught up, depend on the machine and do not count.
struct Urgent {
  std::size_t answers = 0, turns = 0;
  std::uint64_t most_opened = 0;
};
Urgent ask_until(const Loop& loop, const auto& is_done) {
  Urgent urgent;
  while (!is_done) {
    bool is_answered = false;
    loop.to().unary("echo", "x", {.priority = 0}).then([&](Result<Reply> reply) { is_answered = reply.has_value(); });
    std::size_t taken = 0;
    while (!is_answered) {
      const std::uint64_t before = buffer::work.opened_bytes, caught_up = catch_ups(loop);
      taken += loop.workers.poll() ? 1 : 0;
      if (catch_ups(loop) != caught_up) continue;
      urgent.most_opened = std::max<std::uint64_t>(urgent.most_opened, buffer::work.opened_bytes - before);
    }
    // Two pools, each with a way to go and come back; and what was on its way before it comes first.
    EXPECT_LE(taken, 100u);
    urgent.turns += taken;
    urgent.answers += !is_done;
  }
  return urgent;
}

TEST(LargeThreadless, UrgentCallsAreAnsweredWhileALargestMessageComesAndIsOpened) {
  Loop loop;
  loop.workers.poll();
  const Payload payload = payload_of(*loop.client, pattern(64 * kMiB));
  bool has_run = false;
  ASSERT_TRUE(loop.server->serve_inline("swallow", [&](InlineRequest& request) {
    has_run = true;
    request.reply("done");
  }));
  bool is_done = false;
  loop.to().unary("swallow", payload, {.priority = 7, .deadline = 100s}).then([&](Result<Reply> reply) {
    EXPECT_TRUE(reply) << reply.error().to_string();
    is_done = true;
  });
  const Urgent urgent = ask_until(loop, has_run);
  EXPECT_GE(urgent.answers, payload.records() / 64);
  EXPECT_LE(urgent.most_opened, 8 * kRecord) << "no more than a burst brought";
  loop.turn_until([&] { return is_done; });
}

TEST(LargeThreadless, UrgentCallsAreAnsweredWhileAPutIsWrittenARecordInEachTurn) {
  Loop loop;
  loop.workers.poll();
  const std::string text = pattern(64 * kMiB);
  std::string memory(text.size(), 'o');
  ASSERT_TRUE(loop.server->place("memory", Placement::memory(testing::bytes_of(memory))));
  std::atomic<bool> is_done = false;
  std::thread putter([&, to = loop.server->listen_address()] {
    const Pool other = open(client_config(1));
    const Result<PutReport> report = other.peer(to).put("memory", payload_of(other, text), {.deadline = 100s}).get();
    EXPECT_TRUE(report) << report.error().to_string();
    is_done = true;
  });
  const Urgent urgent = ask_until(loop, is_done);
  putter.join();
  const std::size_t records = text.size() / kRecord;
  EXPECT_GE(urgent.turns, records);
  EXPECT_LE(urgent.most_opened, kRecord);
  EXPECT_GE(urgent.answers, records / 16 - 2);
  ASSERT_TRUE(loop.server->unplace("memory"));
  EXPECT_TRUE(is_same(memory, text));
}

TEST(LargeThreadless, WhatDoesNotAuthenticateRunsNoHandlerAndReachesNoCaller) {
  Loop loop;
  loop.workers.poll();  // the loop is this thread's, and so its counters are there to be read
  const std::string body = pattern(kMiB);
  const Payload forged = forged_payload(*loop.client, body);
  int runs = 0;
  ASSERT_TRUE(loop.server->serve("run", [&](Request) { return ++runs, Reply{"ran"}; }));
  ASSERT_TRUE(loop.server->serve_inline("run inline", [&](InlineRequest& r) { ++runs, r.reply("ran"); }));
  ASSERT_TRUE(loop.server->serve("answer", [&](Request) { return Reply{forged}; }));
  for (const char* method : {"run", "run inline", "answer"}) {
    const bool is_reply = method == std::string_view("answer");
    const Result<Reply> got = is_reply ? loop.to().unary(method, "x").get() : loop.to().unary(method, forged).get();
    ASSERT_FALSE(got) << method;
    EXPECT_EQ(got.error().code(), Code::unauthenticated) << method;
    EXPECT_EQ(got.error().may_have_run(), is_reply) << method;
  }
  EXPECT_EQ(runs, 0);
  EXPECT_EQ(total(*loop.server).records_forged, 2u);
  EXPECT_EQ(total(*loop.client).records_forged, 1u);
}

TEST(LargeThreadless, WhatTheApplicationSealedArrivesAsItIsAndOnlyWithItsBinding) {
  Loop loop;
  const std::string body = pattern(kMiB);
  for (const char* method : {"echo", "task"}) {
    const Result<Reply> got = loop.to().unary(method, testing::adopted_payload(*loop.client, body)).get();
    ASSERT_TRUE(got) << got.error().message();
    EXPECT_TRUE(is_same(got->text(), body));
    const Result<Reply> forged = loop.to().unary(method, testing::adopted_payload(*loop.client, body, true)).get();
    ASSERT_FALSE(forged) << method;
    EXPECT_EQ(forged.error().code(), Code::unauthenticated);
  }
}

// Worker threads open what comes for a continuation a record in each turn if there is no executor. A largest reply
// takes them a thousand turns: it is met in the middle, if not at once then soon.
TEST(LargeWithoutExecutor, ClosingWhileAReplyIsOpenedEndsItsCall) {
  constexpr int kTries = 50;
  Pool server = open(server_config(1));
  ASSERT_TRUE(
      server.serve("give", [payload = payload_of(server, pattern(64 * kMiB))](Request) { return Reply{payload}; }));
  Config config = client_config(1);
  config.executor_threads = 0;
  Code code{};
  for (int i = 0; i < kTries && code != Code::closed; ++i) {
    Pool client = open(config);
    std::atomic<bool> is_done = false;
    client.peer(server.listen_address()).unary("give", "", {.deadline = 100s}).then([&](Result<Reply> reply) {
      code = reply ? Code{} : reply.error().code();
      is_done = true;
    });
    while (total(client).large_messages_received == 0) std::this_thread::yield();
    client.close(0s);
    while (!is_done) std::this_thread::yield();
    EXPECT_TRUE(code == Code{} || code == Code::closed);
  }
  EXPECT_EQ(code, Code::closed);
}

TEST(LargeWithoutExecutor, ACallThatIsDroppedWhileItsReplyIsOpenedIsGone) {
  Pool server = open(server_config(1));
  ASSERT_TRUE(
      server.serve("give", [payload = payload_of(server, pattern(64 * kMiB))](Request) { return Reply{payload}; }));
  Config config = client_config(1);
  config.executor_threads = 0;
  Pool client = open(config);
  {
    Call call = client.peer(server.listen_address()).unary("give", "", {.deadline = 100s});
    while (total(client).large_messages_received == 0) std::this_thread::yield();
  }
  EXPECT_TRUE(client.close(5s)) << "nothing is outstanding";
}

TEST(LargeThreadless, ClosingWhileAPutIsWrittenEndsIt) {
  auto loop = std::make_unique<Loop>();
  loop->workers.poll();
  std::string memory(2 * kMiB, 'o');
  ASSERT_TRUE(loop->server->place("memory", Placement::memory(testing::bytes_of(memory))));
  std::thread putter([to = loop->server->listen_address(), bytes = memory.size()] {
    const Pool other = open(client_config(1));
    EXPECT_FALSE(other.peer(to).put("memory", payload_of(other, pattern(bytes))).get());
  });
  while (total(*loop->server).large_messages_received == 0) loop->workers.poll();
  EXPECT_FALSE(loop->server->close(0s));
  loop.reset();
  putter.join();
}

TEST(LargeThreadless, AnAllocationThatWaitsTurnsTheLoopThatGivesTheMemoryBack) {
  Config listening = server_config(0), calling = client_config(0);
  Workers workers = Workers::open({.threads = 0}).value();
  listening.on = calling.on = &workers;
  calling.limits.buffer_bytes = 3 * kMiB;
  Pool server = open(listening), client = open(calling);
  serve_echo(server);
  std::vector<Call> calls;
  for (int i = 0; i < 2; ++i) {
    calls.push_back(client.peer(server.listen_address()).unary("echo", pattern(kMiB + 100'000)));
  }
  Result<Buffer> page = client.allocate(2 * kMiB).get();
  ASSERT_TRUE(page) << page.error().to_string();
  const auto task = [&]() -> Task<bool> {
    std::vector<Call> more;
    page = Buffer();
    for (int i = 0; i < 2; ++i) {
      more.push_back(client.peer(server.listen_address()).unary("echo", pattern(kMiB + 100'000)));
    }
    const Result<Buffer> again = co_await client.allocate(2 * kMiB);
    co_return again.has_value();
  };
  EXPECT_TRUE(client.run(task()));
  for (Call& call : calls) EXPECT_TRUE(call.get());
}

}  // namespace
}  // namespace weir
