// Unary calls in all styles, over real loopback sockets, with and without threads.
#include <atomic>
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

struct Threads {
  int server;
  int client;
};

// Both pools with their number of worker threads. A server without any is turned by a thread of the test.
class Unary : public ::testing::TestWithParam<Threads> {
 protected:
  Unary() : server_(open(server_config(GetParam().server))), client_(open(client_config(GetParam().client))) {
    serve_echo(server_);
    if (GetParam().server == 0) {
      turner_ = std::thread([this] {
        while (!stop_) server_.poll_for(1ms);
      });
    }
  }
  ~Unary() override {
    stop_ = true;
    if (turner_.joinable()) turner_.join();
  }
  Peer peer() { return client_.peer(server_.listen_address()); }

  std::atomic<bool> stop_{false};
  Pool server_;
  Pool client_;
  std::thread turner_;
};

TEST_P(Unary, GetReturnsTheReply) { EXPECT_EQ(text_of(peer().unary("echo", "hello").get()), "hello"); }

TEST_P(Unary, AnEmptyBodyIsABody) {
  Result<Reply> reply = peer().unary("echo", "").get();
  ASSERT_TRUE(reply) << reply.error().to_string();
  EXPECT_TRUE(reply->body().empty());
}

TEST_P(Unary, EverySizeComesBackWhole) {
  for (std::size_t size : {1u, 63u, 64u, 65u, 255u, 256u, 257u, 1'000u, 1'500u, 5'000u, 16'384u}) {
    std::string body(size, 'x');
    for (std::size_t i = 0; i < size; ++i) body[i] = static_cast<char>('a' + i % 23);
    EXPECT_EQ(text_of(peer().unary("echo", body).get()), body) << size;
  }
}

TEST_P(Unary, HeadersTravelBothWays) {
  Result<Reply> reply = peer().unary("echo", "body", {.header = "trace 1"}).get();
  ASSERT_TRUE(reply) << reply.error().to_string();
  EXPECT_EQ(reply->header_text(), "trace 1");
  EXPECT_EQ(reply->text(), "body");
}

TEST_P(Unary, ACoroutineAwaitsCalls) {
  const Peer server = peer();
  const auto task = [](Peer to) -> Task<std::string> {
    std::string all;
    for (int i = 0; i < 100; ++i) {
      Result<Reply> reply = co_await to.unary("echo", std::to_string(i), {.priority = i % 8, .deadline = 30s});
      all += text_of(reply);
    }
    co_return all;
  };
  std::string expected;
  for (int i = 0; i < 100; ++i) expected += std::to_string(i);
  EXPECT_EQ(client_.run(task(server)), expected);
}

TEST_P(Unary, TheHeaderCanBeAwaitedBeforeTheReply) {
  const auto task = [](Peer to) -> Task<std::string> {
    auto call = to.unary("echo", "body", {.header = "header"});
    Result<Bytes> header = co_await call.header();
    if (!header) co_return header.error().to_string();
    std::string text(reinterpret_cast<const char*>(header->data()), header->size());
    // Another turn of the loop in between: the reply is kept meanwhile.
    Result<Reply> other = co_await to.unary("echo", "other");
    Result<Reply> reply = co_await call;
    co_return text + " " + text_of(other) + " " + text_of(reply);
  };
  EXPECT_EQ(client_.run(task(peer())), "header other body");
}

TEST_P(Unary, ThenRunsOnceWithTheReply) {
  std::atomic<int> runs{0};
  std::string text;
  peer().unary("echo", "later").then([&](Result<Reply> reply) {
    text = text_of(reply);
    ++runs;
  });
  if (GetParam().client == 0) {
    while (runs == 0) client_.poll_for(1ms);
  } else {
    await([&] { return runs != 0; });
  }
  EXPECT_EQ(text, "later");
  EXPECT_EQ(runs, 1);
}

TEST_P(Unary, ThenAfterCompletionRunsAtOnce) {
  auto call = peer().unary("echo", "done");
  ASSERT_TRUE(peer().unary("echo", "another").get());
  // Both were outstanding together; a few more round trips and the first is surely complete.
  while (!detail::call_ready(call.record())) ASSERT_TRUE(peer().unary("echo", "more").get());
  std::string text;
  std::move(call).then([&](Result<Reply> reply) { text = text_of(reply); });
  EXPECT_EQ(text, "done");
}

TEST_P(Unary, ContinuationsMaySubmit) {
  std::atomic<int> left{200};
  const Peer to = peer();
  std::function<void()> next = [&] {
    to.unary("echo", "again").then([&](Result<Reply> reply) {
      EXPECT_TRUE(reply);
      if (--left > 0) next();
    });
  };
  next();
  if (GetParam().client == 0) {
    while (left > 0) client_.poll_for(1ms);
  } else {
    await([&] { return left <= 0; });
  }
}

TEST_P(Unary, ManyAtOnceAllComeBack) {
  const Peer to = peer();
  const auto task = [](Peer server) -> Task<int> {
    std::vector<Call> calls;
    for (int i = 0; i < 3'000; ++i) calls.push_back(server.unary("echo", std::to_string(i)));
    int right = 0;
    for (int i = 0; i < 3'000; ++i) right += text_of(co_await calls[static_cast<std::size_t>(i)]) == std::to_string(i);
    co_return right;
  };
  EXPECT_EQ(client_.run(task(to)), 3'000);
}

TEST_P(Unary, AllGivesTheResultsInOrder) {
  std::vector<Peer> shards(50, peer());
  const auto task = [](std::vector<Peer>& peers) -> Task<std::string> {
    int number = 0;
    auto replies = co_await all(peers, [&](Peer& shard) { return shard.unary("echo", std::to_string(number++)); });
    std::string text;
    for (auto& reply : replies) text += text_of(reply) + ",";
    co_return text;
  };
  std::string expected;
  for (int i = 0; i < 50; ++i) expected += std::to_string(i) + ",";
  EXPECT_EQ(client_.run(task(shards)), expected);

  std::vector<Call> calls;
  calls.push_back(peer().unary("echo", "one"));
  calls.push_back(peer().unary("nobody serves this", "two"));
  auto results = all(std::move(calls)).get();
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(text_of(results[0]), "one");
  EXPECT_EQ(results[1].error().code(), Code::unknown_method);
}

TEST_P(Unary, ReadyCompletesWhenThePeerIsConnected) {
  EXPECT_TRUE(peer().ready().get());
  EXPECT_TRUE(peer().ready().get());
}

TEST_P(Unary, DroppingTheHandleIsHarmless) {
  for (int i = 0; i < 100; ++i) {
    Call dropped = peer().unary("echo", "unwanted");
    if (i % 2 == 0) dropped.cancel();
  }
  EXPECT_EQ(text_of(peer().unary("echo", "wanted").get()), "wanted");
}

TEST_P(Unary, ASpawnedCoroutineRunsBesides) {
  std::atomic<int> done{0};
  const auto task = [](Peer to, std::atomic<int>& count) -> Task<void> {
    for (int i = 0; i < 20; ++i) {
      if (co_await to.unary("echo", "spawned")) ++count;
    }
  };
  client_.spawn(task(peer(), done));
  client_.spawn(task(peer(), done));
  while (done < 40) ASSERT_TRUE(peer().unary("echo", "main").get());
}

INSTANTIATE_TEST_SUITE_P(Pools, Unary, ::testing::Values(Threads{1, 1}, Threads{0, 0}, Threads{1, 0}, Threads{2, 2}),
                         [](const auto& of) {
                           return "Server" + std::to_string(of.param.server) + "Client" +
                                  std::to_string(of.param.client);
                         });

TEST(UnaryOneThread, TurnsBothEnds) {
  Pool server = open(server_config(0));
  Pool client = open(client_config(0));
  serve_echo(server);
  server.poll();
  int done = 0;
  Peer to = client.peer(server.listen_address());
  for (int i = 0; i < 5'000; ++i) {
    to.unary("echo", "x").then([&](Result<Reply> reply) {
      EXPECT_TRUE(reply) << reply.error().to_string();
      ++done;
    });
  }
  while (done < 5'000) {
    client.poll();
    server.poll();
  }
}

}  // namespace
}  // namespace weir
