// Decodes arbitrary bytes frame by frame as a receiver does, and encodes what decoded once more: where a frame has one
// encoding only, the bytes must be the same; where it has several, the second decoding must say what the first said.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "wire/frame.h"
#include "wire/large_frame.h"

namespace {

using namespace weir;
using namespace weir::wire;

void expect_same_bytes(const std::byte* begin, const std::byte* end, const std::byte* again,
                       const std::byte* again_end) {
  WEIR_CHECK(std::equal(begin, end, again, again_end), "a frame encodes to other bytes than it was decoded from");
}

void check_part(const MessagePart& part, const std::byte* begin, const std::byte* end) {
  WEIR_CHECK(part.header_bytes <= part.total, "a header larger than its message");
  WEIR_CHECK(part.bytes.size() + part.offset <= part.total, "a fragment beyond its message");
  WEIR_CHECK(part.bytes.data() >= begin && part.bytes.data() + part.bytes.size() == end, "bytes outside the frame");
}

void check_same_part(const MessagePart& left, const MessagePart& right) {
  WEIR_CHECK(left.id.packed() == right.id.packed() && left.header_bytes == right.header_bytes &&
                 left.total == right.total && left.offset == right.offset &&
                 std::equal(left.bytes.begin(), left.bytes.end(), right.bytes.begin(), right.bytes.end()),
             "a message changed between two codings");
}

// A header of no bytes may be written out or left out; reserved bits of a reply may be set. The shorter form is ours.
const std::byte* request(const std::byte* at, const std::byte* end, std::byte* scratch) {
  RequestFrame frame;
  const std::byte* next = decode(at, end, frame);
  if (next == nullptr) return nullptr;
  check_part(frame.part, at, next);
  WEIR_CHECK(frame.priority < 8 && frame.depth < 8, "fields wider than their bits");
  const std::byte* again_end = encode(frame, scratch);
  if (frame.part.header_bytes != 0 || (static_cast<std::uint8_t>(at[1]) & flag::kHasHeader) == 0) {
    expect_same_bytes(at, next, scratch, again_end);
  }
  RequestFrame again;
  WEIR_CHECK(decode(scratch, again_end, again) == again_end, "our own request does not decode");
  check_same_part(frame.part, again.part);
  WEIR_CHECK(frame.method == again.method && frame.time_left_us == again.time_left_us &&
                 frame.priority == again.priority && frame.depth == again.depth && frame.is_large == again.is_large &&
                 frame.max_reply == again.max_reply,
             "a request changed between two codings");
  return next;
}

const std::byte* reply(const std::byte* at, const std::byte* end, std::byte* scratch) {
  ReplyFrame frame;
  const std::byte* next = decode(at, end, frame);
  if (next == nullptr) return nullptr;
  check_part(frame.part, at, next);
  const std::byte* again_end = encode(frame, scratch);
  constexpr std::uint8_t kReserved = 0x3e;
  const auto flags = static_cast<std::uint8_t>(at[1]);
  if ((flags & kReserved) == 0 && (frame.part.header_bytes != 0 || (flags & flag::kHasHeader) == 0)) {
    expect_same_bytes(at, next, scratch, again_end);
  }
  ReplyFrame again;
  WEIR_CHECK(decode(scratch, again_end, again) == again_end, "our own reply does not decode");
  check_same_part(frame.part, again.part);
  WEIR_CHECK(frame.failed == again.failed && frame.is_large == again.is_large, "a reply changed between two codings");
  return next;
}

const std::byte* ack(const std::byte* at, const std::byte* end, std::byte* scratch) {
  AckFrame frame;
  const std::byte* next = decode(at, end, frame);
  if (next == nullptr) return nullptr;
  WEIR_CHECK(frame.count >= 1 && frame.count <= AckFrame::kMaxRanges, "too many ranges");
  WEIR_CHECK(frame.ranges[0].last == frame.largest, "the first range does not end with the largest");
  for (std::size_t i = 0; i < frame.count; ++i) {
    WEIR_CHECK(frame.ranges[i].first <= frame.ranges[i].last, "an inverted range");
    WEIR_CHECK(i == 0 || frame.ranges[i].last + 1 < frame.ranges[i - 1].first, "ranges that touch");
  }
  expect_same_bytes(at, next, scratch, encode(frame, scratch));
  return next;
}

// How the bytes of a large message begin. Two of them are reserved: ignored when read, zero when written.
void cargo(ByteSpan bytes) {
  CargoFrame frame;
  if (!decode_cargo(bytes, frame)) return;
  std::byte again[kCargoBytes];
  encode_cargo(frame, again);
  constexpr std::size_t kReserved = 38;
  WEIR_CHECK(std::equal(again, again + kReserved, bytes.begin()) &&
                 std::equal(again + kReserved + 2, again + kCargoBytes, bytes.begin() + kReserved + 2),
             "a description of cargo encodes to other bytes than it was decoded from");
}

// Frames of large messages. Null also for what is none.
const std::byte* large(const std::byte* at, const std::byte* end, std::byte* scratch) {
  const auto type = static_cast<FrameType>(*at);
  const std::byte* next = nullptr;
  const std::byte* again_end = scratch;
  switch (type) {
    case FrameType::slice:
    case FrameType::last_slice: {
      SliceFrame frame;
      next = decode(at, end, frame);
      if (next == nullptr) return nullptr;
      WEIR_CHECK((frame.tag != nullptr) == (type == FrameType::last_slice), "a tag where there is none");
      again_end = encode(frame, scratch);
      break;
    }
    case FrameType::region_grant: {
      GrantFrame frame;
      next = decode(at, end, frame);
      if (next == nullptr) return nullptr;
      WEIR_CHECK(frame.side <= Side::none, "a side that there is not");
      again_end = encode(frame, scratch);
      break;
    }
    case FrameType::region_revoke: {
      RevokeFrame frame;
      next = decode(at, end, frame);
      if (next == nullptr) return nullptr;
      WEIR_CHECK(frame.side <= Side::none, "a side that there is not");
      again_end = encode(frame, scratch);
      break;
    }
    case FrameType::region_exhausted:
    case FrameType::request_regions:
    case FrameType::transfer_ack: {
      SideFrame frame;
      next = decode(at, end, frame);
      if (next == nullptr) return nullptr;
      WEIR_CHECK(frame.side <= Side::reply, "a side that there is not");
      again_end = encode(type, frame, scratch);
      break;
    }
    case FrameType::range_ack: {
      RangeAckFrame frame;
      next = decode(at, end, frame);
      if (next == nullptr) return nullptr;
      WEIR_CHECK(frame.side <= Side::reply, "a side that there is not");
      again_end = encode(frame, scratch);
      break;
    }
    default:
      return nullptr;
  }
  expect_same_bytes(at, next, scratch, again_end);
  return next;
}

// The others carry one value each and have one encoding each. Null also for what is no frame.
const std::byte* small(const std::byte* at, const std::byte* end, std::byte* scratch) {
  const auto type = static_cast<FrameType>(*at);
  std::uint64_t value = 0;
  std::uint8_t byte = 0;
  const std::byte* next = nullptr;
  const std::byte* again_end = scratch;
  switch (type) {
    case FrameType::cancel: {
      CancelFrame frame;
      next = decode(at, end, frame);
      again_end = encode(frame, scratch);
      break;
    }
    case FrameType::probe:
    case FrameType::probe_response:
    case FrameType::flow_reset:
    case FrameType::path_challenge:
    case FrameType::path_response:
      next = decode_u64(at, end, value);
      again_end = encode_u64(type, TransferId::unpack(value).packed(), scratch);
      break;
    case FrameType::blocked: {
      BlockedFrame frame;
      next = decode(at, end, frame);
      again_end = encode(frame, scratch);
      break;
    }
    case FrameType::credit:
    case FrameType::close:
      next = decode_level(at, end, byte, value);
      again_end = encode_level(type, byte, value, scratch);
      break;
    case FrameType::path: {
      PathFrame frame;
      next = decode(at, end, frame);
      again_end = encode(frame, scratch);
      break;
    }
    case FrameType::retire_control_key: {
      RetireFrame frame;
      next = decode(at, end, frame);
      again_end = encode(frame, scratch);
      break;
    }
    case FrameType::ping:
      next = at + 1;
      again_end = encode_bare(type, scratch);
      break;
    default:
      return large(at, end, scratch);
  }
  if (next != nullptr) expect_same_bytes(at, next, scratch, again_end);
  return next;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  cargo({reinterpret_cast<const std::byte*>(data), size});
  std::vector<std::byte> scratch(size + kRequestBytes + kMaxReplyBytes);
  const auto* at = reinterpret_cast<const std::byte*>(data);
  const std::byte* const end = at + size;
  while (at != nullptr && at != end) {
    switch (static_cast<FrameType>(*at)) {
      case FrameType::padding:
        return 0;
      case FrameType::request:
      case FrameType::large_request:
      case FrameType::bounded_request:
      case FrameType::bounded_large_request:
        at = request(at, end, scratch.data());
        break;
      case FrameType::reply:
      case FrameType::large_reply:
        at = reply(at, end, scratch.data());
        break;
      case FrameType::ack:
        at = ack(at, end, scratch.data());
        break;
      default:
        at = small(at, end, scratch.data());
        break;
    }
  }
  return 0;
}
