#include "sim/scenario.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "sim/identity_scenario.h"
#include "sim/large_scenario.h"
#include "sim/random_stream.h"
#include "sim/waste_scenario.h"
#include "sim/worker_scenario.h"

namespace weir::sim {
namespace {

using namespace std::chrono_literals;

using Maker = void (*)(Scenario&, Random&);

// An ordinary data centre: no faults, everything in moderate variety.
Scenario ordinary(std::string_view name, std::uint64_t seed) {
  Random random = stream(seed, "scenario");
  Scenario s;
  s.name = name;
  s.seed = seed;
  s.hosts = static_cast<std::uint32_t>(between(random, 2, 7));
  s.link.latency = between(random, 2us, 100us);
  constexpr std::uint64_t kSpeeds[] = {125'000'000, 1'250'000'000, 3'125'000'000, 12'500'000'000};
  s.link.bytes_per_second = kSpeeds[random.below(4)];
  s.link.queue_bytes = std::size_t{128 * 1024} << random.below(4);
  s.link.ecn_threshold_bytes = random.chance(0.5) ? s.link.queue_bytes / 4 : 0;
  constexpr std::size_t kDatagrams[] = {1'472, 1'472, 8'972, 1'200, 65'507};
  s.link.datagram_bytes = kDatagrams[random.below(5)];
  s.socket.blocks = random.chance(0.7);
  s.limits.calls_per_peer = random.chance(0.3) ? 16 : 256;
  s.limits.peers = 64;
  s.limits.queued_calls = 4'096;
  s.limits.request_bytes = random.chance(0.5) ? 8u << 20 : 1u << 20;
  s.limits.request_bytes_per_peer = s.limits.request_bytes / 4;
  s.limits.receive_buffers = 256;
  s.timeouts = {.default_deadline = 3s, .silence = 400ms, .connect = 400ms, .idle_peer = 60s};
  s.workload.calls_per_caller = 250;
  s.workload.window = static_cast<std::uint32_t>(between(random, 1, 24));
  s.workload.think_time = between(random, 10us, 4ms);
  for (HostId host = 0; host < s.hosts; ++host) {
    // The first host may be a mere caller, the last one a mere server.
    if (host + 1 < s.hosts || s.hosts > 4) s.workload.callers.push_back(host);
    if (host > 0 || s.hosts > 3) s.workload.callees.push_back(host);
  }
  return s;
}

void calm(Scenario& s, Random&) {
  s.is_punctual = true;
  s.workload.must_succeed = true;
  s.least_success = 0.95;  // nested calls may be refused for their depth
}

void lossy(Scenario& s, Random& random) {
  s.faults.loss = static_cast<double>(random.below(31)) / 100;
  s.workload.shortest_deadline = 1s;
  s.least_success = 0.7;
}

void reorder(Scenario& s, Random& random) {
  s.faults.reorder = 0.05 + random.fraction() * 0.6;
  s.faults.reorder_delay = between(random, 50us, 5ms);
  s.faults.duplicate = random.fraction() * 0.3;
  s.least_success = 0.8;
}

void corrupt(Scenario& s, Random& random) {
  s.faults.corrupt = 0.01 + random.fraction() * 0.2;
  s.faults.duplicate = random.fraction() * 0.05;
  s.least_success = 0.7;
}

void partition(Scenario& s, Random& random) {
  s.partitions = static_cast<std::uint32_t>(between(random, 1, 6));
  s.longest_partition = random.chance(0.5) ? 60ms : 700ms;
  s.workload.shortest_deadline = 5ms;
}

void restart(Scenario& s, Random& random) {
  s.crashes = static_cast<std::uint32_t>(between(random, 1, 5));
  s.closings = static_cast<std::uint32_t>(random.below(3));
  s.longest_absence = random.chance(0.5) ? 5ms : 600ms;
  s.reports_closed_ports = random.chance(0.5);
  s.workload.shortest_deadline = 20ms;
}

void stall(Scenario& s, Random& random) {
  s.stalls = static_cast<std::uint32_t>(between(random, 1, 8));
  s.longest_stall = random.chance(0.5) ? 20ms : 600ms;
  s.socket.receive_buffer_bytes = random.chance(0.5) ? 64 * 1024 : 1 << 20;
  s.workload.shortest_deadline = 20ms;
}

void hostile(Scenario& s, Random& random) {
  s.attack_interval = between(random, 20us, 200us);
  s.crashes = static_cast<std::uint32_t>(random.below(4));
  s.longest_absence = 20ms;
  s.rotate_packets = random.chance(0.5) ? 64 : 1u << 22;
}

void mixed(Scenario& s, Random& random) {
  s.faults = {.loss = random.fraction() * 0.15,
              .duplicate = random.fraction() * 0.1,
              .reorder = random.fraction() * 0.2,
              .reorder_delay = between(random, 10us, 2ms),
              .corrupt = random.fraction() * 0.05};
  s.partitions = static_cast<std::uint32_t>(random.below(3));
  s.crashes = static_cast<std::uint32_t>(random.below(3));
  s.closings = static_cast<std::uint32_t>(random.below(2));
  s.stalls = static_cast<std::uint32_t>(random.below(4));
  s.mtu_changes = static_cast<std::uint32_t>(random.below(3));
  s.reports_closed_ports = random.chance(0.5);
  s.rotate_packets = random.chance(0.5) ? between(random, 16, 256) : 1u << 22;
  if (random.chance(0.3)) s.attack_interval = between(random, 100us, 1ms);
  s.workload.shortest_deadline = 2ms;
}

// Many clients, one slow server behind a thin link with a short queue.
void incast(Scenario& s, Random& random) {
  s.hosts = static_cast<std::uint32_t>(between(random, 8, 20));
  s.link.bytes_per_second = 125'000'000;
  s.link.queue_bytes = 128 * 1024;
  s.link.datagram_bytes = random.chance(0.5) ? 1'472 : 8'972;
  s.limits.request_bytes = 256 * 1024;
  s.limits.request_bytes_per_peer = 64 * 1024;
  s.workload.callers.clear();
  for (HostId host = 1; host < s.hosts; ++host) s.workload.callers.push_back(host);
  s.workload.callees = {0};
  s.workload.calls_per_caller = 80;
  s.workload.window = 25;
  s.workload.think_time = 100us;
  s.workload.nested = 0;
  s.workload.service_time = between(random, 5us, 100us);
  s.workload.shortest_deadline = 2s;
  s.workload.longest_deadline = 4s;
  s.least_success = 0.95;
}

// A host with urgent calls and many with bulk ones, and a slow server that has room for a few of them only.
void priorities(Scenario& s, Random& random) {
  incast(s, random);
  s.hosts = static_cast<std::uint32_t>(between(random, 9, 14));
  s.workload.callers.clear();
  for (HostId host = 1; host < s.hosts; ++host) s.workload.callers.push_back(host);
  s.link.bytes_per_second = 1'250'000'000;
  s.link.queue_bytes = 512 * 1024;
  s.limits.request_bytes = 160 * 1024;
  s.limits.request_bytes_per_peer = 64 * 1024;
  s.limits.calls_per_peer = 256;
  s.workload.calls_per_caller = 120;
  s.workload.window = 30;
  s.workload.think_time = 2ms;
  s.workload.service_time = between(random, 50us, 150us);
  s.workload.urgent = {1};  // one, so that what its calls wait for is the others' bulk and not each other
  s.workload.cancelled = s.workload.later = s.workload.error = s.workload.empty = 0;
  s.workload.without_deadline = 0;
  s.least_success = 1;
  // What urgent calls wait for is credit. If each of them needs a grant of its own, a round trip each, one seed in a
  // hundred is between 1.4 and 2. With a line that is first come, first served, half of the seeds are below 1 and the
  // rest at 2.4.
  s.least_advantage = 2;
}

// Narrow paths, found by probing; they change under way.
void mtu(Scenario& s, Random& random) {
  s.mtu_changes = static_cast<std::uint32_t>(between(random, 1, 4));
  s.link.datagram_bytes = random.chance(0.5) ? 8'972 : 65'507;
  s.faults.loss = random.chance(0.5) ? 0.02 : 0;
  s.workload.shortest_deadline = 1s;
  s.least_success = 0.7;
}

void rotate(Scenario& s, Random& random) {
  s.rotate_packets = between(random, 4, 64);
  s.faults = {.loss = random.chance(0.5) ? random.fraction() * 0.1 : 0,
              .reorder = random.chance(0.5) ? 0.2 : 0,
              .reorder_delay = 500us};
  s.workload.shortest_deadline = 1s;
  s.least_success = 0.8;
}

// Chains of calls that come after each other, over a network that loses and hosts that die.
void after(Scenario& s, Random& random) {
  s.faults = {.loss = random.chance(0.3) ? 0 : random.fraction() * 0.2,
              .duplicate = random.chance(0.5) ? 0.05 : 0,
              .reorder = random.chance(0.5) ? random.fraction() * 0.3 : 0,
              .reorder_delay = between(random, 10us, 2ms)};
  s.crashes = random.chance(0.4) ? static_cast<std::uint32_t>(between(random, 1, 3)) : 0;
  s.longest_absence = 50ms;
  s.partitions = random.chance(0.2) ? 1 : 0;
  s.longest_partition = 60ms;
  s.workload.sequels = {.tracked = 0.7, .after = 0.6};
  s.workload.window = static_cast<std::uint32_t>(between(random, 4, 24));
  s.workload.shortest_deadline = random.chance(0.5) ? 5ms : 1s;
  s.workload.cancelled = 0.1;
  if (random.chance(0.5)) {
    s.workload.large = 0.2;
    s.workload.largest_large_bytes = 1u << 20;
  }
}

// Callers behind NATs that give them other addresses all the time, and somebody who sends copies of their packets from
// elsewhere. The network loses nothing but what goes to former addresses.
void address_change(Scenario& s, Random& random) {
  s.is_punctual = true;
  const auto callers = static_cast<std::uint32_t>(between(random, 1, 3));
  s.hosts = callers + static_cast<std::uint32_t>(between(random, 1, 2));
  s.workload.callers.clear();
  s.workload.callees.clear();
  AddressShape shape;
  for (HostId host = 0; host < s.hosts; ++host) {
    if (host < callers) shape.callers.push_back(host);
    (host < callers ? s.workload.callers : s.workload.callees).push_back(host);
  }
  constexpr Duration kLatencies[] = {5us, 100us, 1ms, 6ms};
  s.link.latency = kLatencies[random.below(4)];
  s.link.bytes_per_second = std::max<std::uint64_t>(s.link.bytes_per_second, 1'250'000'000);
  s.span = random.chance(0.5) ? 300ms : 1'200ms;
  shape.interval = any_length(random, std::max<Duration>(2ms, 16 * s.link.latency), s.span / 3);
  shape.back = random.chance(0.5) ? 0.5 : 0;
  shape.host = random.chance(0.5) ? 0.3 : 0;
  shape.at_hello = random.chance(0.5) ? 0.5 : 0;
  if (random.chance(0.5)) {
    shape.copier = {.share = random.chance(0.5) ? 1 : random.fraction(),
                    .late = random.chance(0.5) ? 0 : random.fraction(),
                    .addresses = static_cast<std::uint32_t>(between(random, 1, 3)),
                    .relays = random.chance(0.3)};
    // Who relays both ways can keep a caller from being found at a new address (P-12).
    if (shape.copier.relays) shape.interval = {}, shape.at_hello = 0;
  }
  if (random.chance(0.5)) {
    s.faults = {.duplicate = random.fraction() * 0.2, .reorder = random.fraction() * 0.3, .reorder_delay = 500us};
  }
  if (random.chance(0.5)) {
    s.workload.large = 0.2;
    s.workload.largest_large_bytes = 1u << 20;
  }
  s.addresses = shape;
  s.workload.calls_per_caller = 150;
  s.workload.think_time = s.span * (2 * s.workload.window) / s.workload.calls_per_caller;
  // Longer than the span: a caller whose address changes all the time is not heard for so long.
  s.timeouts.connect = s.timeouts.silence = 3s;
  s.timeouts.keepalive = 100ms;
  s.timeouts.default_deadline = 8s;
  s.workload.shortest_deadline = 6s;
  s.workload.longest_deadline = 8s;
  s.workload.must_succeed = true;
  s.least_success = 0.9;
}

// Spreads the calls over the span, so that they meet what happens in it: a short one in which much goes on, or one
// that is longer than a peer may be silent.
void spread(Scenario& s, Random& random) {
  constexpr Duration kSpans[] = {30ms, 120ms, 300ms, 1'200ms};
  s.span = kSpans[random.below(4)];
  s.workload.think_time = s.span * (2 * s.workload.window) / s.workload.calls_per_caller;
}

// Scenarios that say themselves how long they last keep to it.
bool is_timed(const Scenario& s) {
  if (s.span != Scenario{}.span) return false;
  return s.partitions + s.crashes + s.closings + s.stalls + s.mtu_changes + s.revocations != 0 ||
         s.attack_interval.count() != 0 || s.carry_interval.count() != 0;
}

// Hosts are late whatever else happens, unless the scenario measures how long something takes or has stalls of its own.
// Where calls must succeed, nobody is away for so long that others give him up.
void be_late(Scenario& s, Random& random) {
  if (s.is_punctual || s.measures_recovery || s.least_advantage != 0 || s.stalls != 0 || s.hostile.senders != 0) return;
  const bool is_bounded = s.workload.must_succeed || s.least_success != 0;
  const Duration silence = std::min(s.timeouts.silence, s.timeouts.connect);
  if (random.chance(0.3)) s.timer_lateness = any_length(random, 1us, is_bounded ? 1ms : 20ms);
  if (!random.chance(0.3)) return;
  s.longest_stall =
      is_bounded ? std::min({silence / 8, s.workload.shortest_deadline / 8, kLongestStall}) : kLongestStall;
  s.stalls = static_cast<std::uint32_t>(random.below(4));
  for (std::uint32_t datagram = 0, i = 0; i < 3; ++i) {
    datagram += static_cast<std::uint32_t>(any_length(random, 1us, 4ms).count() / 1'000);
    s.stalls_at.push_back({.host = static_cast<HostId>(random.below(s.hosts)), .datagram = datagram});
  }
}

struct Named {
  std::string_view name;
  std::string_view says;
  Maker make;
};
constexpr Named kScenarios[] = {
    {"calm", "nothing goes wrong: every call must succeed", calm},
    {"lossy", "up to 30 % of all packets are lost", lossy},
    {"reorder", "packets overtake each other, some come twice", reorder},
    {"corrupt", "bits of packets are flipped on the way", corrupt},
    {"partition", "some hosts cannot reach each other for a while", partition},
    {"restart", "processes die, or close, and come back", restart},
    {"stall", "workers do nothing for a while", stall},
    {"mixed", "a little of all of these", mixed},
    {"hostile", "an attacker on the network, without the secret, replays, changes and forges packets", hostile},
    {"incast", "many clients, one slow server behind a slow link", incast},
    {"priorities", "urgent and less urgent calls, at a server that grants little credit", priorities},
    {"mtu", "paths whose MTU becomes smaller", mtu},
    {"rotate", "keys that are rotated every few packets", rotate},
    {"address_change", "callers whose addresses change, and somebody who sends copies from elsewhere", address_change},
    {"after", "calls that come after others, with loss and crashes", after},
    {"identity_lossy", "identities: handshakes that lose packets", identity_lossy},
    {"identity_both", "identities: both sides shake hands at once", identity_both},
    {"identity_start", "identities: callers that are there before those they call", identity_start},
    {"identity_crash", "identities: processes die in the middle of handshakes", identity_crash},
    {"identity_clock", "identities: clocks that are wrong by minutes or by hours", identity_clock},
    {"identity_evict", "identities: more peers than are remembered", identity_evict},
    {"identity_renew", "identities: credentials that are renewed under load", identity_renew},
    {"identity_short", "identities: certificates that live for 30 s, and one that is not replaced", identity_short},
    {"identity_restart", "identities: a peer comes back, and is found at once", identity_restart},
    {"identity_replay", "identities: a recorded conversation is played again", identity_replay},
    {"identity_mixed", "identities: a little of all of these", identity_mixed},
    {"large", "large messages over a network that loses, reorders and corrupts", large},
    {"large_revoke", "large messages whose memory is taken back at any moment", large_revoke},
    {"large_exhausted", "large messages for which there is too little memory", large_exhausted},
    {"large_expiry", "large messages whose memory expires", large_expiry},
    {"large_stall", "large messages that take seconds, between hosts that stop for seconds", large_stall},
    {"large_restart", "large messages between processes that die", large_restart},
    {"large_hostile", "large messages, whose packets an attacker on the network changes and sends again",
     large_hostile},
    {"large_hostile_sender", "large messages, and members who know the keys and break the rules", large_hostile_sender},
    {"workers", "several workers per host, and somebody who carries datagrams between them, late", workers},
    {"connecting", "processes die at every step of connecting, and are found again at once", connecting},
    {"identity_workers", "identities: the same workers, and callees that forget who has called them", identity_workers},
    {"identity_connecting", "identities: processes die at every step of connecting, and are found again at once",
     identity_connecting},
    {"jitter", "packets overtake each other and none is lost: hardly anything is sent again", jitter},
    {"jitter_lossy", "the same with 2 % loss: hardly more is sent again than is lost", jitter_lossy},
    {"stall_burst", "hosts stop for 50 ms in the middle of bursts: at most one needless probe", stall_burst},
    {"members", "one member takes all it can, on many paths: others have their share, and a newcomer is served",
     members},
};

constexpr auto kNames = [] {
  std::array<std::string_view, std::size(kScenarios)> names{};
  std::ranges::transform(kScenarios, names.begin(), &Named::name);
  return names;
}();

}  // namespace

std::span<const std::string_view> scenario_names() { return kNames; }

std::string_view describe_scenario(std::string_view name) {
  const auto* found = std::ranges::find(kScenarios, name, &Named::name);
  return found == std::end(kScenarios) ? std::string_view{} : found->says;
}

std::optional<Scenario> make_scenario(std::string_view name, std::uint64_t seed) {
  const auto* found = std::ranges::find(kScenarios, name, &Named::name);
  if (found == std::end(kScenarios)) return std::nullopt;
  Scenario scenario = ordinary(found->name, seed);
  Random random = stream(seed, found->name);
  found->make(scenario, random);
  if (is_timed(scenario)) spread(scenario, random);
  Random late = stream(seed, "late");
  be_late(scenario, late);
  return scenario;
}

}  // namespace weir::sim
