// The layouts of all frames but those of large messages (docs/protocol.md, rules F-3 to F-9 and F-11).
#include "wire/frame.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "wire/wire_testing.h"

namespace weir::wire {
namespace {

constexpr std::uint64_t kMax64 = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint32_t kMax32 = std::numeric_limits<std::uint32_t>::max();

Bytes message(std::size_t size) {
  Bytes out(size);
  for (std::size_t i = 0; i < size; ++i) out[i] = static_cast<std::byte>(i * 7 + 1);
  return out;
}

bool same(const MessagePart& left, const MessagePart& right) {
  return left.id.slot == right.id.slot && left.id.generation == right.id.generation &&
         std::equal(left.bytes.begin(), left.bytes.end(), right.bytes.begin(), right.bytes.end()) &&
         left.header_bytes == right.header_bytes && left.total == right.total && left.offset == right.offset;
}

MessagePart whole(const Bytes& bytes, std::uint16_t header_bytes = 0) {
  return {.id = {.slot = 5, .generation = 9},
          .bytes = bytes,
          .header_bytes = header_bytes,
          .total = static_cast<std::uint16_t>(bytes.size())};
}

MessagePart fragment(const Bytes& bytes, std::uint16_t total, std::uint16_t offset, std::uint16_t header_bytes = 0) {
  MessagePart part = whole(bytes, header_bytes);
  part.total = total;
  part.offset = offset;
  return part;
}

TEST(TransferId, PacksSlotAndGenerationAtTheirBounds) {
  for (const std::uint32_t slot : {0u, 1u, kMaxSlots - 1}) {
    for (const std::uint64_t generation : {std::uint64_t{0}, std::uint64_t{1}, kMaxGeneration}) {
      const TransferId id = TransferId::unpack(TransferId{slot, generation}.packed());
      EXPECT_EQ(id.slot, slot);
      EXPECT_EQ(id.generation, generation);
    }
  }
  EXPECT_EQ((TransferId{kMaxSlots - 1, kMaxGeneration}.packed()), kMax64);
  EXPECT_EQ((TransferId{2, 3}.packed()), 0x3000002u);
}

TEST(RequestFrame, SurvivesARoundTripAtBoundaryValues) {
  const Bytes sizes[] = {message(0), message(1), message(255), message(65'535)};
  for (const Bytes& bytes : sizes) {
    for (const std::uint16_t header_bytes : {std::size_t{0}, std::min<std::size_t>(1, bytes.size()), bytes.size()}) {
      for (const std::uint8_t priority : {0, 7}) {
        for (const std::uint8_t depth : {0, 7}) {
          const RequestFrame frame{.part = whole(bytes, header_bytes),
                                   .method = kMax64 - priority,
                                   .time_left_us = depth == 0 ? 0 : kMax32,
                                   .priority = priority,
                                   .depth = depth};
          const Bytes out = encoded([&](std::byte* to) { return encode(frame, to); });
          EXPECT_EQ(out.size(), overhead(kRequestBytes, header_bytes, false) + bytes.size());
          const ExactCopy copy(out);
          RequestFrame back;
          ASSERT_EQ(decode(copy.begin(), copy.end(), back), copy.end());
          EXPECT_TRUE(same(frame.part, back.part));
          EXPECT_TRUE(back.part.is_whole());
          EXPECT_EQ(back.method, frame.method);
          EXPECT_EQ(back.time_left_us, frame.time_left_us);
          EXPECT_EQ(back.priority, priority);
          EXPECT_EQ(back.depth, depth);
        }
      }
    }
  }
}

TEST(RequestFrame, HasTheLayoutThatTheDocumentPromises) {
  const Bytes body = {std::byte{0xaa}, std::byte{0xbb}};
  const RequestFrame frame{.part = {.id = {.slot = 0x030201, .generation = 0x0807060504},
                                    .bytes = body,
                                    .header_bytes = 1,
                                    .total = 0x0105,
                                    .offset = 0x0103},
                           .method = 0x1817161514131211,
                           .time_left_us = 0x24232221,
                           .priority = 2,
                           .depth = 3};
  const Bytes out = encoded([&](std::byte* to) { return encode(frame, to); });
  const std::uint8_t expected[] = {0x01, 0xda, 0x02, 0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07,
                                   0x08, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x21, 0x22,
                                   0x23, 0x24, 0x01, 0x00, 0x05, 0x01, 0x03, 0x01, 0xaa, 0xbb};
  ASSERT_EQ(out.size(), std::size(expected));
  for (std::size_t i = 0; i < out.size(); ++i) EXPECT_EQ(std::to_integer<int>(out[i]), expected[i]) << "byte " << i;
}

TEST(RequestFrame, CarriesTheLargestReplyThatItsCallAcceptsInFrontOfTheMessage) {
  const Bytes body = {std::byte{0xaa}};
  for (const bool is_large : {false, true}) {
    const RequestFrame frame{.part = {.id = {.slot = 0x030201, .generation = 0x0807060504}, .bytes = body, .total = 1},
                             .method = 0x1817161514131211,
                             .time_left_us = 0x24232221,
                             .max_reply = 0x34333231,
                             .is_large = is_large};
    Bytes out = encoded([&](std::byte* to) { return encode(frame, to); });
    const std::uint8_t expected[] = {0x1a, 0x00, 0x01, 0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06,
                                     0x07, 0x08, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18,
                                     0x21, 0x22, 0x23, 0x24, 0x31, 0x32, 0x33, 0x34, 0xaa};
    ASSERT_EQ(out.size(), std::size(expected));
    ASSERT_EQ(out.size(), request_bytes(frame.max_reply) + body.size());
    EXPECT_EQ(std::to_integer<int>(out[0]), is_large ? 0x1b : 0x1a);
    for (std::size_t i = 1; i < out.size(); ++i) EXPECT_EQ(std::to_integer<int>(out[i]), expected[i]) << "byte " << i;
    RequestFrame back;
    ASSERT_EQ(decode(out.data(), out.data() + out.size(), back), out.data() + out.size());
    EXPECT_EQ(back.max_reply, frame.max_reply);
    EXPECT_EQ(back.is_large, is_large);
    EXPECT_TRUE(same(frame.part, back.part));
    store<std::uint32_t>(out.data() + kRequestBytes, kAnyReply);
    EXPECT_EQ(decode(out.data(), out.data() + out.size(), back), nullptr) << "that is no bound";
  }
}

TEST(ReplyFrame, HasTheLayoutThatTheDocumentPromises) {
  const Bytes body = {std::byte{0xaa}};
  const ReplyFrame frame{.part = {.id = {.slot = 0x030201, .generation = 0x0807060504}, .bytes = body, .total = 1},
                         .failed = true};
  const Bytes out = encoded([&](std::byte* to) { return encode(frame, to); });
  const std::uint8_t expected[] = {0x02, 0x01, 0x01, 0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0xaa};
  ASSERT_EQ(out.size(), std::size(expected));
  for (std::size_t i = 0; i < out.size(); ++i) EXPECT_EQ(std::to_integer<int>(out[i]), expected[i]) << "byte " << i;
}

TEST(RequestFrame, FragmentsSurviveARoundTrip) {
  const Bytes one = message(1);
  const Bytes many = message(1'000);
  const MessagePart parts[] = {
      fragment(one, 2, 0),           fragment(one, 2, 1),
      fragment(one, 65'535, 65'534), fragment(many, 65'535, 0),
      fragment(many, 1'001, 1),      fragment(many, 65'535, 64'535),
      fragment(many, 16'384, 0, 10), fragment(one, 65'535, 3, 65'535),
  };
  for (const MessagePart& part : parts) {
    const RequestFrame frame{.part = part, .method = 1};
    const Bytes out = encoded([&](std::byte* to) { return encode(frame, to); });
    EXPECT_EQ(out.size(), overhead(kRequestBytes, part.header_bytes, true) + part.bytes.size());
    const ExactCopy copy(out);
    RequestFrame back;
    ASSERT_EQ(decode(copy.begin(), copy.end(), back), copy.end());
    EXPECT_TRUE(same(part, back.part));
    EXPECT_FALSE(back.part.is_whole());
  }
}

TEST(ReplyFrame, SurvivesARoundTripAtBoundaryValues) {
  const Bytes sizes[] = {message(0), message(1), message(1'000), message(65'535)};
  for (const Bytes& bytes : sizes) {
    for (const bool failed : {false, true}) {
      const ReplyFrame frame{.part = whole(bytes, bytes.empty() ? 0 : 1), .failed = failed};
      const ExactCopy copy(encoded([&](std::byte* to) { return encode(frame, to); }));
      ReplyFrame back;
      ASSERT_EQ(decode(copy.begin(), copy.end(), back), copy.end());
      EXPECT_TRUE(same(frame.part, back.part));
      EXPECT_EQ(back.failed, failed);
    }
  }
}

TEST(RequestFrame, IsRejectedWhereverItIsCut) {
  const auto decode_from = [](const std::byte* at, const std::byte* end) {
    RequestFrame frame;
    return decode(at, end, frame);
  };
  const Bytes body = message(20);
  for (const MessagePart& part : {whole(body), whole(body, 3), fragment(body, 40, 20), fragment(body, 40, 0, 40)}) {
    for (const std::uint32_t max_reply : {kAnyReply, 0u}) {
      const RequestFrame frame{.part = part, .method = 1, .max_reply = max_reply, .priority = 7, .depth = 7};
      expect_every_truncation_rejected(encoded([&](std::byte* to) { return encode(frame, to); }), decode_from);
    }
  }
}

TEST(ReplyFrame, IsRejectedWhereverItIsCut) {
  const auto decode_from = [](const std::byte* at, const std::byte* end) {
    ReplyFrame frame;
    return decode(at, end, frame);
  };
  const Bytes body = message(20);
  for (const MessagePart& part : {whole(body), whole(body, 3), fragment(body, 40, 20), fragment(body, 40, 0, 40)}) {
    expect_every_truncation_rejected(
        encoded([&](std::byte* to) { return encode(ReplyFrame{.part = part, .failed = true}, to); }), decode_from);
  }
}

class ImpossibleFragment : public ::testing::Test {
 protected:
  // Encodes without believing in it, as a hostile peer would.
  static bool decodes(std::uint16_t length, std::uint16_t total, std::uint16_t offset, std::uint16_t header_bytes = 0) {
    Bytes bytes(kReplyBytes);
    bytes[0] = static_cast<std::byte>(FrameType::reply);
    bytes[1] = static_cast<std::byte>(flag::kFragment | (header_bytes != 0 ? flag::kHasHeader : 0));
    store<std::uint16_t>(bytes.data() + 2, length);
    const auto append16 = [&](std::uint16_t value) {
      bytes.resize(bytes.size() + 2);
      store<std::uint16_t>(bytes.data() + bytes.size() - 2, value);
    };
    if (header_bytes != 0) append16(header_bytes);
    append16(total);
    append16(offset);
    bytes.resize(bytes.size() + length);
    const ExactCopy copy(bytes);
    ReplyFrame frame;
    return decode(copy.begin(), copy.end(), frame) != nullptr;
  }
};

TEST_F(ImpossibleFragment, EmptyOnesAreRejected) {
  EXPECT_TRUE(decodes(1, 10, 0));
  EXPECT_FALSE(decodes(0, 10, 0));
  EXPECT_FALSE(decodes(0, 0, 0));
}

TEST_F(ImpossibleFragment, OnesThatAreTheWholeMessageOrMoreAreRejected) {
  EXPECT_TRUE(decodes(9, 10, 0));
  EXPECT_FALSE(decodes(10, 10, 0));
  EXPECT_FALSE(decodes(11, 10, 0));
  EXPECT_FALSE(decodes(65'535, 65'535, 0));
}

TEST_F(ImpossibleFragment, OnesThatReachBeyondTheMessageAreRejected) {
  EXPECT_TRUE(decodes(5, 10, 5));
  EXPECT_FALSE(decodes(5, 10, 6));
  EXPECT_FALSE(decodes(5, 10, 65'535));
  EXPECT_FALSE(decodes(2, 65'535, 65'534));
  EXPECT_TRUE(decodes(1, 65'535, 65'534));
}

TEST_F(ImpossibleFragment, AHeaderLargerThanItsMessageIsRejected) {
  EXPECT_TRUE(decodes(5, 10, 0, 10));
  EXPECT_FALSE(decodes(5, 10, 0, 11));
  const Bytes body = message(4);
  for (const std::uint16_t header_bytes : {4, 5}) {
    const ExactCopy copy(
        encoded([&](std::byte* to) { return encode(ReplyFrame{.part = whole(body, header_bytes)}, to); }));
    ReplyFrame frame;
    EXPECT_EQ(decode(copy.begin(), copy.end(), frame) != nullptr, header_bytes == 4);
  }
}

TEST(CancelFrame, SurvivesARoundTripAndIsRejectedWhereverItIsCut) {
  for (const CancelFrame& frame : {CancelFrame{.id = {0, 0}, .level = 0, .total = 0},
                                   CancelFrame{.id = {kMaxSlots - 1, kMaxGeneration}, .level = 4, .total = 65'535}}) {
    const Bytes bytes = encoded([&](std::byte* to) { return encode(frame, to); });
    EXPECT_EQ(bytes[0], std::byte{4});
    EXPECT_LE(bytes.size(), kSmallFrameBytes);
    expect_every_truncation_rejected(bytes, [&](const std::byte* at, const std::byte* end) {
      CancelFrame back;
      const std::byte* next = decode(at, end, back);
      if (next != nullptr) {
        EXPECT_EQ(back.id.packed(), frame.id.packed());
        EXPECT_EQ(back.level, frame.level);
        EXPECT_EQ(back.total, frame.total);
      }
      return next;
    });
  }
}

TEST(RetireFrame, SurvivesARoundTripAndIsRejectedWhereverItIsCut) {
  for (const std::uint32_t key_id : {0u, 1u, kMax32}) {
    RetireFrame frame{.key_id = key_id};
    for (std::size_t i = 0; i < frame.mac.size(); ++i) frame.mac[i] = static_cast<std::byte>(i * 17 + 1);
    const Bytes bytes = encoded([&](std::byte* to) { return encode(frame, to); });
    EXPECT_EQ(bytes.size(), kRetireFrameBytes);
    expect_every_truncation_rejected(bytes, [&](const std::byte* at, const std::byte* end) {
      RetireFrame back;
      const std::byte* next = decode(at, end, back);
      if (next != nullptr) {
        EXPECT_EQ(back.key_id, key_id);
        EXPECT_EQ(back.mac, frame.mac);
      }
      return next;
    });
  }
}

TEST(RetireFrame, HasTheLayoutThatTheDocumentPromises) {
  RetireFrame frame{.key_id = 0x04030201};
  frame.mac.fill(std::byte{0xaa});
  const Bytes out = encoded([&](std::byte* to) { return encode(frame, to); });
  Bytes expected(kRetireFrameBytes, std::byte{0xaa});
  for (std::size_t i = 0; i < kRetireBytes; ++i) expected[i] = static_cast<std::byte>(i == 0 ? 13 : i);
  EXPECT_EQ(out, expected);
}

TEST(SmallFrames, SurviveARoundTripAndAreRejectedWhereverTheyAreCut) {
  for (const std::uint64_t value : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 32, kMax64}) {
    const Bytes level = encoded([&](std::byte* to) { return encode_level(FrameType::credit, 4, value, to); });
    EXPECT_LE(level.size(), kSmallFrameBytes);
    expect_every_truncation_rejected(level, [&](const std::byte* at, const std::byte* end) {
      std::uint8_t got_level = 0;
      std::uint64_t got = 0;
      const std::byte* next = decode_level(at, end, got_level, got);
      if (next != nullptr) {
        EXPECT_EQ(got_level, 4);
        EXPECT_EQ(got, value);
      }
      return next;
    });
    const Bytes wide = encoded([&](std::byte* to) { return encode_u64(FrameType::flow_reset, value, to); });
    EXPECT_LE(wide.size(), kSmallFrameBytes);
    expect_every_truncation_rejected(wide, [&](const std::byte* at, const std::byte* end) {
      std::uint64_t got = 0;
      const std::byte* next = decode_u64(at, end, got);
      if (next != nullptr) {
        EXPECT_EQ(got, value);
      }
      return next;
    });
  }
  for (const std::uint32_t value : {0u, 1u, kMax32}) {
    PathFrame path{.path = value};
    path.reset_key.fill(std::byte{0x5a});
    expect_every_truncation_rejected(encoded([&](std::byte* to) { return encode(path, to); }),
                                     [&](const std::byte* at, const std::byte* end) {
                                       PathFrame got;
                                       const std::byte* next = decode(at, end, got);
                                       if (next != nullptr) {
                                         EXPECT_EQ(got.path, value);
                                         EXPECT_EQ(got.reset_key, path.reset_key);
                                       }
                                       return next;
                                     });
  }
  const Bytes bare = encoded([](std::byte* to) { return encode_bare(FrameType::ping, to); });
  ASSERT_EQ(bare.size(), 1u);
  EXPECT_EQ(bare[0], std::byte{12});
}

TEST(BlockedFrame, CarriesEveryLevelAndPriority) {
  for (std::uint8_t level = 0; level < 8; ++level) {
    for (std::uint8_t priority = 0; priority < 8; ++priority) {
      const BlockedFrame frame{.level = level, .priority = priority, .needed = 0x0123456789abcdef};
      expect_every_truncation_rejected(encoded([&](std::byte* to) { return encode(frame, to); }),
                                       [&](const std::byte* at, const std::byte* end) {
                                         BlockedFrame got;
                                         const std::byte* next = decode(at, end, got);
                                         if (next != nullptr) {
                                           EXPECT_EQ(got.level, level);
                                           EXPECT_EQ(got.priority, priority);
                                           EXPECT_EQ(got.needed, frame.needed);
                                         }
                                         return next;
                                       });
    }
  }
}

TEST(BlockedFrame, WithUnknownBitsMakesNoSense) {
  for (const unsigned byte : {64u, 128u, 255u}) {
    const Bytes bytes = encoded(
        [&](std::byte* to) { return encode_level(FrameType::blocked, static_cast<std::uint8_t>(byte), 1, to); });
    BlockedFrame got;
    EXPECT_EQ(decode(bytes.data(), bytes.data() + bytes.size(), got), nullptr) << byte;
  }
}

TEST(SmallFrames, CarryTheirTypeInTheFirstByte) {
  EXPECT_EQ(encoded([](std::byte* to) { return encode_level(FrameType::credit, 0, 0, to); })[0], std::byte{5});
  EXPECT_EQ(encoded([](std::byte* to) { return encode_level(FrameType::blocked, 0, 0, to); })[0], std::byte{6});
  EXPECT_EQ(encoded([](std::byte* to) { return encode_u64(FrameType::probe, 0, to); })[0], std::byte{7});
  EXPECT_EQ(encoded([](std::byte* to) { return encode_u64(FrameType::probe_response, 0, to); })[0], std::byte{8});
  EXPECT_EQ(encoded([](std::byte* to) { return encode_u64(FrameType::path_challenge, 0, to); })[0], std::byte{24});
  EXPECT_EQ(encoded([](std::byte* to) { return encode_u64(FrameType::path_response, 0, to); })[0], std::byte{25});
  EXPECT_EQ(encoded([](std::byte* to) { return encode_u64(FrameType::flow_reset, 0, to); })[0], std::byte{9});
  EXPECT_EQ(encoded([](std::byte* to) { return encode_level(FrameType::close, 0, 0, to); })[0], std::byte{10});
  EXPECT_EQ(encoded([](std::byte* to) { return encode(PathFrame{}, to); })[0], std::byte{11});
}

}  // namespace
}  // namespace weir::wire
