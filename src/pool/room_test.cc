// Peer::room(): who makes more calls than may be outstanding waits, as a coroutine or a thread, with worker threads and
// without any.
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "pool/pool_testing.h"

namespace weir {
namespace {

using namespace std::chrono_literals;
using testing::await;
using testing::client_config;
using testing::open;
using testing::serve_echo;
using testing::server_config;
using testing::text_of;

constexpr std::uint32_t kMost = 16;
constexpr int kCalls = 400;

// A client that may have so few calls outstanding, and a server on a worker thread.
struct Few {
  explicit Few(int client_workers) : server(open(server_config(1))), client(open(config(client_workers))) {
    serve_echo(server);
  }
  static Config config(int workers) {
    Config config = client_config(workers);
    config.limits.queued_calls = kMost;
    return config;
  }
  Peer peer() { return client.peer(server.listen_address()); }

  Pool server, client;
};

// Calls with room; how many were outstanding at most, and how many succeeded.
struct Tally {
  int outstanding = 0, most = 0, right = 0;
};
Task<void> call_with_room(Peer to, int priority, Tally& tally) {
  Result<CallRoom> room = co_await to.room({.priority = priority});
  EXPECT_TRUE(room) << room.error().to_string();
  tally.most = std::max(tally.most, ++tally.outstanding);
  const Result<Reply> reply = co_await to.unary("echo", "x", {.priority = priority, .deadline = 60s});
  EXPECT_TRUE(reply) << reply.error().to_string();
  tally.right += reply.has_value();
  --tally.outstanding;
}
Task<void> run_all(Pool& pool, Peer to, Tally& tally) {
  for (int i = 0; i < kCalls; ++i) pool.spawn(call_with_room(to, i % 8, tally));
  while (tally.right < kCalls) {
    const Result<CallRoom> room = co_await to.room({.priority = 7});
    EXPECT_TRUE(room);
    EXPECT_TRUE(co_await to.unary("echo", "y", {.priority = 7, .deadline = 60s}));
  }
}

TEST(Room, CoroutinesWaitInsteadOfFailing) {
  for (const int workers : {0, 1}) {
    Few few(workers);
    Tally tally;
    few.client.run(run_all(few.client, few.peer(), tally));
    EXPECT_EQ(tally.right, kCalls) << workers;
    EXPECT_LE(tally.most, static_cast<int>(kMost));
  }
}

// What happens without: the queue is full, and somebody is told so.
TEST(Room, WithoutItCallsBeyondTheLimitFail) {
  Few few(1);
  ASSERT_TRUE(few.server.serve("echo slowly", [](Request request) {
    std::this_thread::sleep_for(1ms);
    return Reply{request.text()};
  }));
  std::vector<Call> calls;
  for (int i = 0; i < kCalls; ++i) calls.push_back(few.peer().unary("echo slowly", "x", {.deadline = 60s}));
  int overloaded = 0;
  for (Call& call : calls) {
    const Result<Reply> reply = call.get();
    overloaded += !reply && reply.error().code() == Code::overloaded;
  }
  EXPECT_GT(overloaded, 0);
}

TEST(Room, ThreadsBlockInsteadOfFailing) {
  Few few(1);
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      for (int n = 0; n < 50; ++n) {
        Result<CallRoom> room = few.peer().room({.priority = i}).get();
        ASSERT_TRUE(room) << room.error().to_string();
        const Result<Reply> reply = few.peer().unary("echo", "x", {.priority = i, .deadline = 60s}).get();
        EXPECT_TRUE(reply) << reply.error().to_string();
        right += reply.has_value();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 400);
}

// get() turns the loop, or the room would never come back.
TEST(Room, AThreadWithoutWorkersTurnsTheLoopMeanwhile) {
  Few few(0);
  int right = 0;
  for (int i = 0; i < kCalls; ++i) {
    Result<CallRoom> room = few.peer().room({.priority = 7}).get();
    ASSERT_TRUE(room) << room.error().to_string();
    few.peer()
        .unary("echo", "x", {.deadline = 60s})
        .then([&right, room = *std::move(room)](const Result<Reply>& reply) { right += reply.has_value(); });
  }
  while (right < kCalls) few.client.poll_for(1ms);
  EXPECT_EQ(right, kCalls);
}

TEST(Room, TheMostUrgentWhoWaitsGoesOnFirst) {
  Few few(0);
  std::vector<CallRoom> held;
  for (std::uint32_t i = 0; i < kMost; ++i) held.push_back(*few.peer().room({.priority = 0}).get());
  std::vector<int> order;
  const auto wait = [](Peer to, int priority, std::vector<int>& went) -> Task<void> {
    const Result<CallRoom> room = co_await to.room({.priority = priority});
    EXPECT_TRUE(room);
    went.push_back(priority);
  };
  for (const int priority : {7, 5, 2, 0, 3}) few.client.spawn(wait(few.peer(), priority, order));
  few.client.poll();
  EXPECT_TRUE(order.empty());
  held.clear();
  while (order.size() < 5) few.client.poll_for(1ms);
  EXPECT_EQ(order, (std::vector<int>{0, 2, 3, 5, 7}));
}

TEST(Room, WhoStopsWaitingTakesNothing) {
  Few few(0);
  std::vector<CallRoom> held;
  for (std::uint32_t i = 0; i < kMost; ++i) held.push_back(*few.peer().room({.priority = 0}).get());
  {
    RoomRequest dropped = few.peer().room({.priority = 0});
    RoomRequest moved = std::move(dropped);
  }
  held.pop_back();
  EXPECT_TRUE(few.peer().room({.priority = 0}).get());
}

TEST(Room, ClosingThePoolTellsWhoWaits) {
  Few few(1);
  std::vector<CallRoom> held;
  for (std::uint32_t i = 0; i < kMost; ++i) held.push_back(*few.peer().room({.priority = 0}).get());
  std::atomic<bool> is_waiting{false};
  std::thread waits([&] {
    RoomRequest request = few.peer().room();
    is_waiting = true;
    const Result<CallRoom> room = request.get();
    ASSERT_FALSE(room);
    EXPECT_EQ(room.error().code(), Code::closed);
  });
  await([&] { return is_waiting.load(); });
  EXPECT_TRUE(few.client.close());
  waits.join();
  const Result<CallRoom> late = few.peer().room().get();
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code(), Code::closed);
}

TEST(Room, InsideHandlersThereAlwaysIs) {
  Few few(1);
  Config config = server_config(1);
  config.limits.queued_calls = 1;
  Pool middle = open(config);
  const Peer next = middle.peer(few.server.listen_address());
  const Result<CallRoom> only = next.room({.priority = 0}).get();
  ASSERT_TRUE(only);
  ASSERT_TRUE(middle.serve("ask", [next](Request) -> Task<Result<Reply>> {
    const Result<CallRoom> room = co_await next.room();
    if (!room) co_return std::unexpected(room.error());
    co_return co_await next.unary("echo", "nested");
  }));
  EXPECT_EQ(text_of(few.client.peer(middle.listen_address()).unary("ask", "").get()), "nested");
}

TEST(Room, WhatCannotBeCalledHasNone) {
  Few few(1);
  const Result<CallRoom> nowhere = few.client.peer("no address").room().get();
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().code(), Code::invalid_argument);
  for (const int priority : {-1, 8}) {
    const Result<CallRoom> wrong = few.peer().room({.priority = priority}).get();
    ASSERT_FALSE(wrong);
    EXPECT_EQ(wrong.error().code(), Code::invalid_argument);
  }
  RoomRequest once = few.peer().room();
  EXPECT_TRUE(once.get());
  EXPECT_FALSE(once.get());
}

}  // namespace
}  // namespace weir
