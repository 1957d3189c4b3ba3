#include "apps/weir/sim_command.h"

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "apps/weir/command.h"
#include "sim/cold_callers.h"
#include "sim/run.h"
#include "sim/scenario.h"
#include "sim/simulation.h"

namespace weir::command {
namespace {

struct Options {
  std::uint64_t seed = 1;
  std::uint64_t seeds = 1;
  std::string scenario;
  std::uint64_t nic_bits_per_s = 0;
  bool trace = false;
  bool each = false;
};

// These print a table for each seed.
int run_cold_command(const Options& options) {
  int exit_code = 0;
  for (std::uint64_t seed = options.seed; seed < options.seed + options.seeds; ++seed) {
    const sim::ColdCallersReport report =
        sim::ColdCallers(sim::make_cold_scenario(options.scenario, seed).value()).run();
    report.print(stdout);
    if (!report.is_good()) exit_code = 1;
  }
  return exit_code;
}

int run_command(const Options& options) {
  if (sim::make_cold_scenario(options.scenario, options.seed)) return run_cold_command(options);
  std::vector<std::string_view> scenarios;
  if (options.scenario.empty()) {
    scenarios.assign(sim::scenario_names().begin(), sim::scenario_names().end());
  } else {
    scenarios.push_back(options.scenario);
  }
  if (options.seeds > 1) {
    const auto reports = sim::run_many({.first_seed = options.seed,
                                        .count = options.seeds,
                                        .scenarios = scenarios,
                                        .nic_bytes_per_second = options.nic_bits_per_s / 8,
                                        .each = options.each});
    return reports.violations == 0 ? 0 : 1;
  }
  int exit_code = 0;
  for (std::string_view name : scenarios) {
    sim::Scenario scenario = sim::make_scenario(name, options.seed).value();
    scenario.nic_bytes_per_second = options.nic_bits_per_s / 8;
    const sim::Report report = sim::run(scenario, {.trace = options.trace});
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
  const auto describe = [&scenarios](std::string_view name, std::string_view says) {
    scenarios.append("\n  ").append(name).append(std::string(name.size() < 22 ? 22 - name.size() : 1, ' '));
    scenarios.append(says);
  };
  for (const std::string& name : names) describe(name, sim::describe_scenario(name));
  scenarios.append("\nOnly if they are named; each takes half a minute:");
  for (std::string_view name : sim::cold_scenario_names()) {
    describe(name, sim::describe_cold_scenario(name));
    names.emplace_back(name);
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
  add_bandwidth(*command, options->nic_bits_per_s, "Let each host send no faster than this");
  command->add_flag("--trace", options->trace, "Print every event with its virtual time (with one seed)");
  command->add_flag("--each", options->each, "With --seeds: a line for every run, not only for those that failed");
  command->callback([options] {
    if (options->trace && options->seeds > 1) fail_use("--trace tells one seed's events: leave out --seeds");
    if (const int exit_code = run_command(*options); exit_code != 0) throw CLI::RuntimeError(exit_code);
  });
}

}  // namespace weir::command
