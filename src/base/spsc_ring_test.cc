#include "base/spsc_ring.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "base/random.h"

namespace weir {
namespace {

TEST(SpscRing, RoundsItsCapacityUpToAPowerOfTwo) {
  EXPECT_EQ(SpscRing<int>(1).capacity(), 1u);
  EXPECT_EQ(SpscRing<int>(5).capacity(), 8u);
  EXPECT_EQ(SpscRing<int>(8).capacity(), 8u);
}

TEST(SpscRing, HidesItemsUntilTheyArePublished) {
  SpscRing<int> ring(4);
  int item = 0;
  EXPECT_FALSE(ring.publish());
  ASSERT_TRUE(ring.try_push(7));
  EXPECT_TRUE(ring.empty());
  EXPECT_FALSE(ring.try_pop(item));
  EXPECT_TRUE(ring.publish());
  EXPECT_FALSE(ring.publish());
  EXPECT_FALSE(ring.empty());
  ASSERT_TRUE(ring.try_pop(item));
  EXPECT_EQ(item, 7);
  EXPECT_TRUE(ring.empty());
}

TEST(SpscRing, RefusesAnItemWhenFullAndLeavesItToTheCaller) {
  SpscRing<std::unique_ptr<int>> ring(2);
  ASSERT_TRUE(ring.try_push(std::make_unique<int>(1)));
  ASSERT_TRUE(ring.try_push(std::make_unique<int>(2)));
  auto third = std::make_unique<int>(3);
  EXPECT_EQ(ring.free_space(), 0u);
  EXPECT_FALSE(ring.try_push(std::move(third)));
  ASSERT_NE(third, nullptr);

  ring.publish();
  std::unique_ptr<int> out;
  ASSERT_TRUE(ring.try_pop(out));
  EXPECT_EQ(*out, 1);
  EXPECT_EQ(ring.free_space(), 1u);
  EXPECT_TRUE(ring.try_push(std::move(third)));
  EXPECT_EQ(third, nullptr);
}

TEST(SpscRing, PopsInBatchesUpToTheLimit) {
  SpscRing<int> ring(8);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(ring.try_push(i));
  ring.publish();
  std::array<int, 3> out{};
  EXPECT_EQ(ring.pop_batch(out), 3u);
  EXPECT_EQ(out, (std::array{0, 1, 2}));
  EXPECT_EQ(ring.pop_batch(out), 2u);
  EXPECT_EQ(out[0], 3);
  EXPECT_EQ(out[1], 4);
  EXPECT_EQ(ring.pop_batch(out), 0u);
}

TEST(SpscRing, BehavesLikeAQueueAroundManyWraps) {
  SpscRing<std::uint64_t> ring(16);
  Random random(3);
  std::uint64_t pushed = 0, published = 0, popped = 0;
  for (int step = 0; step < 20'000; ++step) {
    switch (random.below(3)) {
      case 0:
        EXPECT_EQ(ring.try_push(pushed), pushed - popped < 16);
        if (pushed - popped < 16) ++pushed;
        break;
      case 1:
        EXPECT_EQ(ring.publish(), published != pushed);
        published = pushed;
        break;
      default: {
        const std::uint64_t limit = random.below(6);
        const bool was_empty = popped == published;
        // The consumer may see fewer than all that was published, because it trusts its copy of the index while
        // that has items; but never none of some, and never out of order.
        const std::size_t count = ring.pop_batch(limit, [&](std::uint64_t item) { EXPECT_EQ(item, popped++); });
        EXPECT_LE(popped, published);
        EXPECT_EQ(count == 0, limit == 0 || was_empty);
        break;
      }
    }
  }
  EXPECT_GT(popped, 1'000u);
}

TEST(SpscRing, HandsEveryItemOverOnceAndInOrderBetweenThreads) {
  constexpr std::uint64_t kItems = 200'000;
  // A heap allocation per item lets the sanitizers see an item that is handed over twice or too early.
  SpscRing<std::unique_ptr<std::uint64_t>> ring(64);
  std::thread producer([&] {
    Random random(1);
    for (std::uint64_t i = 0; i < kItems;) {
      auto item = std::make_unique<std::uint64_t>(i);
      if (ring.try_push(std::move(item))) {
        ++i;
        if (random.chance(0.1)) ring.publish();
      } else {
        ring.publish();
        std::this_thread::yield();
      }
    }
    ring.publish();
  });
  std::uint64_t expected = 0;
  bool in_order = true;
  while (expected < kItems) {
    const std::size_t count =
        ring.pop_batch(16, [&](std::unique_ptr<std::uint64_t> item) { in_order &= *item == expected++; });
    if (count == 0) std::this_thread::yield();
  }
  producer.join();
  EXPECT_TRUE(in_order);
  EXPECT_TRUE(ring.empty());
}

}  // namespace
}  // namespace weir
