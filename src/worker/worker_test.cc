// Workers: commands, sleeping and waking, places. What they do to packets is tested with pools.
#include "worker/worker.h"

#include <gtest/gtest.h>
#include <time.h>

#include <atomic>
#include <memory>
#include <thread>

#include "worker/crew.h"
#include "worker/place.h"

namespace weir::worker {
namespace {

using namespace std::chrono_literals;

TEST(Worker, RunsCommandsOnItsThread) {
  Worker worker({.index = 3});
  worker.start();
  EXPECT_FALSE(worker.is_mine());
  for (int i = 0; i < 100; ++i) {
    std::thread::id ran_on;
    worker.run_on_loop([&] {
      ran_on = std::this_thread::get_id();
      EXPECT_TRUE(worker.is_mine());
    });
    EXPECT_NE(ran_on, std::thread::id{});
    EXPECT_NE(ran_on, std::this_thread::get_id());
  }
}

TEST(Worker, WakesUpForEveryRing) {
  Worker worker({});
  worker.start();
  for (int i = 0; i < 50; ++i) {
    while (!worker.is_resting()) std::this_thread::yield();
    bool has_run = false;
    worker.run_on_loop([&] { has_run = true; });  // would hang if a ring got lost
    EXPECT_TRUE(has_run);
  }
}

TEST(Worker, WithoutAThreadBelongsToTheFirstThatTurnsIt) {
  Worker worker({.has_thread = false});
  EXPECT_FALSE(worker.has_owner());
  bool has_run = false;
  worker.run_on_loop([&] { has_run = true; });
  EXPECT_TRUE(has_run);
  EXPECT_FALSE(worker.has_owner()) << "a command is no claim";
  worker.poll();
  EXPECT_TRUE(worker.is_mine());
  std::thread([&] {
    EXPECT_FALSE(worker.is_mine());
    EXPECT_FALSE(worker.run_on_loop([] { ADD_FAILURE() << "on a loop that another thread owns"; }, Instant{}));
    EXPECT_EQ(worker.try_claim(), Worker::Claim::refused);
    EXPECT_FALSE(worker.try_borrow());
  }).join();
  EXPECT_TRUE(worker.is_mine());
  worker.disown();
  std::thread([&] {
    worker.poll();
    EXPECT_TRUE(worker.is_mine());
    worker.disown();
  }).join();
}

TEST(Worker, PollForReturnsWhenItsTimeIsUp) {
  Worker worker({.has_thread = false});
  const Instant before = read_clock();
  EXPECT_FALSE(worker.poll_for(5ms));
  EXPECT_GE((read_clock() - before).count(), Duration(5ms).count());
}

double process_cpu_seconds() {
  timespec spent{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent);
  return static_cast<double>(spent.tv_sec) + static_cast<double>(spent.tv_nsec) * 1e-9;
}

// CPU time, not wall time: load on the machine does not add to it.
TEST(Worker, AnIdleAdaptiveOneUsesHardlyAnyProcessorTime) {
  Worker worker({});
  worker.start();
  while (!worker.is_resting()) std::this_thread::yield();
  const double before = process_cpu_seconds();
  std::this_thread::sleep_for(500ms);
  EXPECT_LT(process_cpu_seconds() - before, 0.005);
}

TEST(Crew, RefusesWhatMakesNoSense) {
  EXPECT_FALSE(Crew::open({.threads = -1}));
  EXPECT_FALSE(Crew::open({.threads = Crew::kMaxWorkers + 1}));
  EXPECT_FALSE(Crew::open({.threads = 2, .places = {{.core = 0}}}));
  EXPECT_FALSE(Crew::open({.threads = 1, .places = {{.core = 100'000}}}));
  EXPECT_FALSE(Crew::open({.threads = 1, .watchdog = -1ns}));
}

TEST(Crew, PinsItsWorkers) {
  auto crew = Crew::open({.threads = 1, .places = {{.core = 0}}});
  ASSERT_TRUE(crew);
  int core = -1;
#if defined(__linux__)
  (*crew)->worker(0)->run_on_loop([&] { core = sched_getcpu(); });
  EXPECT_EQ(core, 0);
#endif
}

TEST(Place, CountsAtLeastOneCore) { EXPECT_GE(usable_cores(), 1); }

}  // namespace
}  // namespace weir::worker
