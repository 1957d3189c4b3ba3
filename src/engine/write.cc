// The sender's side of large messages: a region for each, and what becomes of it (docs/protocol.md, rules G-*). How
// slices get into packets is in slices.cc.
#include "engine/core.h"

namespace weir::engine {

using transfer::Cargo;
using transfer::Writer;

namespace {

// Of the message's bytes, those whose memory it keeps: the pieces that are not acknowledged, and the first one of the
// payload, which goes last.
std::uint64_t kept_bytes(const Cargo& cargo) {
  const std::uint64_t end = cargo.first_byte + cargo.bytes;
  const auto begin_of = [&](std::uint32_t piece) {
    if (piece >= cargo.sealed->parts.size()) return end;
    return std::clamp(cargo.sealed->parts[piece].begin, cargo.first_byte, end);
  };
  if (cargo.held.begin == 0) return cargo.bytes;
  return begin_of(1) - cargo.first_byte + end - begin_of(cargo.held.begin);
}

void recount(LargePath& large, Writer& writer) {
  if (!writer.is_counted) return;
  const std::uint64_t now = kept_bytes(*writer.cargo);
  large.reply_bytes += now - std::exchange(writer.counted_bytes, now);  // modulo 2^64: it may be less
}

}  // namespace

LargePath& Core::large_of(Path& path) {
  if (path.large == nullptr) path.large = std::make_unique<LargePath>(config.ahead_bytes);
  return *path.large;
}

void Core::release_sent_ranges() {
  std::uint32_t room = kMaxReleasedPieces;
  std::size_t done = 0;
  for (; done < sent_ranges.size() && room != 0; ++done) {
    SentRange& sent = sent_ranges[done];
    if (const std::uint32_t pieces = sent.pieces.end - sent.pieces.begin; pieces > room) {
      const std::uint32_t next = sent.pieces.begin + room;
      buffer::let_go(*sent.sealed, {.begin = std::exchange(sent.pieces.begin, next), .end = next});
      break;
    } else {
      room -= std::max(pieces, 1u);  // a payload of one piece has none to count
    }
    buffer::give_back(sent.sealed, sent.pieces);
  }
  sent_ranges.erase(sent_ranges.begin(), sent_ranges.begin() + static_cast<std::ptrdiff_t>(done));
}

void Core::drop_cargo(transfer::Block* block) {
  crypto::wipe({Cargo::opening(block) + wire::kCargoKeyOffset, crypto::kKeyBytes});
  Cargo& cargo = Cargo::of(block);
  if (buffer::Sealed* sealed = std::exchange(cargo.sealed, nullptr)) release_later(sealed, cargo.held);
}

void Core::drop_bytes(OutgoingCall& call) {
  if (call.block == nullptr) return;
  if (call.is_large) [[unlikely]]
    drop_cargo(call.block);
  detail::unpin(std::exchange(call.block, nullptr));
}

// The call is about to take a slot. It goes with a token that we hold, or asks for a region.
bool Core::begin_writing(Path& path, OutgoingCall& call, Instant now) {
  Cargo& cargo = Cargo::of(call.block);
  Writer* const writer = writers.acquire();
  if (writer == nullptr) return false;
  cargo.writer = writer;
  writer->call = &call;
  writer->cargo = &cargo;
  writer->priority = call.priority;
  LargePath& large = large_of(path);
  const bool may_use_token = call.depth == 0 && cargo.sealed->record_bytes == buffer::kRecordBytes;
  if (may_use_token) {
    if (const auto token = large.tokens.take(cargo.bytes, now)) {
      start_writing(path, *writer, token->region);
      ++events.counters.tokens_used;
    }
  }
  std::byte* const opening = Cargo::opening(call.block);
  store<std::uint64_t>(opening + wire::kCargoRegionOffset, writer->region);
  wire::set_wants_token(opening, may_use_token && cargo.bytes <= token::kLargestToken);
  return true;
}

void Core::start_writing(Path& path, Writer& writer, std::uint64_t region) {
  stop_writing(path, writer);
  writer.region = region;
  writer.path = path.id;
  writer.next = 0;
  writer.serial = ++writer_serials & kWriterSerialMask;
  writer.state = Writer::State::writing;
  large_of(path).writing.push_back(writer, writer.priority);
  touch(path);
}

void Core::stop_writing(Path& path, Writer& writer) {
  if (writer.hook.queued) large_of(path).writing.remove(writer);
  writer.state = Writer::State::asking;
  writer.region = wire::kNoRegion;
}

void Core::release_writer(Path& path, Writer& writer) {
  stop_writing(path, writer);
  if (writer.is_counted && path.large != nullptr) path.large->reply_bytes -= writer.counted_bytes;
  wheel.cancel(writer.timer);
  wheel.cancel(writer.pause);
  writer.cargo->writer = nullptr;
  writers.release(&writer);
}

// Null if the peer speaks of something that is over, or never was.
Writer* Core::find_writer(Path& path, wire::Side side, wire::TransferId id) {
  if (side == wire::Side::request) {
    if (id.slot >= path.calls.size()) return nullptr;
    OutgoingCall* const call = path.calls[id.slot];
    if (call == nullptr || call->generation != id.generation || !call->is_large) return nullptr;
    return Cargo::of(call->block).writer;
  }
  if (side != wire::Side::reply || id.slot >= path.incoming.size()) return nullptr;
  const IncomingSlot& slot = path.incoming[id.slot];
  if (slot.generation != id.generation || slot.transfer == nullptr || !slot.transfer->reply_is_large) return nullptr;
  return slot.transfer->block != nullptr ? Cargo::of(slot.transfer->block).writer : nullptr;
}

void Core::on_grant(Path& path, const wire::GrantFrame& frame, Instant now) {
  if (frame.region == wire::kNoRegion) return;
  large_of(path).in_flight_bytes = std::max<std::uint64_t>(frame.in_flight_bytes, kSmallestInFlightBytes);
  if (frame.side == wire::Side::none) {
    // Well before it expires we no longer use it: the receiver must not take back what is being written.
    const Instant until = token::Token::half_of_life(now, std::chrono::milliseconds(frame.lifetime_ms));
    large_of(path).tokens.put({.region = frame.region, .capacity = frame.capacity, .usable_until = until}, now);
    return;
  }
  Writer* const writer = find_writer(path, frame.side, frame.id);
  if (writer == nullptr || writer->region == frame.region || writer->has_lost(frame.region)) return;
  if (frame.capacity < writer->cargo->bytes) return;  // of no use; the deadline ends it
  wheel.cancel(writer->pause);
  if (!may_write_again(*writer->cargo)) return give_up_writing(path, *writer, now);
  recount(large_of(path), *writer);
  start_writing(path, *writer, frame.region);
}

// What was written is lost. Nobody above us notices: the message asks for another region, under the same transfer.
void Core::on_revoke(Path& path, const wire::RevokeFrame& frame, Instant now) {
  if (path.large != nullptr) path.large->tokens.drop(frame.region);
  Writer* const writer = find_writer(path, frame.side, frame.id);
  // Whatever we write into: the receiver grants no other region before we have asked for it, so that one is gone, too.
  if (writer == nullptr || writer->has_lost(frame.region)) return;
  events.emit(event::RegionLost{{}, path.id, frame.region, frame.id.packed()});
  stop_writing(path, *writer);
  if (writer->lost_count == Writer::kMaxLostRegions) {
    if (!writer->is_reply()) {
      OutgoingCall& call = *writer->call;
      if (call.is_patient && !may_have_run(call)) tell_cancelled(call);  // it comes again as another one
      return fail_or_put_off(call, Code::overloaded, "the peer took its memory back too often", now);
    }
    return give_up_reply(path, path.incoming[frame.id.slot]);
  }
  if (!may_write_again(*writer->cargo)) return give_up_writing(path, *writer, now);
  recount(large_of(path), *writer);
  writer->lost_regions[writer->lost_count++] = frame.region;
  if (writer->lost_count == 1) return ask_again(path, *writer);
  // A receiver that takes back again and again is short of memory: all who lost theirs would ask at once.
  const Duration longest = kFirstPause * (1 << (writer->lost_count - 2));
  writer->path = path.id;
  writer->pause.tag = static_cast<std::uint32_t>(TimerKind::pause);
  wheel.arm(writer->pause, now + longest / 2 + Duration{random.below(static_cast<std::uint64_t>(longest.count() / 2))});
}

void Core::ask_again(Path& path, const Writer& writer) {
  const auto slot = writer.is_reply() ? writer.transfer->slot : writer.call->slot;
  const auto generation = writer.is_reply() ? writer.transfer->generation : writer.call->generation;
  path.again.push({.slot = slot,
                   .kind = static_cast<std::uint8_t>(SentKind::request_regions),
                   .offset = static_cast<std::uint16_t>(writer.is_reply() ? wire::Side::reply : wire::Side::request),
                   .generation = generation});
  touch(path);
}

void Core::on_pause_timer(Writer& writer) {
  if (Path* const path = find_path(writer.path)) ask_again(*path, writer);
}

// The receiver has the beginning of it. As long as that is nowhere else it could be asked for again: then the message
// fails.
Core::Verdict Core::on_range_ack(Path& path, const wire::RangeAckFrame& frame) {
  Writer* const writer = find_writer(path, frame.side, frame.id);
  if (writer == nullptr || writer->region != frame.region) return Verdict::fine;  // over, or of a region that is gone
  if (frame.bytes > writer->next) return Verdict::violation;                      // it was never sent
  Cargo& cargo = *writer->cargo;
  if (frame.bytes <= cargo.acknowledged) return Verdict::fine;
  cargo.acknowledged = frame.bytes;
  const std::uint32_t first_needed =
      frame.bytes == cargo.bytes ? cargo.held.end : cargo.sealed->piece_at(cargo.first_byte + frame.bytes);
  if (first_needed == cargo.held.begin) return Verdict::fine;
  detail::pin(cargo.sealed);
  release_later(cargo.sealed, {.begin = cargo.held.begin, .end = first_needed});
  cargo.held.begin = first_needed;
  recount(large_of(path), *writer);
  touch(path);
  return Verdict::fine;
}

// False: it is not all there any more.
bool Core::may_write_again(Cargo& cargo) {
  if (cargo.sealed == nullptr) return false;
  if (cargo.acknowledged == 0) return true;
  const std::uint32_t first = cargo.sealed->piece_at(cargo.first_byte);
  if (!buffer::hold_again(*cargo.sealed, {.begin = first, .end = cargo.held.begin})) return false;
  cargo.held.begin = first;
  cargo.acknowledged = 0;
  return true;
}

// The receiver wants again what it had, and we have not any more. It has not run the request, and must not wait for it.
void Core::give_up_writing(Path& path, Writer& writer, Instant now) {
  if (writer.is_reply()) return give_up_reply(path, path.incoming[writer.transfer->slot]);
  tell_cancelled(*writer.call);
  fail_call(*writer.call, Code::overloaded,
            "the peer took its memory back, and some of the payload is free by now: who keeps it can send it again",
            now, false);
}

// The receiver has all of it, or has no use for it: either way the payload may go.
void Core::on_transfer_ack(Path& path, const wire::SideFrame& frame) {
  Writer* const writer = find_writer(path, frame.side, frame.id);
  if (writer == nullptr) return;
  if (!writer->is_reply()) {
    // Unless it refuses what it has not seen.
    if (writer->call->tells_sent && writer->was_written && !writer->call->is_patient) [[unlikely]]
      on_sent(*writer->call);
    drop_cargo(writer->call->block);
    release_writer(path, *writer);
    return;
  }
  IncomingSlot& slot = path.incoming[frame.id.slot];
  retire(path, slot);
}

void Core::drop_large_reply(IncomingTransfer& transfer) {
  drop_cargo(transfer.block);
  if (Writer* const writer = Cargo::of(transfer.block).writer) {
    if (Path* const path = path_of(transfer)) {
      release_writer(*path, *writer);
    } else {
      wheel.cancel(writer->timer);
      wheel.cancel(writer->pause);
      writers.release(writer);
    }
  }
  transfer.reply_is_large = false;
}

void Core::arm_writer_timer(Writer& writer, Instant now) {
  wheel.arm(writer.timer, earliest(writer.transfer->deadline, now + kLongestUnfetched) + config.timeouts.silence);
}

// Nobody fetches a reply, or says that it is there, or its caller's time has long passed.
void Core::on_writer_timer(Writer& writer, Instant now) {
  Path* const path = path_of(*writer.transfer);
  if (path == nullptr) return;
  IncomingSlot& slot = path->incoming[writer.transfer->slot];
  if (slot.transfer != writer.transfer) return;
  const std::uint32_t others = large_of(*path).sent_slices;
  const bool goes_on = std::exchange(writer.seen_slices, writer.sent_slices) != writer.sent_slices;
  // It waits for its turn here, or at the receiver, which gives memory for a few at a time and must take these.
  const bool is_next = std::exchange(writer.seen_others, others) != others && writer.hook.queued;
  const std::uint64_t sent = large_of(*path).sent_bytes;
  const bool is_held =
      sent - std::exchange(writer.seen_bytes, sent) >= kLeastBytesPerLook && writer.state == Writer::State::asking;
  const bool is_old = now - writer.born >= kLongestReply || writer.transfer->deadline <= now;
  if ((goes_on || is_next || is_held) && !is_old) return arm_writer_timer(writer, now);
  give_up_reply(*path, slot);
}

// Its caller is told, or would wait for its deadline.
void Core::give_up_reply(Path& path, IncomingSlot& slot) {
  path.again.push({.slot = slot.transfer->slot,
                   .kind = static_cast<std::uint8_t>(SentKind::flow_reset),
                   .generation = slot.transfer->generation});
  touch(path);
  retire(path, slot);
}

void Core::answer_large(IncomingTransfer& transfer, buffer::Sealed* sealed, transfer::CargoRange range, Pattern pattern,
                        ByteSpan header, Instant now) {
  Path* const path = transfer.cancelled.load(std::memory_order_relaxed) ? nullptr : path_of(transfer);
  if (path == nullptr) {
    finish_credit(transfer);
    release_incoming(transfer);
    buffer::give_back(sealed, transfer::pieces_of(*sealed, range));
    return;
  }
  if (range.bytes + header.size() > transfer.max_reply && transfer.max_reply != wire::kAnyReply) [[unlikely]] {
    buffer::give_back(sealed, transfer::pieces_of(*sealed, range));
    return answer_too_long(transfer, range.bytes + header.size(), now);
  }
  // A peer that asks for replies and fetches none must not keep all of the memory that the others' come from.
  const std::uint64_t share = std::max(config.limits.buffer_bytes / kReplyPart, 2 * config.limits.message_bytes);
  // What the application keeps takes no memory by being sent. Relaxed: whoever else holds it says nothing about it
  // here.
  const bool is_ours_alone = sealed->references.load(std::memory_order_relaxed) == 1;
  const bool has_share = !is_ours_alone || large_of(*path).reply_bytes + range.bytes <= share ||
                         !config.payloads_are_short || !config.payloads_are_short();
  Writer* const writer = has_share ? writers.acquire() : nullptr;
  if (writer == nullptr) {
    buffer::give_back(sealed, transfer::pieces_of(*sealed, range));
    return answer_error(transfer, Code::overloaded, true,
                        has_share ? "too many large messages are under way"
                                  : "memory is short, and the caller has more than its share of it in replies",
                        now);
  }
  finish_credit(transfer);
  transfer::Block* const request = std::exchange(transfer.block, nullptr);  // of one that had to wait
  transfer.block = transfer::load_cargo(blocks, sealed, range, pattern, header);
  if (transfer.reassembly != nullptr) reassemblies.release(std::exchange(transfer.reassembly, nullptr));
  if (request != nullptr) detail::unpin(request);
  writer->transfer = &transfer;
  writer->cargo = &Cargo::of(transfer.block);
  writer->cargo->writer = writer;
  writer->priority = transfer.priority;
  writer->born = now;
  if (is_ours_alone) {
    writer->is_counted = true;
    recount(large_of(*path), *writer);
  }
  writer->timer.tag = static_cast<std::uint32_t>(TimerKind::writer);
  // Whoever asks for replies and fetches none would keep memory that all share.
  arm_writer_timer(*writer, now);
  transfer.reply_is_large = true;
  transfer.header_bytes = 0;  // the request's; the reply's is part of its opening
  send_answer(*path, transfer, wire::kCargoBytes + header.size(), now);
}

}  // namespace weir::engine
