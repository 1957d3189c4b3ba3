// The layouts of large messages (docs/protocol.md, rules G-2, G-4, G-5, G-9 and G-10).
#include "wire/large_frame.h"

#include <gtest/gtest.h>

#include <vector>

#include "wire/packet.h"

namespace weir::wire {
namespace {

using Bytes = std::vector<std::byte>;

constexpr TransferId kId{0xabcdef, 0x12'3456'789a};
constexpr std::uint64_t kRegion = 0x1122'3344'5566'7788;

template <class Encode>
Bytes encoded(Encode&& encode) {
  Bytes bytes(256, std::byte{0xee});
  bytes.resize(static_cast<std::size_t>(encode(bytes.data()) - bytes.data()));
  return bytes;
}

// Decodes as it is, from each of its truncations, and with more behind it.
template <class Frame>
Frame decoded(const Bytes& bytes) {
  for (std::size_t size = 1; size < bytes.size(); ++size) {
    const Bytes cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));  // so that a sanitizer sees more
    Frame frame;
    EXPECT_EQ(decode(cut.data(), cut.data() + size, frame), nullptr) << size;
  }
  Bytes longer = bytes;
  longer.push_back(std::byte{1});
  Frame frame;
  EXPECT_EQ(decode(longer.data(), longer.data() + longer.size(), frame), longer.data() + bytes.size());
  EXPECT_EQ(decode(bytes.data(), bytes.data() + bytes.size(), frame), bytes.data() + bytes.size());
  return frame;
}

TEST(CargoDescription, ComesBackAsItWasWritten) {
  for (const bool adopted : {false, true}) {
    for (const bool wants_token : {false, true}) {
      CargoFrame frame{.body_bytes = 1'000'001,
                       .region = kRegion,
                       .payload_bytes = 2'000'002,
                       .first_record = 17,
                       .record_bytes = 61'440,
                       .adopted = adopted,
                       .wants_token = wants_token,
                       .pattern = adopted ? Pattern::put : kLastPattern};
      for (std::size_t i = 0; i < frame.key.size(); ++i) frame.key[i] = static_cast<std::byte>(i + 1);
      Bytes bytes(kCargoBytes);
      encode_cargo(frame, bytes.data());
      CargoFrame again;
      ASSERT_TRUE(decode_cargo(bytes, again));
      EXPECT_EQ(again.body_bytes, frame.body_bytes);
      EXPECT_EQ(again.region, frame.region);
      EXPECT_EQ(again.payload_bytes, frame.payload_bytes);
      EXPECT_EQ(again.first_record, frame.first_record);
      EXPECT_EQ(again.record_bytes, frame.record_bytes);
      EXPECT_EQ(again.adopted, adopted);
      EXPECT_EQ(again.wants_token, wants_token);
      EXPECT_EQ(again.pattern, frame.pattern);
      EXPECT_EQ(again.key, frame.key);
    }
  }
}

TEST(CargoDescription, IsNoneIfItIsCutShortOrHasFlagsOrAPatternThatNobodyKnows) {
  Bytes bytes(kCargoBytes);
  encode_cargo({.body_bytes = 1}, bytes.data());
  CargoFrame frame;
  for (std::size_t size = 0; size < kCargoBytes; ++size) {
    const Bytes cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_FALSE(decode_cargo(cut, frame)) << size;
  }
  for (unsigned flags = 4; flags < 256; ++flags) {
    bytes[36] = static_cast<std::byte>(flags);
    EXPECT_FALSE(decode_cargo(bytes, frame)) << flags;
  }
  bytes[36] = std::byte{0};
  for (unsigned pattern = 0; pattern < 256; ++pattern) {
    bytes[37] = static_cast<std::byte>(pattern);
    EXPECT_EQ(decode_cargo(bytes, frame), pattern <= 6) << pattern;
  }
  bytes[37] = std::byte{0};
  for (const std::size_t reserved : {38, 39}) bytes[reserved] = std::byte{255};
  EXPECT_TRUE(decode_cargo(bytes, frame)) << "what is reserved is not looked at";
}

TEST(CargoDescription, CanBeToldLaterWhichRegionItHasAndWhetherItWantsAToken) {
  Bytes bytes(kCargoBytes);
  encode_cargo({.body_bytes = 1, .adopted = true}, bytes.data());
  store<std::uint64_t>(bytes.data() + kCargoRegionOffset, kRegion);
  set_wants_token(bytes.data(), true);
  CargoFrame frame;
  ASSERT_TRUE(decode_cargo(bytes, frame));
  EXPECT_EQ(frame.region, kRegion);
  EXPECT_TRUE(frame.wants_token);
  EXPECT_TRUE(frame.adopted);
  set_wants_token(bytes.data(), false);
  ASSERT_TRUE(decode_cargo(bytes, frame));
  EXPECT_FALSE(frame.wants_token);
  EXPECT_TRUE(frame.adopted);
}

TEST(SliceFrame, ComesBackWithItsTagIfItEndsItsRecord) {
  Bytes tag(kSliceTagBytes);
  for (std::size_t i = 0; i < tag.size(); ++i) tag[i] = static_cast<std::byte>(200 - i);
  for (const std::byte* with : {static_cast<const std::byte*>(nullptr), static_cast<const std::byte*>(tag.data())}) {
    const SliceFrame frame{.region = kRegion, .record = 0xfedcba98, .offset = 61'439, .tag = with};
    const Bytes bytes = encoded([&](std::byte* to) { return encode(frame, to); });
    EXPECT_EQ(bytes.size(), kSliceBytes + (with != nullptr ? kSliceTagBytes : 0));
    const auto again = decoded<SliceFrame>(bytes);
    EXPECT_EQ(again.region, kRegion);
    EXPECT_EQ(again.record, 0xfedcba98);
    EXPECT_EQ(again.offset, 61'439);
    ASSERT_EQ(again.tag != nullptr, with != nullptr);
    if (with != nullptr) {
      EXPECT_TRUE(std::equal(tag.begin(), tag.end(), again.tag));
    }
  }
}

TEST(GrantFrame, ComesBackAsItWasWritten) {
  for (const Side side : {Side::request, Side::reply, Side::none}) {
    const GrantFrame frame{.side = side,
                           .id = kId,
                           .region = kRegion,
                           .capacity = ~std::uint64_t{0},
                           .lifetime_ms = 30'000,
                           .in_flight_bytes = 0x89abcdef};
    const Bytes bytes = encoded([&](std::byte* to) { return encode(frame, to); });
    EXPECT_EQ(bytes.size(), kGrantBytes);
    const auto again = decoded<GrantFrame>(bytes);
    EXPECT_EQ(again.side, side);
    EXPECT_EQ(again.id.packed(), kId.packed());
    EXPECT_EQ(again.region, kRegion);
    EXPECT_EQ(again.capacity, ~std::uint64_t{0});
    EXPECT_EQ(again.lifetime_ms, 30'000u);
    EXPECT_EQ(again.in_flight_bytes, 0x89abcdefu);
  }
}

TEST(RevokeFrame, ComesBackAsItWasWritten) {
  for (const Side side : {Side::request, Side::reply, Side::none}) {
    const RevokeFrame frame{.side = side, .id = kId, .region = kRegion};
    const Bytes bytes = encoded([&](std::byte* to) { return encode(frame, to); });
    EXPECT_EQ(bytes.size(), kRevokeBytes);
    const auto again = decoded<RevokeFrame>(bytes);
    EXPECT_EQ(again.side, side);
    EXPECT_EQ(again.id.packed(), kId.packed());
    EXPECT_EQ(again.region, kRegion);
  }
}

TEST(SideFrame, ComesBackAsItWasWritten) {
  for (const FrameType type : {FrameType::region_exhausted, FrameType::request_regions, FrameType::transfer_ack}) {
    for (const Side side : {Side::request, Side::reply}) {
      const SideFrame frame{.side = side, .id = kId, .value = 0x01020304};
      const Bytes bytes = encoded([&](std::byte* to) { return encode(type, frame, to); });
      EXPECT_EQ(bytes.size(), kSideBytes);
      EXPECT_EQ(static_cast<FrameType>(bytes[0]), type);
      const auto again = decoded<SideFrame>(bytes);
      EXPECT_EQ(again.side, side);
      EXPECT_EQ(again.id.packed(), kId.packed());
      EXPECT_EQ(again.value, 0x01020304u);
    }
  }
}

TEST(RangeAckFrame, ComesBackAsItWasWritten) {
  for (const Side side : {Side::request, Side::reply}) {
    const RangeAckFrame frame{.side = side, .id = kId, .region = 0x0102030405060708, .bytes = 0x1112131415161718};
    const Bytes bytes = encoded([&](std::byte* to) { return encode(frame, to); });
    EXPECT_EQ(bytes.size(), kRangeAckBytes);
    EXPECT_EQ(static_cast<FrameType>(bytes[0]), FrameType::range_ack);
    const auto again = decoded<RangeAckFrame>(bytes);
    EXPECT_EQ(again.side, side);
    EXPECT_EQ(again.id.packed(), kId.packed());
    EXPECT_EQ(again.region, frame.region);
    EXPECT_EQ(again.bytes, frame.bytes);
  }
}

TEST(RangeAckFrame, OfNothingIsNone) {
  for (const RangeAckFrame& frame : {RangeAckFrame{.side = Side::request, .id = kId, .region = 0, .bytes = 1},
                                     RangeAckFrame{.side = Side::request, .id = kId, .region = 1, .bytes = 0}}) {
    const Bytes bytes = encoded([&](std::byte* to) { return encode(frame, to); });
    RangeAckFrame again;
    EXPECT_EQ(decode(bytes.data(), bytes.data() + bytes.size(), again), nullptr);
  }
}

template <class Frame>
void expect_no_other_sides(Bytes bytes, Side largest) {
  for (unsigned side = 0; side < 256; ++side) {
    bytes[1] = static_cast<std::byte>(side);
    Frame frame;
    const bool known = decode(bytes.data(), bytes.data() + bytes.size(), frame) != nullptr;
    EXPECT_EQ(known, side <= static_cast<unsigned>(largest)) << side;
  }
}

TEST(Side, ThatThereIsNotMakesNoFrame) {
  expect_no_other_sides<GrantFrame>(encoded([](std::byte* to) { return encode(GrantFrame{}, to); }), Side::none);
  expect_no_other_sides<RevokeFrame>(encoded([](std::byte* to) { return encode(RevokeFrame{}, to); }), Side::none);
  // What asks for memory or acknowledges it is about a message.
  expect_no_other_sides<SideFrame>(
      encoded([](std::byte* to) { return encode(FrameType::transfer_ack, SideFrame{}, to); }), Side::reply);
  expect_no_other_sides<RangeAckFrame>(
      encoded([](std::byte* to) { return encode(RangeAckFrame{.region = 1, .bytes = 1}, to); }), Side::reply);
}

TEST(LargeMessageFrames, AreRequestsAndRepliesOfAnotherType) {
  const Bytes body(kCargoBytes, std::byte{7});
  for (const bool is_large : {false, true}) {
    const MessagePart part{.id = kId, .bytes = body, .total = kCargoBytes};
    Bytes bytes = encoded([&](std::byte* to) { return encode(RequestFrame{.part = part, .is_large = is_large}, to); });
    EXPECT_EQ(static_cast<FrameType>(bytes[0]), is_large ? FrameType::large_request : FrameType::request);
    EXPECT_EQ(decoded<RequestFrame>(bytes).is_large, is_large);
    bytes = encoded([&](std::byte* to) { return encode(ReplyFrame{.part = part, .is_large = is_large}, to); });
    EXPECT_EQ(static_cast<FrameType>(bytes[0]), is_large ? FrameType::large_reply : FrameType::reply);
    EXPECT_EQ(decoded<ReplyFrame>(bytes).is_large, is_large);
  }
}

TEST(PacketHeader, TellsDataPacketsFromOthersWithAnyKey) {
  for (unsigned key = 0; key < (1u << kKeyIdBits); ++key) {
    for (const bool is_data : {false, true}) {
      std::byte bytes[kHeaderBytes];
      encode(PacketHeader{.key_low = static_cast<std::uint8_t>(key),
                          .is_data = is_data,
                          .number_low = 0xabcdef,
                          .path = 0x12345678},
             bytes);
      EXPECT_EQ((bytes[0] & std::byte{0x80}) != std::byte{0}, is_data);
      const PacketHeader again = decode_header(bytes);
      EXPECT_EQ(again.type, PacketType::sealed);
      EXPECT_EQ(again.key_low, key);
      EXPECT_EQ(again.is_data, is_data);
      EXPECT_EQ(again.number_low, 0xabcdefu);
      EXPECT_EQ(again.path, 0x12345678u);
    }
  }
}

}  // namespace
}  // namespace weir::wire
