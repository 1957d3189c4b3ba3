// Reconnection: how soon a callee that died while it was connected to is of use again (docs/protocol.md, rule H-12).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "sim/checker.h"
#include "sim/host.h"
#include "sim/world.h"

namespace weir::sim {

// One per run that measures it. It needs one caller, host 0, that always has a call to make, one callee, host 1, small
// calls that are answered at once and a network that loses nothing.
//
// From the first datagram of the caller that reaches a new process to the first reply of that process there are at most
// one probe interval and three round trips, and with identities the two of a handshake of QUIC, however long nobody was
// there and however many processes died before.
class Reconnection {
 public:
  Reconnection(World& world, Checker& checker, const std::vector<std::unique_ptr<Host>>& hosts, bool has_identity);

  void check_end();

 private:
  static constexpr HostId kCaller = 0;
  static constexpr HostId kCallee = 1;

  Duration allowed() const;
  void on_delivered(const Packet& packet);
  void on_run(HostId host, const CallRecord& record);
  void on_success(const CallRecord& record);

  World& world_;
  Checker& checker_;
  const std::vector<std::unique_ptr<Host>>& hosts_;
  const bool has_identity_;
  std::uint32_t life_ = 0;             // of the callee that is measured, or was
  std::optional<Instant> reached_at_;  // by the first datagram, until the first reply
  std::set<std::uint64_t> ran_;        // calls, in this life
  std::uint32_t measured_ = 0;
};

}  // namespace weir::sim
