// Pools sharing workers, many threads on one pool, handles that outlive their pool.
#include <atomic>
#include <memory>
#include <mutex>
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

TEST(Lifecycle, ManyPoolsShareOneWorkerThread) {
  Workers workers = Workers::open({.threads = 1}).value();
  std::vector<Pool> servers;
  for (int i = 0; i < 40; ++i) {
    Config config = server_config(1);
    config.on = &workers;
    config.executor_threads = 0;
    servers.push_back(open(config));
    ASSERT_TRUE(servers.back().serve_inline("who", [i](InlineRequest& r) { r.reply(std::to_string(i)); }));
    ASSERT_TRUE(servers.back().serve("task", [i](Request) -> Task<Reply> { co_return Reply{std::to_string(i)}; }));
  }
  Pool client = open(client_config(1));
  for (int round = 0; round < 5; ++round) {
    std::vector<Call> calls;
    for (auto& server : servers) {
      calls.push_back(client.peer(server.listen_address()).unary(round % 2 == 0 ? "who" : "task", ""));
    }
    for (std::size_t i = 0; i < calls.size(); ++i) EXPECT_EQ(text_of(calls[i].get()), std::to_string(i));
  }
  // Some leave; the others go on.
  for (int i = 0; i < 38; ++i) servers.erase(servers.begin());
  EXPECT_EQ(text_of(client.peer(servers[0].listen_address()).unary("who", "").get()), "38");
  EXPECT_EQ(text_of(client.peer(servers[1].listen_address()).unary("who", "").get()), "39");
}

TEST(Lifecycle, OfManyPoolsOnlyThoseWithSomethingToDoArePolled) {
  Workers workers = Workers::open({.threads = 1}).value();
  std::vector<Pool> servers;
  for (int i = 0; i < 200; ++i) {
    Config config = server_config(1);
    config.on = &workers;
    config.executor_threads = 0;
    config.limits.receive_buffers = 64;
    servers.push_back(open(config));
    serve_echo(servers.back());
  }
  Pool client = open(client_config(1));
  const Peer to = client.peer(servers[100].listen_address());
  ASSERT_TRUE(to.unary("echo", "").get());
  const auto polls_of = [](const Pool& pool) { return pool.counters()[0].polls; };
  std::vector<std::uint64_t> before;
  for (const Pool& server : servers) before.push_back(polls_of(server));
  for (int i = 0; i < 1'000; ++i) ASSERT_TRUE(to.unary("echo", "").get());
  for (std::size_t i = 0; i < servers.size(); ++i) {
    const std::uint64_t polls = polls_of(servers[i]) - before[i];
    if (i == 100) {
      EXPECT_GE(polls, 1'000u);
    } else {
      EXPECT_LE(polls, 20u) << i;  // for the question, and whatever timer it has
    }
  }
}

TEST(Lifecycle, ManyPoolsShareOneLoopWithoutThreads) {
  Workers workers = Workers::open({.threads = 0}).value();
  std::vector<Pool> pools;
  for (int i = 0; i < 12; ++i) {
    Config config = server_config(0);
    config.on = &workers;
    pools.push_back(open(config));
    serve_echo(pools.back());
  }
  int done = 0;
  for (int round = 0; round < 10; ++round) {
    for (std::size_t i = 0; i < pools.size(); ++i) {
      pools[i].peer(pools[(i + 1) % pools.size()].listen_address()).unary("echo", "x").then([&](Result<Reply> reply) {
        EXPECT_TRUE(reply);
        ++done;
      });
    }
  }
  while (done < 120) workers.poll_for(1ms);
  EXPECT_EQ(text_of(pools[0].peer(pools[5].listen_address()).unary("echo", "get").get()), "get");
}

TEST(Lifecycle, EightThreadsHammerOnePool) {
  Pool server = open(server_config(1));
  serve_echo(server);
  Config config = client_config(2);
  config.limits.submission_ring[3] = 4;  // so that it is full time and again
  Pool client = open(config);
  const std::string address = server.listen_address();
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      const Peer to = client.peer(address);
      std::vector<Call> calls;
      for (int i = 0; i < 400; ++i) {
        const std::string body = std::to_string(t) + "/" + std::to_string(i);
        if (i % 3 == 0) {
          to.unary("echo", body).then([&right, body](Result<Reply> r) { right += text_of(r) == body; });
        } else if (i % 3 == 1) {
          right += text_of(to.unary("echo", body).get()) == body;
        } else {
          calls.push_back(to.unary("echo", body));
        }
      }
      const auto rest = [](std::vector<Call>& all_of_them, std::atomic<int>& count) -> Task<void> {
        for (Call& call : all_of_them) {
          if (co_await call) ++count;
        }
      };
      client.run(rest(calls, right));
    });
  }
  for (auto& thread : threads) thread.join();
  await([&] { return right == 8 * 400; });
}

TEST(Lifecycle, ThreadsComeAndGo) {
  Pool server = open(server_config(1));
  serve_echo(server);
  Pool client = open(client_config(1));
  const std::string address = server.listen_address();
  for (int i = 0; i < 50; ++i) {
    std::thread([&] { EXPECT_TRUE(client.peer(address).unary("echo", "x").get()); }).join();
  }
}

TEST(Lifecycle, AHandleMayMoveToAnotherThread) {
  Pool server = open(server_config(1));
  std::atomic<bool> is_open{false};
  std::vector<Responder> kept;
  ASSERT_TRUE(server.serve_inline("hold", [&](InlineRequest& request) {
    kept.push_back(request.defer());
    is_open = true;
  }));
  serve_echo(server);
  for (int workers : {1, 0}) {
    Pool client = open(client_config(workers));
    const Peer to = client.peer(server.listen_address());
    std::atomic<int> finished{0};
    client.poll();  // without threads, this one turns the loop
    std::vector<std::thread> threads;
    for (int i = 0; i < 40; ++i) {
      threads.emplace_back([&, call = to.unary(i % 4 == 3 ? "hold" : "echo", "moved"), i]() mutable {
        switch (i % 4) {
          case 0:
            EXPECT_EQ(text_of(call.get()), "moved");
            ++finished;
            break;
          case 1:
            call.then([&](Result<Reply> r) {
              EXPECT_EQ(text_of(r), "moved");
              ++finished;
            });
            break;
          case 2: {
            // Awaited where nobody submitted it.
            const auto task = [](Call mine) -> Task<std::string> { co_return text_of(co_await mine); };
            auto started = task(std::move(call));
            started.start();
            while (!started.done()) {
              // poll() would turn the loop, which another thread does; get() only drives this thread's lane.
              EXPECT_TRUE(to.unary("echo", "meanwhile").get());
            }
            EXPECT_EQ(started.take(), "moved");
            ++finished;
            break;
          }
          default:
            call.cancel();
            ++finished;
            break;
        }
      });
    }
    while (finished < 40) client.poll_for(1ms);
    for (auto& thread : threads) thread.join();
  }
}

TEST(Lifecycle, HandlesOutliveTheirPool) {
  auto server = std::make_unique<Pool>(open(server_config(1)));
  serve_echo(*server);
  for (int workers : {0, 1}) {
    auto client = std::make_unique<Pool>(open(client_config(workers)));
    Peer to = client->peer(server->listen_address());
    ASSERT_TRUE(to.unary("echo", "x").get());
    Call unanswered = client->peer("127.0.0.1:9").unary("echo", "x", {.deadline = 1h});
    client.reset();
    Result<Reply> result = unanswered.get();
    ASSERT_FALSE(result);
    EXPECT_EQ(to.unary("echo", "x").get().error().code(), Code::closed);
    EXPECT_EQ(to.address(), server->listen_address());
  }
}

TEST(Lifecycle, RepliesOutliveTheirPool) {
  Result<Reply> small = std::unexpected(Error(Code::closed, ""));
  Result<Reply> large = std::unexpected(Error(Code::closed, ""));
  const std::string body(10'000, 'b');
  {
    Pool server = open(server_config(1));
    serve_echo(server);
    Pool client = open(client_config(1));
    small = client.peer(server.listen_address()).unary("echo", "small").get();
    large = client.peer(server.listen_address()).unary("echo", body).get();
  }
  EXPECT_EQ(text_of(small), "small");
  EXPECT_EQ(text_of(large), body);
}

TEST(Lifecycle, CountersCountAcrossThreads) {
  Pool server = open(server_config(1));
  serve_echo(server);
  Pool client = open(client_config(2));
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(client.peer(server.listen_address()).unary("echo", "x").get());
  Counters sum;
  for (const Counters& each : client.counters()) sum += each;
  EXPECT_EQ(sum.calls_completed, 10u);
  EXPECT_EQ(server.counters().at(0).requests_dispatched, 10u);
  ASSERT_TRUE(client.close());
  sum = {};
  for (const Counters& each : client.counters()) sum += each;
  EXPECT_EQ(sum.calls_completed, 10u) << "also after closing";
}

struct Watch : Subscriber {
  void on(const event::WorkerStalled&) override { ++stalls; }
  std::atomic<int> stalls{0};
};

TEST(Lifecycle, TheWatchdogReportsAWorkerThatHangs) {
  auto watch = std::make_shared<Watch>();
  Config config = server_config(1);
  config.watchdog = 20ms;
  config.subscriber = watch;
  Pool server = open(config);
  ASSERT_TRUE(server.serve_inline("hang", [&](InlineRequest& request) {
    await([&] { return watch->stalls > 0; });
    request.reply("went on");
  }));
  Pool client = open(client_config(1));
  EXPECT_EQ(text_of(client.peer(server.listen_address()).unary("hang", "", {.deadline = 1h}).get()), "went on");
}

TEST(Lifecycle, ManyRepliesMayBeKept) {
  Pool server = open(server_config(1));
  serve_echo(server);
  Config config = client_config(1);
  config.limits.receive_buffers = 128;
  Pool client = open(config);
  const Peer to = client.peer(server.listen_address());
  std::vector<Reply> kept;
  for (std::size_t bytes : {300u, 3'000u, 6'000u}) {
    for (int i = 0; i < 300; ++i) {
      Result<Reply> reply = to.unary("echo", std::string(bytes, 'k')).get();
      ASSERT_TRUE(reply) << bytes << " bytes, number " << i << ": " << reply.error().to_string();
      kept.push_back(std::move(*reply));
    }
  }
  for (const Reply& reply : kept) EXPECT_EQ(reply.text(), std::string(reply.text().size(), 'k'));
}

TEST(Lifecycle, ALoopOfManyPoolsResumesWhatAwaitsAnotherWorker) {
  Pool far = open(server_config(1));
  std::mutex mutex;
  std::vector<Responder> kept;
  ASSERT_TRUE(far.serve_inline("slow", [&](InlineRequest& request) {
    std::lock_guard lock(mutex);
    kept.push_back(request.defer());
  }));
  Pool caller = open(client_config(1));
  Workers workers = Workers::open({.threads = 1}).value();
  std::vector<Pool> pools;
  for (int i = 0; i < 8; ++i) {
    Config config = server_config(1);
    config.on = &workers;
    config.executor_threads = 0;
    config.timeouts.silence = 1h;  // so that nothing wakes the loop but what it waits for
    pools.push_back(open(config));
  }
  ASSERT_TRUE(pools[0].serve("wait", [to = caller.peer(far.listen_address())](Request) -> Task<Reply> {
    co_return Reply{text_of(co_await to.unary("slow", "", {.deadline = 1h}))};
  }));
  Config config = client_config(1);
  config.timeouts.silence = 1h;
  Pool client = open(config);
  const Peer to = client.peer(pools[0].listen_address());
  ASSERT_TRUE(to.ready().get());
  Call call = to.unary("wait", "", {.deadline = 1h});
  await([&] {
    std::lock_guard lock(mutex);
    return !kept.empty();
  });
  std::this_thread::sleep_for(50ms);  // until all of them sleep
  {
    std::lock_guard lock(mutex);
    kept[0].reply("slept well");
  }
  EXPECT_EQ(text_of(call.get()), "slept well");
}

}  // namespace
}  // namespace weir
