#include "sim/identity_scenario.h"

#include <algorithm>
#include <chrono>

#include "sim/identities.h"
#include "sim/random_stream.h"
#include "sim/worker_scenario.h"

namespace weir::sim {
namespace {

using namespace std::chrono_literals;

// A handshake costs the simulator more than hundreds of calls do: there are few hosts.
void identities(Scenario& s, Random& random, std::uint32_t most_hosts) {
  s.identity.emplace();
  s.identity->keeps_signer = random.chance(0.5);
  s.hosts = static_cast<std::uint32_t>(between(random, 2, most_hosts));
  s.timeouts.connect = 3s;
  s.timeouts.handshake = 5s;
  s.timeouts.default_deadline = 8s;
  s.workload.calls_per_caller = 100;
  s.workload.shortest_deadline = 4s;
  s.workload.longest_deadline = 8s;
  s.workload.callers.clear();
  s.workload.callees.clear();
}

// Nobody is called by whom it calls: no two handshakes are ever simultaneous.
void split(Scenario& s, HostId callers) {
  for (HostId host = 0; host < s.hosts; ++host)
    (host < callers ? s.workload.callers : s.workload.callees).push_back(host);
  s.workload.nested = 0;
}

void one_way(Scenario& s, Random& random) { split(s, static_cast<HostId>(between(random, 1, s.hosts - 1))); }

void both_ways(Scenario& s) {
  for (HostId host = 0; host < s.hosts; ++host) {
    s.workload.callers.push_back(host);
    s.workload.callees.push_back(host);
  }
}

}  // namespace

void identity_lossy(Scenario& s, Random& random) {
  identities(s, random, 4);
  one_way(s, random);
  s.faults.loss = static_cast<double>(random.below(31)) / 100;
  s.faults.duplicate = random.chance(0.3) ? 0.05 : 0;
  s.timeouts.silence = 1s;
  s.workload.must_succeed = s.faults.loss <= 0.1;
  s.least_success = 0.9;
}

// Everybody calls everybody in the first instants, so that most handshakes meet one that comes the other way. Only
// handshakes suffer: who loses a path's hello suspects its credential, and which one that is depends on who won.
void identity_both(Scenario& s, Random& random) {
  identities(s, random, 4);
  both_ways(s);
  if (random.chance(0.7)) {
    s.identity->handshake_faults = Faults{.loss = static_cast<double>(random.below(31)) / 100,
                                          .duplicate = random.fraction() * 0.1,
                                          .reorder = random.fraction() * 0.3,
                                          .reorder_delay = between(random, 10us, 2ms)};
  } else {
    s.workload.must_succeed = true;
  }
  s.workload.think_time = between(random, 1us, 200us);
  s.workload.window = static_cast<std::uint32_t>(between(random, 1, 8));
  s.least_success = 0.9;
}

// Callers that are there before those they call, and the other way round.
void identity_start(Scenario& s, Random& random) {
  identities(s, random, 4);
  both_ways(s);
  s.start_spread = random.chance(0.3) ? between(random, 1us, 500us) : between(random, 1ms, 300ms);
  s.workload.think_time = 100us;
  s.workload.must_succeed = true;
  s.least_success = 0.95;
}

// A process dies at each step of a handshake, of the installation of its result, or soon after.
void identity_crash(Scenario& s, Random& random) {
  identities(s, random, 2);
  s.workload.callers = {0};
  s.workload.callees = {1};
  s.workload.nested = 0;
  s.workload.window = static_cast<std::uint32_t>(between(random, 1, 4));
  s.workload.think_time = between(random, 10us, 2ms);
  s.faults.loss = random.chance(0.3) ? 0.05 : 0;
  s.reports_closed_ports = random.chance(0.3);
  s.span = 8s;  // a handshake whose datagrams nobody answers takes its time
  const std::uint64_t crashes = between(random, 1, 3);
  std::uint32_t datagram = 0;
  for (std::uint64_t i = 0; i < crashes; ++i) {
    datagram += static_cast<std::uint32_t>(between(random, 1, 24));
    // Before the datagram has arrived, while its receiver works on it, or when the answer is under way.
    constexpr int kLatencies[] = {0, 1, 1, 2};
    s.crashes_at.push_back({.host = static_cast<HostId>(random.below(2)),
                            .datagram = datagram,
                            .delay = kLatencies[random.below(4)] * s.link.latency + between(random, 0us, 15us),
                            .absence = random.chance(0.5) ? between(random, 1us, 2ms) : between(random, 2ms, 600ms)});
  }
}

// Clocks that go wrong by minutes disturb nobody. One that is wrong by hours believes no certificate.
void identity_clock(Scenario& s, Random& random) {
  identities(s, random, 4);
  const bool one_is_wrong = random.chance(0.6);
  if (one_is_wrong) {
    s.hosts = 4;
    split(s, 2);  // so that the others have somebody to talk to
  } else {
    one_way(s, random);
  }
  constexpr std::int64_t kMargin = 60;
  constexpr std::int64_t kHarmless = kValidSeconds - kMargin;
  auto& errors = s.identity->clock_error_seconds;
  for (HostId host = 0; host < s.hosts; ++host) {
    errors.push_back(static_cast<std::int64_t>(random.below(2 * kHarmless)) - kHarmless);
  }
  s.workload.must_succeed = true;
  s.workload.cancelled = 0;
  if (!one_is_wrong) {
    s.least_success = 0.95;
    return;
  }
  const auto wrong = static_cast<HostId>(random.below(s.hosts));
  const auto far = static_cast<std::int64_t>(between(random, kValidSeconds + kMargin, 100 * kValidSeconds));
  errors[wrong] = random.chance(0.5) ? far : -far;
  s.workload.untrusted = {wrong};
  // Each refusal takes a handshake, and they come less and less often.
  s.workload.calls_per_caller = 40;
  s.workload.window = 8;
}

// So little room for credentials that they are evicted while they are needed; paths are forgotten quickly, so that
// they are needed often.
void identity_evict(Scenario& s, Random& random) {
  identities(s, random, 6);
  s.hosts = std::max(s.hosts, 4u);
  const auto callers = static_cast<HostId>(s.hosts - between(random, 1, 2));
  split(s, callers);
  s.limits.credentials = static_cast<std::uint32_t>(between(random, 1, callers - 1));
  s.timeouts.idle_peer = between(random, 40ms, 120ms);
  s.workload.calls_per_caller = 60;
  s.workload.window = static_cast<std::uint32_t>(between(random, 1, 4));
  s.workload.think_time = between(random, 1ms, 200ms);
  s.workload.shortest_deadline = 8s;
  s.workload.longest_deadline = 10s;
  s.workload.must_succeed = true;
  s.span = 3s;
  s.least_success = 0.95;
}

// Credentials that last a second, keys that last a few packets.
void identity_renew(Scenario& s, Random& random) {
  identities(s, random, 3);
  if (random.chance(0.3)) {
    both_ways(s);  // who renews first spares the other the trouble
  } else {
    one_way(s, random);
    s.least_credentials = 4;
  }
  s.timeouts.credential = 1s;
  s.timeouts.silence = 600ms;
  s.timeouts.handshake = 3s;
  s.rotate_packets = between(random, 16, 64);
  s.faults = {.loss = random.fraction() * 0.1, .reorder = random.chance(0.5) ? 0.1 : 0, .reorder_delay = 200us};
  s.span = 5s;
  s.workload.longest_deadline = 5s;
  s.workload.calls_per_caller = 400;
  s.workload.window = 32;
  s.workload.think_time = s.span * (2 * s.workload.window) / s.workload.calls_per_caller;
  s.workload.must_succeed = true;
  s.least_success = 0.95;
}

// Certificates that live for 30 s and are replaced every 15 s, on both sides, under a load that never rests for long.
// That of one more caller is not replaced.
void identity_short(Scenario& s, Random& random) {
  identities(s, random, 2);
  s.hosts = static_cast<std::uint32_t>(between(random, 3, 4));
  split(s, s.hosts - 1);
  if (s.hosts == 4 && random.chance(0.5)) s.workload.callees.push_back(0);
  s.identity->certificates = ShortCertificates{
      .not_replaced = s.hosts - 2, .ends_after_seconds = static_cast<std::int64_t>(between(random, 20, 80))};
  s.faults.loss = random.chance(0.5) ? 0.01 : 0;
  s.is_punctual = random.chance(0.5);
  s.span = 120s;
  s.workload.window = 2;
  s.workload.calls_per_caller = 600;
  s.workload.think_time = s.span * (2 * s.workload.window) / s.workload.calls_per_caller;
  s.workload.must_succeed = true;
  s.least_credentials = 8;
  s.handshake_interval = 1s;
}

void identity_restart(Scenario& s, Random& random) {
  identities(s, random, 2);
  s.identity->keeps_signer = true;
  s.measures_recovery = true;
  s.workload.callers = {0};
  s.workload.callees = {1};
  s.workload.nested = s.workload.later = s.workload.error = s.workload.empty = 0;
  s.workload.largest_bytes = 128;
  // One call at a time: the others wait for it, so that there always is one to begin with.
  s.limits.calls_per_peer = 2;
  s.workload.window = 6;
  s.workload.think_time = 20us;
  s.workload.calls_per_caller = 2'000;
  s.span = 2s;
  s.crashes_at.push_back({.host = 1,
                          .datagram = static_cast<std::uint32_t>(between(random, 200, 500)),
                          .delay = between(random, 0us, 50us),
                          .absence = random.chance(0.5) ? between(random, 10us, 15ms) : between(random, 15ms, 400ms)});
}

// Somebody on the wire sends everything again, at once and later, to whom it was for and to others.
void identity_replay(Scenario& s, Random& random) {
  identities(s, random, 3);
  one_way(s, random);
  s.attack_interval = between(random, 300us, 2ms);
  s.crashes = static_cast<std::uint32_t>(random.below(3));
  s.longest_absence = 20ms;
  s.rotate_packets = random.chance(0.5) ? 64 : 1u << 22;
}

// Room for a few messages, or a few dozens. The hostile member has several hosts, which want more than they are ever
// given, name the most urgent priority and keep what they have: for ever, or for as long as everybody does.
void members(Scenario& s, Random& random) {
  identities(s, random, 2);
  MemberShape& shape = s.members.emplace();
  shape.honest = static_cast<std::uint32_t>(between(random, 1, 4));
  shape.hostile = static_cast<std::uint32_t>(between(random, 2, 6));
  shape.is_large = random.chance(0.4);
  shape.service = between(random, 10ms, 25ms);
  shape.holding = random.chance(0.6) ? 1h : shape.service;
  s.span = 3s;
  shape.newcomer_after = between(random, 800ms, 1'200ms);
  s.hosts = shape.hosts();
  s.limits.calls_per_peer = 1'024;
  s.limits.peers = 2 * (shape.honest + 2);  // half of them are as many as there are others
  s.link.latency = between(random, 5us, 50us);
  s.link.bytes_per_second = 12'500'000'000;
  s.link.queue_bytes = 1u << 20;
  s.link.datagram_bytes = 8'972;
  if (shape.is_large) {
    shape.bytes = between(random, 32'768, 100'000);
    s.limits.message_bytes = 128 * 1024;
    s.limits.large_request_bytes = s.limits.large_bytes_per_peer = s.limits.nested_large_request_bytes =
        between(random, 4, 12) * 128 * 1024;
    s.limits.large_reply_bytes = s.limits.large_request_bytes;
    s.socket.receive_buffer_bytes = 4u << 20;
    shape.window = static_cast<std::uint32_t>(s.limits.large_request_bytes / shape.bytes) + 2;
  } else {
    // Of large messages fewer fit than there are members, and a part of the room is of use to nobody.
    shape.bytes = between(random, 2'000, shape.honest <= 2 ? 16'000 : 8'000);
    s.socket.receive_buffer_bytes = between(random, 212'992, 1'000'000);
    shape.window = static_cast<std::uint32_t>(s.socket.receive_buffer_bytes / 4 / shape.bytes) + 2;
  }
  shape.round_trip = 2 * s.link.latency + 500us;  // with what others have in flight
  s.workload.callers.clear();
  for (HostId host = 1; host < s.hosts; ++host) s.workload.callers.push_back(host);
  s.workload.callees = {0};
  s.workload.calls_per_caller = 0;
  s.workload.nested = 0;
  s.workload.largest_bytes = 1'000;
  s.is_punctual = true;
}

void identity_workers(Scenario& s, Random& random) {
  identities(s, random, 3);
  s.identity->keeps_signer = true;
  one_way(s, random);
  carry_with_identities(s, random);
}

void identity_connecting(Scenario& s, Random& random) {
  identities(s, random, 2);
  die_with_identities(s, random);
}

void identity_mixed(Scenario& s, Random& random) {
  identities(s, random, 4);
  both_ways(s);
  s.faults = {.loss = random.fraction() * 0.15,
              .duplicate = random.fraction() * 0.1,
              .reorder = random.fraction() * 0.2,
              .reorder_delay = between(random, 10us, 2ms),
              .corrupt = random.fraction() * 0.05};
  s.partitions = static_cast<std::uint32_t>(random.below(3));
  s.crashes = static_cast<std::uint32_t>(random.below(3));
  s.closings = static_cast<std::uint32_t>(random.below(2));
  s.stalls = static_cast<std::uint32_t>(random.below(3));
  s.longest_absence = random.chance(0.5) ? 5ms : 600ms;
  s.reports_closed_ports = random.chance(0.5);
  s.rotate_packets = random.chance(0.5) ? between(random, 16, 256) : 1u << 22;
  s.timeouts.credential = random.chance(0.5) ? 1s : 3'600s;
  if (random.chance(0.3)) s.attack_interval = between(random, 500us, 3ms);
  s.start_spread = random.chance(0.5) ? between(random, 1us, 50ms) : Duration{0};
  s.workload.shortest_deadline = 2ms;
}

}  // namespace weir::sim
