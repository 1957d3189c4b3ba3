// Calls with large replies that are awaited one after the other: replies that nobody has taken yet fill the memory for
// replies, and the one that is awaited comes last (docs/protocol.md, rule G-3).
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "pool/large_testing.h"

namespace weir {
namespace {

using namespace std::chrono_literals;
using testing::await;
using testing::client_config;
using testing::is_same;
using testing::kMiB;
using testing::open;
using testing::pattern;
using testing::payload_of;
using testing::server_config;
using testing::total;

constexpr std::size_t kOthers = 30;  // more than there is memory for

Limits few_replies() {
  Limits few;
  few.message_bytes = 2 * kMiB;
  few.large_reply_bytes = 8 * kMiB;
  return few;
}

Limits few_replies_of_one_peer() {
  Limits few;
  few.message_bytes = 2 * kMiB;
  few.large_bytes_per_peer = 4 * kMiB;
  return few;
}

// A server whose replies to "late" come only when the test says so, and those to "give" at once. Each is a MiB.
class Server {
 public:
  explicit Server(int late_calls = 1) : pool_(open(config(late_calls))) {
    const Payload payload = payload_of(pool_, text);
    EXPECT_TRUE(pool_.serve_inline("give", [payload](InlineRequest& request) { request.reply(payload); }));
    EXPECT_TRUE(pool_.serve("late", [this, payload](Request) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return is_time_; });
      return Reply{payload};
    }));
  }
  ~Server() { answer_late_calls(); }

  std::string address() const { return pool_.listen_address(); }
  void answer_late_calls() {
    std::lock_guard lock(mutex_);
    is_time_ = true;
    changed_.notify_all();
  }

  const std::string text = pattern(kMiB);

 private:
  static Config config(int late_calls) {
    Config config = server_config(1);
    config.executor_threads = late_calls;
    return config;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_time_ = false;
  Pool pool_;
};

Pool client_of(const Limits& limits, int workers = 1) {
  Config config = client_config(workers);
  config.limits = limits;
  return open(config);
}

// The first call is the one whose reply comes last.
std::vector<Call> submit(Pool& client, const Server& server) {
  const Peer to = client.peer(server.address());
  std::vector<Call> calls;
  calls.push_back(to.unary("late", "", {.deadline = 100s}));
  for (std::size_t i = 0; i < kOthers; ++i) calls.push_back(to.unary("give", "", {.deadline = 100s}));
  return calls;
}

bool replies_wait(const Pool& client) { return total(client).regions_exhausted != 0; }

void expect_reply(const Result<Reply>& reply, const Server& server) {
  ASSERT_TRUE(reply) << reply.error().to_string();
  EXPECT_TRUE(is_same(reply->text(), server.text));
}

TEST(LargeAwaited, AReplyComesAlthoughRepliesThatNobodyTookFillTheMemory) {
  for (const Limits& limits : {few_replies(), few_replies_of_one_peer()}) {
    Server server;
    Pool client = client_of(limits);
    std::vector<Call> calls = submit(client, server);
    await([&] { return replies_wait(client); });
    server.answer_late_calls();
    for (Call& call : calls) expect_reply(call.get(), server);
  }
}

TEST(LargeAwaited, AReplyComesToACallThatWasAwaitedBeforeTheMemoryWasFull) {
  Server server;
  Pool client = client_of(few_replies());
  std::vector<Call> calls = submit(client, server);
  std::thread waiter([&] {
    for (Call& call : calls) expect_reply(call.get(), server);
  });
  await([&] { return replies_wait(client); });
  server.answer_late_calls();
  waiter.join();
}

TEST(LargeAwaited, AReplyComesToACoroutine) {
  for (const int workers : {0, 1}) {
    Server server;
    Pool client = client_of(few_replies(), workers);
    const auto task = [&]() -> Task<int> {
      std::vector<Call> calls = submit(client, server);
      // A coroutine does not block: small calls pass the time.
      while (!replies_wait(client)) static_cast<void>(co_await client.peer(server.address()).unary("nobody", ""));
      server.answer_late_calls();
      int good = 0;
      for (Call& call : calls) {
        const Result<Reply> reply = co_await call;
        good += reply && is_same(reply->text(), server.text);
      }
      co_return good;
    };
    EXPECT_EQ(client.run(task()), 1 + static_cast<int>(kOthers)) << workers << " workers";
  }
}

TEST(LargeAwaited, RepliesComeToContinuationsThatAreAttachedOneAfterTheOther) {
  Server server;
  Pool client = client_of(few_replies());
  std::vector<Call> calls = submit(client, server);
  await([&] { return replies_wait(client); });
  server.answer_late_calls();
  for (Call& call : calls) {
    std::optional<Result<Reply>> reply;
    std::atomic<bool> is_there = false;
    call.then([&](Result<Reply> result) {
      reply.emplace(std::move(result));
      is_there = true;
    });
    await([&] { return is_there.load(); });
    expect_reply(*reply, server);
  }
}

// Each thread awaits its own calls in its own order, and none awaits what fills the memory.
TEST(LargeAwaited, RepliesComeToSeveralThreads) {
  constexpr int kThreads = 3;
  Server server(kThreads);
  Pool client = client_of(few_replies());
  std::vector<std::vector<Call>> calls;
  for (int i = 0; i < kThreads; ++i) calls.push_back(submit(client, server));
  await([&] { return replies_wait(client); });
  std::vector<std::thread> threads;
  for (std::vector<Call>& own : calls) {
    threads.emplace_back([&] {
      for (Call& call : own) expect_reply(call.get(), server);
    });
  }
  server.answer_late_calls();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace weir
