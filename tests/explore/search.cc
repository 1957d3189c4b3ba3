// The search: run after run, until all schedules were run or one has failed.
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "tests/explore/explorer.h"
#include "tests/explore/explorer_state.h"

namespace weir::explore {

void Explorer::begin_search() {
  choices_.search_all();
  seen_ = Seen();
  report_.schedules = report_.equivalent = 0;
}

Report Explorer::explore() {
  using Mode = Choices::Mode;
  const auto begin = std::chrono::steady_clock::now();
  if (!options_.replay.empty()) {
    choices_.replay(options_.replay);
  } else if (options_.random_schedules != 0) {
    choices_.search_at_random();
  } else {
    begin_search();
  }
  const Mode mode = choices_.mode();
  for (;;) {
    if (mode == Mode::random) choices_.begin_random_run(options_.seed + report_.schedules);
    run_once();
    ++(outcome_ == Outcome::equivalent ? report_.equivalent : report_.schedules);
    if (outcome_ == Outcome::failed || mode == Mode::replay) break;
    if (report_.schedules >= (mode == Mode::random ? options_.random_schedules : options_.max_schedules)) break;
    if (mode == Mode::random) continue;
    if (shared_.take_news()) {
      begin_search();
    } else if (!choices_.next_run()) {
      report_.is_complete = true;
      break;
    }
  }
  if (outcome_ == Outcome::failed) {
    report_.has_failed = true;
    report_.failure = failure_;
    report_.schedule = mode == Mode::replay ? options_.replay : choices_.schedule();
    if (mode != Mode::replay) {  // once more, to see what it does
      choices_.replay(report_.schedule);
      run_once();
      if (outcome_ != Outcome::failed || failure_ != report_.failure) {
        report_.failure += " (and a replay of the schedule does something else: the scenario is not deterministic)";
      }
    }
  }
  report_.trace = trace_.text();
  report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return std::move(report_);
}

std::string Report::summary() const {
  char line[256];
  std::snprintf(line, sizeof line, "%llu schedules, %llu equivalent, %llu operations at most, %.2f s: %s",
                static_cast<unsigned long long>(schedules), static_cast<unsigned long long>(equivalent),
                static_cast<unsigned long long>(operations), seconds,
                has_failed    ? "FAILED"
                : is_complete ? "all within the bounds"
                              : "not all");
  return line;
}

namespace {

// A defect may lead to an invalid address. That ends the run like any other failure.
class CatchBadAddresses {
 public:
  CatchBadAddresses() {
    stack_t stack{};
    stack.ss_sp = memory_;
    stack.ss_size = sizeof memory_;
    sigaltstack(&stack, &stack_before_);
    struct sigaction action {};
    action.sa_handler = [](int) {
      if (running == nullptr) std::abort();
      running->fail("memory is used at an invalid address");
    };
    action.sa_flags = SA_ONSTACK | SA_NODEFER;
    sigaction(SIGSEGV, &action, &before_);
  }
  CatchBadAddresses(const CatchBadAddresses&) = delete;
  CatchBadAddresses& operator=(const CatchBadAddresses&) = delete;
  ~CatchBadAddresses() {
    sigaction(SIGSEGV, &before_, nullptr);
    sigaltstack(&stack_before_, nullptr);
  }

 private:
  char memory_[64 * 1024];
  stack_t stack_before_{};
  struct sigaction before_ {};
};

}  // namespace

Report explore(const Options& options, const std::function<void(Scene&)>& scenario) {
  Options chosen = options;
  const char* const wanted = std::getenv("WEIR_EXPLORE_SCHEDULE");
  if (wanted != nullptr) chosen.replay = wanted;
  if (const char* const deeper = std::getenv("WEIR_EXPLORE_DEEPER"); deeper != nullptr && options.faults.empty()) {
    const int more = std::atoi(deeper);
    chosen.preemptions += more;
    chosen.random_schedules *= static_cast<std::uint64_t>(1 + 20 * more);
    chosen.max_schedules *= 100;
  }
  const auto bad_addresses = std::make_unique<CatchBadAddresses>();
  auto explorer = std::make_unique<Explorer>(chosen, scenario);
  const Report report = explorer->explore();
  std::printf("explore %s%s: %s\n", options.name, options.faults.empty() ? "" : " (with a fault)",
              report.summary().c_str());
  if (report.has_failed) {
    std::printf("  %s\n  replay: WEIR_EXPLORE_SCHEDULE=%s\n", report.failure.c_str(), report.schedule.c_str());
  }
  if (wanted != nullptr || (report.has_failed && options.faults.empty() && options.replay.empty())) {
    std::printf("%s", report.trace.c_str());
  }
  std::fflush(stdout);
  return report;
}

}  // namespace weir::explore
