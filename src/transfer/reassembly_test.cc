#include "transfer/reassembly.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/random.h"

namespace weir::transfer {
namespace {

TEST(ByteRanges, CoversNothingAtFirst) {
  ByteRanges ranges;
  EXPECT_FALSE(ranges.covers(1));
}

TEST(ByteRanges, NeighboursBecomeOneInWhateverOrder) {
  ByteRanges ranges;
  EXPECT_TRUE(ranges.add(20, 30));
  EXPECT_TRUE(ranges.add(0, 10));
  EXPECT_FALSE(ranges.covers(30));
  EXPECT_TRUE(ranges.add(10, 20));
  EXPECT_TRUE(ranges.covers(30));
  EXPECT_FALSE(ranges.covers(31));
}

TEST(ByteRanges, AMissingFirstOrLastByteIsNoticed) {
  ByteRanges no_first;
  EXPECT_TRUE(no_first.add(1, 100));
  EXPECT_FALSE(no_first.covers(100));
  ByteRanges no_last;
  EXPECT_TRUE(no_last.add(0, 99));
  EXPECT_FALSE(no_last.covers(100));
}

TEST(ByteRanges, RefusesToGrowBeyondItsBoundButStillMerges) {
  ByteRanges ranges;
  const auto count = static_cast<std::uint32_t>(ByteRanges::kMaxRanges);
  for (std::uint32_t i = 0; i < count; ++i) ASSERT_TRUE(ranges.add(i * 10, i * 10 + 5));
  EXPECT_FALSE(ranges.add(count * 10, count * 10 + 5));
  EXPECT_FALSE(ranges.add(6, 7));
  EXPECT_TRUE(ranges.add(5, 10));  // joins two
  EXPECT_TRUE(ranges.add(count * 10, count * 10 + 5));
  EXPECT_TRUE(ranges.add(0, count * 10 + 5));
  EXPECT_TRUE(ranges.covers(count * 10 + 5));
}

// One bit per byte, for comparison.
class Bitmap {
 public:
  explicit Bitmap(std::size_t bits) : bits_(bits) {}
  void add(std::size_t begin, std::size_t end) {
    std::fill(bits_.begin() + static_cast<std::ptrdiff_t>(begin), bits_.begin() + static_cast<std::ptrdiff_t>(end),
              true);
  }
  std::size_t runs() const {
    std::size_t count = 0;
    for (std::size_t i = 0; i < bits_.size(); ++i) count += bits_[i] && (i == 0 || !bits_[i - 1]);
    return count;
  }
  bool full() const { return std::find(bits_.begin(), bits_.end(), false) == bits_.end(); }

 private:
  std::vector<bool> bits_;
};

class ByteRangesModel : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(ByteRangesModel, AgreesWithABitmap) {
  Random random(GetParam());
  int completed = 0;
  int refused = 0;
  for (int message = 0; message < 15; ++message) {
    // Every other message is so long and cut so small that the bound is met.
    const bool crumbs = message % 2 == 0;
    const auto total = static_cast<std::uint32_t>(crumbs ? 400 + random.below(200) : 1 + random.below(600));
    const std::uint64_t longest = crumbs ? 3 : 200;
    ByteRanges ranges;
    Bitmap bitmap(total);
    for (int i = 0; i < 1'000 && !bitmap.full(); ++i) {
      const auto begin = static_cast<std::uint32_t>(random.below(total));
      const auto end = static_cast<std::uint32_t>(std::min<std::uint64_t>(total, begin + 1 + random.below(longest)));
      Bitmap with = bitmap;
      with.add(begin, end);
      // Refused only if there is no room for another range, and it would be one.
      const bool room = with.runs() <= ByteRanges::kMaxRanges;
      ASSERT_EQ(ranges.add(begin, end), room) << "seed " << GetParam() << " message " << message << " step " << i;
      if (room) {
        bitmap = with;
      } else {
        ++refused;
      }
      ASSERT_EQ(ranges.covers(total), bitmap.full());
    }
    completed += bitmap.full();
  }
  EXPECT_GT(completed, 0);
  EXPECT_GT(refused, 0);
}

INSTANTIATE_TEST_SUITE_P(Seeds, ByteRangesModel, ::testing::Range<std::uint64_t>(1, 9));

// ---- messages ----

std::vector<std::byte> message(std::size_t size, Random& random) {
  std::vector<std::byte> out(size);
  for (auto& byte : out) byte = static_cast<std::byte>(random.next());
  return out;
}

TEST(Reassembly, PutsAMessageTogetherInAnyOrderWithRepeatsAndOverlaps) {
  BlockPool pool;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Random random(seed);
    const auto total = static_cast<std::uint16_t>(2 + random.below(seed % 10 == 0 ? 65'534 : 16'384));
    const std::vector<std::byte> sent = message(total, random);
    Reassembly reassembly(pool.acquire(total), total, 7);

    // Cut once by one MTU, once by another, as after a loss; then shuffled.
    std::vector<std::pair<std::uint32_t, std::uint32_t>> fragments;
    for (int cutting = 0; cutting < 2; ++cutting) {
      const std::uint32_t mtu = 1'100 + static_cast<std::uint32_t>(random.below(8'000));
      for (std::uint32_t at = 0; at < total; at += mtu)
        fragments.emplace_back(at, std::min<std::uint32_t>(mtu, total - at));
    }
    for (std::size_t i = fragments.size(); i > 1; --i) std::swap(fragments[i - 1], fragments[random.below(i)]);

    Bitmap arrived(total);
    for (const auto& [offset, length] : fragments) {
      ASSERT_TRUE(reassembly.add(offset, std::span(sent).subspan(offset, length)));
      arrived.add(offset, offset + length);
      ASSERT_EQ(reassembly.complete(), arrived.full()) << "seed " << seed;
    }
    ASSERT_TRUE(reassembly.complete());
    const ByteSpan got = reassembly.bytes();
    EXPECT_TRUE(std::equal(got.begin(), got.end(), sent.begin(), sent.end()));
    EXPECT_EQ(reassembly.header_bytes(), 7);
  }
  EXPECT_EQ(pool.outstanding(), 0u);
}

TEST(Reassembly, AcceptsOnlyFragmentsOfTheSameMessage) {
  BlockPool pool;
  const Reassembly reassembly(pool.acquire(100), 100, 7);
  EXPECT_TRUE(reassembly.fits(100, 7));
  EXPECT_FALSE(reassembly.fits(101, 7));
  EXPECT_FALSE(reassembly.fits(100, 0));
}

TEST(Reassembly, CountsAcknowledgementsWithoutMemory) {
  Reassembly reassembly(nullptr, 3'000, 0);
  EXPECT_TRUE(reassembly.acknowledge(1'000, 1'000));
  EXPECT_TRUE(reassembly.acknowledge(0, 1'000));
  EXPECT_TRUE(reassembly.acknowledge(0, 1'000));
  EXPECT_FALSE(reassembly.complete());
  EXPECT_TRUE(reassembly.acknowledge(2'000, 1'000));
  EXPECT_TRUE(reassembly.complete());
}

TEST(Reassembly, WhoeverPinsItsBlockKeepsTheBytesLonger) {
  BlockPool pool;
  Block* block = nullptr;
  {
    Reassembly reassembly(pool.acquire(600), 600, 0);
    const std::vector<std::byte> bytes(600, std::byte{0x42});
    ASSERT_TRUE(reassembly.add(0, bytes));
    block = reassembly.block();
    detail::pin(block);
  }
  EXPECT_EQ(pool.outstanding(), 1u);
  EXPECT_EQ(block->bytes()[599], std::byte{0x42});
  detail::unpin(block);
  EXPECT_EQ(pool.outstanding(), 0u);
}

// The largest message at the smallest MTU, every second fragment lost, and the lost ones cut in two when sent again:
// an honest sender stays within the bound.
TEST(Reassembly, AnHonestSendersWorstCaseFits) {
  BlockPool pool;
  constexpr std::uint16_t kTotal = 65'535;
  constexpr std::uint32_t kPiece = 1'100;
  Reassembly reassembly(pool.acquire(kTotal), kTotal, 0);
  const std::vector<std::byte> bytes(kTotal);
  const auto add = [&](std::uint32_t begin, std::uint32_t end) {
    end = std::min<std::uint32_t>(end, kTotal);
    return begin >= end || reassembly.add(begin, std::span(bytes).subspan(begin, end - begin));
  };
  for (std::uint32_t at = 0; at < kTotal; at += 2 * kPiece) ASSERT_TRUE(add(at, at + kPiece));
  for (std::uint32_t at = kPiece; at < kTotal; at += 2 * kPiece) ASSERT_TRUE(add(at + 300, at + 600));
  EXPECT_FALSE(reassembly.complete());
  for (std::uint32_t at = kPiece; at < kTotal; at += 2 * kPiece) {
    ASSERT_TRUE(add(at, at + 300));
    ASSERT_TRUE(add(at + 600, at + kPiece));
  }
  EXPECT_TRUE(reassembly.complete());
}

}  // namespace
}  // namespace weir::transfer
