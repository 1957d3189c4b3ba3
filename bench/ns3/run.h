// One row of the comparison: a scenario with one contestant, in rounds.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"
#include "scenario.h"

namespace weir::bench {

struct Contestant {
  std::string_view name;
  std::string_view description;
  std::string_view tcp;  // the class of ns-3 that controls congestion; empty: Weir
  bool marks = false;    // the switches' queues mark packets
};

const std::vector<Contestant>& contestants();

struct RunOptions {
  std::uint64_t seed = 1;
  std::uint32_t rounds = 3;  // after the first, in which connections are opened
  bool is_quick = false;
  Duration tcp_least_timeout = std::chrono::milliseconds(200);
  std::uint32_t receive_buffer_bytes = 16u << 20;  // of Weir's sockets: what a pool asks for
};

// What one round cost.
struct RoundResult {
  double seconds = 0;
  double over_bound = 0;
  double most_over_bound = 0;  // the time by which 99 % of the calls had ended
  std::uint64_t completed = 0, failed = 0;
  std::string first_failure;
  std::uint64_t dropped = 0;                // at the ports that the scenario watches
  double dropped_share = 0;                 // of the packets that came to these
  std::uint64_t dropped_elsewhere = 0;      // at other ports, in sockets and by hosts
  std::uint64_t marked = 0;                 // there
  std::uint64_t marks_received = 0;         // by Weir's engines, from all ports
  std::uint64_t packets = 0, ip_bytes = 0;  // sent by all hosts
  std::uint64_t retransmitted_bytes = 0;
  double retransmitted_share = 0;                              // of ip_bytes
  double goodput = 0;                                          // requests and replies over ip_bytes
  std::uint32_t queue_p99_bytes = 0, queue_longest_bytes = 0;  // of the worst of these ports
};

struct RowResult {
  std::string scenario, contestant;
  std::uint32_t hosts = 0;
  std::uint64_t calls = 0;  // in a round
  double bound_s = 0;
  std::vector<RoundResult> rounds;  // the first is the one with the handshakes
  // Of the rounds after the first, or the first if there is no other: the one whose time is the median.
  const RoundResult& median() const;
};

// The same arguments give the same result.
RowResult run_row(const Scenario& scenario, const Contestant& contestant, const RunOptions& options);

}  // namespace weir::bench
