// The schedule explorer: runs a scenario of a few threads under many schedules, and says which one breaks it.
//
//   const Report report = explore({.name = "ring"}, [](Scene& run) {
//     auto ring = std::make_shared<SpscRing<int>>(2);
//     run.thread([ring] { ... });
//     run.thread([ring] { ... });
//     run.at_end([ring] { check(ring->empty(), "everything was taken"); });
//   });
//
// The scenario is run anew for each schedule. Its threads are fibers on one thread of the system; every operation of an
// explored type is a scheduling point. Everything that the scenario allocates lies in memory of its own, which is given
// up at the end of each run, so that a run can be left in the middle, and what is freed is not used again in that run.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/explore/runtime.h"

namespace weir::explore {

// A deliberate defect: what operations of one place in the sources do instead of what they should.
struct Fault {
  enum class Kind : std::uint8_t {
    relax,   // the memory order is relaxed; a fence does nothing
    skip,    // a store, fence or notification does not happen
    answer,  // a load answers `value`: a check that is not made
  };
  const char* file = "";      // the end of its path
  const char* function = "";  // part of its name: "::publish("
  Kind kind = Kind::relax;
  Operation operation = Operation::load;  // which operations of that function
  std::uint64_t value = 0;
  int line_of_function = 0;  // 0: all such operations; 1: the first line of the function with one; ...
};

struct Options {
  const char* name = "";
  int preemptions = 3;                      // of all schedules together
  int stale_reads = 2;                      // per schedule: loads of another than the newest value, spurious failures
  std::uint32_t history = 3;                // how many of the newest values a load may choose from
  std::uint64_t random_schedules = 0;       // instead of all: this many, without a bound on preemptions
  std::uint64_t seed = 1;                   // of the first random schedule; the next one has the next seed
  std::uint64_t max_schedules = 3'000'000;  // then the search is incomplete
  std::uint32_t max_steps = 5'000;          // of one run; more is a lack of progress
  bool expects_no_leak = true;
  std::vector<Fault> faults{};
  std::string replay{};  // a schedule as a report gives it
};

struct Report {
  bool is_complete = false;  // every schedule within the bounds was run, or one that is equivalent to it
  bool has_failed = false;
  std::string failure;           // a sentence
  std::string schedule;          // for Options::replay or the variable WEIR_EXPLORE_SCHEDULE
  std::string trace;             // the operations of the failed run, one per line
  std::uint64_t schedules = 0;   // that were run to their end
  std::uint64_t equivalent = 0;  // that were left, because an equivalent prefix had been run
  std::uint64_t operations = 0;  // of the longest run
  std::uint64_t faults_hit = 0;  // operations that a fault has changed
  double seconds = 0;

  std::string summary() const;  // a line
};

// What a scenario is written with.
class Scene {
 public:
  void thread(std::function<void()> body) { threads_.push_back(std::move(body)); }
  // When all threads have ended, in order, on the thread that prepared the run.
  void at_end(std::function<void()> body) { ends_.push_back(std::move(body)); }

 private:
  friend class Explorer;
  std::vector<std::function<void()>> threads_, ends_;
};

inline void check(bool condition, const char* sentence) {
  if (!condition) fail(sentence);
}

// Prints the summary, and the failure with its trace unless there are faults (which are meant to be found).
// With WEIR_EXPLORE_SCHEDULE in the environment only that schedule is run, and its trace printed. WEIR_EXPLORE_DEEPER=1
// allows one preemption more and runs 21 times as many random schedules, unless there are faults.
Report explore(const Options& options, const std::function<void(Scene&)>& scenario);

}  // namespace weir::explore
