// Cancellation: a call that is dropped, abandoned or cancelled while it completes ends once, and its record serves the
// next call only when both sides have let go of it.
#include <coroutine>
#include <memory>
#include <utility>

#include "tests/explore/call_scene.h"
#include "tests/explore/finding.h"

namespace weir::explore {
namespace {

constexpr std::uint32_t kNever = engine::Engine::kNever;

struct Shared {
  explicit Shared(std::uint32_t turns_to_answer) : pool({.turns_to_answer = turns_to_answer}) {}
  CallScene pool;
  Ending first, second;
  Canceller canceller;
  sync::Atomic<bool> has_canceller{false};
};

// The handle is dropped, and the next call may have the record of the first one.
void drop(Scene& run, std::uint32_t turns_to_answer) {
  auto shared = std::make_shared<Shared>(turns_to_answer);
  run.thread([shared] { shared->pool.work(); });
  run.thread([shared] {
    shared->pool.call(0).cancel();
    shared->second(shared->pool.call(1).get());
    shared->pool.stop();
  });
  run.at_end([shared] {
    shared->second.expect_reply(1);
    shared->pool.judge();
  });
}

void drop_early(Scene& run) { drop(run, 0); }
void drop_late(Scene& run) { drop(run, 1); }

// A coroutine that somebody destroys while it waits.
struct Suspended {
  struct promise_type {
    Suspended get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { fail("a coroutine throws"); }
  };
  std::coroutine_handle<promise_type> handle;
};

Suspended await_first(Shared& shared) { shared.first(co_await shared.pool.call(0)); }

void abandon(Scene& run) {
  auto shared = std::make_shared<Shared>(0);
  run.thread([shared] { shared->pool.work(); });
  run.thread([shared] {
    await_first(*shared).handle.destroy();
    shared->second(shared->pool.call(1).get());
    // What was on its way arrives, and is dropped.
    pool::Lane& lane = pool::Lane::mine();
    lane.wait_until([&] { return lane.awaited == 0; });
    shared->pool.stop();
  });
  run.at_end([shared] {
    check(shared->first.count() <= 1, "a call ends once");
    shared->second.expect_reply(1);
    shared->pool.judge();
  });
}

// One thread makes the call, cancels it too if it `helps`, and makes another one; a second thread cancels the first.
void cancel(Scene& run, std::uint32_t turns_to_answer, bool helps) {
  auto shared = std::make_shared<Shared>(turns_to_answer);
  run.thread([shared] { shared->pool.work(); });
  run.thread([shared, helps] {
    Shared* const here = shared.get();
    const Canceller canceller = here->pool.call(0).then_cancellable([here](Result<Reply>&& result) {
      here->first(result);
      here->pool.stop();
    });
    shared->canceller = canceller;
    shared->has_canceller.store(true, std::memory_order_release);
    if (helps) canceller.cancel();
  });
  run.thread([shared] {
    await([&] { return shared->has_canceller.load(std::memory_order_acquire); });
    const Canceller canceller = std::move(shared->canceller);
    canceller.cancel();
  });
  run.at_end([shared, turns_to_answer] {
    turns_to_answer == kNever ? shared->first.expect(Code::cancelled)
                              : shared->first.expect_reply_or(0, Code::cancelled);
    shared->pool.judge();
  });
}

void cancel_unanswered(Scene& run) { cancel(run, kNever, false); }
void cancel_answered(Scene& run) { cancel(run, 0, false); }
void cancel_late(Scene& run) { cancel(run, 1, true); }

// The thread that made the call cancels it: two threads.
void cancel_own(Scene& run) {
  auto shared = std::make_shared<Shared>(0);
  run.thread([shared] { shared->pool.work(); });
  run.thread([shared] {
    Shared* const here = shared.get();
    shared->canceller = shared->pool.call(0).then_cancellable([here](Result<Reply>&& result) { here->first(result); });
    shared->canceller.cancel();
    shared->second(shared->pool.call(1).get());
    shared->canceller = {};
    shared->pool.stop();
  });
  run.at_end([shared] {
    shared->first.expect_reply_or(0, Code::cancelled);
    shared->second.expect_reply(1);
    shared->pool.judge();
  });
}

TEST(ExploreCancellation, ADroppedCallLeavesItsRecordToTheNextOne) {
  expect_sound({.name = "cancellation, drop", .preemptions = 2, .stale_reads = 1}, drop_early);
  expect_sound({.name = "cancellation, drop of a call in flight", .preemptions = 3, .stale_reads = 0}, drop_late);
}

TEST(ExploreCancellation, ACoroutineThatIsDestroyedAbandonsItsCall) {
  expect_sound({.name = "cancellation, abandon", .preemptions = 3, .stale_reads = 0}, abandon);
  expect_sound({.name = "cancellation, abandon", .random_schedules = 3'000}, abandon);
}

TEST(ExploreCancellation, ACancellerOfAnotherThreadEndsACallOnce) {
  expect_sound({.name = "cancellation, own canceller", .preemptions = 2, .stale_reads = 0}, cancel_own);
  expect_sound({.name = "cancellation, unanswered call", .preemptions = 2, .stale_reads = 0}, cancel_unanswered);
  expect_sound({.name = "cancellation, answered call", .preemptions = 2, .stale_reads = 0}, cancel_answered);
  expect_sound({.name = "cancellation, two cancellers", .preemptions = 1, .stale_reads = 0}, cancel_late);
  expect_sound({.name = "cancellation, two cancellers", .random_schedules = 3'000}, cancel_late);
}

TEST(ExploreCancellation, DefectsAreFound) {
  for (const Fault& fault : {Fault{"call.cc", "call_drop(", Fault::Kind::relax, Operation::load},
                             Fault{"call.cc", "is_done(", Fault::Kind::answer, Operation::load, 0},
                             Fault{"gate.cc", "push(", Fault::Kind::relax, Operation::compare},
                             Fault{"gate.cc", "Gate::take_wishes(", Fault::Kind::relax, Operation::exchange}}) {
    expect_found({.name = "cancellation, drop", .preemptions = 2, .stale_reads = 1}, fault, drop_early);
  }
  for (const Fault& fault : {Fault{"gate.cc", "Gate::take_wishes(", Fault::Kind::relax, Operation::exchange},
                             Fault{"call.cc", "complete_for_lane(", Fault::Kind::relax, Operation::exchange}}) {
    expect_found({.name = "cancellation, abandon", .preemptions = 2, .stale_reads = 1}, fault, abandon);
  }
  for (const Fault& fault : {Fault{"gate.cc", "Gate::take_cancelled(", Fault::Kind::relax, Operation::exchange},
                             Fault{"canceller.h", "::release(", Fault::Kind::relax, Operation::exchange}}) {
    expect_found({.name = "cancellation, answered call", .preemptions = 2, .stale_reads = 1}, fault, cancel_answered);
  }
}

}  // namespace
}  // namespace weir::explore
