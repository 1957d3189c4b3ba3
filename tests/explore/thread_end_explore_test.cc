// The end of a thread: its calls end without it, and its port serves another thread.
#include <coroutine>
#include <memory>
#include <utility>

#include "tests/explore/call_scene.h"
#include "tests/explore/finding.h"

namespace weir::explore {
namespace {

struct Shared {
  explicit Shared(std::uint32_t turns_to_answer) : pool({.turns_to_answer = turns_to_answer}) {}
  CallScene pool;
  Ending ends[2];
  Canceller canceller;
  sync::Atomic<bool> has_canceller{false};
};

void note_end(Shared& shared, std::uint32_t number, const Result<Reply>& result) {
  shared.ends[number](result);
  if (shared.pool.post().engine().completed() == 2) shared.pool.stop();
}

// Two threads make a call each and end. Whoever comes second may have the port of the first.
void leave_calls(Scene& run) {
  auto shared = std::make_shared<Shared>(1);
  run.thread([shared] { shared->pool.work(); });
  for (std::uint32_t i = 0; i < 2; ++i) {
    run.thread([here = shared.get(), i] {
      here->pool.call(i).then([here, i](Result<Reply>&& result) { note_end(*here, i, result); });
    });
  }
  run.at_end([shared] {
    for (std::uint32_t i = 0; i < 2; ++i) shared->ends[i].expect_reply(i);
    shared->pool.judge();
  });
}

// The thread has its reply and ends while the worker is still waking it.
void leave_after_get(Scene& run) {
  auto shared = std::make_shared<Shared>(1);
  run.thread([shared] { shared->pool.work(); });
  run.thread([shared] {
    shared->ends[0](shared->pool.call(0).get());
    shared->pool.stop();
  });
  run.at_end([shared] {
    shared->ends[0].expect_reply(0);
    shared->pool.judge();
  });
}

struct Running {
  struct promise_type {
    Running get_return_object() { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { fail("a coroutine throws"); }
  };
};

Running await_call(Shared& shared) { shared.ends[0](co_await shared.pool.call(0)); }

// The thread ends while its coroutine waits: nobody resumes that, and the reply finds the lane where it was.
void leave_coroutine(Scene& run) {
  auto shared = std::make_shared<Shared>(1);
  run.thread([shared] { shared->pool.work(); });
  run.thread([shared] { await_call(*shared); });
  run.thread([shared] { shared->pool.close(); });
  run.at_end([shared] {
    check(shared->ends[0].count() <= 1, "a call ends once");
    shared->pool.judge();
  });
}

// The thread ends, and another one cancels its call.
void cancel_for_another(Scene& run) {
  auto shared = std::make_shared<Shared>(1);
  run.thread([shared] { shared->pool.work(); });
  run.thread([here = shared.get()] {
    here->canceller = here->pool.call(0).then_cancellable([here](Result<Reply>&& result) {
      here->ends[0](result);
      here->pool.stop();
    });
    here->has_canceller.store(true, std::memory_order_release);
  });
  run.thread([shared] {
    await([&] { return shared->has_canceller.load(std::memory_order_acquire); });
    std::exchange(shared->canceller, {}).cancel();
  });
  run.at_end([shared] {
    shared->ends[0].expect_reply_or(0, Code::cancelled);
    shared->pool.judge();
  });
}

TEST(ExploreThreadEnd, CallsEndWithoutTheirThread) {
  expect_sound({.name = "thread end, calls outstanding", .preemptions = 2, .stale_reads = 0}, leave_calls);
  expect_sound({.name = "thread end, calls outstanding", .random_schedules = 3'000}, leave_calls);
  expect_sound({.name = "thread end, cancelled by another", .preemptions = 2, .stale_reads = 0}, cancel_for_another);
}

TEST(ExploreThreadEnd, ALaneStaysWhileItIsWoken) {
  expect_sound({.name = "thread end, after get()", .preemptions = 2, .stale_reads = 2}, leave_after_get);
}

TEST(ExploreThreadEnd, AReplyToACoroutineOfAnEndedThreadIsKept) {
  expect_sound({.name = "thread end, coroutine waits", .preemptions = 2, .stale_reads = 0, .expects_no_leak = false},
               leave_coroutine);
}

TEST(ExploreThreadEnd, DefectsAreFound) {
  for (const Fault& fault : {Fault{"lane.cc", "Lane::leave(", Fault::Kind::relax, Operation::store},
                             Fault{"gate.cc", "Gate::open_port(", Fault::Kind::relax, Operation::load},
                             Fault{"gate.cc", "Gate::open_port(", Fault::Kind::answer, Operation::load, 1}}) {
    expect_found({.name = "thread end, calls outstanding", .preemptions = 2, .stale_reads = 1}, fault, leave_calls);
  }
}

}  // namespace
}  // namespace weir::explore
