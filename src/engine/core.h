// Core: the inside of an engine. One verb per file: handshake.cc, receive.cc, losses.cc, pack.cc, call.cc (callers),
// serve.cc and answer.cc (callees), write.cc, slices.cc, arrive.cc and grants.cc (large messages), clock.cc (timers,
// liveness, ends of paths), evict.cc (paths that are closed for others).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/fork_guard.h"
#include "base/slab.h"
#include "crypto/cmac.h"
#include "engine/absences.h"
#include "engine/address_change.h"
#include "engine/bounds.h"
#include "engine/engine.h"
#include "engine/hello_gate.h"
#include "engine/nic_turns.h"
#include "engine/path.h"
#include "engine/path_numbers.h"
#include "engine/reply_bound.h"
#include "engine/return_box.h"
#include "engine/shared_links.h"
#include "token/grant_pace.h"
#include "transfer/arrival.h"
#include "transfer/reassembly.h"
#include "weir/body.h"
#include "wire/frame.h"
#include "wire/large_frame.h"

namespace weir::engine {

// A completed call on its way to its owner.
struct Completion {
  OutgoingCall* call = nullptr;
  const char* sentence = nullptr;
  const std::byte* bytes = nullptr;
  detail::Pin* pin = nullptr;
  transfer::Reassembly* reassembly = nullptr;  // holds the bytes; released after delivery
  std::uint32_t size = 0;
  std::uint16_t header_bytes = 0;
  Code code{};
  bool failed = false;
  bool may_have_run = false;
  bool is_sent_only = false;           // no completion yet: the peer has the request
  buffer::Landing* landing = nullptr;  // a large reply, with one reference
};

struct Method {
  std::string name;
  Handler handler;
};

// A path by the number that the other side gave it. Several peers may say that they receive at one address, and several
// names may lead to one process: the address alone names none of them.
struct RemotePath {
  Address address;
  std::uint32_t number = 0;

  bool operator==(const RemotePath&) const = default;
};
struct RemotePathHash {
  std::size_t operator()(const RemotePath& path) const {
    return AddressHash{}(path.address) ^ path.number * std::size_t{0x9e3779b97f4a7c15};
  }
};

struct Core : Bounds {
  // What to do with the packet after one of its frames.
  enum class Verdict : std::uint8_t {
    fine,
    not_now,    // no room: as if the packet had been lost, so that its frames come again
    violation,  // the path must go
  };

  Core(const EngineConfig& config_, crypto::Entropy& entropy_, Subscriber* subscriber, std::uint64_t seed, Instant now);
  ~Core();

  // ---- handshake.cc ----
  void start_hello(Peer& peer, Instant now);
  void send_hello(Peer& peer, Instant now);
  void hurry_hello(Peer& peer, Instant sent_at, Instant now);
  // `certificate`: KnownCredential::member.
  void meet(Path& path, std::string_view claimed, transfer::ProvenNames proven, std::uint64_t certificate);
  void on_hello(ByteSpan datagram, const Address& from, Instant now);
  void on_hello_reply(ByteSpan datagram, const Address& from, Instant now);
  bool is_genuine(const wire::DecodedFirst& first, const Keying& keying,
                  const std::array<std::byte, 32>& responder_random);
  std::array<std::byte, 32> random_in_reply(std::uint64_t sequence, const Address& to) const;
  void on_first(MutableByteSpan datagram, const Address& from, std::uint8_t ecn, detail::Pin* buffer, Instant now);
  void confirm(Peer& peer, Path& path, const Keying& keying, const wire::HelloReply& reply, Instant now);
  // Of a path that nothing was sent on.
  void drop_hello_path(Path& path, Instant now) {
    links.leave(path.link, now);
    paths.release(&path);
  }
  void give_up_hello(Peer& peer, Code code, const char* sentence, Instant now);
  void tell_handshake_failed(Peer& peer, Code code, std::string_view sentence, Instant now);
  void replace_path(Peer& peer, Path& with, const Keying& keying, const wire::HelloReply& reply, Instant now);
  // `mtu`: what its credential says of it. `certificate`: of who made it.
  Path* make_path(const Address& remote, bool initiator, Instant now, std::uint32_t mtu = 0,
                  std::uint64_t certificate = 0);
  std::uint32_t most_paths_of_a_member() const { return std::max(paths.max_objects() / 2, 1u); }
  void send_plain(const Address& to, ByteSpan bytes);
  void queue_plain(const Address& to, ByteSpan bytes);  // not counted as sent here

  // ---- credential.cc ----
  bool has_identity() const { return config.credentials != nullptr; }
  // What a handshake with this peer is keyed with. Nothing: in identity mode, if there is no credential, or it has
  // ended.
  std::optional<Keying> keying_of(const Peer& peer, Instant now) const;
  // One who may call us and whose credential has not ended.
  bool find_caller(const CredentialId& id, Instant now, KnownCredential& out) const {
    return config.credentials->find(id, now, out) && now < out.expires;
  }
  void hurry_after_loss(Peer& peer, Instant now);
  void want_credential(Peer& peer, bool suspects, Hurry hurry = Hurry::none);
  void doubt_address(Peer& peer, Instant now);
  void install_credential(Peer& peer, const Credential& credential, Instant now);
  void expire_path(Path& path, Instant now);
  // Ends the path if its credential has ended. Timers may be late: whoever takes or sends something asks.
  bool has_ended(Path& path, Instant now) {
    if (now < path.expires) [[likely]]
      return false;
    expire_path(path, now);
    return true;
  }
  void on_first_sealed(Path& path, Instant now);
  void refuse_credential(Peer& peer, Code code, std::string_view sentence, Instant now);
  void answer_unknown_hello(const wire::Hello& hello, const Address& to);
  void answer_unknown_first(const wire::FirstPrefix& prefix, const Address& to);
  // `echo`: what names the packet that is answered; its first 16 bytes count. `answered`: the same, under the tag.
  void answer_unknown_secret(wire::UnknownSecret unknown, ByteSpan echo, std::uint64_t answered, const Address& to);
  void on_unknown_secret(ByteSpan datagram, const Address& from, Instant now);
  crypto::KeyBytes path_reset_key(std::uint32_t path, const Address& remote);
  void answer_unknown_path(const wire::PacketHeader& header, const Address& from, Instant now);
  void on_unknown_path(ByteSpan datagram, const Address& from, Instant now);
  // The open path that the process at `remote` calls `number`. Null: none.
  Path* find_open(const Address& remote, std::uint32_t number);
  static bool is_in_flight(const Path& path, std::uint32_t number_low);
  static Instant sent_at(const Path& path, std::uint32_t number_low);  // of one that is
  // False, too, if there is no key.
  bool is_tag_of(const crypto::KeyBytes* reset_key, std::uint64_t sequence, ByteSpan context, const std::byte* tag);

  // ---- receive.cc ----
  // A template so that each of the two has one caller, which it is inlined in.
  template <bool kIsForwarded>
  void on_datagram(MutableByteSpan datagram, const Address& from, std::uint8_t ecn, detail::Pin* buffer, Instant now);
  // `aad` precedes the ciphertext in the datagram.
  bool open_sealed(Path& path, const wire::PacketHeader& header, MutableByteSpan datagram, std::size_t aad,
                   const Address& from, std::uint8_t ecn, detail::Pin* buffer, Instant now);
  // `slice`: of a data packet, authenticated with it.
  void note_missing(Path& path, std::uint64_t number);
  void count_missing(Path& path, std::int64_t packets);
  Verdict on_frames(Path& path, ByteSpan frames, ByteSpan slice, bool& ack_eliciting, detail::Pin* buffer, Instant now);
  [[gnu::noinline]] const std::byte* on_control_frame(Path& path, const std::byte* at, const std::byte* end,
                                                      bool& ack_eliciting, Instant now);
  [[gnu::noinline]] bool on_close_frame(Path& path, const std::byte* at, const std::byte* end, Instant now);
  void on_side_frame(Path& path, wire::FrameType type, const wire::SideFrame& frame, Instant now);
  void on_path_frame(Path& path, const wire::PathFrame& frame);
  void on_blocked(Path& path, const wire::BlockedFrame& frame, Instant now);
  void reject(event::Rejection reason, std::size_t bytes);

  // ---- address_change.cc ----
  void on_source(Path& path, std::uint64_t number, std::size_t bytes, bool is_newest, Instant now);
  void on_repetition(Path& path, std::uint64_t number, std::size_t bytes, ByteSpan frames, Instant now);
  void note_candidate(Path& path, std::uint64_t number, std::size_t bytes, Instant now);
  void challenge_addresses(Path& path, Instant now);
  void challenge_old_address(Path& path, Instant now);
  void repeat_challenges_later(Path& path, Instant now);
  void challenge_candidate(Path& path, AddressCandidate& candidate, Instant now);
  void send_challenge(Path& path, const Address& to, std::uint64_t value, Instant now);
  void on_path_response(Path& path, std::uint64_t value, Instant now);
  void on_change_timer(Path& path, Instant now);
  void move_path(Path& path, const Address& to, Instant now);
  AddressChange* change_of(const Path& path) { return path.is_changing ? &changes.at(path.id) : nullptr; }
  bool is_witness(const Path& path, std::uint64_t number);
  void owe_response(Path& path, std::uint64_t challenge);
  void forget_change(Path& path);  // the path ends

  // ---- forward.cc: true if the datagram was another engine's, whatever became of it ----
  bool forward(std::uint32_t worker, ByteSpan datagram, const Address& from, std::uint8_t ecn, Standing standing,
               Instant now);
  bool forward_sealed(std::uint32_t path, ByteSpan datagram, const Address& from, std::uint8_t ecn, Instant now);
  bool forward_first(const wire::DecodedFirst& first, ByteSpan datagram, const Address& from, std::uint8_t ecn,
                     Instant now);
  // The sequence of a hello reply: a count, and where several engines have one port, the worker above it.
  std::uint64_t sequence_of(std::uint64_t count) const { return count | sequence_worker << kSequenceBits; }
  bool is_own_sequence(std::uint64_t sequence) const {
    return path_numbers.workers() <= 1 || sequence >> kSequenceBits == sequence_worker;
  }
  std::uint64_t count_of(std::uint64_t sequence) const { return sequence - (sequence_worker << kSequenceBits); }

  // ---- losses.cc ----
  void send_outstanding_again(Path& path, Instant now);
  bool on_ack(Path& path, const wire::AckFrame& frame, Instant now);
  void choose_controller(Path& path, const recovery::AckedBatch& batch);
  void after_loss_report(Path& path, const recovery::LossReport& report, Instant now);
  void on_loss_timer(Path& path, Instant now);
  void repeat_oldest(Path& path, Instant now);
  void on_room(Path& path, Instant now);
  void doubt_incarnation(Path& path, Instant now);
  void doubt_while_confirming(Path& path, Instant now);
  void repeat_hello(Path& path, Instant now);

  // ---- call.cc ----
  void submit(OutgoingCall& call, Instant now);
  void cancel(OutgoingCall& call, Instant now);
  bool shed_for(const OutgoingCall& call, Instant now);
  Verdict on_reply(Path& path, const wire::ReplyFrame& frame, detail::Pin* buffer, Instant now);
  void tell_cancelled(OutgoingCall& call);  // its peer; it holds its slot from then on
  void fail_call(OutgoingCall& call, Code code, const char* sentence, Instant now, bool reached_peer = true);
  static bool may_have_run(const OutgoingCall& call);  // if what was sent of it reached the peer
  // The same, unless the call is patient and certainly did not run: then that waits for another try.
  void fail_or_put_off(OutgoingCall& call, Code code, const char* sentence, Instant now, bool reached_peer = true);
  static constexpr std::uint32_t kNoReply = ~std::uint32_t{0};
  void let_go(OutgoingCall& call,
              std::uint32_t reply_bytes = kNoReply);  // of its slot, timer, queue, reassembly and reply room
  void leave_path(OutgoingCall& call, std::uint32_t reply_bytes);
  void give_reply_room(const OutgoingCall& call) {
    reply_room_used -= reply_room_of(call.max_reply, config.limits.inline_bytes);
    if (!waiting_for_room.empty()) [[unlikely]]
      wake_for_reply_room();
  }
  void wake_for_reply_room();
  void end_room_turn();
  bool has_reply_room(const Path& path, const OutgoingCall& call) {
    if (waiting_for_room.empty() && room_kept_for == kNoPath) [[likely]] {
      return reply_room_used + reply_room_of(call.max_reply, config.limits.inline_bytes) <= config.limits.reply_bytes;
    }
    return has_reply_room_beside_others(path, call);
  }
  [[gnu::noinline]] bool has_reply_room_beside_others(const Path& path, const OutgoingCall& call);
  // A reply that is longer than was reserved for ends its call. So does one that is longer than the call accepts,
  // whether or not its caller has room for it.
  bool is_too_long(const OutgoingCall& call, const wire::ReplyFrame& frame) const {
    if (call.max_reply == wire::kAnyReply) [[likely]]
      return frame.part.total > config.limits.inline_bytes + 2;
    return is_beyond_bound(call, frame);
  }
  [[gnu::noinline]] bool is_beyond_bound(const OutgoingCall& call, const wire::ReplyFrame& frame) const;
  static constexpr const char* kReplyTooLong =
      "the reply is larger than the call accepts: raise CallOptions::max_reply, or let the peer send less";
  std::uint32_t take_slot(Path& path, OutgoingCall& call, Instant now);
  void wait_for_reply_room(Path& path) {
    if (path.waits_for_room) return;
    path.waits_for_room = true;
    waiting_for_room.push_back(path.id);
  }

  void drop_partial_reply(Path& path, OutgoingCall& call);
  void drop_bytes(OutgoingCall& call);

  // ---- hold.cc ----
  void hold(OutgoingCall& call) {
    call.state = OutgoingCall::State::held;
    held.push_back(call, call.priority);
  }
  void release(OutgoingCall& call, Instant now);
  void on_request_acked(Path& path, const SentFrame& frame);
  void on_sent(OutgoingCall& call);
  void stop_telling(OutgoingCall& call);

  // ---- write.cc ----
  LargePath& large_of(Path& path);
  // What was lent. Packets that are on their way out may still be sent from it.
  void release_later(buffer::Sealed* sealed, buffer::PieceRange pieces) { sent_ranges.push_back({sealed, pieces}); }
  // Some of them: so many pieces in one turn, since each goes back to its memory on its own.
  static constexpr std::uint32_t kMaxReleasedPieces = 256;
  void release_sent_ranges();
  void drop_cargo(transfer::Block* block);
  bool begin_writing(Path& path, OutgoingCall& call, Instant now);
  void start_writing(Path& path, transfer::Writer& writer, std::uint64_t region);
  void stop_writing(Path& path, transfer::Writer& writer);
  void release_writer(Path& path, transfer::Writer& writer);
  void ask_again(Path& path, const transfer::Writer& writer);
  void on_pause_timer(transfer::Writer& writer);
  void release_writer_of(Path& path, OutgoingCall& call) {
    if (transfer::Writer* writer = transfer::Cargo::of(call.block).writer) release_writer(path, *writer);
  }
  transfer::Writer* find_writer(Path& path, wire::Side side, wire::TransferId id);
  void on_grant(Path& path, const wire::GrantFrame& frame, Instant now);
  void on_revoke(Path& path, const wire::RevokeFrame& frame, Instant now);
  void on_transfer_ack(Path& path, const wire::SideFrame& frame);
  Verdict on_range_ack(Path& path, const wire::RangeAckFrame& frame);
  static bool may_write_again(transfer::Cargo& cargo);  // from its beginning
  void give_up_writing(Path& path, transfer::Writer& writer, Instant now);
  void drop_large_reply(IncomingTransfer& transfer);
  void give_up_reply(Path& path, IncomingSlot& slot);
  void arm_writer_timer(transfer::Writer& writer, Instant now);
  void on_writer_timer(transfer::Writer& writer, Instant now);
  // Takes over the reference on `sealed`.
  void answer_large(IncomingTransfer& transfer, buffer::Sealed* sealed, transfer::CargoRange range, Pattern pattern,
                    ByteSpan header, Instant now);

  // ---- slices.cc ----
  struct Slice {
    transfer::Writer* writer = nullptr;
    std::uint64_t offset = 0;
    std::uint32_t length = 0;  // at most
    bool is_again = false;
  };
  static bool has_slices(const Path& path) {
    return path.large != nullptr && (!path.large->writing.empty() || !path.large->again.empty());
  }
  bool next_slice(Path& path, Slice& slice);
  void set_rest_aside(LargePath& large, transfer::Writer& writer, std::uint32_t length);
  static ByteSpan whole_slice(const Slice& slice);
  static std::uint64_t slice_with_tag(const Slice& slice);
  void advance_slice(Path& path, const Slice& slice, std::uint32_t length);
  void pack_slices(Path& path, std::vector<Train>& out, Instant now);
  void seal_slice(Path& path, std::byte* packet, std::byte* text, std::byte* end, ByteSpan slice,
                  recovery::SentPacket record, Instant now);

  // ---- arrive.cc ----
  // One of `transfer` and `call` is there.
  Verdict begin_arrival(Path& path, IncomingTransfer* transfer, OutgoingCall* call, wire::TransferId id,
                        ByteSpan opening, Instant now);
  Verdict begin_arrival_of(Path& path, IncomingTransfer& transfer, ByteSpan opening, Instant now);
  bool takes_records(const IncomingTransfer& transfer) const;
  Result<int> check_opening(IncomingTransfer& transfer, const Opening& opening);
  void tell_range(Path& path, token::Region& region);
  void refuse_token(Path& path, std::uint64_t region_id, Instant now);
  bool use_token(Path& path, transfer::Arrival& arrival, Instant now);
  void describe_landing(const transfer::Arrival& arrival, buffer::Landing& landing);
  void place_slice(token::Region& region, const wire::SliceFrame& frame, ByteSpan slice);
  bool bind_region(Path& path, transfer::Arrival& arrival, token::Region& region, Instant now);
  void ask_for_memory(Path& path, transfer::Arrival& arrival, Instant now);
  void wait_for_memory(Path& path, transfer::Arrival& arrival, Instant now);
  transfer::Arrival* find_arrival(Path& path, wire::Side side, wire::TransferId id);
  void on_request_regions(Path& path, const wire::SideFrame& frame, Instant now);
  Verdict on_slice(Path& path, const wire::SliceFrame& frame, ByteSpan slice, Instant now);
  void complete_arrival(Path& path, transfer::Arrival& arrival, token::Region& region, Instant now);
  void acknowledge_transfer(Path& path, wire::Side side, wire::TransferId id);
  void drop_arrival(Path& path, transfer::Arrival& arrival, Instant now);
  static constexpr std::size_t kMaxSentenceBytes = 256;  // of a refusal
  void keep_sentence(IncomingTransfer& transfer, std::string_view sentence);
  void refuse_arrival(Path& path, IncomingTransfer* transfer, OutgoingCall* call, wire::TransferId id, Code code,
                      Instant now);
  void on_arrival_timer(transfer::Arrival& arrival, Instant now);

  // ---- grants.cc ----
  // What memory is granted for.
  struct Room {
    std::uint64_t bytes = 0;
    std::uint32_t record_bytes = buffer::kRecordBytes;
    std::uint8_t purse = 0;
    int numa_node = -1;  // -1: where the engine's is
  };
  buffer::Landing* make_landing(Path& path, const Room& room);
  static void forget_landing(buffer::Landing* landing);
  token::Region* grant_region(Path& path, const Room& room, Instant now);
  std::uint32_t in_flight_promise(const Path& path) const;
  bool may_grant(Instant now);
  void begin_write(const Path& path, transfer::Arrival& arrival);
  void end_write(transfer::Arrival& arrival);
  void end_write_soon(Path& path, const token::Region& region);
  void tell_share(Path& path, std::uint64_t region);
  void tell_shares();
  void on_first_bytes(Path& path, const token::Region& region, Instant now);
  void on_pace_timer(Instant now);
  void leave_line(Path& path, token::Ask& ask);
  void serve_held_asks(Instant now);
  void serve_asks(Instant now);
  bool may_serve_awaited() const;
  bool serve_if_awaited(Path& path, transfer::Arrival& arrival, Instant now);
  void serve_awaited(Instant now);
  void grant_token(Path& path, const transfer::Arrival& like, Instant now);
  void revoke_spare_tokens(Instant now);
  void revoke_region(Path& path, token::Region& region, Instant now);
  void begin_receiving(Path& path, Instant now);
  void end_speculation(Path& path);
  void arm_regions_timer();
  void on_regions_timer(Instant now);
  bool may_stay(Path& path, token::Region& region, token::RegionTable::Due due, Instant now);
  void end_large(Path& path, Instant now);
  void take_returned(Instant now);

  // ---- patience.cc ----
  void fail_queued(Peer& peer, Code code, const char* sentence, Instant now);
  void try_again_later(Peer& peer, Instant now);
  static bool may_pass(Code code);
  bool put_off(OutgoingCall& call, Instant now);
  void retry_delayed(Instant now);
  void wake(Peer& peer, Instant now);

  // ---- serve.cc ----
  Verdict on_request(Path& path, const wire::RequestFrame& frame, detail::Pin* buffer, Instant now);
  bool on_cancel_frame(Path& path, const wire::CancelFrame& frame, Instant now);
  IncomingSlot* incoming_slot(Path& path, std::uint32_t slot) {
    if (slot < path.incoming.size()) [[likely]]
      return &path.incoming[slot];
    return new_incoming_slot(path, slot);
  }
  [[gnu::noinline]] IncomingSlot* new_incoming_slot(Path& path, std::uint32_t slot);  // null: beyond the bound
  void retire(Path& path, IncomingSlot& slot);  // a newer generation, or the path's end
  // `path`: of the transfer, null if that has gone.
  void release_incoming(IncomingTransfer& transfer, Path* path);
  void release_incoming(IncomingTransfer& transfer) { release_incoming(transfer, path_of(transfer)); }
  static std::uint8_t level_of(std::uint8_t depth) { return depth < kMaxDepth ? depth : kMaxDepth; }
  static std::uint8_t level_of(const IncomingTransfer& transfer) { return level_of(transfer.depth); }
  Path* path_of(const IncomingTransfer& transfer);  // null if it has ended
  void dispatch(IncomingTransfer& transfer, Instant now);
  std::size_t deliver(Instant now);
  void queue_delivery(IncomingTransfer& transfer);

  // ---- answer.cc ----
  void answer(IncomingTransfer& transfer, ByteSpan header, ByteSpan body, bool failed, Instant now);
  void send_answer(Path& path, IncomingTransfer& transfer, std::size_t bytes, Instant now);
  void answer_error(IncomingTransfer& transfer, Code code, bool may_have_run, std::string_view sentence, Instant now);
  void answer_too_long(IncomingTransfer& transfer, std::uint64_t bytes, Instant now);
  // `path`: of the transfer, null if that has gone.
  void finish_credit(const IncomingTransfer& transfer, Path* path) {
    if (path == nullptr) [[unlikely]]
      return finish_credit_of_closed(transfer);
    give_credit(*path, level_of(transfer), transfer.cost);
  }
  void finish_credit(const IncomingTransfer& transfer) { finish_credit(transfer, path_of(transfer)); }
  [[gnu::noinline]] void finish_credit_of_closed(const IncomingTransfer& transfer);
  void give_credit(Path& path, std::uint8_t level, std::uint32_t cost);
  void on_reply_acked(Path& path, const SentFrame& frame, Instant now);
  void owe_credit(Path& path);
  void announce_raised();

  // ---- admit.cc ----
  // A complete request: to its handler, or to wait for room for its answer.
  void admit(Path& path, IncomingTransfer& transfer) {
    const std::uint8_t level = level_of(transfer);
    const std::uint32_t room = answer_room_of(transfer);
    if ((requests_waiting != 0 && has_to_line_up(path, level)) ||
        !answers.take(level, path.accounts[level].answers(), room)) [[unlikely]]
      return wait_for_answer_room(path, transfer);
    transfer.answer_room = room;
    queue_delivery(transfer);
  }
  // For the largest answer that its caller accepts.
  std::uint32_t answer_room_of(const IncomingTransfer& transfer) const {
    if (transfer.max_reply == wire::kAnyReply) [[likely]]
      return static_cast<std::uint32_t>(answers.largest());
    return answer_bytes_of(longest_reply_message(transfer.max_reply, config.limits.inline_bytes));
  }
  // Nobody overtakes those of its own member and level who wait, nor any for whom there may be room. Nor does a request
  // with a bound take what is left while others wait for room for the largest answer.
  bool has_to_line_up(Path& path, std::uint8_t level) {
    const WaitingRequests* const waiting = waiting_of(path).get();
    const AnswerLine& line = answer_lines[level];
    return line.has_unseen() || (line.size() != 0 && answers.is_full(level)) ||
           (waiting != nullptr && !waiting->empty(level));
  }
  static std::unique_ptr<WaitingRequests>& waiting_of(Path& path) {
    Member* const member = path.member();
    return member != nullptr ? member->waiting : path.waiting;
  }
  void wait_for_answer_room(Path& path, IncomingTransfer& transfer);
  void stop_waiting(Path& path, IncomingTransfer& transfer);
  void give_answer_room(IncomingTransfer& transfer, Path* path, std::uint32_t keep) {
    const std::uint8_t level = level_of(transfer);
    answers.give_back(level, answers_of(transfer, path), transfer.answer_room - keep);
    transfer.answer_room = keep;
    if (requests_waiting != 0) [[unlikely]] {
      answer_lines[level].forget_seen();
      serve_answer_line(level);
    }
  }
  void serve_answer_line(std::uint8_t level);
  // Requests wait for answer room, and not all of them were looked at since some was given back.
  bool has_unseen_requests() const {
    if (requests_waiting == 0) [[likely]]
      return false;
    for (const AnswerLine& line : answer_lines) {
      if (line.has_unseen()) return true;
    }
    return false;
  }

  // ---- pack.cc ----
  void collect(std::vector<Train>& out, Instant now);
  void order_by_urgency();
  void send_plain_datagrams(std::vector<Train>& out);
  // Anything to send but acknowledgements.
  static bool has_something(const Path& path) {
    return !path.again.empty() || !path.replies.empty() || path.partial != nullptr || path.ping_owed ||
           path.announce_path || path.probe_response_owed || path.probe_wanted || path.credit_levels_owed != 0 ||
           path.responses_owed != 0 || (path.peer != nullptr && path.peer->path == path.id && path.peer->has_queued());
  }
  // Levels of the messages that wait for their turn, a bit each; and of the large ones that are being written.
  static unsigned waiting_levels(const Path& path);
  static unsigned slice_levels(const Path& path) {
    return path.large == nullptr ? 0 : path.large->writing.occupied_levels();
  }
  void pack_path(Path& path, std::vector<Train>& out, Instant now);
  // Whether what is more urgent than the least urgent of these levels, a bit each, may come while a long train is sent.
  bool more_urgent_may_come(unsigned levels, Instant now) const;
  void remember_levels(unsigned levels, Instant now);
  void seal_packet(Path& path, std::byte* packet, std::size_t prefix, std::byte* text, std::byte* end,
                   recovery::SentPacket record, Instant now);
  void rotate_if_due(Path& path);
  void account_sent(Path& path, std::uint64_t number, recovery::SentPacket record, Instant now);
  // After two probe timeouts in a row the peer may be gone: the path takes no turns on a link from others, and what it
  // sends is not waited for.
  static bool sends_probes_only(const Path& path) {
    return path.loss.pto_count() >= kProbesOnlyTimeouts && path.loss.bytes_in_flight() != 0;
  }
  // Whether the link that the path shares lets another packet out. Notes that the path has to wait if not.
  bool has_turn(Path& path, Instant now) {
    const SharedLink& link = links.of(path.link);
    if (!link.is_shared()) [[likely]]
      return true;
    // Its probes show when the peer is there again.
    if (sends_probes_only(path)) return false;
    // Others wait, and this path has much on the way: its acknowledgements let it go on.
    if (!link.line.empty() && link.has_too_much(path.link, path.partial != nullptr)) return false;
    if (turn_of == path.id && link.may_send(now) && (link.has_turn_left() || path.partial != nullptr)) return true;
    is_held_by_link = true;
    return false;
  }
  // Whether a message that does not fit into the next packet may begin in it. What a path has begun it must be able to
  // finish in the same turn: a message in two turns costs its receiver two acknowledgements.
  bool may_begin_part(Path& path) {
    const SharedLink& link = links.of(path.link);
    return link.is_free() || link.line.empty() || !link.has_too_much(path.link, false);
  }
  // Whether the path may begin one more message. When its turn is over it may finish one.
  bool may_begin(Path& path, Instant now) {
    const SharedLink& link = links.of(path.link);
    if (!link.is_shared() || turn_of != path.id || (link.may_send(now) && link.has_turn_left())) [[likely]]
      return true;
    is_held_by_link = true;
    return false;
  }
  void begin_turn(Path& path, bool among_others);
  // Whether the path may send one more request, as far as the replies to all requests on the link allow. Notes that the
  // path has to wait if not.
  bool may_ask(Path& path, Instant now) {
    const SharedLink& link = links.of(path.link);
    if (link.is_free_to_ask() || (asks_now == path.id && link.may_ask(now))) [[likely]]
      return true;
    is_held_by_replies = true;
    return false;
  }
  void send_from(Path& path, std::vector<Train>& out, Instant now);
  void serve_lines(std::vector<Train>& out, Instant now);
  void serve(SharedLink& link, LinkLine& line, std::vector<Train>& out, Instant now);
  bool has_arena() const { return kArenaBytes - arena_used > 2 * config.datagram_bytes; }
  void probe_mtu(Path& path, std::vector<Train>& out, Instant now);

  // ---- nic_turns.cc ----
  // Whether the NIC takes one more packet of the path, which has its turn. end_nic_turn() lets the path wait if not.
  bool has_nic_room(std::size_t bytes, Instant now) {
    return nic == nullptr || nic->has_room(bytes, events.counters, now);
  }
  bool waits_for_nic(const Path& path) const {
    return nic != nullptr && nic->is_waiting(path_numbers.index_of(path.id));
  }
  void end_nic_turn(Path& path, Instant now);
  void serve_nic_line(std::vector<Train>& out, Instant now);

  // ---- clock.cc ----
  void touch(Path& path) {
    if (!path.touched) {
      path.touched = true;
      touched.push_back(path.id);
    }
  }
  void on_timeout(Instant now);
  void note_absence(Instant now);
  void on_deadline(OutgoingCall& call, Instant now);
  void on_path_timer(Path& path, Instant now);
  void note_app_limit(Path& path);
  void update_timer(Path& path, Instant now);
  Duration idle_limit(const Path& path) const;
  // How long a path that waits neither sends nor hears anything before it says something.
  Duration keepalive_of(const Path& path) const;
  // Something is owed by the other side: replies, acknowledgements, the rest of a request.
  static bool is_waiting(const Path& path) {
    return path.outstanding != 0 || path.loss.eliciting_in_flight() != 0 || path.receiving != 0;
  }
  // Ends a path. Calls from generation `unseen` on never reached the peer: they go back to the queue if `requeue`, or
  // fail as not having run. The others fail with `code`.
  void end_path(Path& path, Code code, const char* sentence, bool requeue, Instant now, std::uint64_t unseen = ~0ull);
  // Says how the peer is that this path leads to, unless another path leads there by now.
  void tell_health(const Path& path, event::PeerHealth health) {
    if (path.peer == nullptr || path.peer->path != path.id) return;
    events.emit(event::PeerHealthChanged{{}, path.id, path.peer->name, health});
  }
  void send_close(Path& path, wire::CloseReason reason, Instant now);
  bool say_farewell_again(std::uint32_t path, std::size_t bytes, const Address& from, Instant now);
  void close(Instant now);

  // ---- evict.cc: closes an idle path that others made; false if there is none ----
  bool evict_for_path(Member* of, Instant now);  // of this member, if that is not null
  void evict_for_credit(Path& blocked, std::uint8_t level, Instant now);
  template <class MayGo>
  bool evict_holder(Instant& last, const Path& blocked, std::uint8_t level, bool is_clogged, Instant now,
                    MayGo&& may_go);
  std::uint64_t parts_in_line(const Path& but, std::uint8_t level, const Member* of);
  template <class IsBetter>
  bool evict_idle_path(Instant& last, Instant now, IsBetter&& is_better);

  // ---- members ----
  // Of a request whose path has gone: null if there are no members.
  Member* member_left_by(const IncomingTransfer& transfer) { return members.find(transfer.caller->member()); }
  // What an answer's room counts against; `path`: of its request, null if that has gone.
  token::AnswerShare* answers_of(const IncomingTransfer& transfer, Path* path) {
    const std::uint8_t level = level_of(transfer);
    if (path != nullptr) [[likely]]
      return &path->accounts[level].answers();
    Member* const member = member_left_by(transfer);
    return member != nullptr ? &(*member)[level].answers : nullptr;
  }
  // A path, or what it has of large messages, has gone.
  void leave(Member& member) {
    WEIR_CHECK(member.references != 0, "a member has left more often than it has joined");
    --member.references;
    forget_if_unused(member);
  }
  void forget_if_unused(Member& member) {
    if (member.references != 0 || !member.is_unused()) [[likely]]
      return;
    if (member.large != nullptr) grants.close(*member.large);
    members.forget(member);
  }

  Path* find_path(std::uint32_t id) {
    Path* path = paths.at(path_numbers.index_of(id));
    return path != nullptr && path->id == id ? path : nullptr;
  }
  Path* path_of(Peer& peer) { return peer.path == kNoPath ? nullptr : find_path(peer.path); }

  EngineConfig config;
  crypto::Entropy& entropy;
  event::Sink events;
  Random random;
  std::unique_ptr<crypto::Aead> aead;
  crypto::Incarnation incarnation{};
  std::optional<SharedSecretMode> shared;        // none in identity mode
  std::unique_ptr<crypto::Cmac> scratch_mac;     // takes a credential's key, for one datagram
  std::unique_ptr<crypto::AeadKey> scratch_key;  // takes whatever key is needed once
  schedule::TimingWheel wheel;
  transfer::BlockPool blocks;
  const PathNumbers path_numbers;
  Slab<Path> paths;
  Members members;  // identity mode
  Slab<Peer> peers;
  Slab<IncomingTransfer> incoming;
  Slab<transfer::Reassembly> reassemblies;
  Slab<transfer::Writer> writers;
  Slab<transfer::Arrival> arrivals;
  std::unordered_map<Address, std::uint32_t, AddressHash> peers_by_address;  // shared-secret mode
  std::unordered_map<RemotePath, std::uint32_t, RemotePathHash> open_paths;  // identity mode: ours, by their numbers
  std::unordered_map<std::uint64_t, Method> methods;
  std::uint64_t last_method = 0;
  const Handler* last_handler = nullptr;
  token::CreditLedger ledger;
  // Of each nested level, as it is in force. All levels together promise at most their part of the socket.
  const std::uint64_t nested_request_bytes =
      ledger.bound_nested(config.limits.nested_request_bytes, inline_promise(config.receive_buffer_bytes));
  // A failed answer is two bytes longer than its sentence.
  token::AnswerRoom answers{config.limits.answer_bytes, answer_bytes_of(config.limits.inline_bytes + 2)};
  AnswerLine answer_lines[token::kLevels];
  std::size_t requests_waiting = 0;  // in all of them

  // ---- large messages ----
  token::GrantLedger grants;
  token::GrantPace grant_pace;
  schedule::Timer pace_timer;    // armed while somebody waits for others to write
  bool has_ended_write = false;  // so that somebody else may begin
  token::RegionTable regions;
  schedule::Timer regions_timer;
  ReturnBox* returned = new ReturnBox;
  std::vector<ReturnBox::Item> returned_now;  // scratch
  struct SentRange {
    buffer::Sealed* sealed;  // lent
    buffer::PieceRange pieces;
  };
  std::vector<SentRange> sent_ranges;  // let go of by whoever sent them; see release_later()
  std::vector<Segment> data_segments;  // of the trains of this collect()
  std::uint32_t writer_serials = 0;
  std::uint32_t spare_tokens = 0;      // granted ahead of need and not used yet
  std::uint64_t large_receivers = 0;   // paths that large messages have come on
  std::uint64_t remote_receivers = 0;  // of these, those that lead to another host
  std::uint64_t messages_opened = 0;   // large ones that were given an Arrival

  // ---- responder ----
  std::unique_ptr<crypto::Prf> cookie;
  struct Exchange {
    std::uint32_t path = kNoPath;  // that it became
    Address hello_from;            // where its random went
  };
  std::unique_ptr<Exchange[]> exchanges;  // by sequence
  std::uint64_t next_sequence = 1;
  std::uint64_t next_path_serial = 1;
  HelloGate hello_gate;
  Instant last_eviction{};
  Absences absences;
  bool is_catching_up = false;  // what comes now has waited while nobody turned this engine

  // ---- engines at the same port ----
  static constexpr unsigned kSequenceBits = 48;
  const std::uint64_t sequence_worker = path_numbers.workers() > 1 ? config.worker : 0;
  Instant forward_window_start{};
  std::uint32_t forwards_of_members = 0, forwards_of_strangers = 0;
  bool is_forwarded = false;  // the datagram that is being looked at

  // The packet whose frames are being taken.
  struct Opened {
    std::uint64_t number = 0;
    const Address* from = nullptr;
    bool is_newest = false;
  };
  Opened opened;

  // ---- addresses that change: of few paths, so not in these ----
  std::unordered_map<std::uint32_t, AddressChange> changes;                    // by path: responders
  std::unordered_map<std::uint32_t, std::array<std::uint64_t, 2>> challenges;  // initiators: that are not answered yet

  // ---- lost state ----
  std::unique_ptr<crypto::Prf> signer;
  std::unique_ptr<crypto::Prf> reset_prf;  // takes whatever reset key is needed
  Instant unknown_window_start{};
  std::uint32_t unknowns_in_window = 0;
  std::vector<Wanted> wanted;

  // ---- links that paths share ----
  SharedLinks links;
  std::uint32_t turn_of = kNoPath;   // the path that has its turn now
  std::uint32_t asks_now = kNoPath;  // the same, to send requests
  bool is_held_by_link = false;      // the path that is being packed
  bool is_held_by_replies = false;   // its next request
  schedule::Timer link_timer;        // for turns that wait for time alone
  std::unique_ptr<NicTurns> nic;     // null: what carries the packets has no rate

  // ---- work ----
  const ForkGuard fork_guard;            // a forked child delivers, seals and sends nothing
  std::vector<std::uint32_t> touched;    // paths to look at in collect()
  std::vector<std::uint32_t> held_asks;  // paths in which some may be asked for now
  std::vector<std::uint32_t> touching;   // scratch: the round under way
  std::vector<std::uint32_t> ordered;    // scratch of order_by_urgency()
  std::vector<std::uint8_t> urgencies;   // the same
  std::vector<Completion> completions;
  std::vector<Completion> completing;       // scratch
  std::vector<transfer::Block*> sentences;  // of failures that others described, until they are delivered
  IncomingTransfer* deliveries[8] = {};     // per priority: first
  IncomingTransfer* deliveries_last[8] = {};
  std::uint32_t delivery_levels = 0;
  std::size_t requests_queued = 0;  // in all of them
  std::unique_ptr<std::byte[]> arena;
  std::size_t arena_used = 0;
  std::array<Instant, schedule::kPriorityLevels> level_recent_until{};  // kUrgencyMemory after its last message
  bool cut_short = false;  // the last collect() ended a train early, because more urgent work may come
  struct Plain {           // hellos, replies to hellos and closing packets
    Address to;
    std::uint32_t begin, size;
  };
  std::vector<Plain> plain;
  std::vector<std::byte> plain_bytes;
  static constexpr std::size_t kMaxPlainBytes = 1u << 20;
  static constexpr std::size_t kPlainBytesPerTurn = 64 * 1024;
  struct Farewell {  // the closing packet of a path that is gone
    std::uint32_t path = kNoPath;
    Address to;
    Instant last_sent{};
    std::array<std::byte, wire::kHeaderBytes + 10 + wire::kTagBytes> packet{};
  };
  static constexpr std::size_t kFarewells = 1024;  // hashed: a newer one may take the place of an older one
  static constexpr Duration kFarewellInterval = std::chrono::milliseconds(1);
  std::unique_ptr<Farewell[]> farewells;
  Farewell& farewell_of(std::uint32_t path) { return farewells[(path * 0x9e3779b1u >> 16) % kFarewells]; }
  std::size_t reply_room_used = 0;
  std::vector<std::uint32_t> waiting_for_room;  // paths with a call that found no room for its reply
  std::uint32_t room_kept_for = kNoPath;        // a path that was woken and has not looked yet
  std::uint32_t room_turns = 0;
  std::vector<OutgoingCall*> delayed;  // patient calls between two tries
  schedule::Timer retry_timer;
  schedule::WeightedQueue<OutgoingCall, &OutgoingCall::hook> held;  // not to be sent before release()
  // Of requests that travel in fragments, and of which somebody is to be told: what the peer has of them.
  std::unordered_map<const OutgoingCall*, transfer::ByteRanges> partly_acked;
  std::uint32_t calls_telling = 0;  // whose requests the peers do not have yet
  std::uint32_t calls_queued = 0;   // the delayed and the held ones included
  // Where calls to be shed are looked for: the peer that was last given a call of this priority, and others in turn.
  static constexpr std::uint32_t kShedLooks = 16;
  std::array<std::uint32_t, schedule::kPriorityLevels> last_given{};
  std::uint32_t next_shed_look = 0;
  std::uint32_t calls_sent = 0;
  bool closed = false;
};

}  // namespace weir::engine
