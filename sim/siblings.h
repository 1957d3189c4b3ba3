// The workers of a simulated host that share a port: which of their sockets a datagram comes out at, and the way by
// which one worker hands another a datagram (docs/protocol.md, rule P-14).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/siblings.h"
#include "engine/vouched_sources.h"
#include "sim/journal.h"
#include "sim/network.h"
#include "worker/forward_ring.h"

namespace weir::sim {

// Several sockets at one address. As a kernel does, it picks one by the sender's address. Bound from construction to
// destruction; the sockets outlive it.
class SharedPort final : public Port {
 public:
  SharedPort(Network& network, const Address& local) : network_(network), local_(local) { network_.plug(local_, this); }
  ~SharedPort() override { network_.plug(local_, nullptr); }
  SharedPort(const SharedPort&) = delete;
  SharedPort& operator=(const SharedPort&) = delete;

  void add(Port& socket) { sockets_.push_back(&socket); }
  // From now on each sender may have another socket, as if the number of sockets had changed.
  void reshuffle() { ++salt_; }

  void arrive(const Packet& packet) override { socket_of(packet.source).arrive(packet); }
  void arrive_unreachable(const Address& who, ByteSpan quoted) override {
    socket_of(who).arrive_unreachable(who, quoted);
  }

 private:
  Port& socket_of(const Address& from) const {
    EventHash hash;
    hash.mix(salt_);
    hash.mix(std::as_bytes(std::span(from.ip)));
    hash.mix(from.port);
    return *sockets_[hash.value() % sockets_.size()];
  }

  Network& network_;
  const Address local_;
  std::vector<Port*> sockets_;
  std::uint64_t salt_ = 0;
};

// Stands for pool::Forwarding: the same rings, without threads. One per simulated process whose workers share a port.
class SimSiblings final : public engine::Siblings {
 public:
  SimSiblings(std::size_t workers, std::uint64_t seed, std::function<void()> wake)
      : vouched_(seed), wake_(std::move(wake)) {
    for (std::size_t i = 0; i < workers; ++i) rings_.push_back(std::make_unique<worker::ForwardRing>());
  }

  bool forward(std::uint32_t worker, ByteSpan datagram, const Address& from, std::uint8_t ecn,
               engine::Standing standing) override {
    if (!rings_[worker]->push(datagram, from, ecn, standing == engine::Standing::stranger)) return false;
    wake_();
    return true;
  }
  engine::VouchedSources& vouched() override { return vouched_; }

  worker::ForwardRing& ring(std::size_t worker) { return *rings_[worker]; }

 private:
  engine::VouchedSources vouched_;
  std::vector<std::unique_ptr<worker::ForwardRing>> rings_;
  const std::function<void()> wake_;
};

}  // namespace weir::sim
