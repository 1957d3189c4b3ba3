#include "sim/waste_scenario.h"

#include <chrono>

#include "sim/random_stream.h"

namespace weir::sim {

namespace {

using namespace std::chrono_literals;

// One caller and one callee, nobody is late, and calls of one kind: bulk, a queue of inline messages, or one at a time.
enum class Kind : std::uint8_t { bulk, queue, lone };

Kind pair(Scenario& s, Random& random) {
  s.is_punctual = true;
  s.hosts = 2;
  s.workload.callers = {0};
  s.workload.callees = {1};
  s.workload.patient_every = 0;
  s.workload.without_deadline = 0;
  s.workload.cancelled = 0;
  s.workload.think_time = 10us;
  s.workload.shortest_deadline = 20s;
  s.workload.longest_deadline = 30s;
  s.workload.must_succeed = true;
  s.timeouts = {.default_deadline = 30s, .silence = 3s, .connect = 3s, .idle_peer = 60s};
  s.limits = Limits{};
  s.limits.receive_buffers = 256;
  s.limits.peers = 64;
  s.link.datagram_bytes = 1'472;
  s.link.bytes_per_second = 1'250'000'000;
  s.link.queue_bytes = 4u << 20;
  s.link.ecn_threshold_bytes = 0;
  s.least_success = 1;
  s.span = 3s;
  switch (const Kind kind = static_cast<Kind>(random.below(3)); kind) {
    case Kind::bulk:
      s.workload.window = 8;
      s.workload.calls_per_caller = 24;
      s.workload.exact_bytes = 1u << 20;
      s.workload.exact_reply_bytes = 64;
      return kind;
    case Kind::queue:
      s.workload.window = 64;
      s.workload.calls_per_caller = 4'000;
      s.workload.exact_bytes = 4'096;
      s.workload.exact_reply_bytes = 64;
      return kind;
    case Kind::lone:
      s.workload.window = 1;
      s.workload.calls_per_caller = 600;
      s.workload.exact_bytes = 4'096;
      s.workload.exact_reply_bytes = 64;
      return kind;
  }
  return Kind::lone;
}

// 1 ms +- 0.5 ms in each direction, and one packet in twenty later than that.
void overtake(Scenario& s) {
  s.link.latency = 250us;
  s.faults.jitter = 1ms;
  s.faults.reorder = 0.05;
  s.faults.reorder_delay = 1ms;
}

}  // namespace

void jitter(Scenario& s, Random& random) {
  pair(s, random);
  overtake(s);
  s.most_sent_again = 0.005;
}

void jitter_lossy(Scenario& s, Random& random) {
  const Kind kind = pair(s, random);
  overtake(s);
  s.faults.loss = 0.02;
  s.span = 20s;
  if (kind == Kind::bulk) s.workload.calls_per_caller = 16;
  s.most_sent_again = kind == Kind::lone ? 0.05 : 0.025;
}

void stall_burst(Scenario& s, Random& random) {
  pair(s, random);
  s.link.latency = between(random, 2us, 50us);
  s.shortest_stall = random.chance(0.5) ? 50ms : 1ms;
  s.longest_stall = 50ms;
  for (std::uint32_t datagram = 100; datagram < 2'400; datagram += 200) {
    s.stalls_at.push_back({.host = static_cast<HostId>(random.below(2)),
                           .datagram = datagram + static_cast<std::uint32_t>(random.below(200))});
  }
  s.most_needless_probes = 1;
}

}  // namespace weir::sim
