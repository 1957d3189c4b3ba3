// What a Puppet says about large messages: their frames, data packets, and what it hears of grants.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/hostile_testing.h"
#include "wire/large_frame.h"

namespace weir::engine::testing {

template <class Encode>
Datagram encoded(Encode&& encode) {
  Datagram bytes(2'048);
  bytes.resize(static_cast<std::size_t>(encode(bytes.data()) - bytes.data()));
  return bytes;
}
inline Datagram frame_of(const wire::SliceFrame& frame) {
  return encoded([&](std::byte* to) { return wire::encode(frame, to); });
}
inline Datagram frame_of(const wire::GrantFrame& frame) {
  return encoded([&](std::byte* to) { return wire::encode(frame, to); });
}
inline Datagram frame_of(const wire::RevokeFrame& frame) {
  return encoded([&](std::byte* to) { return wire::encode(frame, to); });
}
inline Datagram frame_of(const wire::RangeAckFrame& frame) {
  return encoded([&](std::byte* to) { return wire::encode(frame, to); });
}
inline Datagram frame_of(wire::FrameType type, const wire::SideFrame& frame) {
  return encoded([&](std::byte* to) { return wire::encode(type, frame, to); });
}

// How a large message of this payload begins.
inline wire::CargoFrame cargo_of(const buffer::Sealed& sealed) {
  return {.body_bytes = sealed.bytes,
          .payload_bytes = sealed.bytes,
          .record_bytes = sealed.record_bytes,
          .key = sealed.key};
}
inline Datagram opening_of(const wire::CargoFrame& cargo, std::string_view header = {}) {
  Datagram bytes(wire::kCargoBytes + header.size());
  wire::encode_cargo(cargo, bytes.data());
  std::copy(as_bytes(header).begin(), as_bytes(header).end(), bytes.begin() + wire::kCargoBytes);
  return bytes;
}
inline Datagram large_request(wire::TransferId id, std::string_view method, ByteSpan opening, std::uint8_t depth = 0) {
  const wire::RequestFrame frame{
      .part = {.id = id, .bytes = opening, .total = static_cast<std::uint16_t>(opening.size())},
      .method = method_id(method),
      .time_left_us = 60'000'000,
      .priority = 3,
      .depth = depth,
      .is_large = true};
  return encoded([&](std::byte* to) { return wire::encode(frame, to); });
}
inline Datagram large_reply(wire::TransferId id, ByteSpan opening, bool failed = false) {
  const wire::ReplyFrame frame{
      .part = {.id = id, .bytes = opening, .total = static_cast<std::uint16_t>(opening.size())},
      .failed = failed,
      .is_large = true};
  return encoded([&](std::byte* to) { return wire::encode(frame, to); });
}

inline Datagram seal_data(Puppet& puppet, ByteSpan frames, ByteSpan slice) {
  Path& path = puppet.path();
  const std::uint64_t number = path.next_number++;
  constexpr std::size_t kTextAt = wire::kHeaderBytes + wire::kTextLengthBytes;
  Datagram packet(kTextAt + frames.size() + wire::kTagBytes);
  wire::encode({.type = wire::PacketType::sealed,
                .key_low = path.key_low(),
                .is_data = true,
                .number_low = static_cast<std::uint32_t>(number & ((1u << wire::kNumberBits) - 1)),
                .path = path.remote_id},
               packet.data());
  store<std::uint16_t>(packet.data() + wire::kHeaderBytes, static_cast<std::uint16_t>(frames.size()));
  std::copy(frames.begin(), frames.end(), packet.begin() + kTextAt);
  path.keys.send_key().seal(crypto::make_nonce(wire::kDataNonceDomain, number), slice,
                            {packet.data() + kTextAt, frames.size()}, packet.data() + kTextAt + frames.size());
  packet.insert(packet.end(), slice.begin(), slice.end());
  return packet;
}

// Where the frame at `at` ends; null if it is none that an engine sends.
inline const std::byte* end_of_frame(const std::byte* at, const std::byte* end) {
  std::uint64_t value = 0;
  std::uint8_t level = 0;
  const auto skip = [&](auto frame) { return wire::decode(at, end, frame); };
  switch (static_cast<wire::FrameType>(*at)) {
    case wire::FrameType::request:
    case wire::FrameType::large_request:
    case wire::FrameType::bounded_request:
    case wire::FrameType::bounded_large_request:
      return skip(wire::RequestFrame{});
    case wire::FrameType::reply:
    case wire::FrameType::large_reply:
      return skip(wire::ReplyFrame{});
    case wire::FrameType::ack:
      return skip(wire::AckFrame{});
    case wire::FrameType::cancel:
      return skip(wire::CancelFrame{});
    case wire::FrameType::credit:
    case wire::FrameType::blocked:
    case wire::FrameType::close:
      return wire::decode_level(at, end, level, value);
    case wire::FrameType::probe:
    case wire::FrameType::probe_response:
    case wire::FrameType::flow_reset:
      return wire::decode_u64(at, end, value);
    case wire::FrameType::path:
      return skip(wire::PathFrame{});
    case wire::FrameType::retire_control_key:
      return skip(wire::RetireFrame{});
    case wire::FrameType::ping:
      return at + 1;
    case wire::FrameType::region_grant:
      return skip(wire::GrantFrame{});
    case wire::FrameType::region_revoke:
      return skip(wire::RevokeFrame{});
    case wire::FrameType::region_exhausted:
    case wire::FrameType::request_regions:
    case wire::FrameType::transfer_ack:
      return skip(wire::SideFrame{});
    case wire::FrameType::range_ack:
      return skip(wire::RangeAckFrame{});
    default:
      return nullptr;
  }
}

// Frames of one type in what a puppet heard, decoded.
template <class Frame>
std::vector<Frame> frames_in(const std::vector<Datagram>& heard, wire::FrameType type) {
  std::vector<Frame> found;
  for (const Datagram& text : heard) {
    const std::byte* at = text.data();
    const std::byte* const end = at + text.size();
    while (at != nullptr && at != end && *at != std::byte{0}) {
      if (static_cast<wire::FrameType>(*at) == type) {
        Frame frame;
        if (wire::decode(at, end, frame) != nullptr) found.push_back(frame);
      }
      at = end_of_frame(at, end);
    }
  }
  return found;
}

}  // namespace weir::engine::testing
