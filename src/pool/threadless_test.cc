// Loops without threads: who turns them, who waits for whom, and what happens when their owner does not poll.
#include <atomic>
#include <memory>
#include <mutex>
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

TEST(Threadless, AnyThreadMayServeWhileAnotherBeginsToPoll) {
  for (int round = 0; round < 50; ++round) {
    Pool pool = open(server_config(0));
    std::atomic<bool> stop{false}, is_running{false};
    std::thread poller([&] {
      is_running = true;
      while (!stop) pool.poll();
    });
    await([&] { return is_running.load(); });
    for (const char* name : {"a", "b", "c", "d", "e", "f"}) {
      EXPECT_TRUE(pool.serve_inline(name, [](InlineRequest& request) { request.reply("x"); }));
    }
    stop = true;
    poller.join();
  }
}

// The loop belongs to nobody between one get() and the next.
TEST(Threadless, CountersAreOfNowAlsoWhenNobodyTurnsTheLoop) {
  Pool server = open(server_config(1));
  serve_echo(server);
  Pool client = open(client_config(0));
  const Peer to = client.peer(server.listen_address());
  for (std::uint64_t calls = 1; calls <= 3; ++calls) {
    EXPECT_EQ(text_of(to.unary("echo", "x", {.deadline = 1h}).get()), "x");
    EXPECT_EQ(client.counters().at(0).calls_completed, calls);
    std::thread([&] { EXPECT_EQ(client.counters().at(0).calls_completed, calls); }).join();
  }
}

TEST(Threadless, ManyThreadsMayWaitForTheirCalls) {
  Pool server = open(server_config(1));
  serve_echo(server);
  for (int round = 0; round < 20; ++round) {
    Pool client = open(client_config(0));
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        const Peer to = client.peer(server.listen_address());
        for (int k = 0; k < 5; ++k) {
          if (i % 2 == 0) {
            EXPECT_EQ(text_of(to.unary("echo", "got", {.deadline = 1h}).get()), "got");
          } else {
            const auto task = [&]() -> Task<std::string> { co_return text_of(co_await to.unary("echo", "ran")); };
            EXPECT_EQ(client.run(task()), "ran");
          }
        }
      });
    }
    for (auto& thread : threads) thread.join();
  }
}

TEST(Threadless, WhoeverWaitsGivesTheLoopToWhoeverPolls) {
  Pool server = open(server_config(1));
  std::atomic<bool> is_asked{false};
  Responder kept;
  ASSERT_TRUE(server.serve_inline("hold", [&](InlineRequest& request) {
    kept = request.defer();
    is_asked = true;
  }));
  Pool client = open(client_config(0));
  std::thread waiter([&] {
    EXPECT_EQ(text_of(client.peer(server.listen_address()).unary("hold", "", {.deadline = 1h}).get()), "at last");
  });
  await([&] { return is_asked.load(); });
  bool has_polled = false;
  std::atomic<bool> is_over{false};
  std::thread poller([&] {
    bool is_answered = false;
    while (!is_over) {
      client.poll_for(1ms);
      if (!std::exchange(is_answered, true)) kept.reply("at last");
    }
    has_polled = true;
  });
  waiter.join();
  is_over = true;
  poller.join();
  EXPECT_TRUE(has_polled);
}

TEST(Threadless, AnOwnerThatDoesNotPollIsWaitedForUntilTheDeadline) {
  Pool server = open(server_config(1));
  serve_echo(server);
  auto client = std::make_unique<Pool>(open(client_config(0)));
  const Peer to = client->peer(server.listen_address());
  std::atomic<int> completions{0};
  std::atomic<bool> is_owner{false}, may_end{false};
  std::thread owner([&] {
    client->poll();
    for (int i = 0; i < 10; ++i) {
      to.unary("echo", "x", {.deadline = 1h}).then([&](Result<Reply> reply) {
        EXPECT_EQ(reply.error().code(), Code::closed);
        ++completions;
      });
    }
    is_owner = true;
    await([&] { return may_end.load(); });
  });
  await([&] { return is_owner.load(); });
  EXPECT_EQ(to.unary("echo", "x", {.deadline = 1ms}).get().error().code(), Code::timeout);
  Result<void> closed = client->close(1ms);
  ASSERT_FALSE(closed);
  EXPECT_NE(closed.error().message().find("does not poll"), std::string::npos) << closed.error().to_string();
  client.reset();
  EXPECT_EQ(completions, 0) << "nobody took the loop from its owner";
  may_end = true;
  owner.join();
  EXPECT_EQ(completions, 10) << "the thread's end is its last turn";
}

TEST(Threadless, AClosedPoolsLastHandleMayGoAnywhere) {
  Pool server = open(server_config(1));
  serve_echo(server);
  Pool client = open(client_config(0));
  auto closed = std::make_unique<Pool>(open(client_config(1)));
  EXPECT_TRUE(closed->close());
  client.poll();
  bool done = false;
  client.peer(server.listen_address()).unary("echo", "x").then([&](Result<Reply>) {
    closed.reset();
    done = true;
  });
  while (!done) client.poll_for(1ms);
}

TEST(Threadless, ACoroutineThatIsDestroyedOnAnotherThreadCancelsItsCall) {
  Pool server = open(server_config(1));
  std::mutex mutex;
  std::vector<Responder> kept;
  ASSERT_TRUE(server.serve_inline("hold", [&](InlineRequest& request) {
    std::lock_guard lock(mutex);
    kept.push_back(request.defer());
  }));
  Pool client = open(client_config(0));
  client.poll();  // this thread owns the loop
  constexpr std::size_t kCalls = 20;
  std::vector<Call> calls;
  for (std::size_t i = 0; i < kCalls; ++i) {
    calls.push_back(client.peer(server.listen_address()).unary("hold", "", {.deadline = 1h}));
  }
  const auto count = [&](bool only_cancelled) {
    std::lock_guard lock(mutex);
    std::size_t found = 0;
    for (const Responder& responder : kept) found += !only_cancelled || responder.cancelled();
    return found;
  };
  while (count(false) < kCalls) client.poll_for(1ms);
  std::thread other([&] {
    for (std::size_t i = 0; i < kCalls; ++i) {
      const auto task = [](Call call) -> Task<void> { static_cast<void>(co_await call); };
      auto started = task(std::move(calls[i]));
      started.start();
      if (i % 2 == 0) std::this_thread::sleep_for(2ms);  // until the loop knows of the waiter
    }
  });
  while (count(true) < kCalls) client.poll_for(1ms);
  other.join();
}

}  // namespace
}  // namespace weir
