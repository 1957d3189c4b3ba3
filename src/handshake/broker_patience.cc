// How long a broker waits for an answer before somebody else has the place: see broker.h.
#include <algorithm>

#include "handshake/broker.h"
#include "handshake/failure.h"

namespace weir::handshake {

// The handshake under way is none any more.
void Broker::end(const Address& address, Contact& peer) {
  by_tag_.erase(std::exchange(peer.tag, 0));
  unanswered_.erase({std::exchange(peer.patience_ends, Instant::never()), address});
  if (std::exchange(peer.is_silent, false)) --silent_running_;
}

void Broker::await_answer(const Address& address, Contact& peer, Instant now) {
  unanswered_.erase({peer.patience_ends, address});
  peer.patience_ends = now + std::min(kPatience * (std::int64_t{1} << std::min(peer.silences, 16u)), options_.timeout);
  unanswered_.insert({peer.patience_ends, address});
}

// Those who have been waiting for an answer for too long, while others wait for their place.
void Broker::make_way(Instant now) {
  while (!unanswered_.empty() && unanswered_.begin()->first <= now) {
    const Address address = unanswered_.begin()->second;
    Contact& peer = contacts_[address];
    if (endpoint_.has_heard(peer.tag)) {
      unanswered_.erase(unanswered_.begin());
      peer.patience_ends = Instant::never();
      peer.silences = 0;
      if (std::exchange(peer.is_silent, false)) --silent_running_;
    } else if (plan_.queued() == 0) {
      await_answer(address, peer, now);
    } else {
      endpoint_.abandon(peer.tag, now);
      end(address, peer);
      ++peer.silences;
      try_later(address, peer, now);
      start(now);
    }
  }
}

// The plan gave it a place that it does not use.
void Broker::try_later(const Address& address, Contact& peer, Instant now) {
  plan_.on_failure(address, now);
  if (!peer.is_wanted) return;
  if (now - peer.wanted_since >= options_.timeout) {
    return fail(address, silence(address, false), now);
  }
  // Backing off: the plan comes to it again by itself.
  if (plan_.want(address, now) == peer::HandshakePlan::Answer::overloaded) {
    fail(address, Error(Code::overloaded, "too many handshakes are waiting"), now);
  }
}

}  // namespace weir::handshake
