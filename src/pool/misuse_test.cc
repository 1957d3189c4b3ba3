// What must not be done inside handlers and continuations stops the process with a sentence that says what to do.
#include <atomic>
#include <cstdio>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "pool/bulk_testing.h"
#include "pool/pool_testing.h"

namespace weir {
namespace {

using namespace std::chrono_literals;
using testing::client_config;
using testing::open;
using testing::serve_echo;
using testing::server_config;

using Use = std::function<void(std::unique_ptr<Pool>&, const Peer&)>;

void in_a_continuation(int workers, const Use& misuse) {
  Pool server = open(server_config(1));
  std::atomic<bool> is_attached{false}, is_done{false};
  static_cast<void>(server.serve_inline("wait", [&](InlineRequest& request) {
    while (!is_attached) std::this_thread::yield();  // a call that is complete runs its continuation right there
    request.reply("x");
  }));
  auto client = std::make_unique<Pool>(open(client_config(workers)));
  const Peer to = client->peer(server.listen_address());
  if (workers == 0) client->poll();
  to.unary("wait", "x", {.deadline = 1h}).then([&](Result<Reply>) {
    misuse(client, to);
    is_done = true;
  });
  is_attached = true;
  while (!is_done) {
    if (workers == 0) {
      client->poll();
    } else {
      std::this_thread::yield();
    }
  }
}

void in_an_inline_handler(const Use& misuse) {
  auto server = std::make_unique<Pool>(open(server_config(1)));
  Pool other = open(server_config(1));
  serve_echo(other);
  const Peer to = server->peer(other.listen_address());
  static_cast<void>(server->serve_inline("bad", [&](InlineRequest& request) {
    misuse(server, to);
    request.reply("never");
  }));
  const std::string address = server->listen_address();
  Pool client = open(client_config(1));
  static_cast<void>(client.peer(address).unary("bad", "", {.deadline = 1h}).get());
}

enum class Where : std::uint8_t { threadless, worker, inline_handler };

class Misuse : public ::testing::TestWithParam<Where> {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  static void inside(const Use& misuse) {
    if (GetParam() == Where::inline_handler) return in_an_inline_handler(misuse);
    in_a_continuation(GetParam() == Where::worker ? 1 : 0, misuse);
  }
};
using InsideDeathTest = Misuse;

// That what follows dies of what it does, and not of how it is done.
TEST_P(InsideDeathTest, WhatIsAllowedIsAllowed) {
  std::atomic<int> calls{0};
  inside([&](auto&, const Peer& to) {
    to.unary("echo", "").then([](Result<Reply>) {});
    ++calls;
  });
  EXPECT_EQ(calls, 1);
}

TEST_P(InsideDeathTest, Poll) {
  EXPECT_DEATH(inside([](auto& pool, auto&) { pool->poll(); }), "inside a handler or continuation");
  EXPECT_DEATH(inside([](auto& pool, auto&) { pool->poll_for(1ms); }), "inside a handler or continuation");
}

TEST_P(InsideDeathTest, Get) {
  EXPECT_DEATH(inside([](auto&, const Peer& to) { static_cast<void>(to.unary("echo", "").get()); }),
               "get\\(\\) was called inside a handler or continuation");
}

// There may be memory at once, and then nobody waits.
TEST_P(InsideDeathTest, GetOfAnAllocation) {
  EXPECT_DEATH(inside([](auto& pool, auto&) {
                 const std::size_t most_of_it = Limits{}.buffer_bytes / 4 * 3;
                 const Result<Buffer> first = pool->allocate(most_of_it).get();
                 std::fputs(first ? "the first one is there; " : "there is no memory", stderr);
                 static_cast<void>(pool->allocate(most_of_it).get());
               }),
               "the first one is there; .*get\\(\\) was called inside a handler or continuation.*await the allocation");
}

TEST_P(InsideDeathTest, GetOfAPut) {
  EXPECT_DEATH(inside([](auto&, const Peer& to) { static_cast<void>(to.put("place", Payload()).get()); }),
               "get\\(\\) was called inside a handler or continuation");
}

TEST_P(InsideDeathTest, GetOfAGet) {
  std::byte room[10];
  EXPECT_DEATH(inside([&](auto&, const Peer& to) { static_cast<void>(to.get("place", into(room)).get()); }),
               "get\\(\\) was called inside a handler or continuation");
}

TEST_P(InsideDeathTest, GetOfABroadcast) {
  EXPECT_DEATH(inside([](auto& pool, const Peer& to) {
                 const Peer peers[] = {to};
                 static_cast<void>(pool->broadcast(peers, "echo", Payload()).get());
               }),
               "get\\(\\) was called inside a handler or continuation");
}

TEST_P(InsideDeathTest, GetOfSeveralCalls) {
  EXPECT_DEATH(inside([](auto&, const Peer& to) {
                 std::vector<Call> calls;
                 calls.push_back(to.unary("echo", ""));
                 static_cast<void>(all(std::move(calls)).get());
               }),
               "get\\(\\) was called inside a handler or continuation");
}

TEST_P(InsideDeathTest, Run) {
  EXPECT_DEATH(inside([](auto& pool, auto&) { pool->run([]() -> Task<void> { co_return; }()); }),
               "run\\(\\) was called inside a handler or continuation");
}

TEST(OnceDeathTest, WhatIsAwaitedIsAwaitedOnce) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto put_twice = [] {
    Pool client = open(client_config(0));
    auto put = client.peer("127.0.0.1:1").put("nowhere", Payload());
    static_cast<void>(put.get());
    static_cast<void>(put.get());
  };
  EXPECT_DEATH(put_twice(), "is awaited once");
  const auto run_what_is_gone = [] {
    Pool client = open(client_config(0));
    Task<void> task = []() -> Task<void> { co_return; }();
    const Task<void> other = std::move(task);
    client.run(std::move(task));
  };
  EXPECT_DEATH(run_what_is_gone(), "not after it was moved from");
}

// Handles are copied and moved; only the ones that are still there can be used.
TEST(MovedDeathTest, APeerThatWasMovedFrom) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Pool pool = open(client_config(0));
  std::vector<Peer> peers{pool.peer("127.0.0.1:1")};
  Peer& gone = peers[0];
  const Peer there = std::move(gone);
  const char* const says = "this Peer was moved from";
  EXPECT_DEATH(static_cast<void>(gone.unary("echo", "x")), says);
  EXPECT_DEATH(static_cast<void>(gone.unary("echo", std::string(1 << 20, 'x'))), says);
  EXPECT_DEATH(static_cast<void>(gone.unary("echo", testing::payload_of(pool, "x"))), says);
  EXPECT_DEATH(static_cast<void>(gone.put("name", Payload())), says);
  EXPECT_DEATH(static_cast<void>(gone.get("name", into({}))), says);
  EXPECT_DEATH(static_cast<void>(gone.ready()), says);
  EXPECT_DEATH(static_cast<void>(gone.address()), says);
  EXPECT_DEATH(static_cast<void>(pool.broadcast(peers, "echo", Payload())), says);
  EXPECT_EQ(there.address(), "127.0.0.1:1");
}

TEST(MovedDeathTest, APoolThatWasMovedFrom) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Pool gone = open(client_config(0));
  Pool there = std::move(gone);
  const char* const says = "this Pool was moved from";
  EXPECT_DEATH(static_cast<void>(gone.peer("127.0.0.1:1")), says);
  EXPECT_DEATH(static_cast<void>(gone.serve("echo", [](Request) { return Reply{}; })), says);
  EXPECT_DEATH(static_cast<void>(gone.serve_inline("echo", [](InlineRequest&) {})), says);
  EXPECT_DEATH(gone.poll(), says);
  EXPECT_DEATH(gone.poll_for(1ms), says);
  EXPECT_DEATH(gone.run([]() -> Task<void> { co_return; }()), says);
  EXPECT_DEATH(gone.spawn([]() -> Task<void> { co_return; }()), says);
  EXPECT_DEATH(static_cast<void>(gone.allocate(1)), says);
  EXPECT_DEATH(static_cast<void>(testing::payload_of(gone, "x")), says);
  EXPECT_DEATH(static_cast<void>(gone.seal(*there.allocate(1).get())), says);
  EXPECT_DEATH(static_cast<void>(gone.adopt(*there.allocate(1).get(), {})), says);
  EXPECT_DEATH(static_cast<void>(gone.place("name", Placement::constant({}))), says);
  EXPECT_DEATH(static_cast<void>(gone.unplace("name")), says);
  EXPECT_DEATH(static_cast<void>(gone.broadcast({}, "echo", Payload())), says);
  EXPECT_DEATH(static_cast<void>(gone.close()), says);
  EXPECT_DEATH(static_cast<void>(gone.listen_address()), says);
  EXPECT_DEATH(static_cast<void>(gone.counters()), says);
  EXPECT_DEATH(static_cast<void>(gone.limits()), says);
  gone = there;  // and it is one again
  EXPECT_FALSE(gone.limits().empty());
}

TEST(MovedDeathTest, WorkersThatWereMovedFrom) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Workers gone = *Workers::open({.threads = 0});
  const Workers there = std::move(gone);
  EXPECT_DEATH(gone.poll(), "these Workers were moved from");
  EXPECT_DEATH(gone.poll_for(1ms), "these Workers were moved from");
  const Result<Pool> pool = Pool::open({.secret = testing::kSecret, .on = &gone});
  ASSERT_FALSE(pool);
  EXPECT_EQ(pool.error().code(), Code::invalid_argument);
}

TEST_P(InsideDeathTest, Close) {
  EXPECT_DEATH(inside([](auto& pool, auto&) { static_cast<void>(pool->close()); }),
               "closed, or its last handle dropped, inside a handler or continuation");
}

TEST_P(InsideDeathTest, DestroyingThePool) {
  EXPECT_DEATH(inside([](auto& pool, auto&) { pool.reset(); }),
               "closed, or its last handle dropped, inside a handler or continuation");
}

INSTANTIATE_TEST_SUITE_P(, InsideDeathTest, ::testing::Values(Where::threadless, Where::worker, Where::inline_handler),
                         [](const auto& test) {
                           return test.param == Where::threadless ? "AContinuationWithoutThreads"
                                  : test.param == Where::worker   ? "AContinuationOnAWorker"
                                                                  : "AnInlineHandler";
                         });

class MisuseDeathTest : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(MisuseDeathTest, CloseInsideAnExecutorHandler) {
  EXPECT_DEATH(
      {
        Pool server = open(server_config(1));
        static_cast<void>(server.serve("bad", [&](Request) {
          static_cast<void>(server.close());
          return Reply{};
        }));
        Pool client = open(client_config(1));
        static_cast<void>(client.peer(server.listen_address()).unary("bad", "", {.deadline = 1h}).get());
      },
      "closed, or its last handle dropped, inside a handler");
}

TEST_F(MisuseDeathTest, DroppingTheLastHandleInsideAnExecutorHandler) {
  EXPECT_DEATH(
      {
        auto server = std::make_unique<Pool>(open(server_config(1)));
        static_cast<void>(server->serve("bad", [&](Request) {
          server.reset();
          return Reply{};
        }));
        const std::string address = server->listen_address();
        Pool client = open(client_config(1));
        static_cast<void>(client.peer(address).unary("bad", "", {.deadline = 1h}).get());
      },
      "closed, or its last handle dropped, inside a handler");
}

// A thread of the executor may wait for anything: a handler there may block.
TEST_F(MisuseDeathTest, AnExecutorHandlerMayGetWhatItLikes) {
  Pool other = open(server_config(1));
  serve_echo(other);
  Pool server = open(server_config(1));
  const Peer to = server.peer(other.listen_address());
  ASSERT_TRUE(server.serve("good", [&](Request) {
    EXPECT_TRUE(server.allocate(1).get());
    EXPECT_TRUE(to.unary("echo", "").get());
    return Reply{"done"};
  }));
  Pool client = open(client_config(1));
  EXPECT_EQ(testing::text_of(client.peer(server.listen_address()).unary("good", "", {.deadline = 1h}).get()), "done");
}

TEST_F(MisuseDeathTest, TwoThreadsPollOneLoop) {
  EXPECT_DEATH(
      {
        Pool pool = open(client_config(0));
        pool.poll();
        std::thread([&] { pool.poll(); }).join();
      },
      "another thread turns its loop");
}

TEST_F(MisuseDeathTest, AnsweringTwice) {
  EXPECT_DEATH(
      {
        Pool server = open(server_config(1));
        static_cast<void>(server.serve_inline("twice", [](InlineRequest& request) {
          request.reply("one");
          request.reply("two");
        }));
        Pool client = open(client_config(1));
        static_cast<void>(client.peer(server.listen_address()).unary("twice", "", {.deadline = 1h}).get());
        std::this_thread::sleep_for(10s);
      },
      "a request is answered once");
}

TEST_F(MisuseDeathTest, AHungWorkerAbortsIfThePolicySaysSo) {
  EXPECT_DEATH(
      {
        Config config = server_config(1);
        config.watchdog = 20ms;
        config.on_hang = OnHang::abort;
        Pool server = open(config);
        static_cast<void>(server.serve_inline("hang", [](InlineRequest&) { std::this_thread::sleep_for(1h); }));
        Pool client = open(client_config(1));
        static_cast<void>(client.peer(server.listen_address()).unary("hang", "", {.deadline = 1h}).get());
      },
      "has made no progress");
}

}  // namespace
}  // namespace weir
