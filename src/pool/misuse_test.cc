// What must not be done inside handlers and continuations stops the process with a sentence that says what to do.
#include <atomic>
#include <memory>

#include "pool/pool_testing.h"

namespace weir {
namespace {

using namespace std::chrono_literals;
using testing::client_config;
using testing::open;
using testing::serve_echo;
using testing::server_config;

// Runs `misuse` inside a continuation of a pool without threads.
void inside_a_continuation(const std::function<void(std::unique_ptr<Pool>&, const Peer&)>& misuse) {
  Pool server = open(server_config(1));
  serve_echo(server);
  auto client = std::make_unique<Pool>(open(client_config(0)));
  const Peer to = client->peer(server.listen_address());
  client->poll();
  bool done = false;
  to.unary("echo", "x").then([&](Result<Reply>) {
    misuse(client, to);
    done = true;
  });
  while (!done) client->poll();
}

class Misuse : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};
using MisuseDeathTest = Misuse;

TEST_F(MisuseDeathTest, PollInsideAContinuation) {
  EXPECT_DEATH(inside_a_continuation([](auto& pool, auto&) { pool->poll(); }), "inside a handler or continuation");
  EXPECT_DEATH(inside_a_continuation([](auto& pool, auto&) { pool->poll_for(1ms); }),
               "inside a handler or continuation");
}

TEST_F(MisuseDeathTest, GetInsideAContinuation) {
  EXPECT_DEATH(inside_a_continuation([](auto&, const Peer& to) { static_cast<void>(to.unary("echo", "").get()); }),
               "get\\(\\) was called inside a handler or continuation");
}

TEST_F(MisuseDeathTest, RunInsideAContinuation) {
  EXPECT_DEATH(inside_a_continuation([](auto& pool, auto&) { pool->run([]() -> Task<void> { co_return; }()); }),
               "run\\(\\) was called inside a handler or continuation");
}

TEST_F(MisuseDeathTest, CloseInsideAContinuation) {
  EXPECT_DEATH(inside_a_continuation([](auto& pool, auto&) { static_cast<void>(pool->close()); }),
               "closed, or its last handle dropped, inside a handler or continuation");
}

TEST_F(MisuseDeathTest, DestroyingThePoolInsideAContinuation) {
  EXPECT_DEATH(inside_a_continuation([](auto& pool, auto&) { pool.reset(); }),
               "closed, or its last handle dropped, inside a handler or continuation");
}

TEST_F(MisuseDeathTest, GetInsideAnInlineHandler) {
  EXPECT_DEATH(
      {
        Pool server = open(server_config(1));
        serve_echo(server);
        const Peer self = server.peer(server.listen_address());
        static_cast<void>(server.serve_inline("bad", [&](InlineRequest& request) {
          static_cast<void>(self.unary("echo", "x").get());
          request.reply("never");
        }));
        Pool client = open(client_config(1));
        static_cast<void>(client.peer(server.listen_address()).unary("bad", "", {.deadline = 1h}).get());
      },
      "get\\(\\) was called inside a handler or continuation");
}

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
