// How long a broker waits for an answer before somebody else has the place: see broker.h.
#include <algorithm>

#include "handshake/broker.h"
#include "handshake/failure.h"

namespace weir::handshake {

// The handshake under way is none any more.
void Broker::end(const Address& address, Contact& peer) {
  by_tag_.erase(std::exchange(peer.tag, 0));
  unanswered_.erase({std::exchange(peer.patience_ends, Instant::never()), address});
  heard_.erase({std::exchange(peer.silence_ends, Instant::never()), address});
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

// In the place that it has.
void Broker::restart(const Address& address, Contact& peer, Instant now) {
  endpoint_.abandon(peer.tag, now);
  end(address, peer);
  begin(address, peer, now);
}

// Something may have come from there: once the handshake with it is heard, its silence is measured.
void Broker::note_heard(const Address& address, Instant now) {
  const auto found = contacts_.find(address);
  if (found == contacts_.end()) return;
  Contact& peer = found->second;
  if (peer.tag == 0 || !peer.silence_ends.is_never() || peer.restarts >= kMostRestarts) return;
  if (!endpoint_.has_heard(peer.tag)) return;
  peer.silence_ends = std::max(silence_end(peer), now);
  heard_.insert({peer.silence_ends, address});
}

Instant Broker::silence_end(const Contact& peer) const {
  const auto progress = endpoint_.progress(peer.tag);
  const Duration silence = std::max(kSilence, kSilentProbes * progress->probe_timeout);
  return progress->last_received + silence * (std::int64_t{1} << peer.restarts);
}

void Broker::look_for_silence(Instant now) {
  while (!heard_.empty() && heard_.begin()->first <= now) {
    const Address address = heard_.extract(heard_.begin()).value().second;
    Contact& peer = contacts_[address];
    peer.silence_ends = silence_end(peer);
    if (peer.silence_ends > now) {
      heard_.insert({peer.silence_ends, address});
      continue;
    }
    peer.silence_ends = Instant::never();
    ++peer.restarts;
    restart(address, peer, now);
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
