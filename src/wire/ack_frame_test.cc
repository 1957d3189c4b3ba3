// The ack frame (docs/protocol.md, rule F-4).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "base/random.h"
#include "wire/frame.h"
#include "wire/wire_testing.h"

namespace weir::wire {
namespace {

constexpr std::uint64_t kMax64 = std::numeric_limits<std::uint64_t>::max();

AckFrame ack(std::vector<AckFrame::Range> ranges, bool ecn = false) {
  AckFrame frame;
  frame.largest = ranges.front().last;
  frame.delay_us = 77;
  frame.has_ecn = ecn;
  if (ecn) {
    frame.ect0 = kMax64;
    frame.ect1 = 1;
    frame.ce = kMax64 - 1;
  }
  frame.count = ranges.size();
  std::copy(ranges.begin(), ranges.end(), frame.ranges);
  return frame;
}

void expect_round_trip(const AckFrame& frame) {
  const Bytes out = encoded([&](std::byte* to) { return encode(frame, to); });
  EXPECT_EQ(out.size(), kAckFixedBytes + (frame.count - 1) * kAckRangeBytes + (frame.has_ecn ? kAckEcnBytes : 0));
  const ExactCopy copy(out);
  AckFrame back;
  ASSERT_EQ(decode(copy.begin(), copy.end(), back), copy.end());
  EXPECT_EQ(back.largest, frame.largest);
  EXPECT_EQ(back.delay_us, frame.delay_us);
  ASSERT_EQ(back.count, frame.count);
  for (std::size_t i = 0; i < frame.count; ++i) {
    EXPECT_EQ(back.ranges[i].first, frame.ranges[i].first) << "range " << i;
    EXPECT_EQ(back.ranges[i].last, frame.ranges[i].last) << "range " << i;
  }
  ASSERT_EQ(back.has_ecn, frame.has_ecn);
  if (frame.has_ecn) {
    EXPECT_EQ(back.ect0, frame.ect0);
    EXPECT_EQ(back.ect1, frame.ect1);
    EXPECT_EQ(back.ce, frame.ce);
  }
}

TEST(AckFrame, SurvivesARoundTripAtBoundaryValues) {
  for (const bool ecn : {false, true}) {
    expect_round_trip(ack({{0, 0}}, ecn));
    expect_round_trip(ack({{0, kMax64}}, ecn));
    expect_round_trip(ack({{kMax64, kMax64}}, ecn));
    expect_round_trip(ack({{2, 2}, {0, 0}}, ecn));  // the smallest gap there is
    expect_round_trip(ack({{kMax64, kMax64}, {0, 0}}, ecn));
    expect_round_trip(ack({{kMax64 - 5, kMax64}, {100, 1'000}, {3, 7}, {0, 1}}, ecn));
  }
}

TEST(AckFrame, CarriesAsManyRangesAsItsBoundAndNoMore) {
  std::vector<AckFrame::Range> ranges;
  for (std::uint64_t i = AckFrame::kMaxRanges; i-- > 0;) ranges.push_back({i * 3, i * 3 + 1});
  const AckFrame frame = ack(ranges, true);
  expect_round_trip(frame);

  Bytes more = encoded([&](std::byte* to) { return encode(frame, to); });
  more[1] = static_cast<std::byte>(AckFrame::kMaxRanges);  // one range more, without ECN
  more.resize(more.size() + 1'000);
  AckFrame back;
  EXPECT_EQ(decode(more.data(), more.data() + more.size(), back), nullptr);
  more[1] = std::byte{0x7f};
  EXPECT_EQ(decode(more.data(), more.data() + more.size(), back), nullptr);
}

TEST(AckFrame, IsRejectedWhereverItIsCut) {
  const auto decode_from = [](const std::byte* at, const std::byte* end) {
    AckFrame frame;
    return decode(at, end, frame);
  };
  for (const bool ecn : {false, true}) {
    for (const AckFrame& frame : {ack({{5, 9}}, ecn), ack({{50, 59}, {30, 40}, {1, 2}}, ecn)}) {
      expect_every_truncation_rejected(encoded([&](std::byte* to) { return encode(frame, to); }), decode_from);
    }
  }
}

class ImpossibleAck : public ::testing::Test {
 protected:
  static const std::byte* decode_raw(std::uint64_t largest, std::uint64_t first_length,
                                     std::vector<std::pair<std::uint64_t, std::uint64_t>> gaps, AckFrame& frame) {
    bytes_.assign(kAckFixedBytes, std::byte{0});
    bytes_[0] = static_cast<std::byte>(FrameType::ack);
    bytes_[1] = static_cast<std::byte>(gaps.size());
    store<std::uint64_t>(bytes_.data() + 2, largest);
    store<std::uint64_t>(bytes_.data() + 14, first_length);
    for (const auto& [gap, length] : gaps) {
      bytes_.resize(bytes_.size() + kAckRangeBytes);
      store<std::uint64_t>(bytes_.data() + bytes_.size() - 16, gap);
      store<std::uint64_t>(bytes_.data() + bytes_.size() - 8, length);
    }
    return decode(bytes_.data(), bytes_.data() + bytes_.size(), frame);
  }
  static bool decodes(std::uint64_t largest, std::uint64_t first_length,
                      std::vector<std::pair<std::uint64_t, std::uint64_t>> gaps = {}) {
    AckFrame frame;
    return decode_raw(largest, first_length, std::move(gaps), frame) != nullptr;
  }
  inline static Bytes bytes_;
};

TEST_F(ImpossibleAck, AFirstRangeBelowZeroIsRejected) {
  EXPECT_TRUE(decodes(10, 10));
  EXPECT_FALSE(decodes(10, 11));
  EXPECT_FALSE(decodes(0, 1));
  EXPECT_FALSE(decodes(10, kMax64));
  EXPECT_TRUE(decodes(kMax64, kMax64));
}

TEST_F(ImpossibleAck, AFurtherRangeBelowZeroIsRejected) {
  EXPECT_TRUE(decodes(10, 0, {{7, 1}}));   // 10, then 0..1
  EXPECT_FALSE(decodes(10, 0, {{7, 2}}));  // its first would be -1
  EXPECT_TRUE(decodes(10, 0, {{8, 0}}));   // 10, then 0
  EXPECT_FALSE(decodes(10, 0, {{9, 0}}));  // its last would be -1
  EXPECT_FALSE(decodes(1, 0, {{0, 0}}));   // no room for a gap and a packet below 1
  EXPECT_FALSE(decodes(0, 0, {{0, 0}}));
  EXPECT_TRUE(decodes(2, 0, {{0, 0}}));
  EXPECT_FALSE(decodes(10, 0, {{0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}}));  // 10, 8, 6, 4, 2, 0, and -2
}

TEST_F(ImpossibleAck, SumsThatWouldWrapAreRejected) {
  EXPECT_FALSE(decodes(10, 0, {{kMax64, 0}}));
  EXPECT_FALSE(decodes(10, 0, {{0, kMax64}}));
  EXPECT_FALSE(decodes(10, 0, {{kMax64, kMax64}}));
  EXPECT_FALSE(decodes(10, 0, {{kMax64 - 1, 1}}));
  EXPECT_FALSE(decodes(kMax64, 0, {{kMax64 - 2, 1}}));
  EXPECT_TRUE(decodes(kMax64, 0, {{kMax64 - 2, 0}}));
}

TEST_F(ImpossibleAck, WhateverDecodesIsDescendingAndNeverTouching) {
  Random random(7);
  int decoded = 0;
  for (int i = 0; i < 50'000; ++i) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> gaps(random.below(6));
    for (auto& [gap, length] : gaps) {
      gap = random.chance(0.05) ? random.next() : random.below(20);
      length = random.chance(0.05) ? random.next() : random.below(20);
    }
    AckFrame frame;
    if (decode_raw(random.below(200), random.below(40), gaps, frame) == nullptr) continue;
    ++decoded;
    ASSERT_EQ(frame.ranges[0].last, frame.largest);
    for (std::size_t range = 0; range < frame.count; ++range) {
      ASSERT_LE(frame.ranges[range].first, frame.ranges[range].last);
      if (range > 0) {
        ASSERT_LT(frame.ranges[range].last + 1, frame.ranges[range - 1].first);
      }
    }
  }
  EXPECT_GT(decoded, 1'000);
}

}  // namespace
}  // namespace weir::wire
