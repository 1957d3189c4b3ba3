// Submission: every call that a thread makes reaches the worker once, whether the worker polls, sleeps or is about to.
#include <memory>

#include "tests/explore/call_scene.h"
#include "tests/explore/finding.h"

namespace weir::explore {
namespace {

struct Shared {
  explicit Shared(std::uint32_t calls) : all(calls) {}
  CallScene pool;
  Ending ends[3];
  const std::uint32_t all;
};

// The worker stops when it has told all.
void make_call(Shared& shared, std::uint32_t number) {
  shared.pool.call(number).then([&shared, number](Result<Reply>&& result) {
    shared.ends[number](result);
    if (shared.pool.post().engine().completed() == shared.all) shared.pool.stop();
  });
}

void judge(Shared& shared) {
  for (std::uint32_t i = 0; i < shared.all; ++i) shared.ends[i].expect_reply(i);
  check(shared.pool.post().engine().submitted() == shared.all, "each call is submitted once");
  shared.pool.judge();
}

void submit(Scene& run, std::uint32_t threads, std::uint32_t calls) {
  auto shared = std::make_shared<Shared>(threads * calls);
  run.thread([shared] { shared->pool.work(); });
  for (std::uint32_t i = 0; i < threads; ++i) {
    run.thread([shared, i, calls] {
      for (std::uint32_t j = 0; j < calls; ++j) make_call(*shared, i * calls + j);
    });
  }
  run.at_end([shared] { judge(*shared); });
}

void one_call(Scene& run) { submit(run, 1, 1); }
void two_calls(Scene& run) { submit(run, 1, 2); }
// More than the ring holds: the thread waits for room.
void three_calls(Scene& run) { submit(run, 1, 3); }
void two_threads(Scene& run) { submit(run, 2, 1); }

TEST(ExploreSubmission, EveryCallReachesTheWorkerOnce) {
  expect_sound({.name = "submission, 1 call", .stale_reads = 2}, one_call);
  expect_sound({.name = "submission, 3 calls through a ring of 2", .stale_reads = 0}, three_calls);
  expect_sound({.name = "submission, 2 threads", .preemptions = 2, .stale_reads = 0}, two_threads);
  expect_sound({.name = "submission, 2 threads", .random_schedules = 3'000}, two_threads);
}

TEST(ExploreSubmission, DefectsAreFound) {
  for (const Fault& fault : {Fault{"gate.cc", "Port::ring(", Fault::Kind::relax, Operation::store},
                             Fault{"gate.h", "::have_ports_changed(", Fault::Kind::answer, Operation::load, 0},
                             Fault{"doorbell.h", "::lie_down(", Fault::Kind::skip, Operation::fence},
                             Fault{"stand_in_system.cc", "::wake(", Fault::Kind::skip, Operation::wake}}) {
    expect_found({.name = "submission, 1 call", .stale_reads = 1}, fault, one_call);
  }
  // The first call comes with the ring; only later ones need this.
  expect_found({.name = "submission, 2 calls", .stale_reads = 1},
               {"spsc_ring.h", "::publish(", Fault::Kind::relax, Operation::store}, two_calls);
}

}  // namespace
}  // namespace weir::explore
