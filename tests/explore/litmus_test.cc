// The explorer itself: which outcomes of well-known small programs it reaches, and which it must not.
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <utility>

#include "base/sync.h"
#include "tests/explore/arena.h"
#include "tests/explore/explorer.h"
#include "worker/sync.h"

namespace weir::explore {
namespace {

using Outcomes = std::set<std::string>;
constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr auto kAcquire = std::memory_order_acquire;
constexpr auto kRelease = std::memory_order_release;
constexpr auto kSequential = std::memory_order_seq_cst;

struct Shared {
  sync::Atomic<int> x{0}, y{0};
  int first = -1, second = -1, third = -1, fourth = -1;  // what loads returned
};

// Collects what `outcome` says at the end of each schedule.
template <class Prepare, class Outcome>
Outcomes outcomes_of(const char* name, Prepare prepare, Outcome outcome) {
  Outcomes found;
  const Report report = explore({.name = name, .preemptions = 4, .stale_reads = 4}, [&](Scene& run) {
    auto shared = std::make_shared<Shared>();
    prepare(run, shared);
    run.at_end([&found, shared, outcome] {
      std::string* const text = new std::string(outcome(*shared));
      {
        const arena::Off off;
        found.insert(std::string(text->data(), text->size()));
      }
      delete text;
    });
  });
  EXPECT_FALSE(report.has_failed) << report.failure;
  EXPECT_TRUE(report.is_complete);
  return found;
}

std::string pair_of(const Shared& shared) { return std::to_string(shared.first) + std::to_string(shared.second); }

Outcomes store_buffering(std::memory_order store, std::memory_order load, bool has_fences) {
  return outcomes_of(
      "store buffering",
      [=](Scene& run, const std::shared_ptr<Shared>& shared) {
        run.thread([=] {
          shared->x.store(1, store);
          if (has_fences) sync::fence(kSequential);
          shared->first = shared->y.load(load);
        });
        run.thread([=] {
          shared->y.store(1, store);
          if (has_fences) sync::fence(kSequential);
          shared->second = shared->x.load(load);
        });
      },
      pair_of);
}

TEST(ExploreLitmus, StoreBufferingNeedsSequentialConsistency) {
  EXPECT_EQ(store_buffering(kRelaxed, kRelaxed, false), (Outcomes{"00", "01", "10", "11"}));
  EXPECT_EQ(store_buffering(kRelease, kAcquire, false), (Outcomes{"00", "01", "10", "11"}));
  EXPECT_EQ(store_buffering(kSequential, kSequential, false), (Outcomes{"01", "10", "11"}));
  EXPECT_EQ(store_buffering(kRelaxed, kRelaxed, true), (Outcomes{"01", "10", "11"}));
}

Outcomes message_passing(std::memory_order store, std::memory_order load) {
  return outcomes_of(
      "message passing",
      [=](Scene& run, const std::shared_ptr<Shared>& shared) {
        run.thread([=] {
          shared->x.store(1, kRelaxed);
          shared->y.store(1, store);
        });
        run.thread([=] {
          shared->first = shared->y.load(load);
          shared->second = shared->x.load(kRelaxed);
        });
      },
      pair_of);
}

TEST(ExploreLitmus, MessagePassingNeedsReleaseAndAcquire) {
  EXPECT_EQ(message_passing(kRelease, kAcquire), (Outcomes{"00", "01", "11"}));
  EXPECT_EQ(message_passing(kRelaxed, kAcquire), (Outcomes{"00", "01", "10", "11"}));
  EXPECT_EQ(message_passing(kRelease, kRelaxed), (Outcomes{"00", "01", "10", "11"}));
}

TEST(ExploreLitmus, FencesPassMessagesOfRelaxedOperations) {
  const Outcomes found = outcomes_of(
      "message passing with fences",
      [](Scene& run, const std::shared_ptr<Shared>& shared) {
        run.thread([=] {
          shared->x.store(1, kRelaxed);
          sync::fence(kRelease);
          shared->y.store(1, kRelaxed);
        });
        run.thread([=] {
          shared->first = shared->y.load(kRelaxed);
          sync::fence(kAcquire);
          shared->second = shared->x.load(kRelaxed);
        });
      },
      pair_of);
  EXPECT_EQ(found, (Outcomes{"00", "01", "11"}));
}

// Two readers of two independent writes: only a total order makes them agree.
Outcomes independent_reads(std::memory_order store, std::memory_order load) {
  return outcomes_of(
      "independent reads of independent writes",
      [=](Scene& run, const std::shared_ptr<Shared>& shared) {
        run.thread([=] { shared->x.store(1, store); });
        run.thread([=] { shared->y.store(1, store); });
        run.thread([=] {
          shared->first = shared->x.load(load);
          shared->second = shared->y.load(load);
        });
        run.thread([=] {
          shared->third = shared->y.load(load);
          shared->fourth = shared->x.load(load);
        });
      },
      [](const Shared& shared) {
        return pair_of(shared) + std::to_string(shared.third) + std::to_string(shared.fourth);
      });
}

TEST(ExploreLitmus, ReadersAgreeOnTheOrderOfWritesOnlyUnderSequentialConsistency) {
  EXPECT_TRUE(independent_reads(kRelease, kAcquire).contains("1010"));
  const Outcomes sequential = independent_reads(kSequential, kSequential);
  EXPECT_FALSE(sequential.contains("1010"));
  EXPECT_EQ(sequential.size(), 15u);
}

TEST(ExploreLitmus, ReadsOfOneAtomicNeverGoBack) {
  const Outcomes found = outcomes_of(
      "coherence",
      [](Scene& run, const std::shared_ptr<Shared>& shared) {
        run.thread([=] {
          shared->x.store(1, kRelaxed);
          shared->x.store(2, kRelaxed);
        });
        run.thread([=] {
          shared->first = shared->x.load(kRelaxed);
          shared->second = shared->x.load(kRelaxed);
        });
      },
      pair_of);
  EXPECT_EQ(found, (Outcomes{"00", "01", "02", "11", "12", "22"}));
}

// The second thread's read-modify-write continues the first one's release; a plain store does not.
Outcomes release_sequence(bool modifies) {
  return outcomes_of(
      "release sequence",
      [=](Scene& run, const std::shared_ptr<Shared>& shared) {
        run.thread([=] {
          shared->x.store(1, kRelaxed);
          shared->y.store(1, kRelease);
        });
        run.thread([=] {
          if (modifies) {
            shared->y.fetch_add(1, kRelaxed);
          } else if (shared->y.load(kRelaxed) == 1) {
            shared->y.store(2, kRelaxed);
          }
        });
        run.thread([=] {
          shared->first = shared->y.load(kAcquire);
          if (shared->first == 2) shared->second = shared->x.load(kRelaxed);
        });
      },
      pair_of);
}

TEST(ExploreLitmus, ReadModifyWritesContinueAReleaseSequence) {
  EXPECT_FALSE(release_sequence(true).contains("20"));
  EXPECT_TRUE(release_sequence(true).contains("21"));
  EXPECT_TRUE(release_sequence(false).contains("20"));
}

// A fence of sequential consistency is seen by later fences, whatever thread learned of it.
TEST(ExploreLitmus, WhatAFenceHasSeenIsPassedOnByReleaseAndAcquire) {
  const Outcomes found = outcomes_of(
      "fence and hand-over",
      [](Scene& run, const std::shared_ptr<Shared>& shared) {
        run.thread([=] {
          shared->x.store(1, kRelaxed);
          sync::fence(kSequential);
          shared->first = shared->y.load(kRelaxed);
        });
        run.thread([=] {
          shared->y.store(1, kRelaxed);
          sync::fence(kSequential);
          shared->second = shared->x.load(kRelaxed);
        });
      },
      pair_of);
  EXPECT_FALSE(found.contains("00"));
}

TEST(ExploreLitmus, AMutexOrdersWhatItGuards) {
  struct Guarded {
    sync::Mutex mutex;
    int count = 0;
  };
  const Report report = explore({.name = "mutex"}, [](Scene& run) {
    auto guarded = std::make_shared<Guarded>();
    for (int i = 0; i < 3; ++i) {
      run.thread([guarded] {
        const std::lock_guard lock(guarded->mutex);
        sync::writes(&guarded->count);
        ++guarded->count;
      });
    }
    run.at_end([guarded] { check(guarded->count == 3, "each thread counted once"); });
  });
  EXPECT_TRUE(report.is_complete);
  EXPECT_FALSE(report.has_failed) << report.failure;
}

TEST(ExploreLitmus, UnorderedPlainAccessesAreFound) {
  const Report report = explore({.name = "race", .faults = {{.file = "none"}}}, [](Scene& run) {
    auto shared = std::make_shared<Shared>();
    for (int i = 0; i < 2; ++i) {
      run.thread([shared] { sync::writes(&shared->first); });
    }
  });
  EXPECT_TRUE(report.has_failed);
  EXPECT_NE(report.failure.find("plain memory is written"), std::string::npos) << report.failure;
}

// The classic lost wake-up: the flag is looked at before the lock is taken.
Report sleeper(bool looks_under_lock) {
  struct Bed {
    sync::Mutex mutex;
    sync::ConditionVariable woken;
    sync::Atomic<bool> is_awake{false};
  };
  return explore({.name = "condition variable", .faults = {{.file = "none"}}}, [=](Scene& run) {
    auto bed = std::make_shared<Bed>();
    run.thread([=] {
      if (looks_under_lock) {
        std::unique_lock lock(bed->mutex);
        bed->woken.wait(lock, [&] { return bed->is_awake.load(kRelaxed); });
      } else if (!bed->is_awake.load(kRelaxed)) {
        std::unique_lock lock(bed->mutex);
        bed->woken.wait(lock);
      }
    });
    run.thread([=] {
      {
        const std::lock_guard lock(bed->mutex);
        bed->is_awake.store(true, kRelaxed);
      }
      bed->woken.notify_one();
    });
  });
}

TEST(ExploreLitmus, ALostWakeUpIsADeadlock) {
  EXPECT_FALSE(sleeper(true).has_failed);
  const Report report = sleeper(false);
  ASSERT_TRUE(report.has_failed);
  EXPECT_NE(report.failure.find("sleeps for ever"), std::string::npos) << report.failure;
}

void* volatile keep = nullptr;  // what the optimiser cannot leave out

TEST(ExploreLitmus, MemoryThatIsLostOrUsedAfterItsEndIsFound) {
  const Report lost = explore({.name = "lost memory", .faults = {{.file = "none"}}},
                              [](Scene& run) { run.thread([] { keep = new int(7); }); });
  EXPECT_TRUE(lost.has_failed);
  EXPECT_NE(lost.failure.find("lost"), std::string::npos) << lost.failure;
  const Report used = explore({.name = "used after its end", .faults = {{.file = "none"}}}, [](Scene& run) {
    auto shared = std::make_shared<Shared>();
    auto* const counter = new sync::Atomic<int>(2);
    for (int i = 0; i < 2; ++i) {
      run.thread([counter] {
        if (counter->fetch_sub(1, kRelaxed) == 1) delete counter;  // relaxed: not ordered after the other's use
      });
    }
  });
  EXPECT_TRUE(used.has_failed);
}

// What is found is found again: from the printed schedule alone.
TEST(ExploreLitmus, AFailedScheduleIsReplayed) {
  const auto scenario = [](Scene& run) {
    auto shared = std::make_shared<Shared>();
    run.thread([shared] {
      const int seen = shared->x.load(kRelaxed);
      shared->x.store(seen + 1, kRelaxed);
    });
    run.thread([shared] {
      const int seen = shared->x.load(kRelaxed);
      shared->x.store(seen + 1, kRelaxed);
    });
    run.at_end([shared] { check(shared->x.load(kRelaxed) == 2, "no increment is lost"); });
  };
  const Report found = explore({.name = "lost increment", .faults = {{.file = "none"}}}, scenario);
  ASSERT_TRUE(found.has_failed);
  EXPECT_EQ(found.failure, "no increment is lost");
  const Report again = explore({.name = "lost increment", .replay = found.schedule}, scenario);
  EXPECT_TRUE(again.has_failed);
  EXPECT_EQ(again.failure, found.failure);
  EXPECT_EQ(again.trace, found.trace);
  EXPECT_EQ(again.schedules, 1u);
  const Report random =
      explore({.name = "lost increment", .random_schedules = 1'000, .seed = 5, .faults = {{.file = "none"}}}, scenario);
  ASSERT_TRUE(random.has_failed);
  EXPECT_EQ(explore({.name = "lost increment", .replay = random.schedule}, scenario).failure, found.failure);
}

// The figure that the search rests on: equivalent prefixes are left, and no outcome is lost by that.
// That two threads use y shows only in a run that is preempted; and one of them changes y in between.
TEST(ExploreLitmus, WhatOnlySomeRunsShareIsAPointInAllRuns) {
  const Report report = explore({.name = "shared in some runs", .preemptions = 1, .stale_reads = 0}, [](Scene& run) {
    auto shared = std::make_shared<Shared>();
    run.thread([=] {
      shared->x.store(1, kRelaxed);
      shared->y.store(1, kRelaxed);
      shared->y.store(2, kRelaxed);
      shared->x.store(2, kRelaxed);
    });
    run.thread([=] {
      if (shared->x.load(kRelaxed) == 1) check(shared->y.load(kRelaxed) != 1, "seen in between");
    });
  });
  EXPECT_TRUE(report.has_failed);
  EXPECT_EQ(report.failure, "seen in between");
}

TEST(ExploreLitmus, AllSchedulesOfThreeThreadsOfTwentyFiveOperations) {
  const Report report = explore({.name = "three threads of 25 operations", .stale_reads = 0}, [](Scene& run) {
    auto shared = std::make_shared<Shared>();
    for (int i = 0; i < 3; ++i) {
      run.thread([=] {
        for (int round = 0; round < 25; ++round) {
          round % 5 == i ? shared->x.fetch_add(1, kRelaxed) : shared->y.load(kRelaxed);
        }
        if (i == 2) shared->y.store(1, kRelaxed);  // so that its loads are scheduling points
      });
    }
    run.at_end([shared] { check(shared->x.load(kRelaxed) == 15, "no increment is lost"); });
  });
  EXPECT_TRUE(report.is_complete);
  EXPECT_FALSE(report.has_failed) << report.failure;
}

}  // namespace
}  // namespace weir::explore
