#include "apps/weir/fabric_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <utility>
#include <vector>

#include "apps/weir/command.h"
#include "sim/fabric_page.h"
#include "sim/fabric_run.h"
#include "sim/fabric_seeds.h"

namespace weir::command {
namespace {

constexpr const char* kGroup = "Of loads in a fabric (without --scenario: of all of these)";
// So that no number makes a network that no memory holds.
constexpr std::uint32_t kMostHosts = 20'000, kMostCalls = 1'000'000, kMostSpines = 1'000;

std::vector<std::string_view> scenarios_of(std::string_view scenario) {
  if (!scenario.empty()) return {scenario};
  return {sim::fabric_scenario_names().begin(), sim::fabric_scenario_names().end()};
}

sim::FabricReport run_one(const FabricUse& use, std::string_view name) {
  auto scenario = sim::make_fabric_scenario(name, use.options);
  const auto begin = std::chrono::steady_clock::now();
  sim::FabricReport report = sim::FabricRun(std::move(*scenario)).run();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  sim::print(stdout, report);
  // Not part of what a seed decides.
  fmt::print(stderr, "simulated in {:.1f} s, {:.2f} million packets a second\n", took.count(),
             1e-6 * static_cast<double>(report.counts.packets) / took.count());
  return report;
}

}  // namespace

bool FabricUse::is_changed() const {
  const sim::FabricOptions& o = options;
  return !report.empty() || o.hosts || o.calls || o.peers || o.mtu || o.hosts_per_leaf || o.spines || o.buffer_kib ||
         o.ecn_kib || o.gbit || o.flow_gbit || o.loss || o.shared_part || o.is_cold || o.is_untold || o.is_small;
}

void add_fabric_options(CLI::App& command, FabricUse& use) {
  sim::FabricOptions& options = use.options;
  const auto add = [&](const char* name, auto& value, const char* says, const auto& check) {
    command.add_option(name, value, says)->check(check)->group(kGroup);
  };
  command.add_option("--report", use.report, "Write what came of it into one HTML file, with pictures")
      ->type_name("FILE")
      ->group(kGroup);
  command.add_flag("--small", options.is_small, "As small as the checks run it")->group(kGroup);
  add("--hosts", options.hosts, "Hosts; of an incast and of urgent calls: senders", CLI::Range(2u, kMostHosts));
  add("--calls", options.calls, "Calls of each host; of urgent calls: its transfers", CLI::Range(1u, kMostCalls));
  add("--peers", options.peers, "Other hosts that one calls, at most", CLI::Range(1u, kMostHosts));
  add("--mtu", options.mtu, "Of all cables; 1500 by default", CLI::Range(1'300u, 9'000u));
  add("--loss", options.loss, "Chance of each packet to be lost", CLI::Range(0.0, 0.5));
  add("--gbit", options.gbit, "Of every cable; 25 by default", CLI::Range(0.01, 1'000.0));
  add("--flow-gbit", options.flow_gbit, "That one host may send to one other; no limit by default",
      CLI::Range(0.01, 1'000.0));
  add("--hosts-per-leaf", options.hosts_per_leaf, "20 by default", CLI::Range(1u, kMostHosts));
  add("--spines", options.spines, "20 by default", CLI::Range(1u, kMostSpines));
  add("--buffer-kib", options.buffer_kib, "Of a switch for each of its ports; 128 by default", CLI::Range(4u, 65'536u));
  add("--shared-buffer", options.shared_part,
      "Ports of a switch share its buffer: each takes so many times what is free, at most", CLI::Range(0.01, 64.0));
  add("--ecn-kib", options.ecn_kib, "Queues above this mark; 0: none; 32 by default", CLI::Range(0u, 65'536u));
  command.add_flag("--cold", options.is_cold, "Paths are made by the calls themselves, not before")->group(kGroup);
  command.add_flag("--untold", options.is_untold, "Hosts are not told what their interface carries")->group(kGroup);
}

bool is_fabric_scenario(std::string_view name) {
  return std::ranges::find(sim::fabric_scenario_names(), name) != sim::fabric_scenario_names().end();
}

int run_fabric(const FabricUse& use, std::string_view scenario) {
  // Before the work, which may take minutes.
  std::ofstream page;
  if (!use.report.empty()) {
    page.open(use.report);
    if (!page) fail(fmt::format("cannot write {}", use.report));
  }
  std::vector<sim::FabricReport> reports;
  for (const std::string_view name : scenarios_of(scenario)) reports.push_back(run_one(use, name));
  if (!use.report.empty()) {
    page << sim::fabric_page(reports) << std::flush;
    if (!page) fail(fmt::format("cannot write {}", use.report));
  }
  return std::ranges::all_of(reports, &sim::FabricReport::is_complete) ? 0 : kFailed;
}

int run_fabric_seeds(const FabricUse& use, std::string_view scenario, std::uint64_t seeds, bool each) {
  int exit_code = 0;
  for (const std::string_view name : scenarios_of(scenario)) {
    const auto report = sim::run_fabric_seeds(
        {.scenario = name, .options = use.options, .first_seed = use.options.seed, .count = seeds, .each = each});
    if (report.incomplete != 0) exit_code = kFailed;
  }
  return exit_code;
}

}  // namespace weir::command
