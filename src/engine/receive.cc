// From a datagram to its frames. A stranger's datagram costs at most one tag check: no derivation, no allocation.
#include <cstring>
#include <type_traits>

#include "engine/core.h"
#include "engine/vouched_sources.h"

namespace weir::engine {

using event::Rejection;

namespace {

// Asked of every packet: the compiler makes no function call of this, as it does of operator==.
bool is_same(const Address& a, const Address& b) {
  static_assert(std::has_unique_object_representations_v<Address>);
  return std::memcmp(&a, &b, sizeof a) == 0;
}

}  // namespace

void Core::reject(Rejection reason, std::size_t bytes) {
  events.emit(event::PacketRejected{{}, reason, static_cast<std::uint32_t>(bytes)});
}

template <bool kIsForwarded>
void Core::on_datagram(MutableByteSpan datagram, const Address& from, std::uint8_t ecn, detail::Pin* buffer,
                       Instant now) {
  ++events.counters.packets_received;
  events.counters.bytes_received += datagram.size();
  if (datagram.size() < wire::kMinPacketBytes) {
    if (datagram.size() == wire::kUnknownPathBytes && datagram[0] == wire::kUnknownPathByte) {
      return on_unknown_path(datagram, from, now);
    }
    return reject(Rejection::truncated, datagram.size());
  }
  const wire::PacketHeader header = wire::decode_header(datagram.data());
  switch (header.type) {
    case wire::PacketType::sealed: {
      if constexpr (!kIsForwarded) {
        if (!path_numbers.is_own(header.path) && forward_sealed(header.path, datagram, from, ecn, now)) [[unlikely]]
          return;
      }
      Path* path = find_path(header.path);
      if (path == nullptr || !path->keys.installed()) {
        if (!say_farewell_again(header.path, datagram.size(), from, now)) answer_unknown_path(header, from, now);
        return reject(Rejection::unknown_path, datagram.size());
      }
      open_sealed(*path, header, datagram, wire::kHeaderBytes, from, ecn, buffer, now);
      return;
    }
    case wire::PacketType::first:
      return on_first(datagram, from, ecn, buffer, now);
    case wire::PacketType::hello:
      if (datagram[0] == wire::kUnknownSecretByte) return on_unknown_secret(datagram, from, now);
      return on_hello(datagram, from, now);
    case wire::PacketType::hello_reply:
      return on_hello_reply(datagram, from, now);
  }
}

template void Core::on_datagram<false>(MutableByteSpan, const Address&, std::uint8_t, detail::Pin*, Instant);
template void Core::on_datagram<true>(MutableByteSpan, const Address&, std::uint8_t, detail::Pin*, Instant);

bool Core::open_sealed(Path& path, const wire::PacketHeader& header, MutableByteSpan datagram, std::size_t aad,
                       const Address& from, std::uint8_t ecn, detail::Pin* buffer, Instant now) {
  if (has_ended(path, now)) [[unlikely]] {
    reject(Rejection::unknown_path, datagram.size());
    return false;
  }
  const PathKeys::Which which = path.keys.recognise(header.key_low);
  if (which == PathKeys::Which::unknown) {
    reject(Rejection::unknown_key, datagram.size());
    return false;
  }
  const std::uint64_t number = peer::expand(header.number_low, path.replay.largest());
  const peer::Freshness freshness = path.replay.check(number);
  bool is_repetition = false;
  if (freshness != peer::Freshness::fresh) [[unlikely]] {
    // Of a copy and its original one comes second. While an address may be changing, that one is looked at, too.
    is_repetition = path.is_changing && freshness == peer::Freshness::seen && is_witness(path, number);
    if (!is_repetition) {
      reject(freshness == peer::Freshness::seen ? Rejection::replayed : Rejection::too_old, datagram.size());
      return true;  // says nothing about who sent the original
    }
  }
  MutableByteSpan text;
  ByteSpan authenticated = datagram.first(aad);
  ByteSpan slice;
  std::uint32_t domain = 0;
  if (header.is_data && header.type == wire::PacketType::sealed) {
    constexpr std::size_t kTextAt = wire::kHeaderBytes + wire::kTextLengthBytes;
    const std::size_t text_bytes = load<std::uint16_t>(datagram.data() + wire::kHeaderBytes);
    if (kTextAt + text_bytes + wire::kTagBytes >= datagram.size()) {
      reject(Rejection::truncated, datagram.size());
      return false;
    }
    text = datagram.subspan(kTextAt, text_bytes);
    authenticated = slice = datagram.subspan(kTextAt + text_bytes + wire::kTagBytes);
    domain = wire::kDataNonceDomain;
  } else {
    text = datagram.subspan(aad, datagram.size() - aad - wire::kTagBytes);
  }
  crypto::AeadKey& key = path.keys.receive_key(which, *scratch_key);
  if (!key.open(crypto::make_nonce(domain, number), authenticated, text, text.data() + text.size())) {
    reject(Rejection::forged, datagram.size());
    return false;
  }
  if (is_repetition) [[unlikely]] {
    opened = {number, &from, false};
    on_repetition(path, number, datagram.size(), text, now);
    reject(Rejection::replayed, datagram.size());
    return true;
  }
  // From here on the sender is who it claims to be; it may still be hostile.
  if (is_forwarded) [[unlikely]]
    config.siblings->vouched().add(path.id, from);
  const bool is_newest = !path.ever_received || number > path.replay.largest();
  if (path.initiator || grant_pace.is_measured()) note_missing(path, number);
  path.replay.mark(number, now);
  path.keys.on_opened(which);
  path.last_received = now;
  if (!path.ever_received) [[unlikely]]
    on_first_sealed(path, now);
  if (path.probing) [[unlikely]] {
    path.probing = false;
    tell_health(path, event::PeerHealth::healthy);
  }
  if (ecn != 0) {
    path.received_any_ecn = true;
    if (ecn == static_cast<std::uint8_t>(recovery::EcnMark::ce)) {
      ++path.received_ecn.ce;
      ++events.counters.ecn_marks;
      if (grant_pace.is_measured()) grant_pace.on_marked(slice.size());
    } else if (ecn == static_cast<std::uint8_t>(recovery::EcnMark::ect0)) {
      ++path.received_ecn.ect0;
    } else {
      ++path.received_ecn.ect1;
    }
  }
  opened = {number, &from, is_newest};
  if (!path.initiator && (path.is_changing || !is_same(from, path.remote))) [[unlikely]]
    on_source(path, number, datagram.size(), is_newest, now);
  const std::uint32_t id = path.id;
  bool ack_eliciting = false;
  const Verdict verdict = on_frames(path, text, slice, ack_eliciting, buffer, now);
  if (verdict == Verdict::violation) {
    reject(Rejection::malformed_frame, datagram.size());
    if (Path* still = find_path(id); still != nullptr) {
      tell_health(*still, event::PeerHealth::failed);
      send_close(*still, wire::CloseReason::violation, now);
      end_path(*still, Code::reset, "the peer broke the protocol", false, now);
    }
    return true;
  }
  if (find_path(id) == nullptr) return true;     // a close frame ended it
  if (verdict == Verdict::not_now) return true;  // not acknowledged
  path.received.insert(number);
  if (number == path.received.largest()) path.largest_received_at = now;
  path.ack_policy.on_received(number, datagram.size(), ack_eliciting,
                              ecn == static_cast<std::uint8_t>(recovery::EcnMark::ce), now);
  touch(path);
  return true;
}

// What is missing between two packets of a peer says how full the way from there is.
void Core::note_missing(Path& path, std::uint64_t number) {
  const std::uint64_t largest = path.replay.largest();
  if (number == largest + 1 || !path.ever_received) [[likely]]
    return;
  if (number < largest) return count_missing(path, -1);
  const std::uint64_t missing = std::min<std::uint64_t>(number - largest - 1, kMostMissing);
  // Some of the first packets may have asked for the MTU.
  if (missing <= kMostProbesInARow && number < kFirstPackets) return;
  count_missing(path, static_cast<std::int64_t>(missing));
}

// Of those who call only what they write says something: their requests are held back by their own windows.
void Core::count_missing(Path& path, std::int64_t packets) {
  if (path.initiator) links.on_missing(path.link, packets);
  if (!grant_pace.is_measured() || path.large == nullptr || path.large->arrivals == 0) return;
  grant_pace.on_missing(packets, path.large->grant_losses);
}

Core::Verdict Core::on_frames(Path& path, ByteSpan frames, ByteSpan slice, bool& ack_eliciting, detail::Pin* buffer,
                              Instant now) {
  const std::byte* at = frames.data();
  const std::byte* const end = at + frames.size();
  // What there is no room for does not hold back what comes after it: that may be the rest of a request that has its
  // room already, and whose answer makes room for the others.
  Verdict result = Verdict::fine;
  while (at != end) {
    std::uint64_t value = 0;
    std::uint8_t level = 0;
    switch (static_cast<wire::FrameType>(*at)) {
      case wire::FrameType::bounded_request:
      case wire::FrameType::bounded_large_request:
      case wire::FrameType::large_request:
      case wire::FrameType::request: {
        wire::RequestFrame frame;
        at = wire::decode(at, end, frame);
        if (at == nullptr || path.initiator) return Verdict::violation;  // who is called on a path does not call on it
        const Verdict verdict = on_request(path, frame, buffer, now);
        if (verdict != Verdict::fine) [[unlikely]] {
          if (verdict == Verdict::violation) return verdict;
          result = verdict;
        }
        ack_eliciting = true;
        break;
      }
      case wire::FrameType::large_reply:
      case wire::FrameType::reply: {
        wire::ReplyFrame frame;
        at = wire::decode(at, end, frame);
        if (at == nullptr) return Verdict::violation;
        const Verdict verdict = on_reply(path, frame, buffer, now);
        if (verdict != Verdict::fine) [[unlikely]] {
          if (verdict == Verdict::violation) return verdict;
          result = verdict;
        }
        ack_eliciting = true;
        break;
      }
      case wire::FrameType::ack: {
        wire::AckFrame frame;
        at = wire::decode(at, end, frame);
        if (at == nullptr || !on_ack(path, frame, now)) return Verdict::violation;
        break;
      }
      case wire::FrameType::credit:
        at = wire::decode_level(at, end, level, value);
        if (at == nullptr || level >= token::kLevels) return Verdict::violation;
        if (path.credit[level].raise(value)) on_room(path, now);
        ack_eliciting = true;
        break;
      case wire::FrameType::slice:
      case wire::FrameType::last_slice: {
        wire::SliceFrame frame;
        at = wire::decode(at, end, frame);
        if (at == nullptr) return Verdict::violation;
        const Verdict verdict = on_slice(path, frame, std::exchange(slice, {}), now);
        if (verdict == Verdict::violation) return verdict;
        if (verdict == Verdict::not_now) result = verdict;
        ack_eliciting = true;
        break;
      }
      case wire::FrameType::ping:
        ++at;
        ack_eliciting = true;
        break;
      case wire::FrameType::padding:
        return result;
      case wire::FrameType::close:
        return on_close_frame(path, at, end, now) ? Verdict::fine : Verdict::violation;
      default:
        at = on_control_frame(path, at, end, ack_eliciting, now);
        if (at == nullptr) return Verdict::violation;
    }
  }
  return result;
}

// Frames that are few beside requests, replies and slices. Where the next frame begins; null: a violation.
const std::byte* Core::on_control_frame(Path& path, const std::byte* at, const std::byte* end, bool& ack_eliciting,
                                        Instant now) {
  std::uint64_t value = 0;
  switch (static_cast<wire::FrameType>(*at)) {
    case wire::FrameType::cancel: {
      wire::CancelFrame frame;
      at = wire::decode(at, end, frame);
      if (at == nullptr || !on_cancel_frame(path, frame, now)) return nullptr;
      break;
    }
    case wire::FrameType::blocked: {
      wire::BlockedFrame frame;
      at = wire::decode(at, end, frame);
      if (at == nullptr || frame.level >= token::kLevels) return nullptr;
      on_blocked(path, frame, now);
      break;
    }
    case wire::FrameType::probe:
      at = wire::decode_u64(at, end, value);
      if (at == nullptr) return nullptr;
      path.probe_response_owed = true;
      path.probe_timestamp = value;
      break;
    case wire::FrameType::probe_response:
      at = wire::decode_u64(at, end, value);
      if (at == nullptr) return nullptr;
      break;
    case wire::FrameType::path_challenge:
      at = wire::decode_u64(at, end, value);
      if (at == nullptr || !path.initiator) return nullptr;
      owe_response(path, value);
      path.probes_owed = std::max<std::uint8_t>(path.probes_owed, 1);  // whatever the window says
      return at;  // asks for no acknowledgement: the response is one
    case wire::FrameType::path_response:
      at = wire::decode_u64(at, end, value);
      if (at == nullptr || path.initiator) return nullptr;
      on_path_response(path, value, now);
      break;
    case wire::FrameType::flow_reset: {
      at = wire::decode_u64(at, end, value);
      if (at == nullptr) return nullptr;
      const wire::TransferId id = wire::TransferId::unpack(value);
      if (id.slot < path.calls.size() && path.calls[id.slot] != nullptr &&
          path.calls[id.slot]->generation == id.generation) {
        fail_or_put_off(*path.calls[id.slot], Code::reset, "the peer no longer knows this transfer", now);
      }
      break;
    }
    case wire::FrameType::path: {
      wire::PathFrame frame;
      at = wire::decode(at, end, frame);
      if (at == nullptr || !path.initiator) return nullptr;
      on_path_frame(path, frame);
      break;
    }
    case wire::FrameType::retire_control_key: {
      wire::RetireFrame frame;
      at = wire::decode(at, end, frame);
      if (at == nullptr || !path.keys.on_retired(frame, *scratch_key)) return nullptr;
      break;
    }
    case wire::FrameType::region_grant: {
      wire::GrantFrame frame;
      at = wire::decode(at, end, frame);
      if (at == nullptr) return nullptr;
      on_grant(path, frame, now);
      break;
    }
    case wire::FrameType::region_revoke: {
      wire::RevokeFrame frame;
      at = wire::decode(at, end, frame);
      if (at == nullptr) return nullptr;
      on_revoke(path, frame, now);
      break;
    }
    case wire::FrameType::region_exhausted:
    case wire::FrameType::request_regions:
    case wire::FrameType::transfer_ack: {
      const auto type = static_cast<wire::FrameType>(*at);
      wire::SideFrame frame;
      at = wire::decode(at, end, frame);
      if (at == nullptr) return nullptr;
      on_side_frame(path, type, frame, now);
      break;
    }
    case wire::FrameType::range_ack: {
      wire::RangeAckFrame frame;
      at = wire::decode(at, end, frame);
      if (at == nullptr || on_range_ack(path, frame) == Verdict::violation) return nullptr;
      break;
    }
    default:
      return nullptr;
  }
  ack_eliciting = true;
  return at;
}

// The path is gone afterwards. False: a violation.
bool Core::on_close_frame(Path& path, const std::byte* at, const std::byte* end, Instant now) {
  std::uint64_t value = 0;
  std::uint8_t level = 0;
  if (wire::decode_level(at, end, level, value) == nullptr ||
      level > static_cast<std::uint8_t>(wire::CloseReason::violation)) {
    return false;
  }
  const auto reason = static_cast<wire::CloseReason>(level);
  const std::uint64_t unseen = value > wire::kMaxGeneration ? value : value + 1;
  tell_health(path, event::PeerHealth::closed);
  end_path(
      path, reason == wire::CloseReason::violation ? Code::reset : Code::peer_failed,
      reason == wire::CloseReason::violation ? "the peer ended the path: we broke the protocol" : "the peer closed",
      reason == wire::CloseReason::idle, now, unseen);
  return true;
}

void Core::on_side_frame(Path& path, wire::FrameType type, const wire::SideFrame& frame, Instant now) {
  if (type == wire::FrameType::request_regions) return on_request_regions(path, frame, now);
  if (type == wire::FrameType::transfer_ack) return on_transfer_ack(path, frame);
  // The receiver keeps our place in its line; there is nothing to do but to say so.
  if (find_writer(path, frame.side, frame.id) != nullptr) {
    events.emit(event::MemoryAwaited{{}, path.id, frame.id.packed(), std::chrono::microseconds(frame.value)});
  }
}

void Core::on_path_frame(Path& path, const wire::PathFrame& frame) {
  if (path.state != Path::State::confirming) {
    // Said again: our address has changed, and the reset key with it.
    if (frame.path == path.remote_id && opened.is_newest) path.reset_key = frame.reset_key;
    return;
  }
  path.remote_id = frame.path;
  path.reset_key = frame.reset_key;
  path.state = Path::State::open;
  path.confirming.reset();
  if (!path.peer->saying_hello()) path.peer->random.reset();
  // Whoever had this number at this address before is gone.
  if (has_identity()) open_paths.insert_or_assign({path.remote, path.remote_id}, path.id);
  path.peer->failures = 0;
  ++events.counters.handshakes_completed;
  tell_health(path, event::PeerHealth::healthy);
}

void Core::on_blocked(Path& path, const wire::BlockedFrame& frame, Instant now) {
  token::CreditAccount& account = path.accounts[frame.level];
  const std::uint64_t limit = account.limit();
  ledger.on_blocked(account, frame.needed, frame.priority);
  if (account.limit() != limit) path.note_use(now);
  // Idle paths keep what they were promised. Closing one gives it back; its peer connects again when it has to.
  evict_for_credit(path, frame.level, now);
  announce_raised();
  account.announce_again();  // its view may be older than what we last told
  path.credit_levels_owed |= static_cast<std::uint8_t>(1u << frame.level);
}

}  // namespace weir::engine
