#include "scenario.h"

#include <map>
#include <utility>

#include "base/random.h"

namespace weir::bench {
namespace {

constexpr std::uint64_t kGigabit = 1'000'000'000;
constexpr std::uint32_t kCardQueueBytes = 64u << 20;  // of hosts: nothing is dropped before the network

// ---- dumbbell: one host, a thin link, many hosts -------------------------------------------------------------------

constexpr PortShape kEdge{.bits_per_second = 10 * kGigabit, .queue_bytes = kCardQueueBytes};
constexpr std::int64_t kEdgeDelayNs = 5'000, kMiddleDelayNs = 10'000;
constexpr std::uint64_t kThinBitsPerSecond = 250'000'000;
constexpr std::uint32_t kThinQueueBytes = 64u << 10, kThinMarkBytes = 16u << 10;

void make_dumbbell(Setting& setting, const Scale& scale, bool marks, bool limits_requests) {
  Network& network = *setting.network;
  const HostId caller = network.add_host();
  for (std::uint32_t i = 0; i < scale.peers; ++i) network.add_host();
  const Network::NodeId near = network.add_switch(), far = network.add_switch();
  const PortShape thin{
      .bits_per_second = kThinBitsPerSecond, .queue_bytes = kThinQueueBytes, .mark_bytes = marks ? kThinMarkBytes : 0};
  network.connect(caller, near, kEdgeDelayNs, kEdge, kEdge);
  network.connect(near, far, kMiddleDelayNs, limits_requests ? thin : kEdge, limits_requests ? kEdge : thin);
  for (HostId host = 1; host <= scale.peers; ++host) network.connect(host, far, kEdgeDelayNs, kEdge, kEdge);
  network.finish();
  setting.ports = {limits_requests ? &network.port(near, far) : &network.port(far, near)};
  setting.callees.resize(network.hosts());
  for (std::uint32_t i = 0; i < scale.calls; ++i) setting.callees[caller].push_back(1 + i % scale.peers);
}

// ---- leaf-spine ----------------------------------------------------------------------------------------------------

constexpr std::uint64_t kFabricBitsPerSecond = 25 * kGigabit;
constexpr std::int64_t kFabricDelayNs = 5'000;
constexpr std::uint32_t kFabricQueueBytes = 128u << 10, kFabricMarkBytes = 32u << 10;

void make_leaf_spine(Setting& setting, const Scale& scale, bool marks) {
  Network& network = *setting.network;
  const PortShape card{.bits_per_second = kFabricBitsPerSecond, .queue_bytes = kCardQueueBytes};
  const PortShape port{.bits_per_second = kFabricBitsPerSecond,
                       .queue_bytes = kFabricQueueBytes,
                       .mark_bytes = marks ? kFabricMarkBytes : 0};
  for (std::uint32_t i = 0; i < scale.leaves * scale.hosts_per_leaf; ++i) network.add_host();
  std::vector<Network::NodeId> leaves, spines;
  for (std::uint32_t i = 0; i < scale.leaves; ++i) leaves.push_back(network.add_switch());
  for (std::uint32_t i = 0; i < scale.spines; ++i) spines.push_back(network.add_switch());
  for (HostId host = 0; host < network.hosts(); ++host) {
    network.connect(host, leaves[host / scale.hosts_per_leaf], kFabricDelayNs, card, port);
  }
  for (const Network::NodeId leaf : leaves) {
    for (const Network::NodeId spine : spines) network.connect(leaf, spine, kFabricDelayNs, port, port);
  }
  network.finish();
  setting.callees.resize(network.hosts());
}

void call_at_random(Setting& setting, const Scale& scale, std::uint64_t seed) {
  Random random(seed);
  for (HostId host = 0; host < setting.network->hosts(); ++host) {
    for (std::uint32_t i = 0; i < scale.calls; ++i) {
      const auto other = static_cast<HostId>(random.below(setting.network->hosts() - 1));
      setting.callees[host].push_back(other + (other >= host));
    }
  }
  setting.ports = setting.network->switch_ports();
}

void call_one(Setting& setting, const Scale& scale) {
  constexpr HostId kCallee = 0;
  for (HostId host = 1; host <= scale.peers; ++host) setting.callees[host].assign(scale.calls, kCallee);
  setting.ports = {&setting.network->port(setting.network->hosts(), kCallee)};
}

double bound_of(const Setting& setting, const Messages& messages) {
  std::map<std::pair<HostId, HostId>, std::uint64_t> calls;
  for (HostId host = 0; host < setting.callees.size(); ++host) {
    for (const HostId callee : setting.callees[host]) ++calls[{host, callee}];
  }
  std::vector<Flow> flows;
  for (const auto& [ends, count] : calls) {
    flows.push_back({.from = ends.first, .to = ends.second, .payload_bytes = count * messages.request_bytes});
    flows.push_back({.from = ends.second, .to = ends.first, .payload_bytes = count * messages.reply_bytes});
  }
  return setting.network->bound_s(flows);
}

}  // namespace

const std::vector<Scenario>& scenarios() {
  static const std::vector<Scenario> all{
      {.name = "dumbbell-request",
       .description = "10,000 calls of 4 KiB with replies of 64 B, from one host to 100, through 250 Mbit/s and 64 KiB",
       .shape = Shape::dumbbell_request,
       .messages = {.request_bytes = 4'096, .reply_bytes = 64},
       .whole = {.peers = 100, .calls = 10'000},
       .quick = {.peers = 20, .calls = 600}},
      {.name = "dumbbell-reply",
       .description = "the same with calls of 64 B, replies of 4 KiB and the thin link in the other direction",
       .shape = Shape::dumbbell_reply,
       .messages = {.request_bytes = 64, .reply_bytes = 4'096},
       .whole = {.peers = 100, .calls = 10'000},
       .quick = {.peers = 20, .calls = 600}},
      {.name = "fabric",
       .description =
           "leaf-spine of 64 hosts, 25 Gbit/s, 128 KiB per port: each makes 200 calls of 4 KiB to random others",
       .shape = Shape::fabric,
       .messages = {.request_bytes = 4'096, .reply_bytes = 64},
       .whole = {.calls = 200, .leaves = 8, .spines = 8, .hosts_per_leaf = 8},
       .quick = {.calls = 50, .leaves = 4, .spines = 4, .hosts_per_leaf = 4}},
      {.name = "incast",
       .description = "the same network with 128 hosts, of which 100 send 64 KiB each to one",
       .shape = Shape::incast,
       .messages = {.request_bytes = 65'536, .reply_bytes = 64},
       .whole = {.peers = 100, .calls = 1, .leaves = 8, .spines = 8, .hosts_per_leaf = 16},
       .quick = {.peers = 10, .calls = 1, .leaves = 3, .spines = 3, .hosts_per_leaf = 4}},
  };
  return all;
}

std::uint64_t Setting::calls() const {
  std::uint64_t sum = 0;
  for (const auto& each : callees) sum += each.size();
  return sum;
}

Setting make_setting(const Scenario& scenario, const Scale& scale, bool marks, std::uint64_t seed) {
  Setting setting{.network = std::make_unique<Network>()};
  switch (scenario.shape) {
    case Shape::dumbbell_request:
    case Shape::dumbbell_reply:
      make_dumbbell(setting, scale, marks, scenario.shape == Shape::dumbbell_request);
      break;
    case Shape::fabric:
      make_leaf_spine(setting, scale, marks);
      call_at_random(setting, scale, seed);
      break;
    case Shape::incast:
      make_leaf_spine(setting, scale, marks);
      call_one(setting, scale);
      break;
  }
  setting.bound_s = bound_of(setting, scenario.messages);
  return setting;
}

}  // namespace weir::bench
