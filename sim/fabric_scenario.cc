#include "sim/fabric_scenario.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "sim/random_stream.h"

namespace weir::sim {
namespace {

using namespace std::chrono_literals;

constexpr double kMostRetransmitted = 0.005;
constexpr double kMostControl = 0.02;
constexpr double kLeastGoodputOfSmall = 0.88;
constexpr double kLeastGoodput = 0.92, kLeastGoodputOfJumbo = 0.97;
constexpr std::uint32_t kJumboMtu = 9'000;
constexpr double kMostCompletion = 1.25;

struct Known {
  std::string_view name;
  std::string_view description;
  void (*make)(FabricScenario&, const FabricOptions&);
};

// With random loss only what was sent again is judged.
void judge(FabricScenario& s, double least_goodput) {
  s.goals.most_retransmitted = kMostRetransmitted;
  if (s.fabric.loss > 0) return;
  s.goals.most_control = kMostControl;
  s.goals.least_goodput = least_goodput;
  s.goals.most_completion = kMostCompletion;
  s.goals.short_queues = true;
}

double goodput_of_bulk(const FabricScenario& s) {
  return s.fabric.mtu >= kJumboMtu ? kLeastGoodputOfJumbo : kLeastGoodput;
}

// Whom a host calls: all others, or so many of them.
std::vector<HostId> peers_of(HostId host, const FabricScenario& s, const FabricOptions& options, Random& random) {
  std::vector<HostId> others;
  for (HostId other = 0; other < s.fabric.hosts; ++other) {
    if (other != host) others.push_back(other);
  }
  if (!options.peers || *options.peers >= others.size()) return others;
  for (std::size_t i = 0; i < *options.peers; ++i) {
    std::swap(others[i], others[i + random.below(others.size() - i)]);
  }
  others.resize(*options.peers);
  return others;
}

void burst(FabricScenario& s, const FabricOptions& options) {
  s.fabric.hosts = options.hosts.value_or(options.is_small ? 30 : 300);
  const std::uint32_t calls = options.calls.value_or(options.is_small ? 500 : 10'000);
  s.kinds = {{.name = "4 KiB calls", .request_bytes = 4'096, .reply_bytes = 64}};
  Random random = stream(s.fabric.seed, "fabric plan");
  s.plans.resize(s.fabric.hosts);
  for (HostId host = 0; host < s.fabric.hosts; ++host) {
    const std::vector<HostId> peers = peers_of(host, s, options, random);
    for (std::uint32_t i = 0; i < calls; ++i) s.plans[host].push_back({.to = peers[random.below(peers.size())]});
  }
  judge(s, kLeastGoodputOfSmall);
  s.description = fmt::format(
      "Each of {} hosts starts {} calls at the same instant, each to another host drawn at random: requests of 4,096 "
      "bytes, replies of 64.",
      s.fabric.hosts, calls);
}

void incast(FabricScenario& s, const FabricOptions& options) {
  const std::uint32_t senders = options.hosts.value_or(options.is_small ? 30 : 100);
  const std::uint32_t calls = options.calls.value_or(1);
  s.fabric.hosts = senders + 1;
  s.kinds = {{.name = "64 KiB requests", .request_bytes = 65'536, .reply_bytes = 64}};
  s.plans.resize(s.fabric.hosts);
  for (HostId host = 1; host <= senders; ++host) s.plans[host].assign(calls, {.to = 0});
  judge(s, goodput_of_bulk(s));
  s.goals.no_tail_drops = s.fabric.loss == 0;
  s.description = fmt::format(
      "{} hosts send {} request(s) of 65,536 bytes each to one host at the same instant; the replies have 64 bytes.",
      senders, calls);
}

void mix(FabricScenario& s, const FabricOptions& options) {
  s.fabric.hosts = options.hosts.value_or(options.is_small ? 20 : 100);
  const std::uint32_t calls = options.calls.value_or(options.is_small ? 200 : 2'000);
  constexpr std::uint32_t kCallsPerTransfer = 1'000;
  const std::uint32_t transfers = std::max(1u, calls / kCallsPerTransfer);
  s.kinds = {{.name = "4 KiB calls", .request_bytes = 4'096, .reply_bytes = 64, .priority = 2},
             {.name = "8 MiB transfers", .request_bytes = 8u << 20, .reply_bytes = 64, .priority = 5}};
  Random random = stream(s.fabric.seed, "fabric plan");
  s.plans.resize(s.fabric.hosts);
  const Duration spread = 10ms;
  for (HostId host = 0; host < s.fabric.hosts; ++host) {
    const std::vector<HostId> peers = peers_of(host, s, options, random);
    for (std::uint32_t i = 0; i < transfers; ++i) {
      s.plans[host].push_back({.to = peers[random.below(peers.size())], .kind = 1});
    }
    for (std::uint32_t i = 0; i < calls; ++i) {
      s.plans[host].push_back({.to = peers[random.below(peers.size())], .at = between(random, Duration{0}, spread)});
    }
    std::ranges::stable_sort(s.plans[host], {}, &PlannedCall::at);
  }
  judge(s, goodput_of_bulk(s));
  s.goals.no_tail_drops = s.fabric.loss == 0;
  s.description = fmt::format(
      "Each of {} hosts starts {} transfer(s) of 8 MiB at once and {} calls of 4,096 bytes (64 bytes of reply) within "
      "10 "
      "ms, all to hosts drawn at random. The calls have priority 2, the transfers 5.",
      s.fabric.hosts, transfers, calls);
}

void priority(FabricScenario& s, const FabricOptions& options) {
  const std::uint32_t senders = options.hosts.value_or(options.is_small ? 3 : 4);
  const std::uint32_t transfers = options.calls.value_or(options.is_small ? 3 : 16);
  s.fabric.hosts = 2 * senders + 1;
  s.fabric.hosts_per_leaf = options.hosts_per_leaf.value_or(senders);
  s.kinds = {{.name = "urgent calls of busy hosts", .request_bytes = 256, .reply_bytes = 64, .priority = 0},
             {.name = "urgent calls of idle hosts", .request_bytes = 256, .reply_bytes = 64, .priority = 0},
             {.name = "8 MiB transfers", .request_bytes = 8u << 20, .reply_bytes = 64, .priority = 7}};
  // Hosts 1 and up send in bulk, as many others call only. All call host 0.
  Random random = stream(s.fabric.seed, "fabric plan");
  s.plans.resize(s.fabric.hosts);
  const double seconds = 8.0 * (8u << 20) * transfers * senders / static_cast<double>(s.fabric.bits_per_second);
  const auto length = Duration{static_cast<std::int64_t>(seconds * 1e9)};
  const Duration pause = 200us;
  for (HostId host = 1; host < s.fabric.hosts; ++host) {
    const bool is_busy = host <= senders;
    std::vector<PlannedCall>& plan = s.plans[host];
    if (is_busy) plan.assign(transfers, {.to = 0, .kind = 2});
    for (Duration at = 1ms; at < length; at += between(random, pause / 2, pause * 3 / 2)) {
      plan.push_back({.to = 0, .kind = is_busy ? 0u : 1u, .at = at});
    }
  }
  s.goals.most_retransmitted = kMostRetransmitted;
  s.goals.prompt_kinds = 2;
  s.description = fmt::format(
      "{} hosts send {} transfers of 8 MiB each at priority 7 to one host, whose cable is the bottleneck. These hosts "
      "and "
      "{} that send nothing else make calls of 256 bytes at priority 0 to the same host, one in about 200 us each.",
      senders, transfers, senders);
}

constexpr std::array kKnown = {
    Known{"fabric-burst", "300 hosts start 10,000 calls of 4 KiB each, at once, to random others", &burst},
    Known{"fabric-incast", "100 hosts send 64 KiB each to one, at once", &incast},
    Known{"fabric-mix", "100 hosts with 4 KiB calls beside 8 MiB transfers", &mix},
    Known{"fabric-priority", "urgent calls through a bottleneck that 8 MiB transfers fill", &priority},
};

constexpr std::array kNames = [] {
  std::array<std::string_view, kKnown.size()> names;
  for (std::size_t i = 0; i < names.size(); ++i) names[i] = kKnown[i].name;
  return names;
}();

const Known* find(std::string_view name) {
  const auto* const found = std::ranges::find(kKnown, name, &Known::name);
  return found == kKnown.end() ? nullptr : &*found;
}

void apply(FabricShape& fabric, const FabricOptions& options) {
  constexpr double kBitsPerGbit = 1e9;
  fabric.seed = options.seed;
  fabric.tells_rate = !options.is_untold;
  fabric.hosts_per_leaf = options.hosts_per_leaf.value_or(options.is_small ? 6 : fabric.hosts_per_leaf);
  fabric.spines = options.spines.value_or(options.is_small ? 6 : fabric.spines);
  fabric.mtu = options.mtu.value_or(fabric.mtu);
  fabric.loss = options.loss.value_or(fabric.loss);
  fabric.shared_part = options.shared_part.value_or(fabric.shared_part);
  if (options.buffer_kib) fabric.buffer_bytes = *options.buffer_kib * 1'024;
  if (options.ecn_kib) fabric.ecn_threshold_bytes = *options.ecn_kib * 1'024;
  if (options.gbit) fabric.bits_per_second = static_cast<std::uint64_t>(*options.gbit * kBitsPerGbit);
  if (options.flow_gbit) fabric.flow_bits_per_second = static_cast<std::uint64_t>(*options.flow_gbit * kBitsPerGbit);
}

}  // namespace

std::span<const std::string_view> fabric_scenario_names() { return kNames; }

std::string_view describe_fabric_scenario(std::string_view name) {
  const Known* const known = find(name);
  return known == nullptr ? std::string_view{} : known->description;
}

std::optional<FabricScenario> make_fabric_scenario(std::string_view name, const FabricOptions& options) {
  const Known* const known = find(name);
  if (known == nullptr) return std::nullopt;
  FabricScenario scenario;
  scenario.name = known->name;
  scenario.is_cold = options.is_cold;
  apply(scenario.fabric, options);
  known->make(scenario, options);
  return scenario;
}

}  // namespace weir::sim
