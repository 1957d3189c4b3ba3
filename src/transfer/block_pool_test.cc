#include "transfer/block_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "base/random.h"
#include "base/spsc_ring.h"

namespace weir::transfer {
namespace {

TEST(BlockPool, EveryClassHoldsWhatItWasAskedFor) {
  BlockPool pool;
  const std::size_t sizes[] = {0, 1, 512, 513, 2'048, 2'049, 4'608, 4'609, 8'192, 8'193, BlockPool::kMaxBlockBytes};
  for (const std::size_t size : sizes) {
    Block* block = pool.acquire(size);
    EXPECT_GE(block->capacity, size);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block->bytes()) % alignof(std::max_align_t), 0u);
    std::memset(block->bytes(), 0xab, block->capacity);  // a sanitizer sees a capacity that is a lie
    EXPECT_EQ(pool.outstanding(), 1u);
    detail::unpin(block);
    EXPECT_EQ(pool.outstanding(), 0u);
  }
}

TEST(BlockPool, UsesTheSmallestClassThatFits) {
  BlockPool pool;
  for (std::size_t i = 0; i < std::size(BlockPool::kClassBytes); ++i) {
    Block* block = pool.acquire(BlockPool::kClassBytes[i]);
    EXPECT_EQ(block->capacity, BlockPool::kClassBytes[i]);
    detail::unpin(block);
  }
}

TEST(BlockPoolDeathTest, AMessageLargerThanAnyClassIsABug) {
  BlockPool pool;
  EXPECT_DEATH(pool.acquire(BlockPool::kMaxBlockBytes + 1), "larger than any class");
}

TEST(BlockPool, ReusesWhatCameBackInsteadOfGrowing) {
  BlockPool pool;
  std::set<Block*> ever_seen;
  Random random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<Block*> held;
    for (int i = 0; i < 20; ++i) held.push_back(pool.acquire(100));
    ever_seen.insert(held.begin(), held.end());
    for (std::size_t i = held.size(); i > 1; --i) std::swap(held[i - 1], held[random.below(i)]);
    for (Block* block : held) detail::unpin(block);
  }
  EXPECT_EQ(ever_seen.size(), 20u);
}

TEST(BlockPool, ABlockIsBackOnlyWhenTheLastHolderLetGo) {
  BlockPool pool;
  Block* block = pool.acquire(10);
  detail::pin(block);
  detail::unpin(block);
  EXPECT_EQ(pool.outstanding(), 1u);
  Block* other = pool.acquire(10);
  EXPECT_NE(other, block);
  detail::unpin(block);
  detail::unpin(other);
  EXPECT_EQ(pool.outstanding(), 0u);
}

TEST(BlockPool, BlocksOutliveTheirPool) {
  auto pool = std::make_unique<BlockPool>();
  Block* first = pool->acquire(100);
  Block* second = pool->acquire(5'000);
  detail::unpin(pool->acquire(100));  // one lies in the pool when it goes
  std::memset(first->bytes(), 1, 100);
  pool.reset();
  EXPECT_EQ(first->bytes()[99], std::byte{1});
  detail::unpin(second);
  EXPECT_EQ(first->bytes()[0], std::byte{1});
  detail::unpin(first);  // the last one takes the rest with it; a leak checker looks
}

// One thread takes and writes, another reads and gives back.
TEST(BlockPool, AnotherThreadGivesBackWithoutGrowthOrTornBytes) {
  constexpr int kBlocks = 20'000;
  constexpr std::size_t kInFlight = 64;
  BlockPool pool;
  SpscRing<Block*> ring(kInFlight);
  std::atomic<int> returned{0};
  std::atomic<bool> torn{false};
  std::thread reader([&] {
    for (int i = 0; i < kBlocks; ++i) {
      Block* block = nullptr;
      while (!ring.try_pop(block)) std::this_thread::yield();
      const auto expected = static_cast<std::byte>(i);
      for (std::size_t at = 0; at < 512; ++at) {
        if (block->bytes()[at] != expected) torn.store(true, std::memory_order_relaxed);
      }
      detail::unpin(block);
      returned.fetch_add(1, std::memory_order_release);  // the taker counts blocks as back only after this
    }
  });
  std::set<Block*> ever_seen;
  for (int i = 0; i < kBlocks; ++i) {
    while (i - returned.load(std::memory_order_acquire) >= static_cast<int>(kInFlight)) std::this_thread::yield();
    Block* block = pool.acquire(512);
    ever_seen.insert(block);
    std::memset(block->bytes(), i & 0xff, 512);
    ASSERT_TRUE(ring.try_push(std::move(block)));
    ring.publish();
  }
  reader.join();
  EXPECT_FALSE(torn.load());
  EXPECT_EQ(pool.outstanding(), 0u);
  EXPECT_LE(ever_seen.size(), kInFlight);
}

// Several threads drop the last references of the same blocks while the pool itself goes away.
TEST(BlockPool, ThePoolMayGoWhileOtherThreadsGiveBack) {
  for (int round = 0; round < 50; ++round) {
    auto pool = std::make_unique<BlockPool>();
    constexpr int kThreads = 3;
    std::vector<Block*> blocks;
    for (int i = 0; i < 100; ++i) {
      Block* block = pool->acquire(static_cast<std::size_t>(i) * 80);
      for (int extra = 1; extra < kThreads; ++extra) detail::pin(block);
      blocks.push_back(block);
    }
    std::atomic<bool> go{false};
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&] {
        while (!go.load(std::memory_order_acquire)) std::this_thread::yield();
        for (Block* block : blocks) detail::unpin(block);
      });
    }
    go.store(true, std::memory_order_release);
    pool.reset();
    for (auto& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace weir::transfer
