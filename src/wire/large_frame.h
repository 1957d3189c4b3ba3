// Frames of large messages (docs/protocol.md, rules G-*): what opens one, what grants, takes back and acknowledges the
// memory that it is written into, and the slices of ciphertext that data packets carry.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/bytes.h"
#include "weir/pattern.h"
#include "wire/frame.h"

namespace weir::wire {

// A region: memory of a receiver's that one sender may write into (G-4). Slot in the low 24 bits, generation in the
// high 40.
inline constexpr std::uint64_t kNoRegion = 0;

// Whose bytes a frame speaks of, within its path.
enum class Side : std::uint8_t {
  request = 0,  // of the transfer's request, which the initiator writes
  reply = 1,    // of its reply, which the responder writes
  none = 2,     // of no transfer yet: a token that the sender may keep
};

// Patterns above this one nobody has ever heard of; those between it and the last that has a name are set aside.
inline constexpr auto kLastPattern = static_cast<Pattern>(6);

// How the bytes of a large_request or large_reply frame begin (G-2); the message's header follows.
struct CargoFrame {
  std::uint64_t body_bytes = 0;
  std::uint64_t region = kNoRegion;  // that it is written into already; kNoRegion: it asks for one
  std::uint64_t payload_bytes = 0;   // of the whole payload that these are records of; adopted: the binding's length
  std::uint64_t first_record = 0;    // adopted: the binding's offset
  std::uint32_t record_bytes = 0;
  bool adopted = false;              // sealed by the application: `key` is a digest of its binding
  bool wants_token = false;          // the sender would have use for another token of this size
  Pattern pattern = Pattern::unary;  // up to kLastPattern
  std::array<std::byte, 16> key{};
};
inline constexpr std::size_t kCargoBytes = 56;
inline constexpr std::size_t kCargoKeyOffset = 40;
inline constexpr std::size_t kCargoRegionOffset = 8;  // where `region` is: it may become known after the rest

// G-5.
struct SliceFrame {
  std::uint64_t region = 0;
  std::uint32_t record = 0;        // counted from the message's first one
  std::uint16_t offset = 0;        // in the record
  const std::byte* tag = nullptr;  // of the record, if the slice ends it
};
inline constexpr std::size_t kSliceBytes = 15;
inline constexpr std::size_t kSliceTagBytes = 16;

// G-4.
struct GrantFrame {
  Side side = Side::none;
  TransferId id;
  std::uint64_t region = 0;
  std::uint64_t capacity = 0;
  std::uint32_t lifetime_ms = 0;
  std::uint32_t in_flight_bytes = 0;  // so much of all its data may this sender have on the way at once
};
inline constexpr std::size_t kGrantBytes = 1 + 1 + 8 + 8 + 8 + 4 + 4;

// G-9.
struct RevokeFrame {
  Side side = Side::none;
  TransferId id;
  std::uint64_t region = 0;
};
inline constexpr std::size_t kRevokeBytes = 1 + 1 + 8 + 8;

// G-10. request_regions, transfer_ack: `value` is unused; region_exhausted: microseconds after which asking again makes
// sense.
struct SideFrame {
  Side side = Side::none;
  TransferId id;
  std::uint32_t value = 0;
};
inline constexpr std::size_t kSideBytes = 1 + 1 + 8 + 4;

// G-12. The first `bytes` of the message are there.
struct RangeAckFrame {
  Side side = Side::none;
  TransferId id;
  std::uint64_t region = 0;  // that they were written into
  std::uint64_t bytes = 0;
};
inline constexpr std::size_t kRangeAckBytes = 1 + 1 + 8 + 8 + 8;
static_assert(kRangeAckBytes <= kGrantBytes, "the largest of these frames");

// ---- encoding: the caller has made room ----
inline void encode_cargo(const CargoFrame& frame, std::byte* to) {
  store<std::uint64_t>(to, frame.body_bytes);
  store<std::uint64_t>(to + kCargoRegionOffset, frame.region);
  store<std::uint64_t>(to + 16, frame.payload_bytes);
  store<std::uint64_t>(to + 24, frame.first_record);
  store<std::uint32_t>(to + 32, frame.record_bytes);
  to[36] = static_cast<std::byte>((frame.adopted ? 1 : 0) | (frame.wants_token ? 2 : 0));
  to[37] = static_cast<std::byte>(frame.pattern);
  to[38] = to[39] = std::byte{0};
  std::memcpy(to + 40, frame.key.data(), frame.key.size());
}
// In an opening that is encoded already.
inline void set_wants_token(std::byte* cargo, bool wants_token) {
  cargo[36] = (cargo[36] & ~std::byte{2}) | (wants_token ? std::byte{2} : std::byte{0});
}
inline std::byte* encode(const SliceFrame& frame, std::byte* to) {
  to[0] = static_cast<std::byte>(frame.tag != nullptr ? FrameType::last_slice : FrameType::slice);
  store<std::uint64_t>(to + 1, frame.region);
  store<std::uint32_t>(to + 9, frame.record);
  store<std::uint16_t>(to + 13, frame.offset);
  if (frame.tag == nullptr) return to + kSliceBytes;
  std::memcpy(to + kSliceBytes, frame.tag, kSliceTagBytes);
  return to + kSliceBytes + kSliceTagBytes;
}
inline std::byte* encode(const GrantFrame& frame, std::byte* to) {
  to[0] = static_cast<std::byte>(FrameType::region_grant);
  to[1] = static_cast<std::byte>(frame.side);
  store<std::uint64_t>(to + 2, frame.id.packed());
  store<std::uint64_t>(to + 10, frame.region);
  store<std::uint64_t>(to + 18, frame.capacity);
  store<std::uint32_t>(to + 26, frame.lifetime_ms);
  store<std::uint32_t>(to + 30, frame.in_flight_bytes);
  return to + kGrantBytes;
}
inline std::byte* encode(const RevokeFrame& frame, std::byte* to) {
  to[0] = static_cast<std::byte>(FrameType::region_revoke);
  to[1] = static_cast<std::byte>(frame.side);
  store<std::uint64_t>(to + 2, frame.id.packed());
  store<std::uint64_t>(to + 10, frame.region);
  return to + kRevokeBytes;
}
inline std::byte* encode(FrameType type, const SideFrame& frame, std::byte* to) {
  to[0] = static_cast<std::byte>(type);
  to[1] = static_cast<std::byte>(frame.side);
  store<std::uint64_t>(to + 2, frame.id.packed());
  store<std::uint32_t>(to + 10, frame.value);
  return to + kSideBytes;
}

inline std::byte* encode(const RangeAckFrame& frame, std::byte* to) {
  to[0] = static_cast<std::byte>(FrameType::range_ack);
  to[1] = static_cast<std::byte>(frame.side);
  store<std::uint64_t>(to + 2, frame.id.packed());
  store<std::uint64_t>(to + 10, frame.region);
  store<std::uint64_t>(to + 18, frame.bytes);
  return to + kRangeAckBytes;
}

// ---- decoding: null (or false) if it is cut short or makes no sense ----
inline bool decode_cargo(ByteSpan from, CargoFrame& frame) {
  if (from.size() < kCargoBytes) return false;
  frame.body_bytes = load<std::uint64_t>(from.data());
  frame.region = load<std::uint64_t>(from.data() + kCargoRegionOffset);
  frame.payload_bytes = load<std::uint64_t>(from.data() + 16);
  frame.first_record = load<std::uint64_t>(from.data() + 24);
  frame.record_bytes = load<std::uint32_t>(from.data() + 32);
  const auto flags = static_cast<std::uint8_t>(from[36]);
  frame.adopted = (flags & 1) != 0;
  frame.wants_token = (flags & 2) != 0;
  frame.pattern = static_cast<Pattern>(from[37]);
  std::memcpy(frame.key.data(), from.data() + 40, frame.key.size());
  return flags < 4 && frame.pattern <= kLastPattern;
}
inline const std::byte* decode(const std::byte* at, const std::byte* end, SliceFrame& frame) {
  const bool has_tag = *at == static_cast<std::byte>(FrameType::last_slice);
  const std::size_t bytes = kSliceBytes + (has_tag ? kSliceTagBytes : 0);
  if (static_cast<std::size_t>(end - at) < bytes) return nullptr;
  frame.region = load<std::uint64_t>(at + 1);
  frame.record = load<std::uint32_t>(at + 9);
  frame.offset = load<std::uint16_t>(at + 13);
  frame.tag = has_tag ? at + kSliceBytes : nullptr;
  return at + bytes;
}
inline bool take_side(std::byte from, Side& side, Side largest) {
  side = static_cast<Side>(from);
  return side <= largest;
}
inline const std::byte* decode(const std::byte* at, const std::byte* end, GrantFrame& frame) {
  if (static_cast<std::size_t>(end - at) < kGrantBytes || !take_side(at[1], frame.side, Side::none)) return nullptr;
  frame.id = TransferId::unpack(load<std::uint64_t>(at + 2));
  frame.region = load<std::uint64_t>(at + 10);
  frame.capacity = load<std::uint64_t>(at + 18);
  frame.lifetime_ms = load<std::uint32_t>(at + 26);
  frame.in_flight_bytes = load<std::uint32_t>(at + 30);
  return at + kGrantBytes;
}
inline const std::byte* decode(const std::byte* at, const std::byte* end, RevokeFrame& frame) {
  if (static_cast<std::size_t>(end - at) < kRevokeBytes || !take_side(at[1], frame.side, Side::none)) return nullptr;
  frame.id = TransferId::unpack(load<std::uint64_t>(at + 2));
  frame.region = load<std::uint64_t>(at + 10);
  return at + kRevokeBytes;
}
inline const std::byte* decode(const std::byte* at, const std::byte* end, SideFrame& frame) {
  if (static_cast<std::size_t>(end - at) < kSideBytes || !take_side(at[1], frame.side, Side::reply)) return nullptr;
  frame.id = TransferId::unpack(load<std::uint64_t>(at + 2));
  frame.value = load<std::uint32_t>(at + 10);
  return at + kSideBytes;
}
inline const std::byte* decode(const std::byte* at, const std::byte* end, RangeAckFrame& frame) {
  if (static_cast<std::size_t>(end - at) < kRangeAckBytes || !take_side(at[1], frame.side, Side::reply)) return nullptr;
  frame.id = TransferId::unpack(load<std::uint64_t>(at + 2));
  frame.region = load<std::uint64_t>(at + 10);
  frame.bytes = load<std::uint64_t>(at + 18);
  return frame.region != kNoRegion && frame.bytes != 0 ? at + kRangeAckBytes : nullptr;
}

}  // namespace weir::wire
