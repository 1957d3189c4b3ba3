// Workers: commands, sleeping and waking, places. What they do to packets is tested with pools.
#include "worker/worker.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "crypto/entropy.h"
#include "engine/engine.h"
#include "link/link.h"
#include "worker/crew.h"
#include "worker/place.h"

namespace {
thread_local void (*on_yield)() = nullptr;
}  // namespace

// Instead of the C library's, so that tests see it.
extern "C" int sched_yield() noexcept {
  if (on_yield != nullptr) on_yield();
  return static_cast<int>(syscall(SYS_sched_yield));
}

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

TEST(Worker, OneThatSpinsNeverRests) {
  Worker worker({.idle = Idle::spin});
  worker.start();
  while (worker.turns() < 20'000) ASSERT_FALSE(worker.is_resting());  // one that rests makes no turns meanwhile
}

// By turns of the loop, not by time: what an idle one does first, after the turn in which it found nothing to do.
TEST(Worker, AnAdaptiveOneYieldsAtOnceOnlyWhereThreadsOutnumberCores) {
  static thread_local Worker* watched = nullptr;
  static thread_local std::uint64_t yielded_after = 0;  // so many turns, for the first time
  Worker worker({.has_thread = false});
  watched = &worker;
  on_yield = [] {
    if (yielded_after == 0) yielded_after = watched->turns();
  };
  for (const bool is_crowded : {true, false, true}) {
    if (is_crowded) active_threads.fetch_add(10'000);
    for (int rested = 0; rested < 100;) {
      worker.post([] {});
      while (!worker.poll()) {
      }
      yielded_after = 0;
      const std::uint64_t before = worker.turns();
      worker.poll_for(5us);
      if (worker.turns() == before + 1) continue;  // its time was over before it had rested
      ++rested;
      EXPECT_EQ(yielded_after == before + 1, is_crowded);
    }
    if (is_crowded) active_threads.fetch_sub(10'000);
  }
  on_yield = nullptr;
}

// Always readable, and never with a buffer to read into.
struct StarvedLink : link::Link {
  StarvedLink() { ring.ring(); }
  std::size_t receive(std::vector<link::Datagram>&) override { return 0; }
  void recycle() override {}
  std::size_t send(std::span<link::Train> trains, std::span<link::SendStatus>) override { return trains.size(); }
  int descriptor() const override { return ring.descriptor(); }
  Address local() const override { return Address::v4(0, 0); }
  bool take_unreachable(link::Unreachable&) override { return false; }
  void note_error() override {}
  link::LinkReport report() const override { return {}; }
  struct Readable : Doorbell {
    void ring() {
      static_cast<void>(lie_down());
      Doorbell::ring();
    }
  } ring;
};

struct StarvedHost : SeatHost {
  bool drain(Instant) override { return false; }
  void flush(Instant) override {}
  bool is_starved() const override { return true; }
};

TEST(Worker, DoesNotSpinWhileALinkHasNoBuffers) {
  crypto::SystemEntropy entropy;
  engine::Engine engine({.secret = crypto::SharedSecret::from_text("a secret that only tests know").value()}, entropy,
                        nullptr, 1, read_clock());
  StarvedLink link;
  StarvedHost host;
  Worker worker({});
  worker.start();
  Seat seat(engine, link, worker.burst(), &host);
  Hosted hosted{.seat = &seat};
  worker.run_on_loop([&] { worker.add(hosted); });
  const double before = process_cpu_seconds();
  std::this_thread::sleep_for(400ms);
  EXPECT_LT(process_cpu_seconds() - before, 0.15);
  worker.run_on_loop([&] {
    EXPECT_TRUE(seat.is_starved());
    worker.remove(hosted);
  });
}

TEST(Crew, RefusesWhatMakesNoSense) {
  EXPECT_FALSE(Crew::open({.threads = -1}));
  EXPECT_FALSE(Crew::open({.threads = Crew::kMaxWorkers + 1}));
  EXPECT_FALSE(Crew::open({.threads = 2, .places = {{.core = 0}}}));
  EXPECT_FALSE(Crew::open({.threads = 1, .places = {{.core = 100'000}}}));
  EXPECT_FALSE(Crew::open({.threads = 1, .watchdog = -1ns}));
}

// A process that is stopped and goes on has no hanging worker.
TEST(Crew, AProcessThatStoodStillIsNotAborted) {
  const pid_t child = fork();
  if (child == 0) {
    auto crew = Crew::open({.threads = 1, .idle = Idle::spin, .watchdog = 1s, .on_hang = OnHang::abort});
    std::this_thread::sleep_for(4s);
    _exit(crew ? 0 : 1);
  }
  for (int i = 0; i < 2; ++i) {
    std::this_thread::sleep_for(400ms);
    kill(child, SIGSTOP);
    std::this_thread::sleep_for(1500ms);
    kill(child, SIGCONT);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(Worker, AStandInIsWaitedFor) {
  Worker worker({.has_thread = false});
  std::atomic<bool> is_standing_in{false};
  bool has_ended = false;
  std::thread stand_in([&] {
    worker.run_on_loop([&] {
      is_standing_in = true;
      std::this_thread::sleep_for(20ms);
      has_ended = true;
    });
  });
  while (!is_standing_in) std::this_thread::yield();
  worker.poll();
  EXPECT_TRUE(has_ended);
  EXPECT_TRUE(worker.is_mine());
  stand_in.join();
  worker.disown();
}

TEST(Worker, ABorrowedLoopIsGivenToWhoeverClaimsIt) {
  Worker worker({.has_thread = false});
  ASSERT_TRUE(worker.try_borrow());
  std::thread([&] {
    EXPECT_FALSE(worker.poll()) << "its borrower turns it";
    EXPECT_FALSE(worker.is_mine());
  }).join();
  EXPECT_TRUE(worker.is_wanted());
  ++worker.direct_waiters;
  EXPECT_FALSE(worker.try_give_back()) << "they would be resumed on another thread";
  --worker.direct_waiters;
  EXPECT_TRUE(worker.try_give_back());
  std::thread([&] {
    EXPECT_EQ(worker.try_claim(), Worker::Claim::new_here);
    EXPECT_FALSE(worker.is_wanted());
    worker.disown();
  }).join();
}

TEST(Worker, RunsWhatWasPostedWhenItsOwnerEnds) {
  Worker worker({.has_thread = false});
  worker.poll();
  bool has_run = false;
  std::thread([&] { worker.post([&] { has_run = true; }); }).join();
  EXPECT_FALSE(has_run);
  worker.disown();
  EXPECT_TRUE(has_run);
  has_run = false;
  worker.post([&] { has_run = true; });
  EXPECT_TRUE(has_run) << "nobody owns it";
}

TEST(Worker, TakesNoCommandsOnceItHasStopped) {
  Worker worker({});
  worker.start();
  worker.stop_and_join();
  worker.retire();
  EXPECT_FALSE(worker.run_on_loop([] { ADD_FAILURE() << "there is no thread any more"; }));
}

TEST(Worker, ABusyThreadIsNotWaitedForBeyondTheTimeGiven) {
  Worker worker({});
  worker.start();
  std::atomic<bool> is_busy{false}, may_end{false};
  worker.post([&] {
    is_busy = true;
    while (!may_end) std::this_thread::yield();
  });
  while (!is_busy) std::this_thread::yield();
  EXPECT_FALSE(worker.try_on_loop([] { ADD_FAILURE() << "it was given up"; }, read_clock() + 5ms));
  may_end = true;
  bool has_run = false;
  EXPECT_TRUE(worker.try_on_loop([&] { has_run = true; }, Instant::never()));
  EXPECT_TRUE(has_run);
}

TEST(Worker, AThreadThatDoesNotEndInTimeIsLetGoAndKeepsItsWorker) {
  auto worker = std::make_shared<Worker>(Worker::Options{});
  worker->start();
  std::atomic<bool> is_busy{false}, may_end{false};
  worker->post([&] {
    is_busy = true;
    while (!may_end) std::this_thread::yield();
  });
  while (!is_busy) std::this_thread::yield();
  EXPECT_FALSE(worker->stop_by(read_clock() + 5ms, worker));
  std::atomic<bool> has_run{false};
  worker->post([&] { has_run = true; });
  const std::weak_ptr<Worker> observed = worker;
  worker.reset();
  EXPECT_FALSE(observed.expired());
  may_end = true;
  while (!observed.expired()) std::this_thread::yield();
  EXPECT_TRUE(has_run) << "what was posted before the end";
}

TEST(Worker, AThreadThatEndsInTimeIsJoined) {
  auto worker = std::make_shared<Worker>(Worker::Options{});
  worker->start();
  EXPECT_TRUE(worker->stop_by(Instant::never(), worker));
  EXPECT_EQ(worker.use_count(), 1);
  EXPECT_TRUE(worker->stop_by(Instant::never(), worker)) << "twice is once";
}

// Not under the sanitizers: they need descriptors of their own to tell good memory from bad.
#ifndef __SANITIZE_ADDRESS__
TEST(Crew, IsNotOpenedWithoutDescriptors) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  Result<std::shared_ptr<Crew>> crew = Crew::open({.threads = 1});
  setrlimit(RLIMIT_NOFILE, &before);
  ASSERT_FALSE(crew);
  EXPECT_EQ(crew.error().code(), Code::overloaded);
}
#endif

}  // namespace
}  // namespace weir::worker
