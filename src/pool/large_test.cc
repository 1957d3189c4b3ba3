// Unary calls whose requests and replies are larger than Limits::inline_bytes: the same calls.
#include <atomic>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "buffer/work.h"
#include "pool/large_testing.h"

namespace weir {
namespace {

using namespace std::chrono_literals;
using testing::await;
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

constexpr std::size_t kEdges[] = {kInline - 1,     kInline,     kInline + 1,     kRecord - 1,
                                  kRecord,         kRecord + 1, 2 * kRecord - 1, 2 * kRecord,
                                  2 * kRecord + 1, kMiB,        3 * kMiB + 12345};

void serve_task_echo(Pool& pool) {
  EXPECT_TRUE(pool.serve("task", [](Request request) -> Task<Reply> {
    co_return Reply{request.body(), request.header()};
  }));
}

struct Listener final : Subscriber {
  void on(const event::RecordForged& e) override {
    EXPECT_NE(e.meta.time_ns, 0);
    record = e.record;
    ++forged;
  }
  std::atomic<std::uint64_t> forged{0}, record{0};
};

// A pair of pools; the client has `workers` threads.
struct Pair {
  explicit Pair(int workers = 1, const Limits& limits = {}, const Limits& server_limits = {}) {
    Config listening = server_config(1);
    listening.limits = server_limits;
    listening.subscriber = at_server;
    Config calling = client_config(workers);
    calling.limits = limits;
    calling.subscriber = at_client;
    server.emplace(open(listening));
    client.emplace(open(calling));
    serve_echo(*server);
    serve_task_echo(*server);
  }
  Peer to() const { return client->peer(server->listen_address()); }
  const std::shared_ptr<Listener> at_server = std::make_shared<Listener>(), at_client = std::make_shared<Listener>();
  std::optional<Pool> server, client;
};

TEST(Large, MessagesOfEverySizeComeBackWhole) {
  Pair pair;
  for (const char* method : {"echo", "task"}) {
    for (const std::size_t size : kEdges) {
      const std::string body = pattern(size, size);
      const Result<Reply> reply = pair.to().unary(method, body).get();
      ASSERT_TRUE(reply) << method << " " << size << ": " << reply.error().to_string();
      EXPECT_TRUE(is_same(reply->text(), body)) << method << " " << size;
    }
  }
}

TEST(Large, ALargestMessageComesBackWhole) {
  Pair pair;
  const std::string body = pattern(64 * kMiB);
  const Result<Reply> reply = pair.to().unary("task", body, {.deadline = 60s}).get();
  ASSERT_TRUE(reply) << reply.error().to_string();
  EXPECT_TRUE(is_same(reply->text(), body));
}

TEST(Large, HeadersTravelWithThemUpToTheirLimit) {
  Pair pair;
  for (const std::size_t header_bytes : {0, 1, 63, 500, 1'024}) {
    const std::string header = pattern(header_bytes, 7), body = pattern(kMiB, header_bytes + 1);
    for (const char* method : {"echo", "task"}) {
      const Result<Reply> reply = pair.to().unary(method, body, {.header = header}).get();
      ASSERT_TRUE(reply) << reply.error().to_string();
      EXPECT_TRUE(is_same(reply->header_text(), header));
      EXPECT_TRUE(is_same(reply->text(), body));
    }
  }
  const Result<Reply> refused = pair.to().unary("echo", pattern(kMiB), {.header = std::string(1'025, 'h')}).get();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::too_large);
  EXPECT_FALSE(refused.error().may_have_run());
}

TEST(Large, ABodyThatFitsOnlyWithoutItsHeaderIsLarge) {
  Pair pair;
  const std::string body = pattern(kInline);
  const Result<Reply> reply = pair.to().unary("task", body, {.header = "h"}).get();
  ASSERT_TRUE(reply) << reply.error().to_string();
  EXPECT_TRUE(is_same(reply->text(), body));
  EXPECT_EQ(reply->header_text(), "h");
}

TEST(Large, SmallRequestsMayHaveLargeRepliesAndTheOtherWayRound) {
  Pair pair;
  const std::string large = pattern(2 * kMiB);
  ASSERT_TRUE(pair.server->serve("grow", [&](Request) { return Reply{large, std::string_view("grown")}; }));
  ASSERT_TRUE(pair.server->serve_inline("shrink", [&](InlineRequest& request) {
    request.reply(is_same(request.text(), large) ? "same" : "different", "shrunk");
  }));
  for (const std::size_t header : {0, 1'000}) {
    const Result<Reply> grown = pair.to().unary("grow", "x", {.header = pattern(header)}).get();
    ASSERT_TRUE(grown) << grown.error().to_string();
    EXPECT_TRUE(is_same(grown->text(), large));
    EXPECT_EQ(grown->header_text(), "grown");
    const Result<Reply> shrunk = pair.to().unary("shrink", large, {.header = pattern(header)}).get();
    ASSERT_TRUE(shrunk) << shrunk.error().to_string();
    EXPECT_EQ(shrunk->text(), "same");
    EXPECT_EQ(shrunk->header_text(), "shrunk");
  }
}

TEST(Large, CanBeAwaitedContinuedAndGathered) {
  Pair pair;
  const std::string body = pattern(kMiB);
  const auto task = [&]() -> Task<int> {
    int same = 0;
    Call call = pair.to().unary("task", body, {.header = "h"});
    const Result<Bytes> header = co_await call.header();
    same += header && header->size() == 1;
    const Result<Reply> reply = co_await call;
    same += reply && is_same(reply->text(), body);
    std::vector<Call> calls;
    for (int i = 0; i < 8; ++i) calls.push_back(pair.to().unary(i % 2 == 0 ? "echo" : "task", body));
    for (const Result<Reply>& each : co_await all(std::move(calls))) same += each && is_same(each->text(), body);
    co_return same;
  };
  EXPECT_EQ(pair.client->run(task()), 10);
  std::promise<bool> continued;
  pair.to().unary("echo", body).then([&](Result<Reply> reply) {
    continued.set_value(reply && is_same(reply->text(), body));
  });
  EXPECT_TRUE(continued.get_future().get());
}

TEST(Large, CallsFromContinuationsOnTheWorkerComplete) {
  Pair pair;
  const std::string body = pattern(kMiB);
  std::promise<bool> done;
  const Peer to = pair.to();
  to.unary("echo", "small").then([&](Result<Reply>) {
    to.unary("task", body).then([&](Result<Reply> reply) { done.set_value(reply && is_same(reply->text(), body)); });
  });
  EXPECT_TRUE(done.get_future().get());
}

TEST(Large, HandlersMayCallOnWithThem) {
  Pair pair;
  Pool middle = open(server_config(1));
  const Peer next = middle.peer(pair.server->listen_address());
  ASSERT_TRUE(middle.serve("forward", [&](Request request) -> Task<Result<Reply>> {
    co_return co_await next.unary("task", request.body(), {.header = request.header_text()});
  }));
  const std::string body = pattern(kMiB);
  const Result<Reply> reply = pair.client->peer(middle.listen_address()).unary("forward", body, {.header = "on"}).get();
  ASSERT_TRUE(reply) << reply.error().to_string();
  EXPECT_TRUE(is_same(reply->text(), body));
  EXPECT_EQ(reply->header_text(), "on");
}

TEST(Large, FromManyThreads) {
  Pair pair;
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (std::uint64_t k = 0; k < 10; ++k) {
        const std::string body = pattern(kInline + 1 + i * 50'000 + k * 7'777, i * 100 + k);
        const Result<Reply> reply = pair.to().unary(k % 2 == 0 ? "echo" : "task", body).get();
        ASSERT_TRUE(reply) << reply.error().to_string();
        EXPECT_TRUE(is_same(reply->text(), body));
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(Large, SeveralWorkersWithoutAnExecutorOpenThemAsTheyTurn) {
  Config listening = server_config(2);
  listening.executor_threads = 0;
  Config calling = client_config(2);
  calling.executor_threads = 0;
  Pool server = open(listening), client = open(calling);
  serve_echo(server);
  serve_task_echo(server);
  const std::string body = pattern(kMiB);
  for (const char* method : {"echo", "task"}) {
    const Result<Reply> reply = client.peer(server.listen_address()).unary(method, body).get();
    ASSERT_TRUE(reply) << reply.error().to_string();
    EXPECT_TRUE(is_same(reply->text(), body));
    std::promise<bool> continued;
    client.peer(server.listen_address()).unary(method, body).then([&](Result<Reply> again) {
      continued.set_value(again && is_same(again->text(), body));
    });
    EXPECT_TRUE(continued.get_future().get());
  }
}

// ---- payloads -------------------------------------------------------------------------------------------------------

TEST(Large, APayloadIsSealedOnceForAllWhoGetIt) {
  Pair pair;
  const std::string body = pattern(kMiB);
  ASSERT_TRUE(pair.server->serve("size", [](Request r) { return Reply{std::to_string(r.body().size())}; }));
  const std::uint64_t before = buffer::work.sealed_bytes.load();
  const Payload payload = payload_of(*pair.client, body);
  EXPECT_EQ(buffer::work.sealed_bytes.load() - before, body.size());
  std::vector<Call> calls;
  for (int i = 0; i < 10; ++i) calls.push_back(pair.to().unary("size", payload, {.header = "h"}));
  for (Call& call : calls) EXPECT_EQ(testing::text_of(call.get()), std::to_string(body.size()));
  EXPECT_EQ(buffer::work.sealed_bytes.load() - before, body.size());
}

TEST(Large, HandlersMayReplyWithAPayload) {
  Pair pair;
  const std::string body = pattern(kMiB), small = pattern(100);
  const Payload payload = payload_of(*pair.server, body), little = payload_of(*pair.server, small),
                none = payload_of(*pair.server, "");
  ASSERT_TRUE(pair.server->serve("task payload", [&](Request r) {
    return Reply{r.text() == "small" ? little : r.text() == "none" ? none : payload, "header"};
  }));
  ASSERT_TRUE(pair.server->serve_inline("inline payload", [&](InlineRequest& r) {
    r.reply(r.text() == "small" ? little : r.text() == "none" ? none : payload, as_bytes("header"));
  }));
  for (const char* method : {"task payload", "inline payload"}) {
    const std::pair<const char*, const std::string> wanted[] = {{"large", body}, {"small", small}, {"none", ""}};
    for (const auto& [asked, text] : wanted) {
      const Result<Reply> reply = pair.to().unary(method, asked).get();
      ASSERT_TRUE(reply) << reply.error().to_string();
      EXPECT_TRUE(is_same(reply->text(), text)) << method << " " << asked;
      EXPECT_EQ(reply->header_text(), "header");
    }
  }
}

TEST(Large, WhatDoesNotAuthenticateRunsNoHandlerAndReachesNoCaller) {
  Pair pair;
  const std::string body = pattern(kMiB);
  const Payload forged = forged_payload(*pair.client, body), forged_reply = forged_payload(*pair.server, body);
  std::atomic<int> runs{0};
  ASSERT_TRUE(pair.server->serve("run", [&](Request) { return ++runs, Reply{"ran"}; }));
  ASSERT_TRUE(pair.server->serve_inline("run inline", [&](InlineRequest& r) { ++runs, r.reply("ran"); }));
  ASSERT_TRUE(pair.server->serve("answer", [&](Request) { return Reply{forged_reply}; }));
  for (const char* method : {"run", "run inline", "answer"}) {
    const bool is_reply = method == std::string_view("answer");
    const Result<Reply> got = is_reply ? pair.to().unary(method, "x").get() : pair.to().unary(method, forged).get();
    ASSERT_FALSE(got) << method;
    EXPECT_EQ(got.error().code(), Code::unauthenticated) << method;
    EXPECT_EQ(got.error().may_have_run(), is_reply) << method;
  }
  std::promise<Code> continued;
  pair.to().unary("answer", "x").then([&](Result<Reply> r) { continued.set_value(r ? Code{} : r.error().code()); });
  EXPECT_EQ(continued.get_future().get(), Code::unauthenticated);
  EXPECT_EQ(runs, 0);
  EXPECT_EQ(total(*pair.server).records_forged, 2u);
  EXPECT_EQ(total(*pair.client).records_forged, 2u);
  EXPECT_EQ(pair.at_server->forged, 2u) << "whoever listens is told";
  EXPECT_EQ(pair.at_client->forged, 2u);
  EXPECT_EQ(pair.at_server->record, kMiB / 2 / kRecord) << "the one with the changed byte";
  EXPECT_EQ(pair.at_client->record, kMiB / 2 / kRecord);
  EXPECT_TRUE(pair.to().unary("echo", body).get()) << "the path is none the worse for it";
}

TEST(Large, WhatTheApplicationSealedArrivesAsItIsAndOnlyWithItsBinding) {
  Pair pair;
  const std::string body = pattern(kMiB);
  for (const char* method : {"echo", "task"}) {
    const Result<Reply> got = pair.to().unary(method, testing::adopted_payload(*pair.client, body)).get();
    ASSERT_TRUE(got) << got.error().message();
    EXPECT_TRUE(is_same(got->text(), body));
    const Result<Reply> forged = pair.to().unary(method, testing::adopted_payload(*pair.client, body, true)).get();
    ASSERT_FALSE(forged) << method;
    EXPECT_EQ(forged.error().code(), Code::unauthenticated);
  }
}

// ---- limits ---------------------------------------------------------------------------------------------------------

TEST(Large, WhatIsOverMessageBytesIsRefusedOnEitherSide) {
  Limits small;
  small.message_bytes = kMiB;
  Pair pair(1, small);
  const Result<Reply> mine = pair.to().unary("echo", pattern(kMiB + 1)).get();
  ASSERT_FALSE(mine);
  EXPECT_EQ(mine.error().code(), Code::too_large);
  EXPECT_FALSE(mine.error().may_have_run());
  ASSERT_TRUE(pair.server->serve("two", [](Request) { return Reply{pattern(2 * kMiB)}; }));
  const Result<Reply> theirs = pair.to().unary("two", "").get();
  ASSERT_FALSE(theirs) << "this side takes no reply of that size";
  EXPECT_EQ(theirs.error().code(), Code::too_large);
  EXPECT_TRUE(theirs.error().may_have_run());
  EXPECT_TRUE(pair.to().unary("echo", pattern(kMiB)).get());

  Pair other(1, {}, small);
  const Result<Reply> refused = other.to().unary("echo", pattern(kMiB + 1)).get();
  ASSERT_FALSE(refused) << "the server takes no request of that size";
  EXPECT_EQ(refused.error().code(), Code::too_large);
  EXPECT_FALSE(refused.error().may_have_run());
  ASSERT_TRUE(other.server->serve("two", [](Request) { return Reply{pattern(2 * kMiB)}; }));
  const Result<Reply> unmade = other.to().unary("two", "").get();
  ASSERT_FALSE(unmade) << "the server sends no reply of that size";
  EXPECT_EQ(unmade.error().code(), Code::too_large);
}

TEST(Large, AMethodThatNobodyServesIsRefusedBeforeDataFlows) {
  Pair pair;
  ASSERT_TRUE(pair.to().ready().get());
  const std::uint64_t before = total(*pair.client).payload_bytes_sent;
  const Result<Reply> refused = pair.to().unary("nobody", pattern(8 * kMiB)).get();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::unknown_method);
  EXPECT_FALSE(refused.error().may_have_run());
  EXPECT_LT(total(*pair.client).payload_bytes_sent - before, kInline);
}

TEST(Large, WithoutBufferMemoryACallSaysWhichLimitIsReached) {
  Limits limits;
  limits.buffer_bytes = 2 * kMiB;
  Pair pair(1, limits);
  std::optional<Buffer> held = pair.client->allocate(kMiB + kMiB / 2).get().value();
  const Result<Reply> refused = pair.to().unary("echo", pattern(kMiB)).get();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::overloaded);
  EXPECT_NE(refused.error().message().find("Limits::buffer_bytes"), std::string::npos);
  EXPECT_NE(refused.error().message().find("allocate()"), std::string::npos);
  held.reset();
  EXPECT_TRUE(pair.to().unary("echo", pattern(kMiB)).get());
}

TEST(Large, APayloadThatWasMovedAwayIsNotSent) {
  Pair pair;
  Payload payload = payload_of(*pair.client, pattern(kMiB));
  EXPECT_TRUE(pair.to().unary("echo", std::move(payload)).get());
  const Payload gone;
  ASSERT_TRUE(pair.server->serve("give", [gone](Request) { return Reply{gone}; }));
  const Result<Reply> call = pair.to().unary("echo", gone).get(), reply = pair.to().unary("give", "").get();
  const Result<PutReport> put = pair.to().put("memory", gone).get();
  ASSERT_FALSE(call);
  ASSERT_FALSE(reply);
  ASSERT_FALSE(put);
  EXPECT_EQ(call.error().code(), Code::invalid_argument);
  EXPECT_EQ(put.error().code(), Code::invalid_argument);
  EXPECT_EQ(reply.error().code(), Code::application);
  for (const std::string_view told : {call.error().message(), reply.error().message(), put.error().message()}) {
    EXPECT_NE(told.find("moved away"), std::string::npos) << told;
  }
  const BroadcastOutcome outcome = pair.client->broadcast(std::vector{pair.to()}, "echo", gone).get();
  EXPECT_FALSE(outcome.reached());
}

TEST(Large, WhatWasMovedFromIsEmpty) {
  Pair pair;
  Result<Reply> reply = pair.to().unary("echo", pattern(kMiB), {.header = "head"}).get();
  ASSERT_TRUE(reply);
  const Reply taken = *std::move(reply);
  EXPECT_EQ(taken.header_text(), "head");
  EXPECT_TRUE(reply->body().empty() && reply->text().empty() && reply->header().empty());
}

TEST(Large, AReplyWaitsForBufferMemoryBecauseItsHandlerHasRun) {
  Limits limits;
  limits.buffer_bytes = 2 * kMiB;
  Pair pair(1, {}, limits);
  const std::string text = pattern(kMiB);
  std::atomic<int> runs = 0;
  ASSERT_TRUE(pair.server->serve("one", [&](Request) { return ++runs, Reply{text, "header"}; }));
  std::optional<Buffer> held = pair.server->allocate(kMiB + kMiB / 2).get().value();
  Call waiting = pair.to().unary("one", "", {.deadline = 60s});
  Call late = pair.to().unary("one", "", {.deadline = 100ms});
  EXPECT_EQ(testing::text_of(pair.to().unary("echo", "small").get()), "small") << "it keeps nobody else";
  const Result<Reply> missed = late.get();
  ASSERT_FALSE(missed);
  EXPECT_EQ(missed.error().code(), Code::timeout);
  EXPECT_EQ(runs, 2);
  held.reset();
  const Result<Reply> reply = waiting.get();
  ASSERT_TRUE(reply) << reply.error().to_string();
  EXPECT_TRUE(is_same(reply->text(), text));
  EXPECT_EQ(reply->header_text(), "header");
  // Nothing was kept for the one that gave up.
  EXPECT_TRUE(pair.server->allocate(kMiB + kMiB / 2, {.wait = true}).get());
}

TEST(Large, AReplyThatWaitsForBufferMemoryEndsWithItsPool) {
  Limits limits;
  limits.buffer_bytes = 2 * kMiB;
  auto pair = std::make_unique<Pair>(1, Limits{}, limits);
  ASSERT_TRUE(pair->server->serve("one", [](Request) { return Reply{pattern(kMiB)}; }));
  const Buffer held = pair->server->allocate(kMiB + kMiB / 2).get().value();
  Call call = pair->to().unary("one", "", {.deadline = 60s});
  EXPECT_EQ(testing::text_of(pair->to().unary("echo", "small").get()), "small");
  EXPECT_FALSE(pair->server->close(10ms)) << "a call is outstanding";
  pair->server.reset();
  EXPECT_FALSE(call.get());
}

TEST(Large, TwoHundredCallsShareLessMemoryThanTheyNeed) {
  Limits few;
  few.message_bytes = 2 * kMiB;
  few.large_request_bytes = few.large_reply_bytes = few.nested_large_request_bytes = few.large_bytes_per_peer =
      8 * kMiB;
  Pair pair(1, few, few);
  const std::string body = pattern(kMiB);
  const auto task = [&]() -> Task<int> {
    std::vector<Call> calls;
    for (int i = 0; i < 200; ++i)
      calls.push_back(pair.to().unary(i % 2 == 0 ? "echo" : "task", body, {.deadline = 100s}));
    int same = 0;
    // One by one: each reply is dropped before the next is taken, which makes room for others.
    for (Call& call : calls) {
      const Result<Reply> reply = co_await call;
      if (!reply) ADD_FAILURE() << reply.error().to_string();
      same += reply && is_same(reply->text(), body);
    }
    co_return same;
  };
  EXPECT_EQ(pair.client->run(task()), 200);
  EXPECT_GT(total(*pair.server).regions_exhausted + total(*pair.client).regions_exhausted, 0u);
}

// For receive buffers and records.
constexpr std::size_t kSlack = 48 * kMiB;

TEST(Large, ManyGigabytesPassThroughASmallBound) {
  Limits few;
  few.message_bytes = 16 * kMiB;
  few.large_request_bytes = few.large_reply_bytes = few.nested_large_request_bytes = few.large_bytes_per_peer =
      32 * kMiB;
  few.buffer_bytes = 64 * kMiB;
  Pair pair(1, few, few);
  ASSERT_TRUE(pair.server->serve("size", [](Request r) { return Reply{std::to_string(r.body().size())}; }));
  const Payload payload = payload_of(*pair.client, pattern(16 * kMiB));
  const auto task = [&]() -> Task<int> {
    std::vector<Call> calls;
    for (int i = 0; i < 200; ++i) calls.push_back(pair.to().unary("size", payload, {.deadline = 100s}));
    int right = 0;
    for (const Result<Reply>& reply : co_await all(std::move(calls))) right += reply && reply->text() == "16777216";
    co_return right;
  };
  testing::MemoryWatch watch;
  EXPECT_EQ(pair.client->run(task()), 200);
  if (testing::kHasOwnMemoryOnly) {
    EXPECT_LT(watch.most_bytes(), 32 * kMiB + kSlack);
  }
}

}  // namespace
}  // namespace weir
