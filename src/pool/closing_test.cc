// Closing pools: what it waits for, what it completes, and who may do what meanwhile.
#include <atomic>
#include <memory>
#include <thread>
#include <utility>
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

TEST(Closing, CloseWaitsForWhatIsOutstanding) {
  Pool server = open(server_config(1));
  std::atomic<bool> is_running{false}, may_go{false};
  ASSERT_TRUE(server.serve("slow", [&](Request) {
    is_running = true;
    await([&] { return may_go.load(); });
    return Reply{"done"};
  }));
  Pool client = open(client_config(1));
  Call call = client.peer(server.listen_address()).unary("slow", "", {.deadline = 1h});
  await([&] { return is_running.load(); });
  std::thread closer([&] { EXPECT_TRUE(server.close(1h)); });
  // It has begun when the pool makes no new calls.
  Pool other = open(server_config(1));
  serve_echo(other);
  await([&] { return !server.peer(other.listen_address()).unary("echo", "", {.deadline = 1h}).get(); });
  may_go = true;
  closer.join();
  EXPECT_EQ(text_of(call.get()), "done");
  EXPECT_TRUE(client.close(10s));
  EXPECT_EQ(client.peer(server.listen_address()).unary("slow", "").get().error().code(), Code::closed);
  EXPECT_TRUE(client.close()) << "closing twice is harmless";
}

TEST(Closing, CloseCompletesEveryCallExactlyOnce) {
  for (int workers : {1, 0}) {
    Pool client = open(client_config(workers));
    std::atomic<int> completions{0};
    client.poll();
    for (int i = 0; i < 100; ++i) {
      client.peer("127.0.0.1:9").unary("echo", "x", {.deadline = 1h}).then([&](Result<Reply> reply) {
        EXPECT_FALSE(reply);
        ++completions;
      });
    }
    static_cast<void>(client.close(1ms));
    EXPECT_EQ(completions, 100);
  }
}

TEST(Closing, ThreadsRaceWithClose) {
  for (int round = 0; round < 10; ++round) {
    auto client = std::make_shared<Pool>(open(client_config(1)));
    Pool server = open(server_config(1));
    serve_echo(server);
    const Peer to = client->peer(server.listen_address());
    std::atomic<int> started{0}, completed{0};
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&] {
        while (!stop) {
          ++started;
          to.unary("echo", "x").then([&](Result<Reply>) { ++completed; });
          if (!to.unary("echo", "x").get()) break;
        }
      });
    }
    await([&] { return started > 10; });
    static_cast<void>(client->close(20ms));
    stop = true;
    for (auto& thread : threads) thread.join();
    await([&] { return completed == started; });
  }
}

TEST(Closing, ContinuationsOfAClosedPoolMayCallOthers) {
  Pool server = open(server_config(1));
  serve_echo(server);
  Pool closing = open(client_config(1));
  std::vector<Pool> others;
  for (int i = 0; i < 4; ++i) others.push_back(open(client_config(1)));
  const std::string address = server.listen_address();
  std::atomic<int> refused{0}, answered{0};
  const auto batch = [&]() -> Task<void> {
    for (int i = 0; i < 3; ++i) {
      closing.peer(address).unary("echo", "x").then([&](Result<Reply> reply) {
        EXPECT_FALSE(reply);
        EXPECT_EQ(closing.counters().size(), 1u) << "may be asked in here";
        for (std::size_t k = 1; k < others.size(); ++k) {
          others[k].peer(address).unary("echo", "y").then([&](Result<Reply>) { ++answered; });
        }
        ++refused;
      });
    }
    others[0].peer(address).unary("echo", "z").then([&](Result<Reply>) { ++answered; });
    std::thread([&] { static_cast<void>(closing.close(1ms)); }).join();
    co_return;
  };
  closing.spawn(batch());
  await([&] { return refused == 3 && answered == 10; });
}

TEST(Closing, TwoThreadsMayCloseAndServeAtOnce) {
  for (int round = 0; round < 20; ++round) {
    Pool pool = open(server_config(round % 2));
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i) threads.emplace_back([&] { static_cast<void>(pool.close(10ms)); });
    threads.emplace_back([&] { static_cast<void>(pool.serve_inline("a", [](InlineRequest&) {})); });
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(pool.serve_inline("b", [](InlineRequest&) {}).error().code(), Code::closed);
  }
}

TEST(Closing, CallsOfAClosedPoolMayBeDroppedWhileItIsDestroyed) {
  Pool server = open(server_config(1));
  serve_echo(server);
  for (int round = 0; round < 10; ++round) {
    Workers workers = Workers::open({.threads = 0}).value();
    Config config = client_config(0);
    config.on = &workers;
    auto client = std::make_unique<Pool>(open(config));
    std::atomic<bool> is_closed{false}, is_called{false};
    std::thread owner([&] {
      const Peer to = client->peer(server.listen_address());
      workers.poll();
      std::vector<Call> calls;
      for (int i = 0; i < 200; ++i) calls.push_back(to.unary("echo", "x"));
      is_called = true;
      while (!is_closed) workers.poll();
      for (Call& call : calls) call.cancel();
    });
    await([&] { return is_called.load(); });
    static_cast<void>(client->close(1ms));
    is_closed = true;
    client.reset();
    owner.join();
  }
}

}  // namespace
}  // namespace weir
