// The caller's side: from submit() to the completion. A call is queued at its peer until its path has a slot, credit
// and room for the reply; then it holds a slot until it completes. Whatever ends it goes through let_go() and one
// Completion, so that it completes exactly once (docs/protocol.md, rules T-*).
#include <algorithm>
#include <bit>

#include "engine/core.h"

namespace weir::engine {

using transfer::Reassembly;

void Core::submit(OutgoingCall& call, Instant now) {
  ++events.counters.calls_started;
  call.timer.tag = static_cast<std::uint32_t>(TimerKind::call);
  Peer* peer = peers.at(call.peer);
  call.state = OutgoingCall::State::queued;
  call.hook = {};
  call.slot_held = false;
  if (call.tells_sent) [[unlikely]]
    ++calls_telling;
  if (call.depth > kMaxDepth) [[unlikely]]
    return fail_call(call, Code::overloaded, "calls are nested more than four deep", now);
  call.has_arrival = false;
  const std::uint64_t longest =
      call.is_large ? wire::kCargoBytes + buffer::kLargestHeaderBytes : config.limits.inline_bytes;
  if (closed || peer == nullptr || call.bytes > longest ||
      (calls_queued >= config.limits.queued_calls && !shed_for(call, now))) [[unlikely]] {
    if (closed) return fail_call(call, Code::closed, "the pool is closed", now);
    if (peer == nullptr) return fail_call(call, Code::invalid_argument, "no such peer", now);
    if (call.bytes > longest) {
      return fail_call(call, Code::too_large, "the request is larger than the limit for inline messages", now);
    }
    return fail_call(call, Code::overloaded, "too many calls are waiting to be sent", now);
  }
  ++calls_queued;
  wheel.arm(call.timer, call.deadline);
  if (call.is_held) [[unlikely]]
    return hold(call);
  last_given[call.priority] = call.peer;
  peer->queue.push_back(call);
  events.moved(peer->path, 0, event::TransferStage::submitted, false);
  wake(*peer, now);
}

// As many calls wait as may. If a less urgent one is found it is refused in the place of this one: the newest of the
// least urgent. Calls from inside handlers are never shed: others wait for them.
bool Core::shed_for(const OutgoingCall& call, Instant now) {
  OutgoingCall* victim = nullptr;
  const auto look = [&](Peer* peer) {
    if (peer == nullptr || peer->queue[0].empty()) return;
    const auto level = static_cast<unsigned>(std::bit_width(peer->queue[0].occupied_levels())) - 1;
    if (level > (victim != nullptr ? victim->priority : call.priority)) victim = peer->queue[0].last_of(level);
  };
  for (const std::uint32_t index : last_given) look(peers.at(index));
  if (const unsigned levels = held.occupied_levels(); levels != 0) {
    OutgoingCall* last = held.last_of(static_cast<unsigned>(std::bit_width(levels)) - 1);
    for (std::uint32_t i = 0; i < kShedLooks && last != nullptr && last->depth != 0; ++i) last = last->hook.previous;
    if (last != nullptr && last->depth == 0 && last->priority > (victim != nullptr ? victim->priority : call.priority))
      victim = last;
  }
  const auto count = static_cast<std::uint32_t>(peers.live());
  for (std::uint32_t i = 0; i < std::min(count, kShedLooks); ++i) look(peers.at(next_shed_look++ % count));
  if (victim == nullptr) return false;
  fail_call(*victim, Code::overloaded, "too many calls are waiting to be sent, and others are more urgent", now);
  return true;
}

void Core::cancel(OutgoingCall& call, Instant now) {
  if (call.state == OutgoingCall::State::done || call.state == OutgoingCall::State::idle) return;
  fail_call(call, Code::cancelled, "the caller cancelled it", now);
}

// The call has left its queue.
std::uint32_t Core::take_slot(Path& path, OutgoingCall& call, Instant now) {
  const std::uint32_t slot = path.calls.take(call);
  call.path = path.id;
  call.reassembly = nullptr;
  call.slot = slot;
  call.generation = path.next_generation++;
  call.sent_bytes = 0;
  if (!partly_acked.empty()) [[unlikely]]
    partly_acked.erase(&call);  // by a path that has ended
  call.state = OutgoingCall::State::sent;
  ++path.outstanding;
  ++calls_sent;
  --calls_queued;
  reply_room_used += reply_room_of(call.max_reply, config.limits.inline_bytes);
  links.on_asked(path.link, call, now);
  return slot;
}

void Core::let_go(OutgoingCall& call, std::uint32_t reply_bytes) {
  wheel.cancel(call.timer);
  if (call.tells_sent) [[unlikely]]
    stop_telling(call);
  if (call.state == OutgoingCall::State::queued && !call.hook.queued) {  // refused before it was taken
    drop_bytes(call);
    call.state = OutgoingCall::State::done;
    return;
  }
  if (call.state == OutgoingCall::State::queued) {
    peers.at(call.peer)->queue.remove(call);
    --calls_queued;
  } else if (call.state == OutgoingCall::State::held) [[unlikely]] {
    held.remove(call);
    --calls_queued;
  } else if (call.state == OutgoingCall::State::delayed) [[unlikely]] {
    std::erase(delayed, &call);
    --calls_queued;
  } else {
    leave_path(call, reply_bytes);
  }
  drop_bytes(call);
  call.state = OutgoingCall::State::done;
}

// What has come of a reply is not wanted any more.
void Core::drop_partial_reply(Path& path, OutgoingCall& call) {
  if (call.has_arrival) [[unlikely]]
    return drop_arrival(path, *call.arrival, path.last_received);
  if (call.reassembly != nullptr) reassemblies.release(std::exchange(call.reassembly, nullptr));
}

void Core::leave_path(OutgoingCall& call, std::uint32_t reply_bytes) {
  Path& path = *find_path(call.path);
  if (reply_bytes != kNoReply) [[likely]] {
    links.on_reply(path.link, call, reply_bytes);
  } else {
    links.on_end(path.link, call);
  }
  Peer& peer = *path.peer;
  call.peer = peer.index;
  if (path.partial == &call) path.partial = nullptr;
  drop_partial_reply(path, call);
  if (call.is_large) release_writer_of(path, call);
  if (!call.slot_held) path.calls.free(call.slot);
  --path.outstanding;
  --calls_sent;
  // A slot is free again, and so is reply room: something may be waiting for either.
  if (peer.has_queued()) touch(path);
  give_reply_room(call);
}

// Not before there is room for any reply: otherwise small replies would take it all as it comes, and a call that needs
// more would wait for ever. All may look then; room for the largest reply is kept for one path, in turn, until that has
// looked.
void Core::wake_for_reply_room() {
  if (reply_room_used + config.limits.inline_bytes > config.limits.reply_bytes) return;
  room_kept_for = waiting_for_room[room_turns++ % waiting_for_room.size()];
  for (const std::uint32_t id : waiting_for_room) {
    if (Path* waiting = find_path(id)) {
      waiting->waits_for_room = false;
      touch(*waiting);
    }
  }
  waiting_for_room.clear();
}

void Core::end_room_turn() {
  room_kept_for = kNoPath;
  if (!waiting_for_room.empty()) wake_for_reply_room();
}

// Room for the reply of a call from outside handlers. Nobody overtakes the paths that wait for some.
bool Core::has_reply_room_beside_others(const Path& path, const OutgoingCall& call) {
  std::size_t bytes = reply_room_of(call.max_reply, config.limits.inline_bytes);
  if (room_kept_for != kNoPath && room_kept_for != path.id) [[unlikely]] {
    const Path* const other = find_path(room_kept_for);
    // The path that it is kept for may have no window to use it.
    if (other == nullptr || other->peer == nullptr || !other->peer->has_queued() || reply_room_used == 0) {
      room_kept_for = kNoPath;
    } else {
      bytes += config.limits.inline_bytes;
    }
  }
  if (!waiting_for_room.empty() && room_kept_for != path.id) return false;
  return reply_room_used + bytes <= config.limits.reply_bytes;
}

bool Core::is_beyond_bound(const OutgoingCall& call, const wire::ReplyFrame& frame) const {
  if (frame.part.total > longest_reply_message(call.max_reply, config.limits.inline_bytes)) return true;
  return frame.part.total > call.max_reply && !frame.failed && !frame.is_large;
}

Core::Verdict Core::on_reply(Path& path, const wire::ReplyFrame& frame, detail::Pin* buffer, Instant now) {
  const wire::MessagePart& part = frame.part;
  if (part.id.slot >= path.calls.size()) return part.id.slot < path.max_calls ? Verdict::fine : Verdict::violation;
  OutgoingCall* call = path.calls[part.id.slot];
  if (call == nullptr || call->generation != part.id.generation) return Verdict::fine;  // it ended before
  if (call->has_arrival) return Verdict::fine;                                          // the same opening again
  if (call->tells_sent && !frame.failed) [[unlikely]]
    on_sent(*call);  // whatever becomes of the reply
  if (is_too_long(*call, frame)) [[unlikely]] {
    fail_call(*call, Code::too_large,
              call->max_reply == wire::kAnyReply ? "the reply is larger than this side's limit for inline messages"
                                                 : kReplyTooLong,
              now);
    return Verdict::fine;
  }
  Completion done{.call = call,
                  .bytes = part.bytes.data(),
                  .pin = buffer,
                  .size = part.total,
                  .header_bytes = part.header_bytes,
                  .failed = frame.failed};
  if (!part.is_whole()) [[unlikely]] {
    if (call->reassembly == nullptr) {
      if (reassemblies.live() == reassemblies.max_objects()) return Verdict::not_now;
      call->reassembly = reassemblies.acquire(blocks.acquire(part.total), part.total, part.header_bytes);
    }
    Reassembly& reassembly = *call->reassembly;
    if (!reassembly.fits(part.total, part.header_bytes) || !reassembly.add(part.offset, part.bytes))
      return Verdict::violation;
    if (!reassembly.complete()) return Verdict::fine;
    done.reassembly = std::exchange(call->reassembly, nullptr);
    done.bytes = reassembly.bytes().data();
    done.pin = nullptr;
  }
  if (frame.is_large) [[unlikely]] {
    const Verdict verdict = frame.failed || part.header_bytes != 0
                                ? Verdict::violation
                                : begin_arrival(path, nullptr, call, part.id, {done.bytes, done.size}, now);
    if (done.reassembly != nullptr) reassemblies.release(done.reassembly);
    return verdict;
  }
  if (frame.failed) [[unlikely]] {
    if (part.total < 2) return Verdict::violation;
    const auto code = static_cast<std::uint8_t>(done.bytes[0]);
    done.code = code >= static_cast<std::uint8_t>(Code::timeout) && code <= static_cast<std::uint8_t>(Code::system)
                    ? static_cast<Code>(code)
                    : Code::application;
    const auto ran = static_cast<wire::Ran>(done.bytes[1]);
    done.may_have_run = ran != wire::Ran::not_now && ran != wire::Ran::never;
    if (ran == wire::Ran::not_now && may_pass(done.code) && put_off(*call, now)) {
      if (done.reassembly != nullptr) reassemblies.release(done.reassembly);
      return Verdict::fine;
    }
    done.bytes += 2;
    done.size -= 2;
    done.header_bytes = 0;
    events.emit(event::TransferFailed{{}, path.id, part.id.packed(), done.code, done.may_have_run});
    // Who answers has the request, whether or not its acknowledgement came; of a large one, if its handler saw it.
    if (call->tells_sent && (done.may_have_run || !call->is_large)) on_sent(*call);
  } else {
    ++events.counters.calls_completed;
  }
  events.counters.payload_bytes_received += part.total;
  events.moved(path.id, part.id.packed(), frame.failed ? event::TransferStage::failed : event::TransferStage::completed,
               false);
  let_go(*call, part.total);
  completions.push_back(done);
  return Verdict::fine;
}

void Core::tell_cancelled(OutgoingCall& call) {
  Path& path = *find_path(call.path);
  // Its slot stays taken until the peer has said that it knows: otherwise the next call in the slot could arrive first,
  // and nobody could tell whether this one's credit was ever counted.
  path.again.push({.slot = call.slot,
                   .kind = static_cast<std::uint8_t>(SentKind::cancel),
                   .offset = call.depth,
                   .length = static_cast<std::uint16_t>(call.bytes),
                   .generation = call.generation});
  call.slot_held = true;
  path.calls.hold(call.slot, call.generation);
  touch(path);
}

// A request whose last fragment never left cannot have run.
bool Core::may_have_run(const OutgoingCall& call) {
  if (call.state != OutgoingCall::State::sent || call.sent_bytes != call.bytes) return false;
  const transfer::Writer* const writer = call.is_large ? transfer::Cargo::of(call.block).writer : nullptr;
  return writer == nullptr || writer->was_written;
}

void Core::fail_or_put_off(OutgoingCall& call, Code code, const char* sentence, Instant now, bool reached_peer) {
  if (call.state == OutgoingCall::State::sent && !(reached_peer && may_have_run(call)) && put_off(call, now)) return;
  fail_call(call, code, sentence, now, reached_peer);
}

void Core::fail_call(OutgoingCall& call, Code code, const char* sentence, Instant, bool reached_peer) {
  const bool was_sent = call.state == OutgoingCall::State::sent;
  const bool ran = reached_peer && may_have_run(call);
  std::uint64_t id = 0;
  std::uint32_t path_id = kNoPath;
  if (was_sent) {
    path_id = call.path;
    id = wire::TransferId{call.slot, call.generation}.packed();
    // Tell the peer to stop, unless it is what told us, or is gone.
    if (code == Code::cancelled || code == Code::timeout) tell_cancelled(call);
  } else if (const Peer* peer = peers.at(call.peer)) {
    path_id = peer->path;
  }
  if (call.state != OutgoingCall::State::done) let_go(call);
  events.emit(event::TransferFailed{{}, path_id, id, code, ran});
  completions.push_back({.call = &call, .sentence = sentence, .code = code, .failed = true, .may_have_run = ran});
}

}  // namespace weir::engine
