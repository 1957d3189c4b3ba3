// The `weir` command: shows what Weir does, measures it, and finds out what holds it back on this machine.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "apps/weir/command.h"
#ifdef WEIR_WITH_SIMULATOR
#include "apps/weir/sim_command.h"
#endif

int main(int argument_count, char** arguments) {
  CLI::App app{"Weir: a datacenter RPC transport, encrypted, run to completion.", "weir"};
  app.set_version_flag("--version", "weir " WEIR_VERSION);
  app.require_subcommand(1);
  app.footer("`weir COMMAND --help` explains one command. Start with `weir demo`.");
  app.failure_message([](const CLI::App* failed, const CLI::Error& error) {
    return fmt::format("weir: {}\nTry `{} --help`.\n", error.what(), failed->get_display_name());
  });
  weir::command::add_demo_command(app);
  weir::command::add_perf_command(app);
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
