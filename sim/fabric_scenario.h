// What hosts in a fabric ask of each other: named kinds of load, each with its calls and its goals.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/fabric.h"

namespace weir::sim {

struct CallKind {
  std::string_view name;
  std::uint32_t request_bytes = 0;
  std::uint32_t reply_bytes = 0;
  std::uint8_t priority = 3;
};

struct PlannedCall {
  HostId to = 0;
  std::uint32_t kind = 0;
  Duration at{0};  // after the start
};

// Shares of bytes and the like that the run is judged by; none: it is not.
struct FabricGoals {
  std::optional<double> most_retransmitted, most_control, least_goodput, most_completion;
  bool no_tail_drops = false;
  bool short_queues = false;
  std::uint32_t prompt_kinds = 0;  // of so many first kinds the p99 is under two base round trips and one train
};

struct FabricScenario {
  std::string_view name;
  std::string description;  // one paragraph, for whoever reads the report
  FabricShape fabric;
  bool is_cold = false;              // paths are made by the first calls; otherwise before
  Duration longest{12'000'000'000};  // virtual time after the start
  std::vector<CallKind> kinds;
  std::vector<std::vector<PlannedCall>> plans;  // by host, in the order of their times
  FabricGoals goals;
};

// What a command may change of a scenario.
struct FabricOptions {
  std::uint64_t seed = 1;
  std::optional<std::uint32_t> hosts;  // of an incast: senders
  std::optional<std::uint32_t> calls;  // of every host
  std::optional<std::uint32_t> peers;  // that every host calls at most
  std::optional<std::uint32_t> mtu, hosts_per_leaf, spines, buffer_kib, ecn_kib;
  std::optional<double> gbit, flow_gbit, loss, shared_part;
  bool is_cold = false;
  bool is_untold = false;  // hosts do not know their rate
  bool is_small = false;   // as continuous integration runs it
};

std::span<const std::string_view> fabric_scenario_names();
std::string_view describe_fabric_scenario(std::string_view name);
std::optional<FabricScenario> make_fabric_scenario(std::string_view name, const FabricOptions& options);

}  // namespace weir::sim
