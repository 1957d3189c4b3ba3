// An attacker on the network, without the secret: it records every datagram, sends old ones again from several
// addresses, changes them, and forges others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/random.h"
#include "sim/world.h"

namespace weir::sim {

// One per run, if the scenario has one. Lives as long as the run.
class Attacker {
 public:
  static constexpr std::size_t kMaxRecorded = 8'192;  // then new ones take the places of random old ones

  explicit Attacker(World& world);

  // One datagram per `interval`, on average, until stop().
  void start(Duration interval);
  void stop() { running_ = false; }
  // Everything recorded, once more, from the original addresses, one per `interval`.
  void replay_everything(Duration interval);
  std::size_t recorded() const { return recorded_.size(); }

 private:
  void record(const Packet& packet);
  void strike();
  void forge_unreachable();
  Packet junk();
  Address stranger();
  // A host's. Data goes astray to data ports and handshakes to those of handshakes: how a stranger's datagram looks to
  // the other kind depends on sealed bytes, and those differ from run to run.
  Address anybody(std::uint16_t port);

  World& world_;
  Random random_;
  std::vector<Packet> recorded_;
  std::uint64_t seen_ = 0;
  Duration interval_{0};
  bool running_ = false;
  bool records_ = true;
};

}  // namespace weir::sim
