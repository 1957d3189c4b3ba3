// Calls that come after others: those that are held back until the others got somewhere, and those that others wait
// for, whose owner is told when the peer has their request.
#include "engine/core.h"

namespace weir::engine {

// Nothing stands in its way any more.
void Core::release(OutgoingCall& call, Instant now) {
  held.remove(call);
  Peer& peer = *peers.at(call.peer);
  call.state = OutgoingCall::State::queued;
  call.hook = {};
  last_given[call.priority] = call.peer;
  peer.queue.push_back(call);
  events.moved(peer.path, 0, event::TransferStage::submitted, false);
  wake(peer, now);
}

// A fragment of a request has arrived, or all of it. What opens a large one tells nothing: its data comes later.
void Core::on_request_acked(Path& path, const SentFrame& frame) {
  if (frame.slot >= path.calls.size()) return;
  OutgoingCall* const call = path.calls[frame.slot];
  if (call == nullptr || call->generation != frame.generation || !call->tells_sent || call->is_large) return;
  if (call->is_patient) return;  // the peer may have it and say that it should come again: only the reply tells
  if (frame.length < call->bytes) {
    transfer::ByteRanges& acked = partly_acked[call];
    // In more pieces than can be counted: its completion will tell.
    if (!acked.add(frame.offset, std::uint32_t{frame.offset} + frame.length) || !acked.covers(call->bytes)) return;
  }
  on_sent(*call);
}

void Core::on_sent(OutgoingCall& call) {
  stop_telling(call);
  completions.push_back({.call = &call, .is_sent_only = true});
}

void Core::stop_telling(OutgoingCall& call) {
  call.tells_sent = false;
  --calls_telling;
  if (!partly_acked.empty()) partly_acked.erase(&call);
}

}  // namespace weir::engine
