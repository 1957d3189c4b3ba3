#include "sim/fabric_seeds.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "sim/fabric_run.h"
#include "sim/journal.h"

namespace weir::sim {

FabricSeedsReport run_fabric_seeds(const FabricSeeds& plan) {
  FabricSeedsReport all;
  EventHash hash;
  for (std::uint64_t i = 0; i < plan.count; ++i) {
    FabricOptions options = plan.options;
    options.seed = plan.first_seed + i;
    auto scenario = make_fabric_scenario(plan.scenario, options);
    WEIR_CHECK(scenario.has_value(), "no load of that name; ask fabric_scenario_names()");
    const FabricReport report = FabricRun(std::move(*scenario)).run();
    ++all.runs;
    all.met += report.meets_goals() ? 1 : 0;
    all.incomplete += report.is_complete() ? 0 : 1;
    all.worst_completion = std::max(all.worst_completion, report.completion());
    all.mean_completion += report.completion() / static_cast<double>(plan.count);
    all.worst_retransmitted = std::max(all.worst_retransmitted, report.retransmitted_share());
    all.mean_retransmitted += report.retransmitted_share() / static_cast<double>(plan.count);
    all.least_goodput = std::min(all.least_goodput, report.goodput());
    all.worst_control = std::max(all.worst_control, report.control_share());
    hash.mix(report.hash);
    if (!plan.each && report.is_complete()) continue;
    fmt::print(plan.out, "{} seed {}: {:.2f} x the ideal, {:.2f} % sent again, goodput {:.2f} %, {}\n", plan.scenario,
               options.seed, report.completion(), 100 * report.retransmitted_share(), 100 * report.goodput(),
               report.is_complete() ? "all answered" : "VIOLATION: calls without an answer");
  }
  all.hash = hash.value();
  fmt::print(
      plan.out,
      "{}: {} runs of seeds {} to {}, {} with calls without an answer, all goals met in {}; completion over the ideal "
      "{:.2f} (worst {:.2f}), retransmitted bytes {:.2f} % (worst {:.2f} %), least goodput {:.2f} %, most control "
      "{:.2f} "
      "%, hash {:016x}\n",
      plan.scenario, all.runs, plan.first_seed, plan.first_seed + plan.count - 1, all.incomplete, all.met,
      all.mean_completion, all.worst_completion, 100 * all.mean_retransmitted, 100 * all.worst_retransmitted,
      100 * all.least_goodput, 100 * all.worst_control, all.hash);
  std::fflush(plan.out);
  return all;
}

}  // namespace weir::sim
