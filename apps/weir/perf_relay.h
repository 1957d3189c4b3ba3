// `weir perf relay`: a network between perf clients and a server, as bad as it is asked to be.
#pragma once

#include <cstdint>
#include <string>

namespace weir::command {

struct PerfRelayOptions {
  std::string listen;
  std::string to;
  double delay_ms = 0;    // of every datagram, in each direction
  double jitter_ms = 0;   // and up to so much more, so that they overtake each other
  double reorder = 0;     // share of the datagrams that are later than that
  double reorder_ms = 1;  // by up to so much
  double loss = 0;        // share of the datagrams that are dropped
  std::uint64_t seed = 1;
  double seconds = 0;  // 0: until a signal comes
  bool json = false;
};

void run_perf_relay(const PerfRelayOptions& options);

}  // namespace weir::command
