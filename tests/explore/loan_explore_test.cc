// A loop without a thread: whoever waits borrows it, others wait for them, and nobody's call is forgotten when it goes
// from one thread to the next.
#include <memory>

#include "tests/explore/call_scene.h"
#include "tests/explore/finding.h"

namespace weir::explore {
namespace {

struct Shared {
  CallScene pool{{.turns_to_answer = 0, .has_thread = false}};
  Ending ends[2];
};

void get_on_two_threads(Scene& run) {
  auto shared = std::make_shared<Shared>();
  for (std::uint32_t i = 0; i < 2; ++i) {
    run.thread([shared, i] { shared->ends[i](shared->pool.call(i).get()); });
  }
  run.at_end([shared] {
    for (std::uint32_t i = 0; i < 2; ++i) shared->ends[i].expect_reply(i);
    shared->pool.judge();
  });
}

// The second thread closes the pool: on the loop that the first one has, or in its stead.
void get_and_close(Scene& run) {
  auto shared = std::make_shared<Shared>();
  run.thread([shared] { shared->ends[0](shared->pool.call(0).get()); });
  run.thread([shared] { shared->pool.close(); });
  run.at_end([shared] {
    shared->ends[0].expect_reply_or(0, Code::closed);
    shared->pool.judge();
  });
}

TEST(ExploreLoan, TwoThreadsInGetShareALoop) {
  expect_sound({.name = "loan, get() on 2 threads", .preemptions = 2, .stale_reads = 0}, get_on_two_threads);
  expect_sound({.name = "loan, get() on 2 threads", .random_schedules = 3'000}, get_on_two_threads);
}

TEST(ExploreLoan, ALoopIsClosedWhileItIsBorrowed) {
  expect_sound({.name = "loan, get() and close", .preemptions = 2, .stale_reads = 0}, get_and_close);
}

TEST(ExploreLoan, DefectsAreFound) {
  // The owner's word that it is none any more, and the look of those who wait for it.
  for (const Fault& fault : {Fault{"worker.cc", "Worker::give_up(", Fault::Kind::skip, Operation::store},
                             Fault{"worker.h", "Worker::has_owner(", Fault::Kind::answer, Operation::load, 1}}) {
    expect_found({.name = "loan, get() on 2 threads", .preemptions = 2, .stale_reads = 0, .max_steps = 1'500}, fault,
                 get_on_two_threads);
  }
}

}  // namespace
}  // namespace weir::explore
