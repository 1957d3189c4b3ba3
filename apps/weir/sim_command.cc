#include "apps/weir/sim_command.h"

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "apps/weir/command.h"
#include "apps/weir/fabric_options.h"
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
  bool sweep = false;
  FabricUse fabric;
};

constexpr std::uint64_t kSweepSeeds = 200;  // of each scenario

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

// Every scenario and every load in a fabric, each under many seeds.
int run_sweep(const Options& options) {
  const auto names = sim::scenario_names();
  const std::uint64_t seeds = options.seeds > 1 ? options.seeds : kSweepSeeds;
  const auto reports = sim::run_many(
      {.first_seed = options.seed, .count = seeds * names.size(), .scenarios = names, .each = options.each});
  FabricUse small = options.fabric;
  small.options.is_small = true;
  const int exit_code = run_fabric_seeds(small, {}, seeds, options.each);
  return reports.violations == 0 ? exit_code : 1;
}

// A load is named, or options that only loads have.
bool runs_in_fabric(const Options& options) {
  return options.scenario.empty() ? options.fabric.is_changed() : is_fabric_scenario(options.scenario);
}

bool is_cold(const Options& options) { return sim::make_cold_scenario(options.scenario, options.seed).has_value(); }

int run_command(const Options& options) {
  if (options.sweep) return run_sweep(options);
  if (runs_in_fabric(options)) {
    return options.seeds > 1 ? run_fabric_seeds(options.fabric, options.scenario, options.seeds, options.each)
                             : run_fabric(options.fabric, options.scenario);
  }
  if (is_cold(options)) return run_cold_command(options);
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
  scenarios.append(
      "\nLoads in a fabric of leaf and spine switches, measured. They run if they are named, or if an option of theirs "
      "is given:");
  for (std::string_view name : sim::fabric_scenario_names()) {
    describe(name, sim::describe_fabric_scenario(name));
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
  command
      ->add_option("--seeds", options->seeds,
                   "Run so many seeds from --seed on. The scenarios take turns; of loads each one runs all of them")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1'000'000'000}))
      ->capture_default_str();
  add_bandwidth(*command, options->nic_bits_per_s, "Let each host of a scenario send no faster than this");
  command->add_flag("--trace", options->trace, "Print every event with its virtual time (with one seed)");
  command->add_flag("--each", options->each, "With --seeds: a line for every run, not only for those that failed");
  command->add_flag("--sweep", options->sweep, "200 seeds (or --seeds) of every scenario and of every load, small");
  add_fabric_options(*command, options->fabric);
  command->callback([options] {
    if (options->trace && options->seeds > 1) fail_use("--trace tells one seed's events: leave out --seeds");
    if (options->sweep && !options->scenario.empty()) fail_use("--sweep runs all scenarios: leave out --scenario");
    if (options->sweep && !options->fabric.report.empty()) fail_use("--report is for one seed: leave out --sweep");
    if (options->seeds > 1 && !options->fabric.report.empty()) fail_use("--report is for one seed: leave out --seeds");
    const bool is_fabric = runs_in_fabric(*options);
    if (!is_fabric && !options->sweep && options->fabric.is_changed()) {
      fail_use("--scenario names none of the loads that these options are for");
    }
    if (options->nic_bits_per_s != 0 && (is_fabric || options->sweep || is_cold(*options))) {
      fail_use("--nic-bandwidth is not for loads in a fabric (their rate is --gbit), cold callers or --sweep");
    }
    if (is_fabric && options->trace) fail_use("loads in a fabric have no trace: leave out --trace");
    options->fabric.options.seed = options->seed;
    if (const int exit_code = run_command(*options); exit_code != 0) throw CLI::RuntimeError(exit_code);
  });
}

}  // namespace weir::command
