// Completion: a thread that waits for a call gets its reply once and is woken for it, whenever the worker completes it.
#include <coroutine>
#include <memory>

#include "tests/explore/call_scene.h"
#include "tests/explore/finding.h"

namespace weir::explore {
namespace {

struct Shared {
  explicit Shared(std::uint32_t turns_to_answer) : pool({.turns_to_answer = turns_to_answer}) {}
  CallScene pool;
  Ending ends[2];
  sync::Atomic<std::uint32_t> told{0};
};

void note_end(Shared& shared, std::uint32_t number, const Result<Reply>& result, std::uint32_t all) {
  shared.ends[number](result);
  if (shared.told.fetch_add(1, std::memory_order_relaxed) + 1 == all) shared.pool.stop();
}

void judge_at_end(Scene& run, const std::shared_ptr<Shared>& shared, std::uint32_t all) {
  run.at_end([shared, all] {
    for (std::uint32_t i = 0; i < all; ++i) shared->ends[i].expect_reply(i);
    shared->pool.judge();
  });
}

// A thread blocks in get(), once or twice: its second call has the first one's record.
void get(Scene& run, std::uint32_t calls, std::uint32_t turns_to_answer) {
  auto shared = std::make_shared<Shared>(turns_to_answer);
  run.thread([shared] { shared->pool.work(); });
  run.thread([shared, calls] {
    for (std::uint32_t i = 0; i < calls; ++i) note_end(*shared, i, shared->pool.call(i).get(), calls);
  });
  judge_at_end(run, shared, calls);
}

void get_one(Scene& run) { get(run, 1, 0); }
void get_one_late(Scene& run) { get(run, 1, 1); }
void get_two(Scene& run) { get(run, 2, 0); }

void get_on_two_threads(Scene& run) {
  auto shared = std::make_shared<Shared>(0);
  run.thread([shared] { shared->pool.work(); });
  for (std::uint32_t i = 0; i < 2; ++i) {
    run.thread([shared, i] { note_end(*shared, i, shared->pool.call(i).get(), 2); });
  }
  judge_at_end(run, shared, 2);
}

// A continuation runs once, on the worker or where it is attached.
void then(Scene& run) {
  auto shared = std::make_shared<Shared>(0);
  run.thread([shared] { shared->pool.work(); });
  run.thread([shared] {
    Call call = shared->pool.call(0);
    call.then([shared = shared.get()](Result<Reply>&& result) { note_end(*shared, 0, result, 1); });
  });
  judge_at_end(run, shared, 1);
}

// A coroutine that is resumed on its own thread.
struct Running {
  struct promise_type {
    Running get_return_object() { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { fail("a coroutine throws"); }
  };
};

Running await_two(Shared& shared, bool& is_done) {
  Call first = shared.pool.call(0);
  Call second = shared.pool.call(1);
  note_end(shared, 1, co_await second, 2);
  note_end(shared, 0, co_await first, 2);
  is_done = true;
}

void coroutine(Scene& run) {
  auto shared = std::make_shared<Shared>(0);
  run.thread([shared] { shared->pool.work(); });
  run.thread([shared] {
    bool is_done = false;
    await_two(*shared, is_done);
    pool::Lane::mine().wait_until([&] { return is_done; });
  });
  judge_at_end(run, shared, 2);
}

TEST(ExploreCompletion, AThreadInGetIsWokenOnce) {
  expect_sound({.name = "completion, get()", .stale_reads = 1}, get_one);
  expect_sound({.name = "completion, get() of a late reply", .stale_reads = 0}, get_one_late);
  expect_sound({.name = "completion, get() twice", .preemptions = 2, .stale_reads = 1}, get_two);
  expect_sound({.name = "completion, get() on 2 threads", .preemptions = 1, .stale_reads = 0}, get_on_two_threads);
  expect_sound({.name = "completion, get() on 2 threads", .random_schedules = 3'000}, get_on_two_threads);
}

TEST(ExploreCompletion, AContinuationRunsOnce) { expect_sound({.name = "completion, then()", .stale_reads = 1}, then); }

TEST(ExploreCompletion, ACoroutineIsResumedOnItsThread) {
  expect_sound({.name = "completion, coroutine", .preemptions = 2, .stale_reads = 1}, coroutine);
}

TEST(ExploreCompletion, DefectsAreFound) {
  for (const Fault& fault : {Fault{"lane.cc", "Lane::wake(", Fault::Kind::skip, Operation::fence},
                             Fault{"lane.cc", "Lane::sleep(", Fault::Kind::skip, Operation::fence},
                             Fault{"lane.cc", "Lane::sleep(", Fault::Kind::answer, Operation::load, 0},
                             Fault{"lane.cc", "Lane::nudge(", Fault::Kind::skip, Operation::notify},
                             Fault{"lane.cc", "Lane::deliver(", Fault::Kind::relax, Operation::compare},
                             Fault{"lane.cc", "Lane::collect(", Fault::Kind::relax, Operation::exchange},
                             Fault{"call.cc", "complete_for_lane(", Fault::Kind::relax, Operation::exchange},
                             Fault{"call.cc", "claim(", Fault::Kind::relax, Operation::compare}}) {
    expect_found({.name = "completion, get()", .stale_reads = 1}, fault, get_one);
  }
  expect_found({.name = "completion, then()", .stale_reads = 1},
               {"call.cc", "claim(", Fault::Kind::relax, Operation::compare}, then);
  expect_found({.name = "completion, then()", .stale_reads = 1},
               {"call.cc", "complete_for_lane(", Fault::Kind::relax, Operation::load}, then);
}

}  // namespace
}  // namespace weir::explore
