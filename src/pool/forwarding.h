// Forwarding: how the posts of one pool that share a port hand each other the datagrams that the kernel gave to the
// wrong one of them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/siblings.h"
#include "engine/vouched_sources.h"
#include "pool/gate.h"
#include "worker/forward_ring.h"

namespace weir::pool {

// Shared by those posts. The gates are set before any of the posts is on its worker.
class Forwarding final : public engine::Siblings {
 public:
  Forwarding(std::size_t workers, std::uint64_t seed) : vouched_(seed), places_(workers) {
    for (Place& place : places_) place.ring = std::make_unique<worker::ForwardRing>();
  }

  void set_gate(std::size_t worker, std::shared_ptr<Gate> gate) { places_[worker].gate = std::move(gate); }

  // The thread of any of the posts.
  bool forward(std::uint32_t worker, ByteSpan datagram, const Address& from, std::uint8_t ecn,
               engine::Standing standing) override {
    Place& place = places_[worker];
    const bool is_strangers = standing == engine::Standing::stranger;
    if (place.gate->is_closed() || !place.ring->push(datagram, from, ecn, is_strangers)) return false;
    place.gate->rung.store(true, std::memory_order_release);  // after the work, for look_for_rung()
    place.gate->worker().doorbell()->ring();
    return true;
  }

  engine::VouchedSources& vouched() override { return vouched_; }

  // For that worker's post.
  worker::ForwardRing& ring(std::size_t worker) { return *places_[worker].ring; }

 private:
  struct Place {
    std::unique_ptr<worker::ForwardRing> ring;
    std::shared_ptr<Gate> gate;
  };
  engine::VouchedSources vouched_;
  std::vector<Place> places_;
};

}  // namespace weir::pool
