// From queues to packets. One sealed packet carries as many frames as are ready and fit; nothing waits to fill one.
// Packets to one path form a train of equal segments, so that the kernel takes them in one call.
#include <algorithm>
#include <cstring>

#include "engine/core.h"

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

// What one call or reply has left to say, cut to the room there is.
std::uint32_t cut(std::size_t room, std::size_t room_when_empty, std::uint32_t fixed, std::uint16_t header_bytes,
                  std::uint32_t total, std::uint32_t offset) {
  const std::size_t whole = wire::overhead(fixed, header_bytes, false) + total;
  if (offset == 0 && whole <= room) [[likely]]
    return total;
  if (offset == 0 && whole <= room_when_empty) return 0;
  return cut_fragment(room, fixed, header_bytes, total, offset);
}

}  // namespace

// Writes the frames of one packet. Owns nothing; lives for one packet.
class Packer {
 public:
  Packer(Core& core, Path& path, std::byte* begin, std::byte* limit, std::uint32_t max_messages, Instant now)
      : core_(core),
        path_(path),
        at_(begin),
        limit_(limit),
        room_when_empty_(static_cast<std::size_t>(limit - begin)),
        messages_left_(max_messages),
        now_(now) {}

  std::byte* at() const { return at_; }
  bool eliciting() const { return eliciting_; }
  bool full() const { return full_; }  // something did not fit
  std::uint32_t messages_left() const { return messages_left_; }
  bool has_messages() const { return messages_; }
  std::uint64_t ack_largest() const { return ack_largest_; }

  void write_ack();
  void write_control();
  void write_again();
  void write_replies();
  void write_requests();

 private:
  std::size_t room() const { return static_cast<std::size_t>(limit_ - at_); }
  bool has_room(std::size_t bytes) {
    if (room() >= bytes) return true;
    full_ = true;
    return false;
  }
  void remember(SentKind kind, std::uint32_t slot, std::uint64_t generation, std::uint32_t offset = 0,
                std::uint32_t length = 0) {
    path_.frames.push({.slot = slot,
                       .kind = static_cast<std::uint8_t>(kind),
                       .offset = static_cast<std::uint16_t>(offset),
                       .length = static_cast<std::uint16_t>(length),
                       .generation = generation});
    eliciting_ = true;
  }
  void put_request(const OutgoingCall& call, std::uint32_t offset, std::uint32_t length);
  void put_reply(const IncomingTransfer& transfer, std::uint32_t offset, std::uint32_t length);
  bool request_again(const SentFrame& frame);
  bool reply_again(const SentFrame& frame);
  bool write_request(OutgoingCall& call);
  template <class Queue>
  void write_requests_of(Queue& queue, unsigned level);
  bool may_open(const OutgoingCall& call);

  Core& core_;
  Path& path_;
  std::byte* at_;
  std::byte* limit_;
  std::size_t room_when_empty_;
  std::uint32_t messages_left_;
  Instant now_;
  bool eliciting_ = false;
  bool full_ = false;
  bool messages_ = false;
  std::uint64_t ack_largest_ = recovery::kNoPacket;
};

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
  frame.delay_us = static_cast<std::uint32_t>(
      std::min<std::int64_t>((now_ - path_.largest_received_at).count() / 1000, 1'000'000));
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
  if (path_.announce_path && has_room(wire::kSmallFrameBytes)) {
    at_ = wire::encode_u32(wire::FrameType::path, path_.id, at_);
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
                                 .priority = call.priority,
                                 .depth = call.depth};
  at_ = wire::encode(frame, at_);
  remember(SentKind::request, call.slot, call.generation, offset, length);
  messages_ = true;
  if (messages_left_ != 0) --messages_left_;
}

void Packer::put_reply(const IncomingTransfer& transfer, std::uint32_t offset, std::uint32_t length) {
  const wire::ReplyFrame frame{.part = {.id = {transfer.slot, transfer.generation},
                                        .bytes = {transfer.reply_data() + offset, length},
                                        .header_bytes = transfer.header_bytes,
                                        .total = static_cast<std::uint16_t>(transfer.bytes),
                                        .offset = static_cast<std::uint16_t>(offset)},
                               .failed = transfer.reply_failed};
  at_ = wire::encode(frame, at_);
  remember(SentKind::reply, transfer.slot, transfer.generation, offset, length);
  messages_ = true;
  if (messages_left_ != 0) --messages_left_;
}

// A lost part of a request goes out anew, cut to the present MTU. True: done with this frame.
bool Packer::request_again(const SentFrame& frame) {
  if (frame.slot >= path_.calls.size()) return true;
  OutgoingCall* call = path_.calls[frame.slot];
  if (call == nullptr || call->generation != frame.generation) return true;
  const std::uint32_t length =
      frame.length == call->bytes
          ? cut(room(), room_when_empty_, wire::kRequestBytes, call->header_bytes, call->bytes, 0)
          : std::min<std::uint32_t>(frame.length, cut_fragment(room(), wire::kRequestBytes, call->header_bytes,
                                                             call->bytes, frame.offset));
  if (length == 0 && (frame.length != 0 || room() < wire::kRequestBytes + wire::kMessageHeaderBytes)) return false;
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
          ? cut(room(), room_when_empty_, wire::kReplyBytes, transfer.header_bytes, transfer.bytes, 0)
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

void Packer::write_again() {
  while (!path_.again.empty()) {
    const SentFrame frame = path_.again[path_.again.begin()];
    bool done = true;
    switch (frame.what()) {
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
          at_ = wire::encode_u64(wire::FrameType::flow_reset,
                                 wire::TransferId{frame.slot, frame.generation}.packed(), at_);
          remember(SentKind::flow_reset, frame.slot, frame.generation);
          ++core_.events.counters.flow_resets_sent;
        } else {
          done = false;
        }
        break;
      case SentKind::blocked:
        path_.credit[frame.slot].told_blocked_at = ~std::uint64_t{0};  // if it still is, it says so again
        break;
      case SentKind::path:
        path_.announce_path = true;
        write_control();
        break;
    }
    if (!done) {
      full_ = true;
      return;
    }
    ++core_.events.counters.frames_retransmitted;
    path_.again.pop();
  }
}

void Packer::write_replies() {
  while (IncomingTransfer* transfer = path_.replies.front()) {
    if (messages_left_ == 0) return;
    const std::uint32_t length = cut(room(), room_when_empty_, wire::kReplyBytes, transfer->header_bytes,
                                     transfer->bytes, transfer->sent_bytes);
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
  const std::uint32_t reserved = (kMaxDepth - call.depth) * (path_.max_calls / 32);
  if (path_.calls.size() - path_.free_slots.size() + reserved >= path_.max_calls) return false;
  if (call.depth == 0 &&
      core_.reply_room_used + core_.config.limits.inline_bytes > core_.config.limits.reply_bytes) {
    return false;
  }
  token::CreditSender& credit = path_.credit[call.depth];
  const std::uint32_t cost = token::request_cost(call.bytes);
  if (credit.may_send(cost)) [[likely]] {
    path_.blocked_since = Instant::never();
    return true;
  }
  if (path_.blocked_since.is_never()) {
    path_.blocked_since = now_;
    path_.say_blocked_at = now_ + Core::kShortestBlockedRepeat;
  }
  if (credit.told_blocked_at != credit.limit && has_room(wire::kSmallFrameBytes)) {
    credit.told_blocked_at = credit.limit;
    at_ = wire::encode_level(wire::FrameType::blocked, call.depth, credit.used + cost, at_);
    remember(SentKind::blocked, call.depth, 0);
    core_.events.emit(event::CreditBlocked{{}, path_.id, credit.limit});
  }
  return false;
}

// Writes as much of a call as fits. False: the packet is full.
bool Packer::write_request(OutgoingCall& call) {
  const std::uint32_t length =
      cut(room(), room_when_empty_, wire::kRequestBytes, call.header_bytes, call.bytes, call.sent_bytes);
  if (length == 0 && (call.bytes != 0 || room() < wire::kRequestBytes)) {
    full_ = true;
    return false;
  }
  if (call.state == OutgoingCall::State::queued) {
    path_.credit[call.depth].used += token::request_cost(call.bytes);
    core_.take_slot(path_, call);
    core_.events.moved(path_.id, wire::TransferId{call.slot, call.generation}.packed(), event::TransferStage::sent,
                       false);
    auto& queue = path_.peer->queue_of(call);
    queue.remove(call);
    queue.charge(call.hook.level, call.bytes + wire::kRequestBytes);
  }
  put_request(call, call.sent_bytes, length);
  core_.events.counters.payload_bytes_sent += length;
  call.sent_bytes += length;
  path_.partial = call.sent_bytes == call.bytes ? nullptr : &call;
  return true;
}

template <class Queue>
void Packer::write_requests_of(Queue& queue, unsigned level) {
  while (!queue.empty() && messages_left_ != 0) {
    OutgoingCall* call = level < schedule::kPriorityLevels ? queue.front_of(level) : queue.front();
    if (call == nullptr) return;
    if (call->connect_only) [[unlikely]] {
      core_.let_go(*call);
      core_.completions.push_back({.call = call});
      continue;
    }
    if (call->bytes > path_.max_bytes) [[unlikely]] {
      core_.fail_call(*call, Code::too_large, "the request is larger than the peer takes", now_);
      continue;
    }
    if (!may_open(*call)) return;
    do {
      if (!write_request(*call)) return;
    } while (path_.partial != nullptr);
  }
}

void Packer::write_requests() {
  if (path_.peer == nullptr || path_.peer->path != path_.id) return;
  Peer& peer = *path_.peer;
  while (path_.partial != nullptr) {
    if (!write_request(*path_.partial)) return;
  }
  for (unsigned level = kMaxDepth; level-- > 0 && !peer.nested.empty() && !full_;) write_requests_of(peer.nested, level);
  if (!full_) write_requests_of(peer.queue, schedule::kPriorityLevels);
}

void Core::pack_path(Path& path, std::vector<Train>& out, Instant now) {
  if (!path.keys.installed()) return;
  if (!is_waiting(path)) path.waiting_since = now;  // silence is counted from what is sent now
  std::byte* const train_begin = arena.get() + arena_used;
  std::byte* train_end = train_begin;
  std::uint32_t segment = 0;
  std::uint32_t messages_left = kMaxTrainMessages;
  bool more = false;
  const auto mark = path.ecn.mark();
  for (std::size_t segments = 0; segments < kMaxSegments; ++segments) {
    const bool window_open = ((path.congestion.may_send(path.loss.bytes_in_flight()) &&
                               path.pacer.next_send(now) <= now) ||
                              path.probes_owed != 0) &&
                             path.loss.sent().size() < path.loss.sent().bound() / 2 &&  // the rest is for what elicits nothing
                             !path.frames.nearly_full(config.datagram_bytes / wire::kReplyBytes);
    const bool ack_due = path.ack_policy.due(now);
    const bool something = has_something(path);
    if (!ack_due && (!something || !window_open)) break;

    const bool confirming = path.state == Path::State::confirming;
    // After two timeouts in a row the path may have stopped passing large packets: probe with small ones.
    std::size_t size = path.loss.pto_count() >= 2 ? kBaseDatagramBytes : path.mtu.current();
    if (segments != 0) size = segment;
    if (train_end + size > arena.get() + kArenaBytes || static_cast<std::size_t>(train_end - train_begin) + size > kMaxTrainBytes) {
      if (segments != 0) {
        more = true;
        break;
      }
    }
    const std::size_t prefix = wire::kHeaderBytes + (confirming ? path.first_prefix->size() : 0);
    std::byte* const text = train_end + prefix;
    const std::uint64_t frames_begin = path.frames.end();
    Packer packer(*this, path, text, train_end + size - wire::kTagBytes, messages_left, now);
    if (path.ack_policy.wanted() || ack_due) packer.write_ack();
    if (window_open) {
      packer.write_control();
      packer.write_again();
      if (!packer.full()) packer.write_replies();
      if (!packer.full()) packer.write_requests();
    }
    if (!packer.eliciting() && !ack_due && !path.ping_owed) break;
    std::byte* at = packer.at();
    bool eliciting = packer.eliciting();
    if (path.ping_owed && window_open) {
      if (!eliciting && at < train_end + size - wire::kTagBytes) {
        at = wire::encode_bare(wire::FrameType::ping, at);
        eliciting = true;
      }
      path.ping_owed = false;
    }
    if (at == text) break;
    if (packer.full()) {
      // Trains need equal segments: what did not fit goes into the next packet, this one is filled up.
      std::byte* const limit = train_end + size - wire::kTagBytes;
      std::memset(at, 0, static_cast<std::size_t>(limit - at));
      at = limit;
    }
    seal_packet(path, train_end, prefix, text, at,
                {.frames_begin = frames_begin,
                 .ack_largest = packer.ack_largest(),
                 .frames_count = static_cast<std::uint16_t>(path.frames.end() - frames_begin),
                 .ack_eliciting = eliciting,
                 .in_flight = eliciting,
                 .ecn = mark},
                now);
    if (!packer.has_messages()) ++events.counters.packets_control_only;
    const auto packet_size = static_cast<std::uint32_t>(at + wire::kTagBytes - train_end);
    if (segments == 0) segment = packet_size;
    train_end += packet_size;
    messages_left = packer.messages_left();
    if (messages_left == 0) {
      more = true;
      break;
    }
    if (!packer.full()) break;
    if (segments + 1 == kMaxSegments) more = true;
  }
  if (train_end != train_begin) {
    out.push_back({.to = path.remote,
                   .ecn = static_cast<std::uint8_t>(mark),
                   .bytes = {train_begin, static_cast<std::size_t>(train_end - train_begin)},
                   .segment_size = segment,
                   .path = path.id});
    arena_used += static_cast<std::size_t>(train_end - train_begin);
  }
  if (more) {
    touch(path);
  } else {
    probe_mtu(path, out, now);
  }
}

// Header, seal, bookkeeping. `packet` has room for the tag behind `end`.
void Core::seal_packet(Path& path, std::byte* packet, std::size_t prefix, std::byte* text, std::byte* end,
                       recovery::SentPacket record, Instant now) {
  const bool rotate = path.key_confirmed && (path.next_number - path.key_first_number >= config.rotate_packets ||
                                             path.key_bytes >= config.rotate_bytes);
  if (rotate) [[unlikely]] {
    path.keys.rotate();
    path.key_first_number = path.next_number;
    path.key_bytes = 0;
    path.key_confirmed = false;
    events.emit(event::KeyRotated{{}, path.id, path.keys.send_id()});
  }
  const std::uint64_t number = path.next_number++;
  const bool confirming = prefix != wire::kHeaderBytes;
  wire::encode({.type = confirming ? wire::PacketType::first : wire::PacketType::sealed,
                .key_low = static_cast<std::uint8_t>(path.keys.send_id() & ((1u << wire::kKeyIdBits) - 1)),
                .number_low = static_cast<std::uint32_t>(number & ((1u << wire::kNumberBits) - 1)),
                .path = confirming ? path.id : path.remote_id},
               packet);
  if (confirming) std::memcpy(packet + wire::kHeaderBytes, path.first_prefix->data(), path.first_prefix->size());
  path.keys.send_key().seal(crypto::make_nonce(0, number), {packet, prefix},
                            {text, static_cast<std::size_t>(end - text)}, end);
  record.bytes = static_cast<std::uint32_t>(end + wire::kTagBytes - packet);
  path.key_bytes += record.bytes;
  path.loss.on_sent(number, record, now);
  if (record.in_flight) {
    path.congestion.on_sent(record.bytes, path.loss.bytes_in_flight(), now);
    path.pacer.on_sent(record.bytes, now);
    if (path.probes_owed != 0) --path.probes_owed;
  }
  path.ecn.on_sent(record.ecn);
  if (record.ack_largest != recovery::kNoPacket) path.ack_policy.on_ack_sent();
  path.last_sent = now;
  ++events.counters.packets_sent;
  events.counters.bytes_sent += record.bytes;
}

void Core::probe_mtu(Path& path, std::vector<Train>& out, Instant now) {
  if (path.state != Path::State::open || (!is_waiting(path) && path.incoming_live == 0)) return;
  if (path.mtu.deadline() > now || !path.congestion.may_send(path.loss.bytes_in_flight())) return;
  const auto size = path.mtu.next_probe(now);
  if (!size) return;
  if (arena_used + *size > kArenaBytes) {
    touch(path);
    return;
  }
  std::byte* const packet = arena.get() + arena_used;
  std::byte* const text = packet + wire::kHeaderBytes;
  std::byte* const end = packet + *size - wire::kTagBytes;
  std::memset(text, 0, static_cast<std::size_t>(end - text));
  wire::encode_bare(wire::FrameType::ping, text);
  seal_packet(path, packet, wire::kHeaderBytes, text, end,
              {.frames_begin = path.frames.end(), .mtu_probe = true, .ecn = recovery::EcnMark::none}, now);
  ++events.counters.packets_control_only;
  path.mtu.on_probe_sent(*size, now);
  out.push_back({.to = path.remote, .bytes = {packet, *size}, .segment_size = *size, .path = path.id});
  arena_used += *size;
}

void Core::collect(std::vector<Train>& out, Instant now) {
  arena_used = 0;
  for (const Plain& datagram : plain) {
    std::byte* to = arena.get() + arena_used;
    std::memcpy(to, plain_bytes.data() + datagram.begin, datagram.size);
    out.push_back({.to = datagram.to, .bytes = {to, datagram.size}, .segment_size = datagram.size, .path = kNoPath});
    arena_used += datagram.size;
  }
  plain.clear();
  plain_bytes.clear();
  while (!touched.empty() && kArenaBytes - arena_used > 2 * config.datagram_bytes) {
    touching.swap(touched);
    for (const std::uint32_t id : touching) {
      Path* path = find_path(id);
      if (path == nullptr || !path->touched) continue;
      path->touched = false;
      if (kArenaBytes - arena_used <= 2 * config.datagram_bytes) {
        touch(*path);
        continue;
      }
      // Somebody who makes us acknowledge and never acknowledges himself: the record of sent packets is used up.
      if (path->loss.sent().size() + kMaxSegments >= path->loss.sent().bound()) [[unlikely]] {
        end_path(*path, Code::peer_failed, "the peer acknowledges nothing", false, now);
        continue;
      }
      pack_path(*path, out, now);
      update_timer(*path, now);
    }
    touching.clear();
  }
}

}  // namespace weir::engine
