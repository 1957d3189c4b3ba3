// Calls that were told to wait for a peer or method that is not up yet (CallOptions::wait_for_ready). Such a call goes
// back to its queue when the peer answers that it is not up and did not run the call, and when the path ends that the
// call was sent on and the call certainly did not run. Its deadline ends it.
#include <algorithm>

#include "engine/core.h"

namespace weir::engine {

// What may be otherwise in a moment. Wrong identities, sizes and arguments stay wrong.
bool Core::may_pass(Code code) {
  return code == Code::peer_failed || code == Code::overloaded || code == Code::refused || code == Code::timeout ||
         code == Code::unknown_method;
}

void Core::fail_queued(Peer& peer, Code code, const char* sentence, Instant now) {
  std::vector<OutgoingCall*> patient;
  for (std::size_t depth = 0; depth < peer.queue.in_use(); ++depth) {
    while (OutgoingCall* call = peer.queue[depth].front()) {
      if (call->is_patient && may_pass(code) && !closed) {
        peer.queue.remove(*call);
        patient.push_back(call);
      } else {
        fail_call(*call, code, sentence, now);
      }
    }
  }
  for (OutgoingCall* call : patient) peer.queue.push_back(*call);
}

// The peer could not be reached. Those who wait for it have it tried again, less and less often.
void Core::try_again_later(Peer& peer, Instant now) {
  if (closed || peer.path != kNoPath || !peer.has_queued()) return;
  const Duration wait =
      std::min<Duration>(kFirstHelloRetry * (1 << std::min<unsigned>(peer.failures, 6)), kLongestRest);
  if (peer.failures < 255) ++peer.failures;
  peer.timer.tag = static_cast<std::uint32_t>(TimerKind::peer);  // perhaps nobody has said hello to it yet
  wheel.arm(peer.timer, now + wait + wait * static_cast<std::int64_t>(random.below(256)) / 1024);
}

// A call that was sent and certainly did not run. False: it is not patient, or cannot be sent again. It waits for a
// moment, so that a peer that ends every path costs only so many handshakes.
bool Core::put_off(OutgoingCall& call, Instant now) {
  if (!call.is_patient || closed) return false;
  // The peer has had all of it, or some, and we have not any more.
  if (call.is_large && !may_write_again(transfer::Cargo::of(call.block))) return false;
  leave_path(call, kNoReply);
  call.state = OutgoingCall::State::delayed;
  ++calls_queued;
  delayed.push_back(&call);
  retry_timer.tag = static_cast<std::uint32_t>(TimerKind::retry);
  if (!retry_timer.armed()) wheel.arm(retry_timer, now + kCallRetry);
  return true;
}

void Core::retry_delayed(Instant now) {
  for (OutgoingCall* call : std::exchange(delayed, {})) {
    Peer& peer = *peers.at(call->peer);
    call->state = OutgoingCall::State::queued;
    call->hook = {};
    call->slot_held = false;  // that is the business of the path it was sent on
    peer.queue.push_back(*call);
    wake(peer, now);
  }
}

// Something is queued for this peer.
void Core::wake(Peer& peer, Instant now) {
  Path* path = path_of(peer);
  if (path != nullptr && path->state != Path::State::hello) return touch(*path);
  hurry_after_loss(peer, now);
  if (path == nullptr || !peer.saying_hello()) {  // without a path, the timer is that of try_again_later()
    start_hello(peer, now);
  }
}

}  // namespace weir::engine
