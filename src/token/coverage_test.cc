// Which bytes of a large message are there (docs/protocol.md, rule G-6).
#include "token/coverage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/random.h"

namespace weir::token {
namespace {

using Added = Coverage::Added;

TEST(Coverage, BytesInOrderBorrowNothing) {
  CoveragePool pool;
  Coverage coverage;
  EXPECT_TRUE(coverage.covers(0));
  EXPECT_FALSE(coverage.covers(1));
  EXPECT_EQ(coverage.add(pool, 0, 10), Added::grew);
  EXPECT_EQ(coverage.add(pool, 10, 20), Added::grew);
  EXPECT_EQ(coverage.add(pool, 5, 20), Added::nothing_new);
  EXPECT_TRUE(coverage.covers(20));
  EXPECT_FALSE(coverage.covers(21));
  EXPECT_EQ(pool.lent(), 0u);
}

TEST(Coverage, AGapThatClosesGivesItsRecordBack) {
  CoveragePool pool;
  Coverage coverage;
  EXPECT_EQ(coverage.add(pool, 10, 20), Added::grew);
  EXPECT_EQ(coverage.add(pool, 30, 40), Added::grew);
  EXPECT_EQ(pool.lent(), 1u);
  EXPECT_EQ(coverage.add(pool, 32, 38), Added::nothing_new);
  EXPECT_FALSE(coverage.covers(1));
  EXPECT_EQ(coverage.bytes(), 20u);
  EXPECT_EQ(coverage.add(pool, 0, 10), Added::grew);
  EXPECT_TRUE(coverage.covers(20));
  EXPECT_EQ(coverage.add(pool, 15, 35), Added::grew);
  EXPECT_TRUE(coverage.covers(40));
  EXPECT_EQ(pool.lent(), 0u);
}

TEST(Coverage, OneHoleTooManyIsRefusedAndForgotten) {
  CoveragePool pool;
  Coverage coverage;
  for (std::uint64_t i = 1; i <= CoverageRanges::kMax; ++i) {
    ASSERT_EQ(coverage.add(pool, i * 10, i * 10 + 5), Added::grew);
  }
  const std::uint64_t bytes = coverage.bytes();
  EXPECT_EQ(coverage.add(pool, 10'000, 10'005), Added::no_room);
  EXPECT_EQ(coverage.bytes(), bytes);
  EXPECT_EQ(coverage.add(pool, 15, 20), Added::grew) << "what fills a hole is welcome";
  EXPECT_EQ(coverage.add(pool, 10'000, 10'005), Added::grew);
  coverage.clear(pool);
  EXPECT_EQ(pool.lent(), 0u);
}

TEST(Coverage, OffsetsBeyondFourGigabytesAreToldApart) {
  CoveragePool pool;
  Coverage coverage;
  constexpr std::uint64_t kFar = std::uint64_t{5} << 32;
  EXPECT_EQ(coverage.add(pool, kFar, kFar + 10), Added::grew);
  EXPECT_EQ(coverage.add(pool, 0, 10), Added::grew);
  EXPECT_FALSE(coverage.covers(11));
  EXPECT_EQ(coverage.add(pool, 10, kFar), Added::grew);
  EXPECT_TRUE(coverage.covers(kFar + 10));
}

TEST(Coverage, AgreesWithAListOfBytes) {
  constexpr std::uint64_t kBytes = 400;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Random random(seed);
    CoveragePool pool;
    Coverage coverage;
    std::vector<bool> there(kBytes);
    for (int step = 0; step < 200; ++step) {
      const std::uint64_t begin = random.below(kBytes - 1);
      const std::uint64_t end = std::min(kBytes, begin + 1 + random.below(seed % 2 == 0 ? 3 : 30));
      const auto before = static_cast<std::uint64_t>(std::count(there.begin(), there.end(), true));
      const Added added = coverage.add(pool, begin, end);
      if (added != Added::no_room) {
        std::fill(there.begin() + static_cast<std::ptrdiff_t>(begin), there.begin() + static_cast<std::ptrdiff_t>(end),
                  true);
      }
      const auto after = static_cast<std::uint64_t>(std::count(there.begin(), there.end(), true));
      ASSERT_EQ(coverage.bytes(), after);
      ASSERT_EQ(added == Added::grew, after > before);
      const auto prefix = static_cast<std::uint64_t>(std::find(there.begin(), there.end(), false) - there.begin());
      ASSERT_EQ(coverage.prefix(), prefix);
    }
  }
}

}  // namespace
}  // namespace weir::token
