// How long a broker waits for an answer before somebody else has the place: see broker.h.
#include <algorithm>

#include "handshake/broker.h"
#include "handshake/failure.h"

namespace weir::handshake {

// What is under way with it is none any more.
void Broker::end(const Address& address, Contact& peer) {
  by_tag_.erase(std::exchange(peer.tag, 0));
  by_tag_.erase(std::exchange(peer.silent_tag, 0));
  unanswered_.erase({std::exchange(peer.patience_ends, Instant::never()), address});
  heard_.erase({std::exchange(peer.silence_ends, Instant::never()), address});
  if (std::exchange(peer.is_silent, false)) --silent_running_;
}

// One of its handshakes.
void Broker::give_up(Contact& peer, std::uint64_t tag, Instant now) {
  endpoint_.abandon(tag, now);
  by_tag_.erase(tag);
  if (peer.silent_tag == tag) peer.silent_tag = 0;
  if (peer.tag == tag) peer.tag = std::exchange(peer.silent_tag, 0);
}

void Broker::give_up_all(const Address& address, Contact& peer, Instant now) {
  endpoint_.abandon(peer.tag, now);
  endpoint_.abandon(peer.silent_tag, now);
  end(address, peer);
}

void Broker::await_answer(const Address& address, Contact& peer, Instant now) {
  unanswered_.erase({peer.patience_ends, address});
  const Duration patience = peer.silent_tag == 0 ? kPatience : kPatience * kHeardPatience;
  peer.patience_ends = now + std::min(patience * (std::int64_t{1} << std::min(peer.silences, 16u)), options_.timeout);
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
      give_up_all(address, peer, now);
      ++peer.silences;
      try_later(address, peer, now);
      start(now);
    }
  }
}

// The handshake under way was heard and fell silent: it stays, beside another one. Of two that have, the older goes.
void Broker::begin_beside(const Address& address, Contact& peer, Instant now) {
  if (peer.silent_tag != 0) give_up(peer, peer.silent_tag, now);
  const std::uint64_t tag = next_tag_++;
  if (!endpoint_.connect(tag, address, peer.expected_name, now)) return;
  peer.silent_tag = std::exchange(peer.tag, tag);
  peer.silent_since = endpoint_.progress(peer.silent_tag)->last_received;
  peer.sent = {};
  by_tag_.emplace(tag, address);
  await_answer(address, peer, now);
}

// True: the silent one was heard again, and the other one is gone.
bool Broker::revive(const Address& address, Contact& peer, Instant now) {
  if (peer.silent_tag == 0) return false;
  const auto progress = endpoint_.progress(peer.silent_tag);
  if (!progress || progress->last_received <= peer.silent_since) return false;
  give_up(peer, peer.tag, now);
  ++peer.revivals;
  heard_.erase({std::exchange(peer.silence_ends, Instant::never()), address});
  return true;
}

// Whether another handshake goes on that the outcome of this one says nothing about.
bool Broker::outlives(const Outcome& outcome, const Address& address, Contact& peer, Instant now) {
  if (!outcome.failure || outcome.failure->code() != Code::peer_failed || peer.silent_tag == 0) return false;
  by_tag_.erase(outcome.tag);
  const std::uint64_t silent = std::exchange(peer.silent_tag, 0);
  if (silent == outcome.tag) return true;
  peer.tag = silent;
  heard_.erase({std::exchange(peer.silence_ends, Instant::never()), address});
  if (endpoint_.has_heard(silent)) measure_silence(address, peer, now + kSilence);  // or it has just ended, too
  return true;
}

// Something may have come from there: once the handshake with it is heard, its silence is measured.
void Broker::note_heard(const Address& address, Instant now) {
  const auto found = contacts_.find(address);
  if (found == contacts_.end()) return;
  Contact& peer = found->second;
  if (peer.tag == 0) return;
  revive(address, peer, now);
  if (peer.silence_ends.is_never() && endpoint_.has_heard(peer.tag)) measure_silence(address, peer, now);
}

// Of a handshake that was heard; its silence ends at `from` at the earliest.
void Broker::measure_silence(const Address& address, Contact& peer, Instant from) {
  if (peer.restarts >= kMostRestarts) return;
  peer.silence_ends = std::max(silence_end(peer), from);
  heard_.insert({peer.silence_ends, address});
}

Instant Broker::silence_end(const Contact& peer) const {
  const auto progress = endpoint_.progress(peer.tag);
  const Duration silence = std::max(kSilence, kSilentProbes * progress->probe_timeout);
  return progress->last_received + silence * (std::int64_t{1} << std::min(peer.revivals, kMostDoublings));
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
    if (now - peer.begun < options_.timeout) begin_beside(address, peer, now);
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
