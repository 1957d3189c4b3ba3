#include "wire/frame.h"

namespace weir::wire {

// type, flags and count, largest, delay, length of the first range; then gap and length for each further range; then
// the ECN counts. A gap is the number of packets missing between two ranges, less one (rule F-4).
std::byte* encode(const AckFrame& frame, std::byte* to) {
  to[0] = static_cast<std::byte>(FrameType::ack);
  to[1] = static_cast<std::byte>((frame.count - 1) | (frame.has_ecn ? flag::kEcn : 0));
  store<std::uint64_t>(to + 2, frame.largest);
  store<std::uint32_t>(to + 10, frame.delay_us);
  store<std::uint64_t>(to + 14, frame.ranges[0].last - frame.ranges[0].first);
  to += kAckFixedBytes;
  for (std::size_t i = 1; i < frame.count; ++i) {
    store<std::uint64_t>(to, frame.ranges[i - 1].first - frame.ranges[i].last - 2);
    store<std::uint64_t>(to + 8, frame.ranges[i].last - frame.ranges[i].first);
    to += kAckRangeBytes;
  }
  if (frame.has_ecn) {
    store<std::uint64_t>(to, frame.ect0);
    store<std::uint64_t>(to + 8, frame.ect1);
    store<std::uint64_t>(to + 16, frame.ce);
    to += kAckEcnBytes;
  }
  return to;
}

const std::byte* decode(const std::byte* at, const std::byte* end, AckFrame& frame) {
  if (static_cast<std::size_t>(end - at) < kAckFixedBytes) return nullptr;
  const auto flags = static_cast<std::uint8_t>(at[1]);
  frame.has_ecn = (flags & flag::kEcn) != 0;
  frame.count = (flags & 0x7f) + 1u;
  if (frame.count > AckFrame::kMaxRanges) return nullptr;
  frame.largest = load<std::uint64_t>(at + 2);
  frame.delay_us = load<std::uint32_t>(at + 10);
  const auto first_length = load<std::uint64_t>(at + 14);
  if (first_length > frame.largest) return nullptr;
  frame.ranges[0] = {frame.largest - first_length, frame.largest};
  at += kAckFixedBytes;
  const std::size_t rest = (frame.count - 1) * kAckRangeBytes + (frame.has_ecn ? kAckEcnBytes : 0);
  if (static_cast<std::size_t>(end - at) < rest) return nullptr;
  for (std::size_t i = 1; i < frame.count; ++i) {
    const auto gap = load<std::uint64_t>(at);
    const auto length = load<std::uint64_t>(at + 8);
    const std::uint64_t above = frame.ranges[i - 1].first;
    if (above < 2 || gap > above - 2 || length > above - 2 - gap) return nullptr;
    const std::uint64_t last = above - 2 - gap;
    frame.ranges[i] = {last - length, last};
    at += kAckRangeBytes;
  }
  if (frame.has_ecn) {
    frame.ect0 = load<std::uint64_t>(at);
    frame.ect1 = load<std::uint64_t>(at + 8);
    frame.ce = load<std::uint64_t>(at + 16);
    at += kAckEcnBytes;
  }
  return at;
}

}  // namespace weir::wire
