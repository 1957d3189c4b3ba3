// Recovery: how soon a restarted callee is of use again.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "sim/checker.h"
#include "sim/host.h"
#include "sim/world.h"

namespace weir::sim {

// One per run that measures it. It needs one caller, host 0, one callee, host 1, small calls that are answered at once
// and a network that loses nothing. What it measures with, the network itself has shown before: the first handshake of
// the run, and the quickest call.
//
// From the first datagram that reaches the new process to the first request that it runs there are: half a round trip
// for the word that it does not know the sender's secret, a handshake, a round trip for the new path, and half of one
// for the request. The reply takes another half.
class Recovery {
 public:
  Recovery(World& world, Checker& checker, const std::vector<std::unique_ptr<Host>>& hosts);

  void check_end();

 private:
  static constexpr HostId kCaller = 0;
  static constexpr HostId kCallee = 1;
  static constexpr int kPolls = 16;  // that it takes in all, on both sides

  void on_delivered(const Packet& packet);
  void on_run(HostId host);
  void on_success(const CallRecord& record);

  World& world_;
  Checker& checker_;
  const std::vector<std::unique_ptr<Host>>& hosts_;
  Duration round_trip_ = Duration::max();
  std::optional<Duration> handshake_;
  std::uint32_t life_ = 1;                   // of the callee that was last measured
  std::optional<Instant> first_reached_at_;  // in its present life
  std::uint32_t measured_ = 0;
};

}  // namespace weir::sim
