// sim_seeds <first> <count> [scenario]: runs so many seeds, of one scenario or of all in turn, in a build that watches
// every nonce.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string_view>

#include "crypto/nonce_ledger.h"
#include "sim/run.h"
#include "sim/scenario.h"

namespace {

bool read(std::string_view text, std::uint64_t& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc{} && end == text.data() + text.size() && out != 0;
}

}  // namespace

int main(int count, char** arguments) {
  std::uint64_t first = 0, seeds = 0;
  if (count < 3 || count > 4 || !read(arguments[1], first) || !read(arguments[2], seeds)) {
    fmt::print(stderr, "usage: sim_seeds <first> <count> [scenario]\n");
    return 2;
  }
  std::span<const std::string_view> scenarios = weir::sim::scenario_names();
  if (count == 4) {
    const auto found = std::ranges::find(scenarios, std::string_view(arguments[3]));
    if (found == scenarios.end()) {
      fmt::print(stderr, "sim_seeds: there is no scenario {}\n", arguments[3]);
      return 2;
    }
    scenarios = {found, 1};
  }
  if (!weir::crypto::nonces_are_checked()) {
    fmt::print(stderr, "sim_seeds: this build does not watch nonces\n");
    return 2;
  }
  const auto reports = weir::sim::run_many({.first_seed = first, .count = seeds, .scenarios = scenarios});
  return reports.violations == 0 ? 0 : 1;
}
