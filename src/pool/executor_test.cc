// The queue in front of the executor: in which order handlers run, and who is refused when it is full.
#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <vector>

#include "pool/pool_testing.h"

namespace weir {
namespace {

using namespace std::chrono_literals;
using testing::await;
using testing::client_config;
using testing::open;
using testing::server_config;

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
    client.emplace(open(client_config(1)));
    call(3);
    await([&] {
      std::lock_guard lock(mutex);
      return order.size() == 1;
    });
  }
  // Returns when the server has it.
  void call(int priority) {
    calls.push_back(client->peer(server->listen_address()).unary("slow", "", {.priority = priority, .deadline = 60s}));
    await([&] { return server->counters()[0].requests_dispatched == calls.size(); });
  }
  std::vector<bool> outcomes() {
    is_held = false;
    std::vector<bool> ok;
    for (Call& call : calls) {
      Result<Reply> result = call.get();
      EXPECT_TRUE(result || result.error().code() == Code::overloaded);
      ok.push_back(result.has_value());
    }
    return ok;
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
  outcomes();
  EXPECT_EQ(order, (std::vector<int>{3, 0, 1, 5, 7, 7}));
}

TEST_F(ExecutorQueue, RunsTheLessUrgentNowAndThen) {
  start(1'000);
  for (int i = 0; i < 40; ++i) {
    call(2);
    call(4);
  }
  outcomes();
  const auto early = std::count(order.begin(), order.begin() + 41, 4);
  EXPECT_GE(early, 6);
  EXPECT_LE(early, 10) << "one in five is its share";
}

TEST_F(ExecutorQueue, RefusesTheNewestOfTheLeastUrgentWhenItIsFull) {
  start(3);
  for (const int priority : {6, 7, 7, 7, 2, 0}) call(priority);
  EXPECT_EQ(outcomes(), (std::vector<bool>{true, true, false, false, false, true, true}));
}

}  // namespace
}  // namespace weir
