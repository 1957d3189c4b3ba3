// Calls that are made on the worker and whose handles go to another thread: that one asks the worker, by wishes at the
// gate, for what it may not do itself.
#include <coroutine>
#include <memory>
#include <optional>
#include <utility>

#include "tests/explore/call_scene.h"
#include "tests/explore/finding.h"

namespace weir::explore {
namespace {

struct Shared {
  explicit Shared(std::uint32_t turns_to_answer) : pool({.turns_to_answer = turns_to_answer}) {}
  CallScene pool;
  Ending first, second;
  std::optional<Call> box;
  sync::Atomic<bool> is_full{false};
};

// The thread's first call has the worker make the second one, whose handle `use` gets.
template <class Use>
void move_call(Scene& run, std::uint32_t turns_to_answer, const Use& use) {
  auto shared = std::make_shared<Shared>(turns_to_answer);
  run.thread([shared] { shared->pool.work(); });
  run.thread([shared, use] {
    Shared* const here = shared.get();
    here->pool.call(0).then([here](Result<Reply>&& result) {
      here->first(result);
      here->box = here->pool.call(1);
      here->is_full.store(true, std::memory_order_release);
    });
    await([&] { return here->is_full.load(std::memory_order_acquire); });
    use(*here, *std::exchange(here->box, std::nullopt));
    here->pool.close();  // when the worker has done what was asked of it
  });
  run.at_end([shared] {
    shared->first.expect_reply(0);
    check(shared->second.count() <= 1, "a call ends once");
    shared->pool.judge();
  });
}

void get(Scene& run) {
  move_call(run, 1, [](Shared& shared, Call call) {
    shared.second(call.get());
    shared.second.expect_reply(1);
  });
}

void drop(Scene& run) {
  move_call(run, 1, [](Shared& shared, Call call) {
    call.cancel();
    shared.second(shared.pool.call(2).get());
    shared.second.expect_reply(2);
  });
}

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

Suspended await_call(Shared& shared, Call call) { shared.second(co_await call); }

void abandon(Scene& run) {
  move_call(run, 1, [](Shared& shared, Call call) {
    await_call(shared, std::move(call)).handle.destroy();
    pool::Lane& lane = pool::Lane::mine();
    lane.wait_until([&] { return lane.awaited == 0; });
  });
}

TEST(ExploreMovedCall, IsAwaitedElsewhere) {
  expect_sound({.name = "moved call, get()", .preemptions = 2, .stale_reads = 1}, get);
  expect_sound({.name = "moved call, get()", .random_schedules = 3'000}, get);
}

TEST(ExploreMovedCall, IsDroppedElsewhere) {
  expect_sound({.name = "moved call, drop", .preemptions = 2, .stale_reads = 0}, drop);
  expect_sound({.name = "moved call, abandon", .preemptions = 2, .stale_reads = 0}, abandon);
  expect_sound({.name = "moved call, abandon", .random_schedules = 3'000}, abandon);
}

TEST(ExploreMovedCall, DefectsAreFound) {
  for (const Fault& fault : {Fault{"inbox.h", "::take_wishes(", Fault::Kind::answer, Operation::load, 0},
                             Fault{"call.cc", "settle(", Fault::Kind::relax, Operation::store}}) {
    expect_found({.name = "moved call, get()", .preemptions = 2, .stale_reads = 1}, fault, get);
  }
}

}  // namespace
}  // namespace weir::explore
