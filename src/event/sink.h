// Where an engine's events go: into its counters always, to the application's subscriber if there is one.
#pragma once

#include <cstdint>

#include "base/time.h"
#include "weir/event.h"

namespace weir::event {

// One per engine, used by the worker that runs it. The clock is whatever `now` the worker last set.
class Sink {
 public:
  Sink(Subscriber* subscriber, std::uint32_t worker)
      : subscriber_(subscriber), worker_(worker), transfers_(subscriber != nullptr && subscriber->wants_transfers()) {}

  void set_now(Instant now) { now_ = now; }
  Instant now() const { return now_; }
  Meta meta() const { return {.time_ns = now_.ns, .worker = worker_}; }
  bool wants_transfers() const { return transfers_; }

  // Emits a rare event: counts it, then tells the subscriber.
  template <class Event>
  void emit(Event event) {
    count(event);
    if (subscriber_ != nullptr) {
      event.meta = meta();
      subscriber_->on(event);
    }
  }

  // Per-transfer transitions: one branch when nobody listens. Counted by the engine in `counters` directly.
  void moved(std::uint32_t path, std::uint64_t transfer, TransferStage stage, bool incoming) {
    if (transfers_) [[unlikely]]
      subscriber_->on(TransferMoved{meta(), path, transfer, stage, incoming});
  }

  Counters counters;

 private:
  template <class Event>
  void count(const Event&) {}
  void count(const TransferFailed&) { ++counters.calls_failed; }
  void count(const PacketRejected&) { ++counters.packets_rejected; }
  void count(const PacketsLost& e) { counters.packets_lost += e.packets; }
  void count(const ProbeTimeout&) { ++counters.probe_timeouts; }
  void count(const KeyRotated&) { ++counters.key_rotations; }
  void count(const AddressChanged&) { ++counters.addresses_changed; }
  void count(const CreditBlocked&) { ++counters.credit_blocked; }
  void count(const RegionGranted&) { ++counters.regions_granted; }
  void count(const RegionRevoked&) { ++counters.regions_revoked; }
  void count(const RegionExhausted&) { ++counters.regions_exhausted; }
  void count(const RegionLost&) { ++counters.regions_lost; }
  void count(const WriteRefused&) { ++counters.writes_refused; }
  void count(const HandshakeFailed&) { ++counters.handshakes_failed; }
  void count(const Degraded&) { ++counters.degradations; }

  Subscriber* subscriber_;
  std::uint32_t worker_;
  bool transfers_;
  Instant now_{};
};

}  // namespace weir::event
