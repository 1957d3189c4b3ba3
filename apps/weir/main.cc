// The `weir` command: shows what Weir does, measures it, and finds out what holds it back on this machine.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "apps/weir/command.h"
#ifdef WEIR_WITH_SIMULATOR
#include "apps/weir/sim_command.h"
#endif

namespace {

// The command that was being read: `weir perf client` rather than `weir`.
const CLI::App& innermost(const CLI::App& app) {
  const CLI::App* at = &app;
  while (!at->get_subcommands().empty()) at = at->get_subcommands().front();
  return *at;
}

std::string full_name(const CLI::App& command) {
  return command.get_parent() == nullptr ? command.get_display_name()
                                         : full_name(*command.get_parent()) + " " + command.get_display_name();
}

// One sentence about what was wrong. CLI11's own about words that it does not know leave out which, or what there is.
std::string sentence(const CLI::App& app, const CLI::Error& error) {
  const CLI::App& command = innermost(app);
  const std::vector<std::string> unknown = app.remaining(true);
  std::string commands;
  for (const CLI::App* each : command.get_subcommands([](const CLI::App*) { return true; })) {
    commands += (commands.empty() ? "" : ", ") + each->get_name();
  }
  const auto option = std::ranges::find_if(unknown, [](const std::string& word) { return word.starts_with('-'); });
  if (option != unknown.end()) return fmt::format("{} has no option {}", full_name(command), *option);
  if (!unknown.empty() && !commands.empty()) {
    return fmt::format("there is no command \"{} {}\"; there are: {}", full_name(command), unknown.front(), commands);
  }
  if (!unknown.empty()) return fmt::format("{} takes no \"{}\"", full_name(command), unknown.front());
  if (!commands.empty()) return fmt::format("{} needs a command: {}", full_name(command), commands);
  return error.what();
}

}  // namespace

int main(int argument_count, char** arguments) {
  CLI::App app{"Weir: a datacenter RPC transport, encrypted, run to completion.", "weir"};
  app.set_version_flag("--version", "weir " WEIR_VERSION);
  app.require_subcommand(1);
  app.footer("`weir COMMAND --help` explains one command. Start with `weir demo`.");
  app.failure_message([](const CLI::App* failed, const CLI::Error& error) {
    return fmt::format("weir: {}\nTry `{} --help`.\n", sentence(*failed, error), full_name(innermost(*failed)));
  });
  weir::command::add_demo_command(app);
  weir::command::add_perf_command(app);
  weir::command::add_copy_commands(app);
  weir::command::add_doctor_command(app);
  weir::command::add_identity_command(app);
#ifdef WEIR_WITH_SIMULATOR
  weir::command::add_sim_command(app);
#endif
  try {
    app.parse(argument_count, arguments);
    return 0;
  } catch (const CLI::RuntimeError& error) {
    return error.get_exit_code();
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "weir: {}\n", error.what());
    return 1;
  }
}
