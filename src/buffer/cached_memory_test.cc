#include "buffer/cached_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "base/random.h"
#include "buffer/heap_memory.h"

namespace weir::buffer {
namespace {

constexpr std::size_t kMebibyte = std::size_t{1} << 20;

struct Fixture {
  explicit Fixture(std::uint64_t bound, std::uint64_t keep)
      : inner(std::make_shared<HeapMemory>(bound)), memory(inner, keep) {}
  std::shared_ptr<HeapMemory> inner;
  CachedMemory memory;
};

TEST(CachedMemory, HandsOutWhatCameBackLast) {
  Fixture f{64 * kMebibyte, 64 * kMebibyte};
  const Piece first = f.memory.take(kMebibyte);
  const Piece second = f.memory.take(kMebibyte);
  f.memory.give_back(first);
  f.memory.give_back(second);
  EXPECT_EQ(f.memory.kept_bytes(), 2 * kMebibyte);
  const Piece again = f.memory.take(kMebibyte - 5'000);
  EXPECT_EQ(again.data, second.data);
  EXPECT_GE(again.bytes, kMebibyte - 5'000);
  f.memory.give_back(again);
}

TEST(CachedMemory, KeepsNoMoreThanItsBound) {
  Fixture f{64 * kMebibyte, 2 * kMebibyte};
  std::vector<Piece> pieces;
  for (int i = 0; i < 5; ++i) pieces.push_back(f.memory.take(kMebibyte));
  for (const Piece& piece : pieces) f.memory.give_back(piece);
  EXPECT_EQ(f.memory.kept_bytes(), 2 * kMebibyte);
  EXPECT_EQ(f.inner->taken_bytes(), 2 * kMebibyte);
  f.memory.trim();
  EXPECT_EQ(f.inner->taken_bytes(), 0u);
}

TEST(CachedMemory, WhatItKeepsIsNotMissingToAnotherSize) {
  Fixture f{2 * kMebibyte, 2 * kMebibyte};
  const Piece small = f.memory.take(kMebibyte);
  f.memory.give_back(small);
  const Piece large = f.memory.take(2 * kMebibyte);  // only if the kept one went back
  ASSERT_TRUE(large);
  EXPECT_FALSE(f.memory.take(kMebibyte));
  f.memory.give_back(large);
}

TEST(CachedMemory, GivesTheExactSizeWhereThereIsNotEnoughForItsClass) {
  Fixture f{kMebibyte + 4'096, 2 * kMebibyte};
  const Piece piece = f.memory.take(kMebibyte + 4'096);
  ASSERT_TRUE(piece);
  f.memory.give_back(piece);
  const Piece again = f.memory.take(kMebibyte);  // it serves the class below
  EXPECT_EQ(again.data, piece.data);
  f.memory.give_back(again);
}

TEST(CachedMemory, AboveTheLargestClassSizesAreExactAndNothingIsKept) {
  Fixture f{256 * kMebibyte, 256 * kMebibyte};
  const Piece piece = f.memory.take(65 * kMebibyte);
  ASSERT_TRUE(piece);
  EXPECT_EQ(piece.bytes, 65 * kMebibyte);
  f.memory.give_back(piece);
  EXPECT_EQ(f.memory.kept_bytes(), 0u);
}

TEST(CachedMemory, RefusesWhatNobodyHas) {
  Fixture f{kMebibyte, kMebibyte};
  EXPECT_FALSE(f.memory.take(~std::size_t{0}));
  EXPECT_FALSE(f.memory.take(2 * kMebibyte));
}

TEST(CachedMemoryThreads, NoPieceIsHeldByTwo) {
  Fixture f{512 * kMebibyte, 8 * kMebibyte};
  const auto run = [&](std::uint64_t seed) {
    Random random{seed};
    std::vector<Piece> held;
    for (int round = 0; round < 4'000; ++round) {
      if (held.size() < 8 && random.below(2) == 0) {
        const Piece piece = f.memory.take(random.below(std::size_t{256} << 10));
        ASSERT_TRUE(piece);
        store<std::uint64_t>(piece.data, seed);
        store<std::uint64_t>(piece.data + piece.bytes - 8, seed);
        held.push_back(piece);
      } else if (!held.empty()) {
        const Piece piece = held.back();
        held.pop_back();
        ASSERT_EQ(load<std::uint64_t>(piece.data), seed);
        ASSERT_EQ(load<std::uint64_t>(piece.data + piece.bytes - 8), seed);
        f.memory.give_back(piece);
      }
      if (round % 500 == 0) f.memory.trim();
    }
    for (const Piece& piece : held) f.memory.give_back(piece);
  };
  std::vector<std::thread> threads;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) threads.emplace_back(run, seed);
  for (auto& thread : threads) thread.join();
  f.memory.trim();
  EXPECT_EQ(f.memory.kept_bytes(), 0u);
  EXPECT_EQ(f.inner->taken_bytes(), 0u);
}

TEST(HeapMemory, APieceWithHugePagesBeginsAtOne) {
  HeapMemory memory(std::uint64_t{64} << 20);
  for (const std::size_t bytes : {1ul, 100'000ul, (2ul << 20) - 64, 2ul << 20, (5ul << 20) + 64}) {
    const Piece piece = memory.take(bytes);
    ASSERT_TRUE(piece) << bytes;
    const auto at = reinterpret_cast<std::uintptr_t>(piece.data);
    EXPECT_EQ(at % (bytes < HeapMemory::kHugePageBytes ? kPieceAlignment : HeapMemory::kHugePageBytes), 0u) << bytes;
    std::fill_n(piece.data, piece.bytes, std::byte{1});
    memory.give_back(piece);
  }
  EXPECT_EQ(memory.taken_bytes(), 0u);
}

}  // namespace
}  // namespace weir::buffer
