// Copier: somebody who sees what callers send and sends copies from addresses of his own, mostly so that a copy arrives
// before its original.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>

#include "base/address.h"
#include "base/random.h"
#include "sim/world.h"

namespace weir::sim {

struct CopierShape {
  double share = 0;             // of the callers' datagrams that are copied; 0: there is no copier
  double late = 0.2;            // of the copies, those that arrive after their originals
  std::uint32_t addresses = 1;  // of the copier
  bool relays = false;          // what arrives at these addresses goes on to the caller whose datagram was copied last
};

// One per run, if the scenario has one. Knows no secret.
class Copier {
 public:
  Copier(World& world, const CopierShape& shape);

  // A datagram that a caller has sent has reached the switch.
  void on_sent(const Packet& packet);
  // A datagram for one of the copier's addresses has.
  void on_received(const Packet& packet);
  void stop() { is_stopped_ = true; }

  bool owns(const Address& address) const { return addresses_.contains(address); }
  std::uint64_t copies() const { return copies_; }

 private:
  World& world_;
  CopierShape shape_;
  Random random_;
  std::set<Address> addresses_;
  Address copied_from_;
  std::uint64_t copies_ = 0;
  bool is_stopped_ = false;
};

}  // namespace weir::sim
