// Frames: the messages inside a sealed packet (docs/protocol.md, rules F-1 to F-11, C-12). Every frame is idempotent
// (F-3). Integers are little-endian and of fixed size (P-1): decoding a call is a handful of loads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/bytes.h"

namespace weir::wire {

enum class FrameType : std::uint8_t {
  padding = 0,  // the rest of the packet is padding
  request = 1,
  reply = 2,
  ack = 3,
  cancel = 4,
  credit = 5,
  blocked = 6,
  probe = 7,
  probe_response = 8,
  flow_reset = 9,
  close = 10,
  path = 11,
  ping = 12,
  retire_control_key = 13,
  // Of large messages (large_frame.h).
  large_request = 14,  // as request; its bytes begin with a description of the cargo
  large_reply = 15,    // as reply, likewise
  slice = 16,          // of ciphertext, which the packet carries behind its tag
  last_slice = 17,     // of its record
  region_grant = 18,
  region_revoke = 19,
  region_exhausted = 20,
  request_regions = 21,
  transfer_ack = 22,
  range_ack = 23,
  // Of addresses that change (P-11).
  path_challenge = 24,
  path_response = 25,
  // Of calls that say how large a reply they accept (F-6, C-12).
  bounded_request = 26,
  bounded_large_request = 27,
};

// Names a transfer within a path (F-5): slot in the low 24 bits, generation in the high 40.
inline constexpr std::uint32_t kSlotBits = 24;
inline constexpr std::uint32_t kMaxSlots = 1u << kSlotBits;
inline constexpr std::uint64_t kMaxGeneration = (1ull << 40) - 1;

struct TransferId {
  std::uint32_t slot = 0;
  std::uint64_t generation = 0;

  std::uint64_t packed() const { return slot | (generation << kSlotBits); }
  static TransferId unpack(std::uint64_t packed) {
    return {static_cast<std::uint32_t>(packed & (kMaxSlots - 1)), packed >> kSlotBits};
  }
};

// A part of a message, or all of it (F-8). `bytes` are the message's header and body in one.
struct MessagePart {
  TransferId id;
  ByteSpan bytes;
  std::uint16_t header_bytes = 0;
  std::uint16_t total = 0;   // of the whole message
  std::uint16_t offset = 0;  // of `bytes` in it

  bool is_whole() const { return bytes.size() == total; }
};

inline constexpr std::uint32_t kAnyReply = ~std::uint32_t{0};  // the call names no bound

// F-6.
struct RequestFrame {
  MessagePart part;
  std::uint64_t method = 0;
  std::uint32_t time_left_us = 0;       // of the caller's deadline when this was sent
  std::uint32_t max_reply = kAnyReply;  // bytes of the largest reply that the call accepts, header and body
  std::uint8_t priority = 0;            // 0 to 7
  std::uint8_t depth = 0;               // 0 to 7 on the wire
  bool is_large = false;                // the bytes open a large message
};

// F-7; how an error travels: F-9.
struct ReplyFrame {
  MessagePart part;
  bool failed = false;    // the body is an error: code, then the sentence
  bool is_large = false;  // the bytes open a large message
};

// F-4.
struct AckFrame {
  static constexpr std::size_t kMaxRanges = 32;
  struct Range {
    std::uint64_t first, last;
  };
  std::uint64_t largest = 0;
  std::uint32_t delay_us = 0;
  std::uint64_t ect0 = 0, ect1 = 0, ce = 0;
  bool has_ecn = false;
  std::size_t count = 0;
  Range ranges[kMaxRanges];  // descending; the first ends with `largest`
};

// The other frames carry one value each (F-11; why a path is closed: L-6):
//   credit          level, limit: requests of that level may use credit up to `limit`, counted from the path's start
//   probe, probe_response   a timestamp of the prober's, echoed
//   path_challenge, path_response   eight random bytes, echoed
//   flow_reset      a transfer id
//   close           a reason, and the highest generation seen: requests beyond it never arrived
//   ping            nothing
// In a failed reply, behind its code (F-9).
enum class Ran : std::uint8_t {
  not_now = 0,  // it has not run; it may be otherwise in a moment
  maybe = 1,    // it may have
  never = 2     // it has not run, and the application has decided so
};
enum class CloseReason : std::uint8_t {
  leaving = 0,   // the sender stops; outstanding calls fail
  idle = 1,      // the sender gives the path up; calls that it has not seen may be sent again elsewhere
  violation = 2  // the receiver broke a rule
};
// A cancellation tells what its request cost, because the request may never have arrived and never will (T-8).
struct CancelFrame {
  TransferId id;
  std::uint8_t level = 0;
  std::uint16_t total = 0;  // bytes of the request
};

// A request waits for credit of its level (C-5): the most urgent one, which needs the limit to be `needed`.
struct BlockedFrame {
  std::uint8_t level = 0;
  std::uint8_t priority = 0;
  std::uint64_t needed = 0;
};

// The sender will never again seal under a control key below `key_id`. Authenticated by a key of its own (rule K-10).
struct RetireFrame {
  std::uint32_t key_id = 0;
  std::array<std::byte, 16> mac{};
};

// The responder's number for this path (H-10), and the key by which it can later be believed that it lost it.
struct PathFrame {
  std::uint32_t path = 0;
  std::array<std::byte, 16> reset_key{};
};

// ---- sizes ----
inline constexpr std::size_t kRequestBytes = 24;  // fixed part
inline constexpr std::size_t kMaxReplyBytes = 4;  // present if the request is bounded
inline constexpr std::size_t kReplyBytes = 12;
inline constexpr std::size_t kMessageHeaderBytes = 2;  // present if the message has a header
inline constexpr std::size_t kFragmentBytes = 4;       // present if the frame is a fragment
inline constexpr std::size_t kSmallFrameBytes = 16;    // an upper bound for the frames not named here
inline constexpr std::size_t kRetireBytes = 5;         // that the MAC covers
inline constexpr std::size_t kRetireFrameBytes = kRetireBytes + 16;
inline constexpr std::size_t kPathFrameBytes = 1 + 4 + 16;
inline constexpr std::size_t kAckFixedBytes = 1 + 1 + 8 + 4 + 8;
inline constexpr std::size_t kAckRangeBytes = 16;
inline constexpr std::size_t kAckEcnBytes = 24;

namespace flag {
inline constexpr std::uint8_t kHasHeader = 0x40;
inline constexpr std::uint8_t kFragment = 0x80;
inline constexpr std::uint8_t kFailed = 0x01;
inline constexpr std::uint8_t kEcn = 0x80;
}  // namespace flag

// The fixed part of a request that accepts replies of so many bytes.
inline std::uint32_t request_bytes(std::uint32_t max_reply) {
  return static_cast<std::uint32_t>(kRequestBytes + (max_reply != kAnyReply ? kMaxReplyBytes : 0));
}

// ---- encoding: the caller has made room ----
inline std::size_t overhead(std::size_t fixed, std::uint16_t header_bytes, bool fragment) {
  return fixed + (header_bytes != 0 ? kMessageHeaderBytes : 0) + (fragment ? kFragmentBytes : 0);
}

inline std::byte* put_part(std::byte* to, const MessagePart& part, bool fragment) {
  if (part.header_bytes != 0) {
    store<std::uint16_t>(to, part.header_bytes);
    to += kMessageHeaderBytes;
  }
  if (fragment) {
    store<std::uint16_t>(to, part.total);
    store<std::uint16_t>(to + 2, part.offset);
    to += kFragmentBytes;
  }
  if (!part.bytes.empty()) std::memcpy(to, part.bytes.data(), part.bytes.size());
  return to + part.bytes.size();
}

inline std::uint8_t part_flags(const MessagePart& part, bool fragment) {
  return static_cast<std::uint8_t>((part.header_bytes != 0 ? flag::kHasHeader : 0) | (fragment ? flag::kFragment : 0));
}

inline std::byte* encode(const RequestFrame& frame, std::byte* to) {
  const bool fragment = !frame.part.is_whole();
  const bool bounded = frame.max_reply != kAnyReply;
  to[0] = static_cast<std::byte>(frame.is_large ? FrameType::large_request : FrameType::request);
  to[1] = static_cast<std::byte>(frame.priority | (frame.depth << 3) | part_flags(frame.part, fragment));
  store<std::uint16_t>(to + 2, static_cast<std::uint16_t>(frame.part.bytes.size()));
  store<std::uint64_t>(to + 4, frame.part.id.packed());
  store<std::uint64_t>(to + 12, frame.method);
  store<std::uint32_t>(to + 20, frame.time_left_us);
  if (bounded) [[unlikely]] {
    to[0] = static_cast<std::byte>(frame.is_large ? FrameType::bounded_large_request : FrameType::bounded_request);
    store<std::uint32_t>(to + kRequestBytes, frame.max_reply);
    to += kMaxReplyBytes;
  }
  return put_part(to + kRequestBytes, frame.part, fragment);
}

inline std::byte* encode(const ReplyFrame& frame, std::byte* to) {
  const bool fragment = !frame.part.is_whole();
  to[0] = static_cast<std::byte>(frame.is_large ? FrameType::large_reply : FrameType::reply);
  to[1] = static_cast<std::byte>((frame.failed ? flag::kFailed : 0) | part_flags(frame.part, fragment));
  store<std::uint16_t>(to + 2, static_cast<std::uint16_t>(frame.part.bytes.size()));
  store<std::uint64_t>(to + 4, frame.part.id.packed());
  return put_part(to + kReplyBytes, frame.part, fragment);
}

std::byte* encode(const AckFrame& frame, std::byte* to);

inline std::byte* encode(const CancelFrame& frame, std::byte* to) {
  to[0] = static_cast<std::byte>(FrameType::cancel);
  to[1] = static_cast<std::byte>(frame.level);
  store<std::uint64_t>(to + 2, frame.id.packed());
  store<std::uint16_t>(to + 10, frame.total);
  return to + 12;
}
inline std::byte* encode(const RetireFrame& frame, std::byte* to) {
  to[0] = static_cast<std::byte>(FrameType::retire_control_key);
  store<std::uint32_t>(to + 1, frame.key_id);
  std::memcpy(to + kRetireBytes, frame.mac.data(), frame.mac.size());
  return to + kRetireFrameBytes;
}
inline std::byte* encode_level(FrameType type, std::uint8_t level, std::uint64_t value, std::byte* to) {
  to[0] = static_cast<std::byte>(type);
  to[1] = static_cast<std::byte>(level);
  store<std::uint64_t>(to + 2, value);
  return to + 10;
}
inline std::byte* encode(const BlockedFrame& frame, std::byte* to) {
  return encode_level(FrameType::blocked, static_cast<std::uint8_t>(frame.level | (frame.priority << 3)), frame.needed,
                      to);
}
inline std::byte* encode_u64(FrameType type, std::uint64_t value, std::byte* to) {
  to[0] = static_cast<std::byte>(type);
  store<std::uint64_t>(to + 1, value);
  return to + 9;
}
inline std::byte* encode(const PathFrame& frame, std::byte* to) {
  to[0] = static_cast<std::byte>(FrameType::path);
  store<std::uint32_t>(to + 1, frame.path);
  std::memcpy(to + 5, frame.reset_key.data(), frame.reset_key.size());
  return to + kPathFrameBytes;
}
inline std::byte* encode_bare(FrameType type, std::byte* to) {
  to[0] = static_cast<std::byte>(type);
  return to + 1;
}

// ---- decoding: `at` stands on the type byte; null if the frame is cut short or makes no sense ----
inline const std::byte* take_part(const std::byte* at, const std::byte* end, std::uint8_t flags, std::uint16_t length,
                                  MessagePart& part) {
  part.header_bytes = 0;
  part.total = length;
  part.offset = 0;
  if (flags & (flag::kHasHeader | flag::kFragment)) [[unlikely]] {
    if (flags & flag::kHasHeader) {
      if (static_cast<std::size_t>(end - at) < kMessageHeaderBytes) return nullptr;
      part.header_bytes = load<std::uint16_t>(at);
      at += kMessageHeaderBytes;
    }
    if (flags & flag::kFragment) {
      if (static_cast<std::size_t>(end - at) < kFragmentBytes) return nullptr;
      part.total = load<std::uint16_t>(at);
      part.offset = load<std::uint16_t>(at + 2);
      at += kFragmentBytes;
      if (length == 0 || length >= part.total || part.offset > part.total - length) return nullptr;
    }
    if (part.header_bytes > part.total) return nullptr;
  }
  if (static_cast<std::size_t>(end - at) < length) return nullptr;
  part.bytes = {at, length};
  return at + length;
}

inline const std::byte* decode(const std::byte* at, const std::byte* end, RequestFrame& frame) {
  if (static_cast<std::size_t>(end - at) < kRequestBytes) return nullptr;
  const auto flags = static_cast<std::uint8_t>(at[1]);
  frame.priority = flags & 7;
  frame.depth = (flags >> 3) & 7;
  frame.is_large = at[0] == static_cast<std::byte>(FrameType::large_request);
  frame.part.id = TransferId::unpack(load<std::uint64_t>(at + 4));
  frame.method = load<std::uint64_t>(at + 12);
  frame.time_left_us = load<std::uint32_t>(at + 20);
  frame.max_reply = kAnyReply;
  const std::byte* rest = at + kRequestBytes;
  if (at[0] >= static_cast<std::byte>(FrameType::bounded_request)) [[unlikely]] {
    if (static_cast<std::size_t>(end - rest) < kMaxReplyBytes) return nullptr;
    frame.is_large = at[0] == static_cast<std::byte>(FrameType::bounded_large_request);
    frame.max_reply = load<std::uint32_t>(rest);
    if (frame.max_reply == kAnyReply) return nullptr;  // that is what the other two types say
    rest += kMaxReplyBytes;
  }
  return take_part(rest, end, flags, load<std::uint16_t>(at + 2), frame.part);
}

inline const std::byte* decode(const std::byte* at, const std::byte* end, ReplyFrame& frame) {
  if (static_cast<std::size_t>(end - at) < kReplyBytes) return nullptr;
  const auto flags = static_cast<std::uint8_t>(at[1]);
  frame.failed = (flags & flag::kFailed) != 0;
  frame.is_large = at[0] == static_cast<std::byte>(FrameType::large_reply);
  frame.part.id = TransferId::unpack(load<std::uint64_t>(at + 4));
  return take_part(at + kReplyBytes, end, flags, load<std::uint16_t>(at + 2), frame.part);
}

const std::byte* decode(const std::byte* at, const std::byte* end, AckFrame& frame);

inline const std::byte* decode(const std::byte* at, const std::byte* end, CancelFrame& frame) {
  if (end - at < 12) return nullptr;
  frame.level = static_cast<std::uint8_t>(at[1]);
  frame.id = TransferId::unpack(load<std::uint64_t>(at + 2));
  frame.total = load<std::uint16_t>(at + 10);
  return at + 12;
}
inline const std::byte* decode(const std::byte* at, const std::byte* end, RetireFrame& frame) {
  if (static_cast<std::size_t>(end - at) < kRetireFrameBytes) return nullptr;
  frame.key_id = load<std::uint32_t>(at + 1);
  std::memcpy(frame.mac.data(), at + kRetireBytes, frame.mac.size());
  return at + kRetireFrameBytes;
}
inline const std::byte* decode_level(const std::byte* at, const std::byte* end, std::uint8_t& level,
                                     std::uint64_t& value) {
  if (end - at < 10) return nullptr;
  level = static_cast<std::uint8_t>(at[1]);
  value = load<std::uint64_t>(at + 2);
  return at + 10;
}
inline const std::byte* decode(const std::byte* at, const std::byte* end, BlockedFrame& frame) {
  std::uint8_t both = 0;
  at = decode_level(at, end, both, frame.needed);
  frame.level = both & 7;
  frame.priority = (both >> 3) & 7;
  return both < 64 ? at : nullptr;
}
inline const std::byte* decode_u64(const std::byte* at, const std::byte* end, std::uint64_t& value) {
  if (end - at < 9) return nullptr;
  value = load<std::uint64_t>(at + 1);
  return at + 9;
}
inline const std::byte* decode(const std::byte* at, const std::byte* end, PathFrame& frame) {
  if (static_cast<std::size_t>(end - at) < kPathFrameBytes) return nullptr;
  frame.path = load<std::uint32_t>(at + 1);
  std::memcpy(frame.reset_key.data(), at + 5, frame.reset_key.size());
  return at + kPathFrameBytes;
}

}  // namespace weir::wire
