#include "sim/run.h"

#include <fmt/format.h>

#include <string>

#include "base/check.h"
#include "sim/journal.h"

namespace weir::sim {
namespace {

constexpr std::uint64_t kRunsPerProgressLine = 100;

}  // namespace

void print(std::FILE* out, const Report& report) {
  for (const std::string& violation : report.violations) {
    fmt::print(out, "VIOLATION seed {} scenario {}: {}\n", report.seed, report.scenario, violation);
  }
  fmt::print(out, "{}\n", report.summary());
  std::fflush(out);
}

ManyReports run_many(const ManyRuns& plan) {
  WEIR_CHECK(!plan.scenarios.empty(), "many runs need at least one scenario");
  ManyReports all;
  EventHash hash;
  for (std::uint64_t i = 0; i < plan.count; ++i) {
    const std::string_view name = plan.scenarios[i % plan.scenarios.size()];
    auto scenario = make_scenario(name, plan.first_seed + i);
    WEIR_CHECK(scenario.has_value(), "no scenario of that name; ask scenario_names()");
    scenario->nic_bytes_per_second = plan.nic_bytes_per_second;
    const Report report = run(*scenario);
    ++all.runs;
    all.calls += report.calls;
    all.violations += report.violations.size();
    if (!report.violations.empty()) ++all.failed_runs;
    hash.mix(report.event_hash);
    if (plan.each || !report.violations.empty()) print(plan.out, report);
    if (all.runs % kRunsPerProgressLine == 0 && all.runs != plan.count) {
      fmt::print(plan.out, "{} of {} runs, {} violations\n", all.runs, plan.count, all.violations);
      std::fflush(plan.out);
    }
  }
  all.event_hash = hash.value();
  fmt::print(plan.out, "{} runs of seeds {} to {}, {} calls, {} violations, hash {:016x}\n", all.runs, plan.first_seed,
             plan.first_seed + plan.count - 1, all.calls, all.violations, all.event_hash);
  std::fflush(plan.out);
  return all;
}

}  // namespace weir::sim
