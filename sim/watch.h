// Writes an engine's own events into the run's journal.
#pragma once

#include <cstdint>

#include "sim/world.h"
#include "weir/event.h"

namespace weir::sim {

// One per simulated process. Rare events are hashed; those of single transfers are printed in traces only, because an
// engine makes them for subscribers that ask, and a trace must not change the hash.
class Watch final : public Subscriber {
 public:
  Watch(World& world, HostId host) : world_(world), host_(host) {}

  bool wants_transfers() const override { return world_.journal.traces(); }
  void on(const event::TransferMoved& e) override {
    world_.journal.remark(world_.now(), "transfer host path id stage incoming",
                          {host_, e.path, e.transfer, static_cast<std::uint64_t>(e.stage), e.incoming});
  }
  void on(const event::TransferFailed& e) override {
    world_.journal.remark(world_.now(), "transfer-failed host path id code may-have-run",
                          {host_, e.path, e.transfer, static_cast<std::uint64_t>(e.code), e.may_have_run});
  }
  void on(const event::PacketRejected& e) override {
    world_.journal.note(world_.now(), "rejected host reason bytes",
                        {host_, static_cast<std::uint64_t>(e.reason), e.bytes});
  }
  void on(const event::PacketsLost& e) override {
    world_.journal.note(world_.now(), "found-lost host path packets bytes", {host_, e.path, e.packets, e.bytes});
  }
  void on(const event::ProbeTimeout& e) override {
    world_.journal.note(world_.now(), "probe-timeout host path backoff", {host_, e.path, e.backoff});
  }
  void on(const event::CongestionChanged& e) override {
    world_.journal.note(world_.now(), "congestion host path window by-loss by-ecn",
                        {host_, e.path, e.window_bytes, e.by_loss, e.by_ecn});
  }
  void on(const event::MtuChanged& e) override {
    world_.journal.note(world_.now(), "mtu host path bytes", {host_, e.path, e.datagram_bytes});
  }
  void on(const event::KeyRotated& e) override {
    world_.journal.note(world_.now(), "key-rotated host path key", {host_, e.path, e.key_id});
  }
  void on(const event::CreditBlocked& e) override {
    world_.journal.note(world_.now(), "credit-blocked host path limit", {host_, e.path, e.limit});
  }
  void on(const event::MemoryAwaited& e) override {
    world_.journal.note(world_.now(), "memory-awaited host path transfer", {host_, e.path, e.transfer});
  }
  void on(const event::RegionRevoked& e) override {
    world_.journal.note(world_.now(), "region-revoked host path transfer", {host_, e.path, e.transfer});
  }
  void on(const event::RegionLost& e) override {
    world_.journal.note(world_.now(), "region-lost host path transfer", {host_, e.path, e.transfer});
  }
  void on(const event::RegionExhausted& e) override {
    world_.journal.note(world_.now(), "memory-exhausted host path transfer", {host_, e.path, e.transfer});
  }
  void on(const event::WriteRefused& e) override {
    world_.journal.note(world_.now(), "write-refused host path bytes", {host_, e.path, e.bytes});
  }
  void on(const event::PeerHealthChanged& e) override {
    world_.journal.note(world_.now(), "health host path health", {host_, e.path, static_cast<std::uint64_t>(e.health)});
  }
  void on(const event::PeerRestarted& e) override {
    world_.journal.note(world_.now(), "peer-restarted host path", {host_, e.path});
  }
  void on(const event::HandshakeFailed& e) override {
    world_.journal.note(world_.now(), "handshake-failed host code", {host_, static_cast<std::uint64_t>(e.code)});
  }
  void on(const event::Degraded&) override { world_.journal.note(world_.now(), "degraded host", {host_}); }

 private:
  World& world_;
  HostId host_;
};

}  // namespace weir::sim
