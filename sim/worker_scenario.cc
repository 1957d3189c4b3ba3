#include "sim/worker_scenario.h"

#include <algorithm>
#include <chrono>

#include "sim/random_stream.h"

namespace weir::sim {
namespace {

using namespace std::chrono_literals;

// Paths are made often: callers forget them between two calls.
void carried(Scenario& s, Random& random) {
  s.carry_interval = between(random, 100us, 1ms);
  s.workers = static_cast<std::uint32_t>(between(random, 2, 4));
  s.timeouts.idle_peer = between(random, 4ms, 40ms);
  s.crashes = static_cast<std::uint32_t>(random.below(3));
  s.longest_absence = 20ms;
  s.workload.nested = 0;
  s.workload.largest_bytes = 1'000;
  s.workload.window = static_cast<std::uint32_t>(between(random, 1, 4));
}

// One caller that always has calls to make, one callee that dies up to three times within a second: at any of the
// first datagrams of the run, and later at any datagram after it has come back. A bucket of four handshakes (rule R-5)
// has room for that.
void dying(Scenario& s, Random& random) {
  s.hosts = 2;
  s.workers = random.chance(0.5) ? 1 : static_cast<std::uint32_t>(between(random, 2, 4));
  s.measures_reconnection = true;
  s.link.latency = between(random, 2us, 300us);
  s.link.bytes_per_second = 12'500'000'000;
  s.link.queue_bytes = 1u << 20;
  s.link.ecn_threshold_bytes = 0;
  s.workload.callers = {0};
  s.workload.callees = {1};
  s.workload.nested = s.workload.later = s.workload.error = s.workload.empty = s.workload.cancelled = 0;
  s.workload.largest_bytes = 128;
  // One call at a time: the others wait for it, so that there always is one to begin with.
  s.limits.calls_per_peer = random.chance(0.5) ? 2 : 16;
  s.workload.window = 6;
  s.workload.think_time = 200us;
  s.workload.calls_per_caller = 1'500;
  s.workload.shortest_deadline = 4s;
  s.workload.longest_deadline = 8s;
  s.reports_closed_ports = random.chance(0.3);
  s.is_punctual = true;
  s.span = 1s;
  const std::uint64_t crashes = between(random, 1, 3);
  std::uint32_t datagram = 0;
  for (std::uint64_t i = 0; i < crashes; ++i) {
    datagram += static_cast<std::uint32_t>(between(random, 1, 24));
    // Before the datagram has arrived, while its receiver works on it, or when the answer is under way.
    constexpr int kLatencies[] = {0, 1, 1, 2};
    s.crashes_at.push_back({.host = 1,
                            .datagram = datagram,
                            .delay = kLatencies[random.below(4)] * s.link.latency + between(random, 0us, 15us),
                            .absence = random.chance(0.7) ? between(random, 1us, 2ms) : between(random, 2ms, 300ms)});
  }
}

}  // namespace

void workers(Scenario& s, Random& random) {
  carried(s, random);
  s.hosts = std::min(s.hosts, 4u);
  s.workload.callers.clear();
  s.workload.callees.clear();
  for (HostId host = 0; host < s.hosts; ++host) {
    s.workload.callers.push_back(host);
    if (host != 0) s.workload.callees.push_back(host);
  }
  s.reshuffles = static_cast<std::uint32_t>(between(random, 1, 12));
  s.faults.loss = random.chance(0.5) ? 0.02 : 0;
}

void connecting(Scenario& s, Random& random) { dying(s, random); }

// Somebody else makes callees forget credentials meanwhile.
void carry_with_identities(Scenario& s, Random& random) {
  carried(s, random);
  s.forgettings = static_cast<std::uint32_t>(between(random, 4, 24));
  s.workload.calls_per_caller = 60;
}

void die_with_identities(Scenario& s, Random& random) {
  dying(s, random);
  s.identity->keeps_signer = true;
}

}  // namespace weir::sim
