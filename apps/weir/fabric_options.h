// The part of `weir sim` that is about loads in a fabric of switches.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "sim/fabric_scenario.h"

namespace CLI {
class App;
}

namespace weir::command {

struct FabricUse {
  sim::FabricOptions options;
  std::string report;  // the page to write; empty: none
  bool is_changed() const;
};

void add_fabric_options(CLI::App& command, FabricUse& use);

bool is_fabric_scenario(std::string_view name);

// Runs one seed of one load, or of all if `scenario` is empty; prints what came of each and writes the page. The exit
// code of the command.
int run_fabric(const FabricUse& use, std::string_view scenario);
// Prints a line for each load.
int run_fabric_seeds(const FabricUse& use, std::string_view scenario, std::uint64_t seeds, bool each);

}  // namespace weir::command
