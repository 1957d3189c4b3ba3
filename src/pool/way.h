// Way: how a call that is made on this thread gets to its worker.
#pragma once

#include <cstdint>

#include "base/sync.h"
#include "base/time.h"
#include "engine/engine.h"
#include "pool/call_record.h"
#include "pool/gate.h"
#include "pool/lane.h"
#include "pool/peer_entry.h"
#include "pool/post.h"
#include "pool/ties.h"
#include "weir/call.h"
#include "weir/config.h"
#include "worker/clock.h"
#include "worker/thread_context.h"

namespace weir::pool {

// How a call gets to the worker.
struct Way {
  Lane* lane = nullptr;  // null: the worker is this thread
  Port* port = nullptr;
  CallRecord* record = nullptr;
  Instant now;

  bool is_direct() const { return lane == nullptr; }
  transfer::BlockPool& blocks(Gate& gate) const { return is_direct() ? gate.engine->blocks() : lane->blocks(); }
};

// Without a record: there is no way, and the code says why.
inline Code find_way(detail::PeerState& peer, Way& way) {
  Gate& gate = *peer.gate;
  if (gate.is_mine()) [[likely]] {
    if (gate.post == nullptr) return Code::closed;
    way.record = gate.post->acquire();
    way.now = gate.worker().now();
  } else {
    way.lane = &Lane::mine();
    way.port = way.lane->port_to(peer.gate);
    if (way.port == nullptr) return Code::closed;
    way.record = way.port->acquire();
    way.now = worker::read_clock();
  }
  return Code::overloaded;
}

inline void fill(const Way& way, detail::PeerState& peer, std::uint64_t method, const CallOptions& options) {
  CallRecord* record = way.record;
  sync::writes(record);
  record->complete = way.is_direct() ? &complete_direct : &complete_for_lane;
  record->method = method;
  const auto deadline = options.deadline.count() == 0 ? peer.default_deadline : options.deadline;
  record->deadline = deadline > Instant::never() - way.now ? Instant::never() : way.now + deadline;
  record->block = nullptr;
  record->priority = static_cast<std::uint8_t>(options.priority);
  record->depth = worker::thread_context.depth;
  record->max_reply = options.max_reply == 0 || options.max_reply >= wire::kAnyReply
                          ? wire::kAnyReply
                          : static_cast<std::uint32_t>(options.max_reply);
  record->is_patient = options.wait_for_ready;
  record->state = CallRecord::State::idle;
  record->owners = static_cast<PeerEntry*>(&peer);
  record->peer_shown = peer.shown;
  record->stage.store(detail::CallStage::pending, std::memory_order_relaxed);
  record->waiter_kind = detail::WaiterKind::none;
  record->is_dropped = false;
  record->has_ties = false;
  record->is_held = false;
  record->tells_sent = false;
  record->opens_itself = !way.is_direct() && worker::thread_context.loops_entered == 0;
}

inline Call send(const Way& way, Gate& gate) {
  // From here on the record may end at any time.
  Call call(way.record, way.record->has_ties ? Ties::of(*way.record).token : Dependency::kNotTracked);
  if (way.is_direct()) [[likely]] {
    gate.post->submit(way.record, way.now);
  } else {
    way.lane->submit(*way.port, way.record);
  }
  return call;
}

}  // namespace weir::pool
