// The same load in a fabric under many seeds.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string_view>

#include "sim/fabric_scenario.h"

namespace weir::sim {

struct FabricSeeds {
  std::string_view scenario;
  FabricOptions options;  // but for its seed
  std::uint64_t first_seed = 1;
  std::uint64_t count = 1;
  bool each = false;  // a line for every run
  std::FILE* out = stdout;
};

struct FabricSeedsReport {
  std::uint64_t runs = 0, incomplete = 0, met = 0;  // met: all goals
  double worst_completion = 0, mean_completion = 0;
  double worst_retransmitted = 0, mean_retransmitted = 0;
  double least_goodput = 1;
  double worst_control = 0;
  std::uint64_t hash = 0;
};

// Prints a line for the scenario, and one for each run that left calls unanswered.
FabricSeedsReport run_fabric_seeds(const FabricSeeds& plan);

}  // namespace weir::sim
