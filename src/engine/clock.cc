// Timers, liveness and the ends of paths (docs/protocol.md, rules L-*). Each path has one timer, armed for the earliest
// thing it waits for; each call has one for its deadline; each peer one for its hello.
#include <algorithm>
#include <cstddef>
#include <utility>

#include "engine/core.h"

namespace weir::engine {

namespace {

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"
template <class Owner>
Owner& owner_of(schedule::Timer& timer) {
  return *reinterpret_cast<Owner*>(reinterpret_cast<std::byte*>(&timer) - offsetof(Owner, timer));
}
transfer::Writer& pausing(schedule::Timer& timer) {
  return *reinterpret_cast<transfer::Writer*>(reinterpret_cast<std::byte*>(&timer) - offsetof(transfer::Writer, pause));
}
#pragma GCC diagnostic pop

constexpr const char* kWrongSecret =
    "the peer could not prove that it knows the secret; do both sides have the same one?";
constexpr const char* kNoAnswer = "the peer did not answer";
constexpr const char* kNoAnswerToSecret =
    "the peer did not answer: nobody is there, or it has an identity instead of a secret";
constexpr const char* kOwnAddress = "the peer's address leads back to this very pool";

// When this path was last heard of, or began to wait: silence is counted from here.
Instant heard(const Path& path) { return std::max(path.last_received, path.waiting_since); }
Instant last_used(const Path& path) { return std::max(path.last_received, path.last_sent); }

}  // namespace

// A delay of the timers by a small part of the time that a peer may be silent for is no absence.
void Core::note_absence(Instant now) {
  const Instant due = wheel.next_deadline();
  const Duration shortest = std::min(config.timeouts.silence, config.timeouts.connect) / Absences::kPart;
  if (due > now || now - due < shortest) [[likely]]
    return;
  absences.note(due, now);
}

void Core::on_timeout(Instant now) {
  events.set_now(now);
  note_absence(now);
  wheel.advance(now, [this, now](schedule::Timer& timer) {
    switch (static_cast<TimerKind>(timer.tag)) {
      case TimerKind::call:
        on_deadline(owner_of<OutgoingCall>(timer), now);
        break;
      case TimerKind::path:
        on_path_timer(owner_of<Path>(timer), now);
        break;
      case TimerKind::retry:
        retry_delayed(now);
        break;
      case TimerKind::writer:
        on_writer_timer(owner_of<transfer::Writer>(timer), now);
        break;
      case TimerKind::pause:
        on_pause_timer(pausing(timer));
        break;
      case TimerKind::arrival:
        on_arrival_timer(owner_of<transfer::Arrival>(timer), now);
        break;
      case TimerKind::regions:
        on_regions_timer(now);
        break;
      case TimerKind::link:
        links.note_due();  // collect() gives the turns
        break;
      case TimerKind::pace:
        on_pace_timer(now);
        break;
      case TimerKind::nic:
        nic->is_due = true;
        break;
      case TimerKind::peer: {
        Peer& peer = owner_of<Peer>(timer);
        if (peer.path == kNoPath) {  // it has rested long enough
          if (peer.has_queued()) start_hello(peer, now);
        } else if (now - absences.silent_since(peer.hello_started, config.timeouts.connect) < config.timeouts.connect) {
          send_hello(peer, now);
        } else if (peer.has_forged_replies) {
          give_up_hello(peer, Code::unauthenticated, kWrongSecret, now);
        } else if (peer.has_own_replies) {
          give_up_hello(peer, Code::invalid_argument, kOwnAddress, now);
        } else {
          give_up_hello(peer, Code::peer_failed, has_identity() ? kNoAnswer : kNoAnswerToSecret, now);
        }
        break;
      }
    }
  });
}

// A call that never left says why, as far as its peer's hello has shown it.
void Core::on_deadline(OutgoingCall& call, Instant now) {
  if (call.state == OutgoingCall::State::held) [[unlikely]]
    return fail_call(call, Code::timeout, "the deadline passed while it waited for calls that it comes after", now);
  if (call.state != OutgoingCall::State::queued) return fail_call(call, Code::timeout, "the deadline passed", now);
  const Peer& peer = *peers.at(call.peer);
  const Path* path = path_of(*peers.at(call.peer));
  if ((path == nullptr || path->state == Path::State::hello) && (peer.saying_hello() || peer.wants_credential)) {
    if (peer.has_forged_replies) return fail_call(call, Code::unauthenticated, kWrongSecret, now);
    if (peer.has_own_replies) return fail_call(call, Code::invalid_argument, kOwnAddress, now);
    return fail_call(call, Code::timeout, "the deadline passed before the peer answered at all", now);
  }
  fail_call(call, Code::timeout, "the deadline passed", now);
}

void Core::on_path_timer(Path& path, Instant now) {
  touch(path);  // collect() sends what is due and arms the timer again
  if (has_ended(path, now)) return;
  if (path.is_changing) [[unlikely]]
    on_change_timer(path, now);
  if (path.loss.deadline() <= now) on_loss_timer(path, now);
  doubt_while_confirming(path, now);
  if (!path.blocked_since.is_never() && path.say_blocked_at <= now) {
    // Still no credit: say so again, less and less often.
    for (std::size_t level = 0; level < path.credit.in_use(); ++level) {
      path.credit[level].told_blocked_at = ~std::uint64_t{0};
    }
    path.say_blocked_at =
        now + std::clamp<Duration>(now - path.blocked_since, kShortestBlockedRepeat, kLongestBlockedRepeat);
  }
  if (is_waiting(path)) {
    const Duration limit = path.state == Path::State::confirming ? config.timeouts.connect : config.timeouts.silence;
    const Duration silent = now - absences.silent_since(heard(path), limit);
    // One that is heard but never acknowledges does not hear us, or does not want to. (A request may stay without an
    // acknowledgement while the callee has no room for it.)
    const recovery::SentPacket* oldest = path.loss.oldest_outstanding();
    const Duration longest = kDeafSilences * config.timeouts.silence;
    // One who acknowledges packets but never those with replies would keep the room that these take.
    const bool deaf = (oldest != nullptr && path.outstanding == 0 &&
                       now - absences.silent_since(oldest->sent_at, longest) >= longest) ||
                      (path.replying != 0 && now - absences.silent_since(path.heard_of_replies, longest) >= longest);
    if (silent >= limit || deaf) {
      tell_health(path, event::PeerHealth::failed);
      if (path.peer != nullptr && !path.draining) {
        // It took what was queued, too: a silent peer would only make those wait as long again.
        fail_queued(*path.peer, Code::peer_failed, "the peer fell silent", now);
      }
      // If it lives after all, and calls on this path again, it must not wait in vain.
      send_close(path, wire::CloseReason::idle, now);
      end_path(path, Code::peer_failed, "the peer fell silent", false, now);
      return;
    }
    const Duration probe_after = keepalive_of(path);
    if (silent >= probe_after && now - path.last_sent >= probe_after) {
      path.probe_wanted = true;
      path.probes_owed = 1;
      repeat_hello(path, now);
      if (silent >= config.timeouts.silence / 4 && !std::exchange(path.probing, true)) {
        tell_health(path, event::PeerHealth::probing);
      }
    }
    return;
  }
  // A caller that waits for an answer probes; one that has sent half a request and is never heard again is idle, too.
  const Duration idle = now - last_used(path);
  if (idle >= idle_limit(path)) {
    if (path.state == Path::State::open) tell_health(path, event::PeerHealth::closed);
    // Only what surely never ran may be sent again.
    send_close(path, path.incoming_live == 0 ? wire::CloseReason::idle : wire::CloseReason::leaving, now);
    end_path(path, Code::peer_failed, "the peer closed", true, now, 0);
    return;
  }
  if (idle >= kScheduleIdle && path.incoming_live == 0 && path.keys.has_schedules()) {
    path.keys.drop_schedules();
    path.loss.release_memory();
    path.congestion.stop_model();
    path.frames.release_memory();
    path.again.release_memory();
    if (path.large != nullptr && path.large->is_idle()) {
      end_large(path, now);
      path.large.reset();
    }
    path.replay.shrink();
    path.replies.release_memory();
    if (path.calls.taken() == 0) path.calls.release_memory();  // generations are the path's, so slots can start over
    if (path.peer != nullptr) {
      path.peer->queue.release_memory();
    }
  }
}

// The initiator forgets first, so that it never uses a path that the responder has forgotten.
Duration Core::idle_limit(const Path& path) const {
  if (!path.ever_received) return config.timeouts.connect;
  if (path.draining) return std::min<Duration>(kDrainedIdle, config.timeouts.idle_peer / 2);
  return path.initiator ? config.timeouts.idle_peer / 2 : config.timeouts.idle_peer;
}

// Who waits for replies is to be heard of, or the peer would not learn that its address has changed.
Duration Core::keepalive_of(const Path& path) const {
  const Duration quarter = config.timeouts.silence / 4;
  return path.outstanding != 0 ? std::min<Duration>(config.timeouts.keepalive, quarter) : quarter;
}

// The pacer lets the path send: if its window does, too, something else keeps it from sending more.
void Core::note_app_limit(Path& path) {
  const bool is_full = !path.congestion.may_send(path.loss.bytes_in_flight());
  if (!is_full || (!has_something(path) && !has_slices(path))) {
    path.congestion.on_app_limited(path.loss.bytes_in_flight());
  }
}

void Core::update_timer(Path& path, Instant now) {
  Instant next = earliest(earliest(path.loss.deadline(), path.ack_policy.deadline()), path.expires);
  if (path.confirming != nullptr) next = earliest(next, path.confirming->doubt_at);
  if (is_waiting(path)) {
    const Duration silence = path.state == Path::State::confirming ? config.timeouts.connect : config.timeouts.silence;
    const Instant since = absences.silent_since(heard(path), silence);
    next = earliest(next, since + silence);
    // An absence shows by a timer that is late: there is always one while it is uncertain whether the peer lives.
    if (now - since >= silence / 4) next = earliest(next, now + silence / Absences::kPart);
    next = earliest(next, std::max(since, path.last_sent) + keepalive_of(path));
    // A probe that the window does not let out waits for acknowledgements, not for time; one that waits for the NIC has
    // its turn there.
    if (!waits_for_nic(path) && path.state == Path::State::open &&
        path.congestion.may_send(path.loss.bytes_in_flight())) {
      next = earliest(next, path.mtu.deadline());
    }
  } else {
    const bool has_to_shrink = path.incoming_live == 0 && path.keys.has_schedules() && !path.draining;
    const Duration limit = idle_limit(path);
    next = earliest(next, last_used(path) + (has_to_shrink ? std::min<Duration>(kScheduleIdle, limit) : limit));
  }
  if (const AddressChange* change = change_of(path)) [[unlikely]]
    next = earliest(next, change->next);
  if (path.peer == nullptr || path.draining || !path.peer->has_queued()) path.blocked_since = Instant::never();
  if (!path.blocked_since.is_never()) next = earliest(next, path.say_blocked_at);
  // Held back by the pacer with something to send: wake when it lets go.
  const Instant pace = path.pacer.next_send(now);
  const bool is_paced = pace > now && (has_something(path) || has_slices(path));
  if (is_paced) next = earliest(next, pace);
  if (path.congestion.has_model() && !is_paced && !path.touched) [[unlikely]]
    note_app_limit(path);
  // Re-arming is cheap, but not free: an earlier timer fires early and comes back here.
  if (!path.timer.armed() || next < path.timer.at) wheel.arm(path.timer, next);
}

void Core::end_path(Path& path, Code code, const char* sentence, bool requeue, Instant now, std::uint64_t unseen) {
  Peer* peer = path.peer;
  for (std::size_t slot = 0; slot < path.calls.size(); ++slot) {
    OutgoingCall* call = path.calls[slot];
    if (call == nullptr) continue;
    // One whose payload the peer has acknowledged, or of which we have freed some, cannot be sent again, whatever the
    // peer says now.
    const bool is_unseen = requeue && call->generation >= unseen;
    const bool is_spent = call->is_large && !(is_unseen ? may_write_again(transfer::Cargo::of(call->block))
                                                        : transfer::Cargo::of(call->block).sealed != nullptr);
    if (!is_unseen || is_spent) {
      fail_or_put_off(*call, code, sentence, now, call->generation < unseen || is_spent);
      continue;
    }
    links.on_end(path.link, *call);
    drop_partial_reply(path, *call);
    if (call->is_large) release_writer_of(path, *call);
    call->state = OutgoingCall::State::queued;
    call->peer = peer->index;
    call->hook = {};
    --calls_sent;
    ++calls_queued;
    give_reply_room(*call);
    peer->queue.push_front(*call);
  }
  for (IncomingSlot& slot : path.incoming) {
    if (slot.transfer != nullptr) retire(path, slot);
  }
  if (path.keys.installed()) {
    ledger.close(path.accounts[0]);
  }
  if (path.large != nullptr) end_large(path, now);
  if (const auto named = open_paths.find({path.remote, path.remote_id});
      named != open_paths.end() && named->second == path.id) {
    open_paths.erase(named);
  }
  forget_change(path);
  if (nic != nullptr) nic->stop_waiting(path_numbers.index_of(path.id));
  links.leave(path.link, now);
  wheel.cancel(path.timer);
  Member* const member = path.member();
  paths.release(&path);
  if (member != nullptr) {
    --member->paths;
    leave(*member);
  }
  announce_raised();
  if (peer == nullptr) return;
  const bool was_current = find_path(peer->path) == nullptr;
  if (was_current) {
    peer->path = std::exchange(peer->candidate, kNoPath);
    peer->renewing = false;  // there is nothing left to replace
    peer->lost_path = peer->wants_credential || peer->path != kNoPath;
  } else if (peer->candidate != kNoPath && find_path(peer->candidate) == nullptr) {
    peer->candidate = kNoPath;
  }
  if (!peer->has_queued() || closed) return;
  Path* current = path_of(*peer);
  if (current == nullptr) {
    hurry_after_loss(*peer, now);
    start_hello(*peer, now);
  } else if (current->state != Path::State::hello) {
    touch(*current);  // it carries what the other one gave back
  } else {
    hurry_after_loss(*peer, now);
  }
}

void Core::queue_plain(const Address& to, ByteSpan bytes) {
  if (plain_bytes.size() + bytes.size() > kMaxPlainBytes) return;  // as good as lost on the way; its sender repeats it
  plain.push_back({to, static_cast<std::uint32_t>(plain_bytes.size()), static_cast<std::uint32_t>(bytes.size())});
  plain_bytes.insert(plain_bytes.end(), bytes.begin(), bytes.end());
}

void Core::send_plain(const Address& to, ByteSpan bytes) {
  queue_plain(to, bytes);
  ++events.counters.packets_sent;
  ++events.counters.packets_control_only;
  events.counters.bytes_sent += bytes.size();
}

// One sealed packet, sent outside of recovery: the path is over, so nobody would look at an acknowledgement. If it is
// lost the peer goes on sending to a path that is gone, and is told again.
void Core::send_close(Path& path, wire::CloseReason reason, Instant now) {
  if (!path.keys.installed() || path.state != Path::State::open) return;
  if (farewells == nullptr) farewells = std::make_unique<Farewell[]>(kFarewells);
  Farewell& farewell = farewell_of(path.id);
  farewell.path = path.id;
  farewell.to = path.remote;
  farewell.last_sent = now;
  std::byte* const packet = farewell.packet.data();
  const std::uint64_t number = path.next_number++;
  wire::encode({.type = wire::PacketType::sealed,
                .key_low = path.key_low(),
                .number_low = static_cast<std::uint32_t>(number & ((1u << wire::kNumberBits) - 1)),
                .path = path.remote_id},
               packet);
  std::byte* text = packet + wire::kHeaderBytes;
  std::byte* end =
      wire::encode_level(wire::FrameType::close, static_cast<std::uint8_t>(reason), path.last_incoming, text);
  path.keys.send_key().seal(crypto::make_nonce(0, number), {packet, wire::kHeaderBytes},
                            {text, static_cast<std::size_t>(end - text)}, end);
  send_plain(path.remote, farewell.packet);
}

// A sealed packet names a path that is not there. The answer is what the peer that had the path was told before, is
// smaller than the question, and not frequent. It goes to where that peer was, and, because its address may have
// changed since, to where the question came from. False if no such path is remembered.
bool Core::say_farewell_again(std::uint32_t path, std::size_t bytes, const Address& from, Instant now) {
  if (farewells == nullptr) return false;
  Farewell& farewell = farewell_of(path);
  if (farewell.path != path) return false;
  if (bytes <= farewell.packet.size() || now - farewell.last_sent < kFarewellInterval) return true;
  farewell.last_sent = now;
  send_plain(farewell.to, farewell.packet);
  if (from != farewell.to) send_plain(from, farewell.packet);
  return true;
}

void Core::close(Instant now) {
  if (closed || fork_guard.is_in_child()) return;
  closed = true;
  paths.for_each([&](Path& path) {
    if (path.state == Path::State::open) tell_health(path, event::PeerHealth::closed);
    send_close(path, wire::CloseReason::leaving, now);
    end_path(path, Code::closed, "the pool was closed", false, now);
  });
  peers.for_each([&](Peer& peer) {
    wheel.cancel(peer.timer);
    fail_queued(peer, Code::closed, "the pool was closed", now);
  });
  wheel.cancel(retry_timer);
  while (!delayed.empty()) fail_call(*delayed.back(), Code::closed, "the pool was closed", now);
  while (OutgoingCall* call = held.front()) fail_call(*call, Code::closed, "the pool was closed", now);
}

}  // namespace weir::engine
