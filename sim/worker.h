// One worker of a simulated process: an engine, its socket, and the seat that turns both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>

#include "crypto/entropy.h"
#include "engine/engine.h"
#include "sim/handshaker.h"
#include "sim/link.h"
#include "sim/siblings.h"
#include "sim/world.h"
#include "worker/seat.h"

namespace weir::sim {

// Stands for pool::Post. As in a pool, a listening process with a shared secret has two for each of its workers, if it
// has several workers: one at the port that all share, and one to call from.
class SimWorker final : public worker::SeatHost {
 public:
  struct Options {
    HostId host = 0;
    std::size_t index = 0;  // among the process's
    Address local;
    SimLink::Options link;
    engine::EngineConfig config;
    std::uint64_t seed = 0;
    Subscriber* subscriber = nullptr;
    Handshaker* handshaker = nullptr;  // null: the host has no identity
    SharedPort* port = nullptr;        // null: the socket has a port of its own
    SimSiblings* siblings = nullptr;   // those at that port
  };

  SimWorker(World& world, const Options& options, crypto::Entropy& entropy, std::function<void()> wake);

  engine::Engine& engine() { return engine_; }
  SimLink& link() { return link_; }
  const SimLink& link() const { return link_; }
  worker::Seat& seat() { return seat_; }
  std::map<HostId, std::uint32_t>& peers() { return peers_; }

  // ---- worker::SeatHost ----
  bool drain(Instant now) override;
  void flush(Instant now) override;

 private:
  const std::size_t index_;
  Handshaker* const handshaker_;
  worker::ForwardRing* const forwarded_;
  SimLink link_;
  engine::Engine engine_;
  worker::Burst burst_;
  worker::Seat seat_;
  std::map<HostId, std::uint32_t> peers_;  // that this worker calls
};

}  // namespace weir::sim
