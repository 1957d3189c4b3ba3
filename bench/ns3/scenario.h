// The scenarios: which network, which calls.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "burst_host.h"
#include "network.h"

namespace weir::bench {

enum class Shape : std::uint8_t { dumbbell_request, dumbbell_reply, fabric, incast };

struct Scale {
  std::uint32_t peers = 0;  // dumbbell: hosts that are called; incast: hosts that call
  std::uint32_t calls = 0;  // that each calling host makes in a round
  std::uint32_t leaves = 0, spines = 0, hosts_per_leaf = 0;
};

struct Scenario {
  std::string_view name;
  std::string_view description;
  Shape shape;
  Messages messages;
  Scale whole;
  Scale quick;  // for tests
};

const std::vector<Scenario>& scenarios();

// A network with its calls.
struct Setting {
  std::unique_ptr<Network> network;
  std::vector<std::vector<HostId>> callees;  // of each host's calls, in the order in which it makes them
  std::vector<PortWatch*> ports;             // whose queues are reported: where the burst meets a limit
  double bound_s = 0;

  std::uint64_t calls() const;
};

// `marks`: the ports of switches mark instead of dropping, as far as packets allow that.
Setting make_setting(const Scenario& scenario, const Scale& scale, bool marks, std::uint64_t seed);

}  // namespace weir::bench
