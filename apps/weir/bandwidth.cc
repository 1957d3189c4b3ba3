#include <CLI/CLI.hpp>
#include <cstdint>
#include <map>
#include <string>

#include "apps/weir/command.h"

namespace weir::command {

void add_bandwidth(CLI::App& command, std::uint64_t& bits_per_s, const std::string& what) {
  static const std::map<std::string, std::uint64_t> kUnits{
      {"bit", 1}, {"kbit", 1'000}, {"mbit", 1'000'000}, {"gbit", 1'000'000'000}};
  CLI::AsNumberWithUnit rate(kUnits, CLI::AsNumberWithUnit::CASE_INSENSITIVE);
  rate.description("");  // which would name all units twice
  command.add_option("--nic-bandwidth", bits_per_s, what + ": 25gbit, 100mbit (default: as fast as it goes)")
      ->transform(rate)
      ->type_name("RATE");
}

}  // namespace weir::command
