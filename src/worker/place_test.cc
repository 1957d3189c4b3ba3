// Where threads run, and what becomes of a worker that may not run where it should.
#include "worker/place.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "worker/crew.h"

// WEIR_PORTABLE_UDP leaves pinning out, as other systems do.
#if defined(__linux__) && !defined(WEIR_PORTABLE_UDP)
#define WEIR_TEST_HAS_AFFINITY 1
#endif

namespace weir::worker {
namespace {

struct Watch : Subscriber {
  void on(const event::Degraded& e) override {
    ++degraded;
    what = e.what;
    sentence = e.sentence;
  }
  int degraded = 0;
  std::string what;
  std::string sentence;
};

TEST(Place, CountsAtLeastOneCore) { EXPECT_GE(usable_cores(), 1); }

TEST(Place, IsOneThatTheMachineHas) {
  EXPECT_TRUE(validate({}));
  EXPECT_TRUE(validate({.core = 0}));
  for (const int core : {-2, 100'000}) {
    const Result<void> result = validate({.core = core});
    ASSERT_FALSE(result) << core;
    EXPECT_NE(result.error().message().find("core " + std::to_string(core)), std::string_view::npos);
  }
  for (const int node : {-2, 4'000}) {
    const Result<void> result = validate({.numa_node = node});
    ASSERT_FALSE(result) << node;
    EXPECT_NE(result.error().message().find("NUMA node " + std::to_string(node)), std::string_view::npos);
  }
}

TEST(Place, IsOnTheNodeThatItNamesOrThatItsCoreIsOn) {
  EXPECT_EQ(node_of({}), -1);
  EXPECT_EQ(node_of({.numa_node = 3}), 3);
#if defined(WEIR_TEST_HAS_AFFINITY)
  if (!validate({.numa_node = 0})) GTEST_SKIP() << "this machine does not tell its nodes";
  EXPECT_GE(node_of({.core = 0}), 0);
  EXPECT_TRUE(validate({.numa_node = node_of({.core = 0, .numa_node = 3})})) << "the core counts";
  EXPECT_EQ(node_of({.core = CPU_SETSIZE}), -1);
#else
  EXPECT_EQ(node_of({.core = 0}), -1);
#endif
}

#if defined(WEIR_TEST_HAS_AFFINITY)

cpu_set_t affinity_of(Worker& worker) {
  cpu_set_t set;
  CPU_ZERO(&set);
  worker.run_on_loop([&] { EXPECT_EQ(pthread_getaffinity_np(pthread_self(), sizeof set, &set), 0); });
  return set;
}

// The first and the last of those that this process may use: a worker that is not pinned may use both.
TEST(Crew, PinsItsWorkersToCores) {
  cpu_set_t all;
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  int first = CPU_SETSIZE, last = 0;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &all)) continue;
    first = std::min(first, core);
    last = core;
  }
  auto watch = std::make_shared<Watch>();
  auto crew = Crew::open({.threads = 2, .places = {{.core = first}, {.core = last}}, .subscriber = watch});
  ASSERT_TRUE(crew);
  for (const auto& [index, core] : {std::pair{0, first}, std::pair{1, last}}) {
    const cpu_set_t set = affinity_of(*(*crew)->worker(static_cast<std::size_t>(index)));
    EXPECT_EQ(CPU_COUNT(&set), 1);
    EXPECT_TRUE(CPU_ISSET(core, &set));
  }
  EXPECT_EQ(watch->degraded, 0);
}

TEST(Crew, PinsItsWorkersToNodes) {
  if (!validate({.numa_node = 0})) GTEST_SKIP() << "this machine does not tell its nodes";
  auto watch = std::make_shared<Watch>();
  // Away from where the thread that opens it is: a worker that is not pinned stays there.
  cpu_set_t before, one;
  ASSERT_EQ(pthread_getaffinity_np(pthread_self(), sizeof before, &before), 0);
  CPU_ZERO(&one);
  for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++core) {
    if (CPU_ISSET(core, &before)) CPU_SET(core, &one);
  }
  ASSERT_EQ(pthread_setaffinity_np(pthread_self(), sizeof one, &one), 0);
  auto crew = Crew::open({.threads = 1, .places = {{.numa_node = 0}}, .subscriber = watch});
  ASSERT_EQ(pthread_setaffinity_np(pthread_self(), sizeof before, &before), 0);
  ASSERT_TRUE(crew);
  const cpu_set_t set = affinity_of(*(*crew)->worker(0));
  cpu_set_t common;
  CPU_AND(&common, &set, &before);
  if (!validate({.numa_node = 1})) {
    EXPECT_TRUE(CPU_EQUAL(&common, &before)) << "all are on the only node";
  }
  EXPECT_EQ(watch->degraded, 0);
}

#else

TEST(Crew, SaysThatItCannotPin) {
  auto watch = std::make_shared<Watch>();
  {
    auto crew = Crew::open({.threads = 1, .places = {{.core = 0}}, .subscriber = watch});
    ASSERT_TRUE(crew);
    bool has_run = false;
    (*crew)->worker(0)->run_on_loop([&] { has_run = true; });
    EXPECT_TRUE(has_run);
  }
  EXPECT_EQ(watch->degraded, 1);
  EXPECT_EQ(watch->what, "worker pinning");
  EXPECT_NE(watch->sentence.find("core"), std::string::npos);
}

#endif

}  // namespace
}  // namespace weir::worker
