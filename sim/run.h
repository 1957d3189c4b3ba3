// Many runs, one after the other.
#pragma once

#include <cstdint>
#include <cstdio>
#include <span>
#include <string_view>

#include "sim/simulation.h"

namespace weir::sim {

struct ManyRuns {
  std::uint64_t first_seed = 1;
  std::uint64_t count = 500;
  std::span<const std::string_view> scenarios;  // taken in turn
  std::uint64_t nic_bytes_per_second = 0;       // see Scenario
  std::FILE* out = stdout;
  bool each = false;  // a line for every run, not only for those that failed
};

struct ManyReports {
  std::uint64_t runs = 0;
  std::uint64_t failed_runs = 0;
  std::uint64_t violations = 0;
  std::uint64_t calls = 0;
  std::uint64_t event_hash = 0;  // over the hashes of all runs
};

// Prints each violation as it is found, progress now and then, and a summary that ends with the hash.
ManyReports run_many(const ManyRuns& plan);

// The violations, and a line that ends with the hash.
void print(std::FILE* out, const Report& report);

}  // namespace weir::sim
