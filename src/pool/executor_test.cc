// The queue in front of the executor: in which order handlers run, and who waits where when it is full.
#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
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

// One executor thread, which the first request keeps busy until it is let go.
class ExecutorQueue : public ::testing::Test {
 protected:
  void start(std::size_t queue) {
    Config config = server_config(1);
    config.limits.executor_queue = queue;
    server.emplace(open(config));
    ASSERT_TRUE(server->serve("slow", [this](Request request) {
      {
        std::lock_guard lock(mutex);
        order.push_back(request.priority());
      }
      await([&] { return !is_held; });
      return Reply{"done"};
    }));
    serve_echo(*server);
    client.emplace(open(client_config(1)));
    call(3);
    await([&] {
      std::lock_guard lock(mutex);
      return order.size() == 1;
    });
  }
  // Returns when the server has it.
  void call(int priority, std::chrono::nanoseconds deadline = 60s) {
    calls.push_back(peer().unary("slow", "", {.priority = priority, .deadline = deadline}));
    await([&] { return server->counters()[0].requests_dispatched >= calls.size(); });
  }
  Peer peer() { return client->peer(server->listen_address()); }
  // Whatever the client has sent before has arrived when this returns.
  void pass() { EXPECT_EQ(text_of(peer().unary("echo", "here").get()), "here"); }
  void expect_all_done() {
    is_held = false;
    for (Call& call : calls) EXPECT_EQ(text_of(call.get()), "done");
  }

  std::mutex mutex;
  std::vector<int> order;
  std::atomic<bool> is_held{true};
  std::optional<Pool> server, client;
  std::vector<Call> calls;
};

TEST_F(ExecutorQueue, RunsTheMoreUrgentFirst) {
  start(100);
  for (const int priority : {7, 7, 5, 0, 1}) call(priority);
  expect_all_done();
  EXPECT_EQ(order, (std::vector<int>{3, 0, 1, 5, 7, 7}));
}

TEST_F(ExecutorQueue, RunsTheLessUrgentNowAndThen) {
  start(1'000);
  for (int i = 0; i < 40; ++i) {
    call(2);
    call(4);
  }
  expect_all_done();
  const auto early = std::count(order.begin(), order.begin() + 41, 4);
  EXPECT_GE(early, 6);
  EXPECT_LE(early, 10) << "one in five is its share";
}

TEST_F(ExecutorQueue, HasPlacesForEachPriority) {
  start(3);
  for (const int priority : {6, 7, 7, 7, 7, 7, 2, 0, 7}) call(priority);
  expect_all_done();
  EXPECT_EQ(order, (std::vector<int>{3, 0, 2, 6, 7, 7, 7, 7, 7, 7}));
}

TEST_F(ExecutorQueue, ARequestThatFindsNoPlaceRunsInItsTurn) {
  start(1);
  for (int i = 0; i < 50; ++i) call(i % 2 == 0 ? 3 : 5);
  expect_all_done();
  EXPECT_EQ(order.size(), 51u);
}

TEST_F(ExecutorQueue, ARequestThatIsCancelledBeforeItRunsNeverRuns) {
  start(2);
  for (int i = 0; i < 6; ++i) call(5);  // two in the queue, and four in front of it
  for (const std::size_t cancelled : {1u, 3u, 4u, 6u}) calls[cancelled].cancel();
  pass();
  is_held = false;
  for (const std::size_t left : {0u, 2u, 5u}) EXPECT_EQ(text_of(calls[left].get()), "done");
  pass();
  EXPECT_EQ(order.size(), 3u);
  EXPECT_TRUE(server->close(10s)) << "nothing of them is left";
}

TEST_F(ExecutorQueue, ARequestWhoseDeadlinePassesInFrontOfTheQueueNeverRuns) {
  start(1);
  call(5);
  call(5);
  call(5, 1ms);
  call(5);
  Result<Reply> late = calls[3].get();
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code(), Code::timeout);
  pass();
  is_held = false;
  for (const std::size_t left : {0u, 1u, 2u, 4u}) EXPECT_EQ(text_of(calls[left].get()), "done");
  EXPECT_EQ(order.size(), 4u);
}

TEST_F(ExecutorQueue, CloseEndsWhatWaitsInFrontOfTheQueue) {
  start(1);
  for (int i = 0; i < 5; ++i) call(5);
  std::thread closer([&] { EXPECT_FALSE(server->close(1ms)) << "a handler is still running"; });
  for (Call& call : calls) EXPECT_FALSE(call.get());
  is_held = false;
  closer.join();
  EXPECT_EQ(order.size(), 1u);
}

TEST_F(ExecutorQueue, ARequestOfACallerThatEndsInFrontOfTheQueueNeverRuns) {
  start(1);
  for (int i = 0; i < 5; ++i) call(5);
  for (Call& call : calls) call.cancel();
  EXPECT_TRUE(client->close(10s));
  client.emplace(open(client_config(1)));
  pass();
  is_held = false;
  EXPECT_EQ(text_of(peer().unary("slow", "", {.priority = 5}).get()), "done");
  EXPECT_EQ(order.size(), 2u);
}

TEST_F(ExecutorQueue, LargeRequestsWaitInFrontOfItToo) {
  start(1);
  for (int i = 0; i < 4; ++i) {
    calls.push_back(peer().unary("slow", std::string(100'000, 'x'), {.priority = 5, .deadline = 60s}));
  }
  await([&] { return server->counters()[0].requests_dispatched == calls.size(); });
  calls[3].cancel();
  pass();
  is_held = false;
  for (const std::size_t left : {0u, 1u, 2u, 4u}) EXPECT_EQ(text_of(calls[left].get()), "done");
  EXPECT_EQ(order.size(), 4u);
}

// Many more calls than places and than credit: callers wait, none is refused, and the server holds what its credit
// allows.
TEST(Executor, ThatIsSlowSlowsItsCallers) {
  constexpr std::size_t kCalls = 1'500;
  constexpr std::size_t kBytes = 1'000;
  Config config = server_config(1);
  config.limits.executor_queue = 4;
  config.limits.request_bytes = config.limits.request_bytes_per_peer = 128 * 1024;
  Pool server = open(config);
  std::atomic<std::uint64_t> most{0};
  ASSERT_TRUE(server.serve("slow", [&](Request) {
    const Counters now = server.counters()[0];
    most = std::max<std::uint64_t>(most, now.requests_received - now.replies_sent);
    return Reply{"done"};
  }));
  Pool client = open(client_config(1));
  const Peer to = client.peer(server.listen_address());
  std::vector<Call> calls;
  for (std::size_t i = 0; i < kCalls; ++i) {
    calls.push_back(to.unary("slow", std::string(kBytes, 'x'), {.priority = static_cast<int>(i % 8), .deadline = 60s}));
  }
  for (Call& call : calls) EXPECT_EQ(text_of(call.get()), "done");
  EXPECT_GT(most, 8u * 4u) << "some had to wait in front of the queue";
  EXPECT_LE(most, config.limits.request_bytes / kBytes);
}

// Each worker has places of its own: none waits for one that only another can free.
TEST(Executor, HasPlacesForEachWorker) {
  Config config = server_config(2);
  config.limits.executor_queue = 2;
  Pool server = open(config);
  std::atomic<bool> is_held{true};
  ASSERT_TRUE(server.serve("slow", [&](Request) {
    await([&] { return !is_held; });
    return Reply{"done"};
  }));
  serve_echo(server);
  const auto received = [&](std::size_t worker) { return server.counters()[worker].requests_received; };
  std::vector<Pool> clients;  // until each worker has some
  while (received(0) == 0 || received(1) == 0) {
    clients.push_back(open(client_config(1)));
    EXPECT_EQ(text_of(clients.back().peer(server.listen_address()).unary("echo", "a").get()), "a");
  }
  std::vector<Call> calls;
  for (const Pool& client : clients) {
    for (int i = 0; i < 100; ++i) {
      calls.push_back(client.peer(server.listen_address()).unary("slow", "", {.deadline = 60s}));
    }
  }
  await([&] { return received(0) + received(1) == clients.size() * 101; });
  is_held = false;
  for (Call& call : calls) EXPECT_EQ(text_of(call.get()), "done");
}

}  // namespace
}  // namespace weir
