#include "engine/packer.h"

#include <algorithm>
#include <bit>

namespace weir::engine {

namespace {

constexpr std::uint32_t kSmallestFragment = 64;

std::uint32_t time_left_us(Instant deadline, Instant now) {
  const std::int64_t left = (deadline.ns - now.ns) / 1000;
  return static_cast<std::uint32_t>(std::clamp<std::int64_t>(left, 0, ~std::uint32_t{0}));
}

// How much of [offset, total) a fragment takes along. 0: it must wait for the next packet. A fragment is never the
// whole message, or it would be read as one.
std::uint32_t cut_fragment(std::size_t room, std::uint32_t fixed, std::uint16_t header_bytes, std::uint32_t total,
                           std::uint32_t offset) {
  const std::size_t overhead = wire::overhead(fixed, header_bytes, true);
  if (room < overhead + kSmallestFragment) return 0;
  return static_cast<std::uint32_t>(std::min<std::size_t>({room - overhead, total - offset, total - 1}));
}

}  // namespace

bool Packer::may_split() const {
  // The frame's own header, which is the longer one, makes up for that of the frame that `next_bytes_` counts.
  constexpr std::uint32_t kLongestFixed = wire::kRequestBytes + wire::kMaxReplyBytes;
  return next_bytes_ >= Core::kSmallestCutBytes + wire::overhead(kLongestFixed, 1, false) &&
         room() >= wire::overhead(kLongestFixed, 1, true) + kSmallestFragment;
}

// What one call or reply that does not fit whole has left to say, cut to the room there is. 0: it waits for the next
// packet. Small messages never travel in fragments (rule F-8).
std::uint32_t Packer::cut_part(std::uint32_t fixed, std::uint16_t header_bytes, std::uint32_t total,
                               std::uint32_t offset, std::size_t whole) {
  next_bytes_ = whole;
  if (offset == 0 && (total < Core::kSmallestCutBytes || (whole <= room_when_empty_ && !split_))) return 0;
  return cut_fragment(room(), fixed, header_bytes, total, offset);
}

// Before all other frames: the responder looks for them there in packets that it has seen before (P-12).
void Packer::write_responses() {
  while (path_.responses_owed != 0 && has_room(wire::kSmallFrameBytes)) {
    at_ = wire::encode_u64(wire::FrameType::path_response, core_.challenges.at(path_.id)[--path_.responses_owed], at_);
    eliciting_ = true;
    if (path_.responses_owed == 0) core_.challenges.erase(path_.id);
  }
}

void Packer::write_ack() {
  if (path_.received.empty()) return;
  wire::AckFrame frame;
  frame.has_ecn = path_.received_any_ecn;
  std::size_t fits = room();
  const std::size_t fixed = wire::kAckFixedBytes + (frame.has_ecn ? wire::kAckEcnBytes : 0);
  if (fits < fixed) return;
  fits = (fits - fixed) / wire::kAckRangeBytes + 1;
  frame.count = std::min({path_.received.size(), wire::AckFrame::kMaxRanges, fits});
  frame.largest = path_.received.largest();
  frame.delay_us =
      static_cast<std::uint32_t>(std::min<std::int64_t>((now_ - path_.largest_received_at).count() / 1000, 1'000'000));
  for (std::size_t i = 0; i < frame.count; ++i) {
    frame.ranges[i] = {path_.received[i].first, path_.received[i].last};
  }
  frame.ect0 = path_.received_ecn.ect0;
  frame.ect1 = path_.received_ecn.ect1;
  frame.ce = path_.received_ecn.ce;
  at_ = wire::encode(frame, at_);
  ack_largest_ = frame.largest;
}

void Packer::write_control() {
  if (path_.announce_path && has_room(wire::kPathFrameBytes)) {
    wire::PathFrame frame{.path = path_.id, .reset_key = core_.path_reset_key(path_.id, path_.remote)};
    at_ = wire::encode(frame, at_);
    crypto::wipe(frame.reset_key);
    remember(SentKind::path, 0, 0);
    path_.announce_path = false;  // a lost one comes back through `again`
  }
  if (path_.probe_response_owed && has_room(wire::kSmallFrameBytes)) {
    at_ = wire::encode_u64(wire::FrameType::probe_response, path_.probe_timestamp, at_);
    path_.probe_response_owed = false;
    eliciting_ = true;
  }
  if (path_.probe_wanted && has_room(wire::kSmallFrameBytes)) {
    at_ = wire::encode_u64(wire::FrameType::probe, static_cast<std::uint64_t>(now_.ns), at_);
    path_.probe_wanted = false;
    eliciting_ = true;
  }
  while (path_.credit_levels_owed != 0 && has_room(wire::kSmallFrameBytes)) {
    const auto level = static_cast<std::uint8_t>(std::countr_zero(path_.credit_levels_owed));
    path_.credit_levels_owed &= static_cast<std::uint8_t>(path_.credit_levels_owed - 1);
    at_ = wire::encode_level(wire::FrameType::credit, level, path_.accounts[level].announce(), at_);
    remember(SentKind::credit, level, 0);
  }
}

void Packer::put_request(const OutgoingCall& call, std::uint32_t offset, std::uint32_t length) {
  const wire::RequestFrame frame{.part = {.id = {call.slot, call.generation},
                                          .bytes = {call.data() + offset, length},
                                          .header_bytes = call.header_bytes,
                                          .total = static_cast<std::uint16_t>(call.bytes),
                                          .offset = static_cast<std::uint16_t>(offset)},
                                 .method = call.method,
                                 .time_left_us = time_left_us(call.deadline, now_),
                                 .max_reply = call.max_reply,
                                 .priority = call.priority,
                                 .depth = call.depth,
                                 .is_large = call.is_large};
  at_ = wire::encode(frame, at_);
  remember(SentKind::request, call.slot, call.generation, offset, length);
  levels_ |= 1u << call.priority;
  if (messages_left_ != 0) --messages_left_;
}

void Packer::put_reply(const IncomingTransfer& transfer, std::uint32_t offset, std::uint32_t length) {
  const wire::ReplyFrame frame{.part = {.id = {transfer.slot, transfer.generation},
                                        .bytes = {transfer.reply_data() + offset, length},
                                        .header_bytes = transfer.header_bytes,
                                        .total = static_cast<std::uint16_t>(transfer.bytes),
                                        .offset = static_cast<std::uint16_t>(offset)},
                               .failed = transfer.reply_failed,
                               .is_large = transfer.reply_is_large};
  at_ = wire::encode(frame, at_);
  remember(SentKind::reply, transfer.slot, transfer.generation, offset, length);
  levels_ |= 1u << transfer.priority;
  if (messages_left_ != 0) --messages_left_;
}

// A lost part of a request goes out anew, cut to the present MTU. True: done with this frame.
bool Packer::request_again(const SentFrame& frame) {
  if (frame.slot >= path_.calls.size()) return true;
  OutgoingCall* call = path_.calls[frame.slot];
  if (call == nullptr || call->generation != frame.generation) return true;
  const std::uint32_t fixed = wire::request_bytes(call->max_reply);
  const std::uint32_t length =
      frame.length == call->bytes
          ? cut(fixed, call->header_bytes, call->bytes, 0)
          : std::min<std::uint32_t>(frame.length,
                                    cut_fragment(room(), fixed, call->header_bytes, call->bytes, frame.offset));
  if (length == 0 && (frame.length != 0 || room() < fixed + wire::kMessageHeaderBytes)) return false;
  put_request(*call, frame.offset, length);
  if (length < frame.length) {
    path_.again.push({.slot = frame.slot,
                      .kind = frame.kind,
                      .offset = static_cast<std::uint16_t>(frame.offset + length),
                      .length = static_cast<std::uint16_t>(frame.length - length),
                      .generation = frame.generation});
  }
  return true;
}

bool Packer::reply_again(const SentFrame& frame) {
  if (frame.slot >= path_.incoming.size()) return true;
  const IncomingSlot& slot = path_.incoming[frame.slot];
  if (slot.generation != frame.generation || slot.transfer == nullptr) return true;
  const IncomingTransfer& transfer = *slot.transfer;
  if (transfer.state != IncomingTransfer::State::replying) return true;
  const std::uint32_t length =
      frame.length == transfer.bytes
          ? cut(wire::kReplyBytes, transfer.header_bytes, transfer.bytes, 0)
          : std::min<std::uint32_t>(frame.length, cut_fragment(room(), wire::kReplyBytes, transfer.header_bytes,
                                                               transfer.bytes, frame.offset));
  if (length == 0 && (frame.length != 0 || room() < wire::kReplyBytes + wire::kMessageHeaderBytes)) return false;
  put_reply(transfer, frame.offset, length);
  if (length < frame.length) {
    path_.again.push({.slot = frame.slot,
                      .kind = frame.kind,
                      .offset = static_cast<std::uint16_t>(frame.offset + length),
                      .length = static_cast<std::uint16_t>(frame.length - length),
                      .generation = frame.generation});
  }
  return true;
}

// A frame went out again. Whatever comes behind it, it pays for the packet if it is the first one.
void Packer::count_again(const std::byte* frame_begin) {
  ++core_.events.counters.frames_retransmitted;
  if (at_ == frame_begin) return;
  const std::size_t packet = repeats_ ? 0 : wire::kHeaderBytes + wire::kTagBytes;
  repeats_ = true;
  core_.events.counters.bytes_retransmitted += static_cast<std::size_t>(at_ - frame_begin) + packet;
}

void Packer::write_again() {
  while (!path_.again.empty()) {
    const SentFrame frame = path_.again[path_.again.begin()];
    const std::byte* const frame_begin = at_;
    bool done = true;
    switch (frame.what()) {
      case SentKind::nothing:
        path_.again.pop();
        continue;
      case SentKind::request:
        done = request_again(frame);
        break;
      case SentKind::reply:
        done = reply_again(frame);
        break;
      case SentKind::credit:
        // Whatever is current replaces what was lost.
        if (has_room(wire::kSmallFrameBytes)) {
          const auto level = static_cast<std::uint8_t>(frame.slot);
          at_ = wire::encode_level(wire::FrameType::credit, level, path_.accounts[level].announce(), at_);
          remember(SentKind::credit, level, 0);
        } else {
          done = false;
        }
        break;
      case SentKind::cancel:
        if (has_room(wire::kSmallFrameBytes)) {
          at_ = wire::encode(wire::CancelFrame{.id = {frame.slot, frame.generation},
                                               .level = static_cast<std::uint8_t>(frame.offset),
                                               .total = frame.length},
                             at_);
          remember(SentKind::cancel, frame.slot, frame.generation, frame.offset, frame.length);
        } else {
          done = false;
        }
        break;
      case SentKind::flow_reset:
        if (has_room(wire::kSmallFrameBytes)) {
          at_ = wire::encode_u64(wire::FrameType::flow_reset, wire::TransferId{frame.slot, frame.generation}.packed(),
                                 at_);
          remember(SentKind::flow_reset, frame.slot, frame.generation);
          ++core_.events.counters.flow_resets_sent;
        } else {
          done = false;
        }
        break;
      case SentKind::blocked:
        path_.credit[frame.slot].told_blocked_at = ~std::uint64_t{0};  // if it still is, it says so again
        break;
      case SentKind::retire:
        if (frame.generation != path_.keys.send_id()) break;  // the retirement of a later key says it, too
        if (has_room(wire::kRetireFrameBytes)) {
          at_ = wire::encode(path_.keys.retirement(*core_.scratch_key), at_);
          remember(SentKind::retire, 0, frame.generation);
        } else {
          done = false;
        }
        break;
      case SentKind::path:
        path_.announce_path = true;
        write_control();
        break;
      case SentKind::slice:
        break;  // these have a queue of their own
      case SentKind::region_grant:
      case SentKind::region_revoke:
      case SentKind::token_revoke:
      case SentKind::region_exhausted:
      case SentKind::request_regions:
      case SentKind::transfer_ack:
      case SentKind::range_ack:
        done = write_large_control(frame);
        break;
    }
    if (!done) {
      full_ = true;
      return;
    }
    // Frames about large messages come here the first time, too.
    if (frame.what() < SentKind::slice) count_again(frame_begin);
    path_.again.pop();
  }
}

// Whatever is true now replaces what was lost. True: done with this frame.
bool Packer::write_large_control(const SentFrame& frame) {
  if (!has_room(wire::kGrantBytes)) return false;
  const auto side = static_cast<wire::Side>(frame.offset);
  const wire::TransferId id{frame.slot, frame.generation};
  switch (frame.what()) {
    case SentKind::region_grant: {
      token::Region* const region = core_.regions.find(token::RegionId{frame.slot, frame.generation}.packed());
      if (region == nullptr) return true;  // used up or taken back
      const auto lifetime = std::chrono::duration_cast<std::chrono::milliseconds>(region->expires - now_);
      at_ = wire::encode(
          wire::GrantFrame{.side = region->side,
                           .id = wire::TransferId::unpack(region->transfer),
                           .region = region->id,
                           .capacity = region->limit(),
                           .lifetime_ms = static_cast<std::uint32_t>(std::max<std::int64_t>(lifetime.count(), 0)),
                           .in_flight_bytes = core_.in_flight_promise(path_)},
          at_);
      region->tells_share = false;
      break;
    }
    case SentKind::region_revoke: {
      const transfer::Arrival* const arrival = core_.find_arrival(path_, side, id);
      if (arrival == nullptr) return true;
      at_ = wire::encode(wire::RevokeFrame{.side = side, .id = id, .region = arrival->lost_region}, at_);
      break;
    }
    case SentKind::token_revoke:
      at_ = wire::encode(wire::RevokeFrame{.region = token::RegionId{frame.slot, frame.generation}.packed()}, at_);
      break;
    case SentKind::region_exhausted: {
      const transfer::Arrival* const arrival = core_.find_arrival(path_, side, id);
      if (arrival == nullptr || !arrival->ask.is_waiting()) return true;
      const auto hint = std::chrono::duration_cast<std::chrono::microseconds>(core_.grants.hint(arrival->ask));
      at_ = wire::encode(wire::FrameType::region_exhausted,
                         {.side = side, .id = id, .value = static_cast<std::uint32_t>(hint.count())}, at_);
      break;
    }
    case SentKind::request_regions:
      if (const transfer::Writer* const writer = core_.find_writer(path_, side, id);
          writer == nullptr || writer->region != wire::kNoRegion) {
        return true;
      }
      at_ = wire::encode(wire::FrameType::request_regions, {.side = side, .id = id}, at_);
      break;
    case SentKind::range_ack: {
      const transfer::Arrival* const arrival = core_.find_arrival(path_, side, id);
      const token::Region* const region = arrival != nullptr ? core_.regions.find(arrival->region) : nullptr;
      if (region == nullptr || region->coverage.prefix() == 0)
        return true;  // all of it is there, or its region is gone
      at_ = wire::encode(
          wire::RangeAckFrame{.side = side, .id = id, .region = region->id, .bytes = region->coverage.prefix()}, at_);
      break;
    }
    default:
      at_ = wire::encode(wire::FrameType::transfer_ack, {.side = side, .id = id}, at_);
      break;
  }
  remember(frame.what(), frame.slot, frame.generation, frame.offset);
  return true;
}

void Packer::write_replies() {
  while (IncomingTransfer* transfer = path_.replies.front()) {
    if (messages_left_ == 0) return;
    const std::uint32_t length = cut(wire::kReplyBytes, transfer->header_bytes, transfer->bytes, transfer->sent_bytes);
    if (length == 0 && (transfer->bytes != 0 || room() < wire::kReplyBytes)) {
      full_ = true;
      return;
    }
    put_reply(*transfer, transfer->sent_bytes, length);
    core_.events.counters.payload_bytes_sent += length;
    path_.replies.charge(transfer->hook.level, length + wire::kReplyBytes);
    transfer->sent_bytes += length;
    if (transfer->sent_bytes == transfer->bytes) path_.replies.remove(*transfer);
  }
}

// Whether a call may take a slot: the peer keeps a slot for it, has credit for it, and we have room for its reply.
bool Packer::may_open(const OutgoingCall& call) {
  // Deeper calls may use slots that shallower ones may not, so that these never wait for what waits for them.
  const std::uint32_t reserved =
      std::min((kMaxDepth - call.depth) * std::max(path_.max_calls / 32, 1u), path_.max_calls / 2);
  if (path_.next_generation > wire::kMaxGeneration) return false;  // this path has named all the calls it can
  if (path_.calls.taken() + reserved >= path_.max_calls) return false;
  if (call.depth == 0 && !core_.has_reply_room(path_, call)) [[unlikely]] {
    core_.wait_for_reply_room(path_);
    return false;
  }
  token::CreditSender& credit = path_.credit[call.depth];
  const std::uint32_t cost = token::request_cost(call.bytes);
  if (credit.may_send(cost)) [[likely]] {
    if (!core_.may_begin(path_, now_) || !core_.may_ask(path_, now_)) return false;
    path_.blocked_since = Instant::never();
    return true;
  }
  if (path_.blocked_since.is_never()) {
    path_.blocked_since = now_;
    path_.say_blocked_at = now_ + Core::kShortestBlockedRepeat;
  }
  return false;
}

// What the first call of a priority costs, and those that wait behind it, up to one largest message (rule C-5): small
// calls that are granted one by one would go at one in each round trip. With members it is one message: what a member
// may have beyond its share is weighed against the whole wish (rule C-11), so that a larger wish waits longer.
std::uint64_t Packer::cost_of_line(const OutgoingCall& first) const {
  const std::uint64_t most = token::request_cost(static_cast<std::uint32_t>(core_.config.limits.inline_bytes));
  std::uint64_t sum = token::request_cost(first.bytes);
  if (core_.has_identity()) return sum;
  for (const OutgoingCall* call = first.hook.next; call != nullptr; call = call->hook.next) {
    const std::uint64_t cost = token::request_cost(call->bytes);
    if (sum + cost > most) break;
    sum += cost;
  }
  return sum;
}

// The most urgent call of its depth may not go. If credit is what is missing, the peer is told what it needs, and those
// of its priority: they are to go first when there is some.
void Packer::complain(const OutgoingCall& call) {
  token::CreditSender& credit = path_.credit[call.depth];
  const std::uint32_t cost = token::request_cost(call.bytes);
  if (credit.may_send(cost) || !credit.should_complain(call.priority) || !has_room(wire::kSmallFrameBytes)) return;
  credit.on_complained(call.priority);
  at_ = wire::encode(
      wire::BlockedFrame{.level = call.depth, .priority = call.priority, .needed = credit.used + cost_of_line(call)},
      at_);
  remember(SentKind::blocked, call.depth, 0);
  core_.events.emit(event::CreditBlocked{{}, path_.id, credit.limit});
}

void Packer::end_unsent(OutgoingCall& call) {
  if (!call.connect_only) {
    return core_.fail_call(call, Code::too_large, "the request is larger than the peer takes", now_);
  }
  core_.let_go(call);
  core_.completions.push_back({.call = &call});
}

// Writes as much of a call as fits. False: the packet is full.
bool Packer::write_request(OutgoingCall& call) {
  const bool is_new = call.state == OutgoingCall::State::queued;
  const std::uint32_t offset = is_new ? 0 : call.sent_bytes;
  const std::uint32_t fixed = wire::request_bytes(call.max_reply);
  const std::uint32_t length = cut(fixed, call.header_bytes, call.bytes, offset);
  if (length == 0 && (call.bytes != 0 || room() < fixed)) {
    full_ = true;
    return false;
  }
  if (is_new && length != call.bytes && !core_.may_begin_part(path_)) [[unlikely]] {
    full_ = is_last_ = true;
    return false;
  }
  if (is_new) {
    if (call.is_large && !core_.begin_writing(path_, call, now_)) [[unlikely]] {
      core_.fail_call(call, Code::overloaded, "too many large messages are under way", now_);
      return true;
    }
    path_.credit[call.depth].used += token::request_cost(call.bytes);
    path_.peer->queue.send(call, call.bytes + fixed);
    core_.take_slot(path_, call, now_);
    core_.events.moved(path_.id, wire::TransferId{call.slot, call.generation}.packed(), event::TransferStage::sent,
                       false);
  }
  put_request(call, offset, length);
  core_.events.counters.payload_bytes_sent += length;
  call.sent_bytes = static_cast<std::uint16_t>(offset + length);
  path_.partial = call.sent_bytes == call.bytes ? nullptr : &call;
  return true;
}

void Packer::write_requests_of(CallQueues::Queue& queue) {
  while (messages_left_ != 0) {
    OutgoingCall* call = queue.front();
    if (call == nullptr) return;
    if (ends_unsent(*call)) continue;
    if (!may_open(*call)) {
      // Its turn by weight, but it may not go. The most urgent one, smaller perhaps, is not held up by it.
      OutgoingCall* const urgent = queue.front_of(static_cast<unsigned>(std::countr_zero(queue.occupied_levels())));
      if (urgent == call) return complain(*call);
      if (ends_unsent(*urgent)) continue;
      if (!may_open(*urgent)) return complain(*urgent);
      call = urgent;
    }
    do {
      if (!write_request(*call)) return;
    } while (path_.partial != nullptr);
  }
}

void Packer::write_requests() {
  if (path_.peer == nullptr) return;
  Peer& peer = *path_.peer;
  while (path_.partial != nullptr) {  // also on a path that was replaced meanwhile
    if (!write_request(*path_.partial)) return;
  }
  if (peer.path == path_.id) {
    for (std::size_t depth = peer.queue.in_use(); depth-- > 0 && !full_;) write_requests_of(peer.queue[depth]);
  }
  if (core_.room_kept_for == path_.id) [[unlikely]]
    core_.end_room_turn();
}

}  // namespace weir::engine
