// `weir doctor`: finds out what holds Weir back on this machine, and says how to mend it.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "apps/weir/command.h"
#include "apps/weir/doctor_check.h"
#include "apps/weir/json.h"

namespace weir::command {

namespace {

struct DoctorOptions {
  bool json = false;
  bool strict = false;
};

void print_text(const std::vector<Check>& checks, std::ptrdiff_t troubles) {
  bool colours = isatty(STDOUT_FILENO) == 1;
  for (const Check& check : checks) {
    const char* colour = !colours ? "" : check.ok ? "\x1b[32m" : "\x1b[33m";
    fmt::print("{}{:<4}{}  {:<22} {}\n", colour, check.ok ? "ok" : "slow", colours ? "\x1b[0m" : "", check.name,
               check.found);
    if (!check.costs.empty()) fmt::print("        costs: {}\n", check.costs);
    if (!check.mend.empty()) fmt::print("        mend:  {}\n", check.mend);
  }
  if (troubles == 0) {
    fmt::print("\nNothing holds Weir back here.\n");
  } else {
    fmt::print("\nWeir works here; {} of {} checks could be better.\n", troubles, checks.size());
  }
}

void print_json(const std::vector<Check>& checks, std::ptrdiff_t troubles) {
  std::string list;
  for (const Check& check : checks) {
    if (!list.empty()) list += ", ";
    list += JsonObject()
                .add("name", check.name)
                .add("ok", check.ok)
                .add("found", check.found)
                .add("costs", check.costs)
                .add("mend", check.mend)
                .text();
  }
  fmt::print("{}\n", JsonObject().add("ok", troubles == 0).add_text("checks", '[' + list + ']').text());
}

}  // namespace

void add_doctor_command(CLI::App& app) {
  auto options = std::make_shared<DoctorOptions>();
  CLI::App* command = app.add_subcommand("doctor", "Find out what holds Weir back on this machine");
  command->add_flag("--json", options->json, "Print one JSON object");
  command->add_flag("--strict", options->strict, "Exit with 1 if anything could be better");
  command->callback([options] {
    std::vector<Check> checks = check_machine("/");
    std::ptrdiff_t troubles = std::ranges::count_if(checks, [](const Check& check) { return !check.ok; });
    options->json ? print_json(checks, troubles) : print_text(checks, troubles);
    if (options->strict && troubles != 0) throw CLI::RuntimeError(1);
  });
}

}  // namespace weir::command
