// `weir sim`: replays and searches simulated runs.
#pragma once

namespace CLI {
class App;
}

namespace weir::command {

// Parsing ends with CLI::RuntimeError and exit code 1 if a run broke a rule: hand it to CLI::App::exit().
void add_sim_command(CLI::App& app);

}  // namespace weir::command
