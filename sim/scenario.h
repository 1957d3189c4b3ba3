// Named kinds of trouble. A scenario's figures come from the seed, so that every seed tries another network.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "sim/link.h"
#include "sim/network.h"
#include "sim/workload.h"
#include "weir/config.h"

namespace weir::sim {

struct Scenario {
  std::string_view name;
  std::uint64_t seed = 0;

  std::uint32_t hosts = 4;
  LinkShape link;
  SimLink::Options socket;
  Faults faults;
  std::size_t largest_datagram_bytes = 65'507;  // that engines try for
  Limits limits;
  Timeouts timeouts;
  std::uint64_t rotate_packets = 1u << 22;
  WorkloadShape workload;

  // What happens within `span` from the start; then the network heals and everything comes to an end.
  Duration span{300'000'000};
  std::uint32_t partitions = 0;
  Duration longest_partition{200'000'000};
  std::uint32_t crashes = 0;
  std::uint32_t closings = 0;  // orderly ends, followed by a restart
  Duration longest_absence{50'000'000};
  bool reports_closed_ports = false;
  std::uint32_t stalls = 0;
  Duration longest_stall{50'000'000};
  std::uint32_t mtu_changes = 0;
  Duration attack_interval{0};  // 0: nobody attacks

  double least_success = 0;  // share of the calls that must get an answer
};

std::span<const std::string_view> scenario_names();
// Nothing if there is no scenario of that name.
std::optional<Scenario> make_scenario(std::string_view name, std::uint64_t seed);

}  // namespace weir::sim
