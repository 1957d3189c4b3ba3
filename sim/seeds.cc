// sim_seeds <first> <count>: runs so many seeds, the scenarios in turn, in a build that watches every nonce.
#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <cstdio>
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
  if (count != 3 || !read(arguments[1], first) || !read(arguments[2], seeds)) {
    fmt::print(stderr, "usage: sim_seeds <first> <count>\n");
    return 2;
  }
  if (!weir::crypto::nonces_are_checked()) {
    fmt::print(stderr, "sim_seeds: this build does not watch nonces\n");
    return 2;
  }
  const auto reports =
      weir::sim::run_many({.first_seed = first, .count = seeds, .scenarios = weir::sim::scenario_names()});
  return reports.violations == 0 ? 0 : 1;
}
