// The doorbell: whoever puts work in place and rings never leaves the worker asleep.
#include <memory>

#include "tests/explore/finding.h"
#include "tests/explore/stand_in_system.h"
#include "worker/doorbell.h"
#include "worker/sync.h"

namespace weir::explore {
namespace {

struct Shared {
  worker::Doorbell bell;
  sync::Atomic<int> work[2];
};

// As worker::Worker turns and sleeps: an answer, a look at everything, a sleep.
void work_until_done(Shared& shared, int rings) {
  int done = 0;
  while (done < rings) {
    if (shared.bell.answer()) {
      for (auto& each : shared.work) {
        if (each.load(std::memory_order_relaxed) != 0) {
          each.store(0, std::memory_order_relaxed);
          ++done;
        }
      }
      continue;
    }
    if (shared.bell.lie_down()) {
      sleep(sleeping_place(shared.bell.descriptor()), false, Where::current());
      shared.bell.clear_descriptor();
    }
    shared.bell.get_up();
  }
}

void ringers(Scene& run, int count) {
  auto shared = std::make_shared<Shared>();
  run.thread([shared, count] { work_until_done(*shared, count); });
  for (int i = 0; i < count; ++i) {
    run.thread([shared, i] {
      shared->work[i].store(1, std::memory_order_relaxed);
      shared->bell.ring();
    });
  }
}

TEST(ExploreDoorbell, NoRingIsLost) {
  expect_sound({.name = "doorbell, 1 ringer"}, [](Scene& run) { ringers(run, 1); });
  expect_sound({.name = "doorbell, 2 ringers"}, [](Scene& run) { ringers(run, 2); });
}

TEST(ExploreDoorbell, EveryFenceAndCheckIsNeeded) {
  for (const Fault& fault : {Fault{"doorbell.h", "::ring(", Fault::Kind::skip, Operation::fence},
                             Fault{"doorbell.h", "::answer(", Fault::Kind::skip, Operation::fence},
                             Fault{"doorbell.h", "::lie_down(", Fault::Kind::skip, Operation::fence},
                             Fault{"doorbell.h", "::lie_down(", Fault::Kind::answer, Operation::load, 0},
                             Fault{"stand_in_system.cc", "::wake(", Fault::Kind::skip, Operation::wake}}) {
    expect_found({.name = "doorbell, 2 ringers"}, fault, [](Scene& run) { ringers(run, 2); });
  }
}

}  // namespace
}  // namespace weir::explore
