// weir::all: however many calls there are, whoever waits for them is woken once.
#include <sys/resource.h>

#include <atomic>
#include <coroutine>
#include <map>
#include <mutex>
#include <vector>

#include "pool/pool_testing.h"

namespace weir {
namespace {

using namespace std::chrono_literals;
using testing::await;
using testing::client_config;
using testing::open;
using testing::server_config;
using testing::text_of;

// Takes the place of a coroutine and counts how often it is resumed; the coroutine is resumed the first time.
struct Relay {
  struct promise_type {
    Relay get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
  std::coroutine_handle<promise_type> handle;
};

Relay relay_to(std::coroutine_handle<> waiter, int& resumptions) {
  for (;;) {
    if (++resumptions == 1) waiter.resume();
    co_await std::suspend_always{};
  }
}

struct CountedAwaiter {
  AllCalls& calls;
  int& resumptions;
  Relay& relay;
  AllCalls::Awaiter inner{calls};

  bool await_ready() const noexcept { return inner.await_ready(); }
  bool await_suspend(std::coroutine_handle<> waiter) noexcept {
    relay = relay_to(waiter, resumptions);
    return inner.await_suspend(relay.handle);
  }
  std::vector<Result<Reply>> await_resume() { return inner.await_resume(); }
};

Task<int> count_right_replies(AllCalls calls, int& resumptions, Relay& relay) {
  int right = 0, number = 0;
  for (const Result<Reply>& reply : co_await CountedAwaiter{calls, resumptions, relay}) {
    right += text_of(reply) == std::to_string(number++);
  }
  co_return right;
}

constexpr int kCalls = 50;

// A server that keeps its requests until it has them all, and then answers in the order of the calls.
class All : public ::testing::TestWithParam<int> {
 protected:
  All() : server_(open(server_config(1))), client_(open(client_config(GetParam()))) {
    EXPECT_TRUE(server_.serve_inline("hold", [this](InlineRequest& request) {
      std::lock_guard lock(mutex_);
      const int number = std::stoi(std::string(request.text()));
      held_.emplace(number, request.defer());
    }));
  }

  AllCalls make_calls() {
    const Peer to = client_.peer(server_.listen_address());
    std::vector<int> numbers(kCalls);
    int next = 0;
    return all(numbers, [&](int) { return to.unary("hold", std::to_string(next++), {.deadline = 1h}); });
  }

  void answer_one_by_one() {
    await([&] {
      std::lock_guard lock(mutex_);
      return held_.size() == kCalls;
    });
    for (auto& [number, responder] : held_) {
      responder.reply(std::to_string(number));
      std::this_thread::sleep_for(3ms);  // longer than a thread that waits stays awake
    }
  }

  std::mutex mutex_;
  std::map<int, Responder> held_;  // by the number that was asked with
  Pool server_;
  Pool client_;
};

TEST_P(All, ACoroutineIsResumedOnce) {
  int resumptions = 0;
  Relay relay{};
  std::thread answerer([&] { answer_one_by_one(); });
  EXPECT_EQ(client_.run(count_right_replies(make_calls(), resumptions, relay)), kCalls);
  answerer.join();
  EXPECT_EQ(resumptions, 1);
  relay.handle.destroy();
}

INSTANTIATE_TEST_SUITE_P(Workers, All, ::testing::Values(0, 1, 2));

#if defined(RUSAGE_THREAD)

long sleeps_of_this_thread() {
  rusage usage{};
  EXPECT_EQ(getrusage(RUSAGE_THREAD, &usage), 0);
  return usage.ru_nvcsw;  // not those in which it only yielded
}

using AllOfThreads = All;

TEST_P(AllOfThreads, AThreadSleepsOnceForRepliesInTheirOrder) {
  std::thread answerer([&] { answer_one_by_one(); });
  AllCalls calls = make_calls();
  const long before = sleeps_of_this_thread();
  std::vector<Result<Reply>> replies = calls.get();
  const long sleeps = sleeps_of_this_thread() - before;
  answerer.join();
  for (int i = 0; i < kCalls; ++i) EXPECT_EQ(text_of(replies[static_cast<std::size_t>(i)]), std::to_string(i));
  EXPECT_LT(sleeps, kCalls / 4);  // a few for locks that another thread had just then
}

INSTANTIATE_TEST_SUITE_P(Workers, AllOfThreads, ::testing::Values(1));

#endif

}  // namespace
}  // namespace weir
