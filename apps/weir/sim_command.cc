#include "apps/weir/sim_command.h"

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "apps/weir/command.h"
#include "sim/run.h"
#include "sim/scenario.h"
#include "sim/simulation.h"

namespace weir::command {
namespace {

struct Options {
  std::uint64_t seed = 1;
  std::uint64_t seeds = 1;
  std::string scenario;
  bool trace = false;
  bool each = false;
};

int run_command(const Options& options) {
  std::vector<std::string_view> scenarios;
  if (options.scenario.empty()) {
    scenarios.assign(sim::scenario_names().begin(), sim::scenario_names().end());
  } else {
    scenarios.push_back(options.scenario);
  }
  if (options.seeds > 1) {
    const auto reports = sim::run_many(
        {.first_seed = options.seed, .count = options.seeds, .scenarios = scenarios, .each = options.each});
    return reports.violations == 0 ? 0 : 1;
  }
  int exit_code = 0;
  for (std::string_view name : scenarios) {
    const sim::Report report = sim::run(sim::make_scenario(name, options.seed).value(), {.trace = options.trace});
    sim::print(stdout, report);
    if (!report.violations.empty()) exit_code = 1;
  }
  return exit_code;
}

}  // namespace

void add_sim_command(CLI::App& app) {
  auto options = std::make_shared<Options>();
  std::vector<std::string> names;
  for (std::string_view name : sim::scenario_names()) names.emplace_back(name);

  CLI::App* command = app.add_subcommand("sim", "Run the protocol in a simulated network and check its rules");
  std::string scenarios = "Scenarios:";
  for (const std::string& name : names) {
    scenarios.append("\n  ").append(name).append(std::string(name.size() < 22 ? 22 - name.size() : 1, ' '));
    scenarios.append(sim::describe_scenario(name));
  }
  command->footer(scenarios);
  CLI::Validator one_of_them = CLI::IsMember(names);
  one_of_them.description("");  // which are in the footer
  command->add_option("--seed", options->seed, "Decides everything that happens in the run")->capture_default_str();
  command
      ->add_option("--scenario", options->scenario,
                   "What goes wrong (below); all of them, one after the other, if not given")
      ->check(one_of_them)
      ->type_name("NAME");
  command->add_option("--seeds", options->seeds, "Run so many seeds from --seed on, taking the scenarios in turn")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1'000'000'000}))
      ->capture_default_str();
  command->add_flag("--trace", options->trace, "Print every event with its virtual time (with one seed)");
  command->add_flag("--each", options->each, "With --seeds: a line for every run, not only for those that failed");
  command->callback([options] {
    if (options->trace && options->seeds > 1) fail_use("--trace tells one seed's events: leave out --seeds");
    if (const int exit_code = run_command(*options); exit_code != 0) throw CLI::RuntimeError(exit_code);
  });
}

}  // namespace weir::command
