// Bursts of calls in networks that ns-3 simulates: Weir beside ns-3's TCP.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "report.h"
#include "run.h"

namespace {

using namespace weir::bench;

template <class Named>
std::vector<std::string> names_of(const std::vector<Named>& all) {
  std::vector<std::string> names;
  for (const Named& each : all) names.emplace_back(each.name);
  return names;
}

// All of them if none is named.
template <class Named>
std::vector<const Named*> chosen(const std::vector<Named>& all, const std::vector<std::string>& names) {
  std::vector<const Named*> found;
  for (const Named& each : all) {
    if (names.empty() || std::ranges::find(names, each.name) != names.end()) found.push_back(&each);
  }
  return found;
}

}  // namespace

int main(int argument_count, char** arguments) {
  CLI::App app{
      "Bursts of calls in networks that ns-3 simulates: Weir beside ns-3's TCP. Virtual time: the same seed gives "
      "the same output."};
  std::vector<std::string> scenario_names, contestant_names;
  RunOptions options;
  double least_timeout_ms = 200;
  std::uint32_t receive_buffer_kib = 16'384;
  std::string json_file;
  app.add_option("--scenario", scenario_names, "only this one; repeatable")
      ->check(CLI::IsMember(names_of(scenarios())));
  app.add_option("--only", contestant_names, "only this contestant; repeatable")
      ->check(CLI::IsMember(names_of(contestants())));
  app.add_option("--rounds", options.rounds, "after the first (default 3)")->check(CLI::Range(0, 100));
  app.add_option("--seed", options.seed, "of keys, jitter and who calls whom (default 1)")
      ->check(CLI::Range(1u, 1'000'000'000u));
  app.add_option("--tcp-rto-min", least_timeout_ms,
                 "TCP's least retransmission timeout, in ms (default 200, as in Linux)")
      ->check(CLI::Range(1.0, 10'000.0));
  app.add_option("--receive-buffer", receive_buffer_kib,
                 "of Weir's sockets, in KiB (default 16384, what a pool asks for)")
      ->check(CLI::Range(64u, 1u << 20));
  app.add_flag("--quick", options.is_quick, "small networks and few calls: some seconds");
  app.add_option("--json", json_file, "where all figures are written");
  CLI11_PARSE(app, argument_count, arguments);
  options.receive_buffer_bytes = receive_buffer_kib << 10;
  options.tcp_least_timeout = weir::Duration{static_cast<std::int64_t>(least_timeout_ms * 1e6)};

  std::vector<RowResult> rows;
  bool has_failures = false;
  for (const Scenario* const scenario : chosen(scenarios(), scenario_names)) {
    bool is_first = true;
    for (const Contestant* const contestant : chosen(contestants(), contestant_names)) {
      const RowResult& row = rows.emplace_back(run_row(*scenario, *contestant, options));
      if (is_first) {
        fmt::print("\n{}: {}{}\n  {} hosts, {} calls, bound {:.3f} ms\n{}", scenario->name, scenario->description,
                   options.is_quick ? " (here: fewer of all)" : "", row.hosts, row.calls, 1e3 * row.bound_s,
                   table_heading());
        is_first = false;
      }
      fmt::print("{}", table_lines(row));
      std::fflush(stdout);
      for (const RoundResult& round : row.rounds) has_failures |= contestant->tcp.empty() && round.failed != 0;
    }
  }
  if (!json_file.empty()) {
    std::ofstream file(json_file);
    file << to_json(options, rows);
    if (!file.flush()) {
      fmt::print(stderr, "error: cannot write {}\n", json_file);
      return 1;
    }
    fmt::print("\nall figures: {}\n", json_file);
  }
  return has_failures ? 1 : 0;
}
