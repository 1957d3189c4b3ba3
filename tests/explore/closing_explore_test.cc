// Close: whatever is submitted, completed or cancelled while a pool closes ends once, and everybody who closes returns.
#include <memory>
#include <utility>

#include "tests/explore/call_scene.h"
#include "tests/explore/finding.h"

namespace weir::explore {
namespace {

struct Shared {
  explicit Shared(std::uint32_t turns_to_answer) : pool({.turns_to_answer = turns_to_answer}) {}
  CallScene pool;
  Ending end;
};

std::shared_ptr<Shared> begin(Scene& run, std::uint32_t turns_to_answer) {
  auto shared = std::make_shared<Shared>(turns_to_answer);
  run.thread([shared] { shared->pool.work(); });
  run.thread([shared] { shared->pool.close(); });
  run.at_end([shared] {
    shared->end.expect_reply_or(0, Code::closed);
    shared->pool.judge();
  });
  return shared;
}

void submit(Scene& run) {
  auto shared = begin(run, 0);
  run.thread([shared] {
    Shared* const here = shared.get();
    here->pool.call(0).then([here](Result<Reply>&& result) { here->end(result); });
  });
}

void get(Scene& run, std::uint32_t turns_to_answer) {
  auto shared = begin(run, turns_to_answer);
  run.thread([shared] { shared->end(shared->pool.call(0).get()); });
}

void get_answered(Scene& run) { get(run, 0); }
void get_unanswered(Scene& run) { get(run, engine::Engine::kNever); }

void drop(Scene& run) {
  auto shared = begin(run, 0);
  run.thread([shared] {
    shared->pool.call(7).cancel();
    shared->end(shared->pool.call(0).get());
  });
}

void cancel(Scene& run) {
  auto shared = std::make_shared<Shared>(engine::Engine::kNever);
  run.thread([shared] { shared->pool.work(); });
  run.thread([shared] { shared->pool.close(); });
  run.thread([shared] {
    Shared* const here = shared.get();
    here->pool.call(0).then_cancellable([here](Result<Reply>&& result) { here->end(result); }).cancel();
  });
  run.at_end([shared] {
    check(shared->end.count() == 1, "a call ends once");
    shared->pool.judge();
  });
}

// The one who closes has a call on its way, and somebody else closes, too.
void close_twice(Scene& run) {
  auto shared = begin(run, 0);
  run.thread([shared] {
    Shared* const here = shared.get();
    here->pool.call(0).then([here](Result<Reply>&& result) { here->end(result); });
    here->pool.close();
    check(here->end.count() == 1, "every call of a closed pool has ended");
  });
}

TEST(ExploreClosing, EveryCallEndsOnce) {
  expect_sound({.name = "close and submission", .preemptions = 2, .stale_reads = 0}, submit);
  expect_sound({.name = "close and get()", .preemptions = 1, .stale_reads = 1}, get_answered);
  expect_sound({.name = "close and get() of an unanswered call", .preemptions = 1, .stale_reads = 1}, get_unanswered);
  expect_sound({.name = "close and get()", .random_schedules = 5'000}, get_answered);
}

TEST(ExploreClosing, DroppedAndCancelledCallsEndOnce) {
  expect_sound({.name = "close and drop", .preemptions = 1, .stale_reads = 0}, drop);
  expect_sound({.name = "close and drop", .random_schedules = 5'000}, drop);
  expect_sound({.name = "close and cancellation", .preemptions = 1, .stale_reads = 1}, cancel);
  expect_sound({.name = "close and cancellation", .random_schedules = 5'000}, cancel);
}

TEST(ExploreClosing, ASecondCloseWaitsForTheFirst) {
  expect_sound({.name = "close twice", .preemptions = 2, .stale_reads = 0}, close_twice);
}

TEST(ExploreClosing, DefectsAreFound) {
  for (const Fault& fault : {Fault{"gate.cc", "Gate::ring(", Fault::Kind::answer, Operation::load, 0},
                             Fault{"gate.cc", "Gate::close(", Fault::Kind::skip, Operation::store},
                             Fault{"gate.cc", "Gate::close(", Fault::Kind::skip, Operation::fence},
                             Fault{"worker_commands.cc", "::run_commands(", Fault::Kind::skip, Operation::notify}}) {
    expect_found({.name = "close and submission", .preemptions = 2, .stale_reads = 1}, fault, submit);
  }
}

}  // namespace
}  // namespace weir::explore
