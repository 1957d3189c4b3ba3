#include "buffer/holds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "buffer/block.h"
#include "buffer/buffer_pool.h"
#include "buffer/buffer_testing.h"
#include "buffer/heap_memory.h"
#include "buffer/seal.h"
#include "buffer/size_class.h"

namespace weir::buffer {
namespace {

constexpr std::uint64_t kPiece = 2 * kRecordBytes;
constexpr std::uint64_t kBytes = 4 * kPiece + 5;  // five pieces

struct Waiting final : BufferPool::Waiter {
  void on_allocated(Result<Buffer> given) noexcept override { result.emplace(std::move(given)); }
  std::optional<Result<Buffer>> result;
};

class HoldsTest : public ::testing::Test {
 protected:
  Payload make(std::uint64_t bytes = kBytes, std::size_t piece_bytes = kPiece) {
    Buffer buffer = *pool->try_allocate(bytes, {.piece_bytes = piece_bytes});
    for (const auto& span : buffer.spans()) std::fill(span.begin(), span.end(), std::byte{7});
    return *seal_in_place(std::move(buffer), random_key(random), thread_key());
  }
  void TearDown() override {
    EXPECT_EQ(pool->used_bytes(), 0u);
    EXPECT_EQ(memory->taken_bytes(), 0u);
  }

  // A key for each payload, whichever test makes it.
  static inline std::uint64_t seeds = 1'000;
  Random random{++seeds};
  std::shared_ptr<HeapMemory> memory = std::make_shared<HeapMemory>(std::uint64_t{64} << 20);
  std::shared_ptr<BufferPool> pool = BufferPool::create(memory, {.bytes = kBytes + 100'000});
};

constexpr PieceRange kAll{.begin = 0, .end = 5};

TEST_F(HoldsTest, APieceGoesBackWhenTheLastWhoNeedsItLetsGo) {
  Payload payload = make();
  const std::uint64_t id = payload.id(), all = pool->used_bytes();
  Sealed* const one = lend(*payload.sealed(), kAll);
  Sealed* const other = lend(*payload.sealed(), kAll);
  payload = Payload();
  EXPECT_EQ(pool->used_bytes(), all);
  let_go(*one, {.begin = 0, .end = 3});
  EXPECT_EQ(pool->used_bytes(), all);
  let_go(*other, {.begin = 0, .end = 2});
  EXPECT_EQ(pool->used_bytes(), all - kPiece) << "the first piece has the payload itself";
  EXPECT_LT(memory->taken_bytes(), all);
  EXPECT_FALSE(pool->find(id)) << "nobody can have all of it any more";
  // What somebody still has can be had again; what is free cannot.
  EXPECT_TRUE(hold_again(*one, {.begin = 2, .end = 3}));
  EXPECT_FALSE(hold_again(*other, {.begin = 0, .end = 2}));
  EXPECT_EQ(one->at(2 * kPiece).size(), kRecordBytes);
  let_go(*one, {.begin = 2, .end = 3});
  give_back(one, {.begin = 3, .end = 5});
  EXPECT_EQ(pool->used_bytes(), all - kPiece);
  let_go(*other, {.begin = 2, .end = 5});
  EXPECT_EQ(pool->used_bytes(), all - 3 * kPiece - kSmallestClassBytes);
  give_back(other, {.begin = 5, .end = 5});
}

TEST_F(HoldsTest, NothingIsFreedWhileTheApplicationHasAHandle) {
  Payload payload = make();
  const std::uint64_t id = payload.id(), all = pool->used_bytes();
  Sealed* const one = lend(*payload.sealed(), kAll);
  Sealed* const other = lend(*payload.sealed(), kAll);
  Payload copy = payload;
  payload = Payload();
  let_go(*one, kAll);
  let_go(*other, kAll);
  EXPECT_EQ(pool->used_bytes(), all);
  Payload found = pool->find(id);
  EXPECT_TRUE(found);
  copy = Payload();
  EXPECT_EQ(pool->used_bytes(), all);
  EXPECT_TRUE(hold_again(*one, kAll));
  found = Payload();
  EXPECT_EQ(pool->used_bytes(), all);
  let_go(*one, kAll);
  EXPECT_EQ(pool->used_bytes(), all - 3 * kPiece - kSmallestClassBytes);
  give_back(one, {});
  give_back(other, {});
}

TEST_F(HoldsTest, WhoWaitsForMemoryGetsThatOfAPiece) {
  Payload payload = make();
  Sealed* const one = lend(*payload.sealed(), kAll);
  payload = Payload();
  Waiting waiting;
  ASSERT_FALSE(pool->allocate(2 * kPiece, {}, waiting));
  let_go(*one, {.begin = 0, .end = 2});
  EXPECT_FALSE(waiting.result);
  let_go(*one, {.begin = 2, .end = 3});
  ASSERT_TRUE(waiting.result && *waiting.result);
  give_back(one, {.begin = 3, .end = 5});
  EXPECT_EQ(pool->used_bytes(), memory_bytes_of({.bytes = 2 * kPiece}));
}

TEST_F(HoldsTest, WhatNoMessageNeedsGoesWithTheHandle) {
  Payload payload = make();
  const std::uint64_t all = pool->used_bytes();
  const PieceRange middle = pieces_of(*payload.sealed(), kPiece + 1, 2 * kPiece + 1);
  EXPECT_EQ(middle.begin, 1u);
  EXPECT_EQ(middle.end, 3u);
  Sealed* const one = lend(*payload.sealed(), middle);
  payload = Payload();
  EXPECT_EQ(pool->used_bytes(), all - kPiece - kSmallestClassBytes);
  give_back(one, middle);
}

TEST_F(HoldsTest, APayloadOfOnePieceCountsNothing) {
  Payload payload = make(kBytes, 0);
  EXPECT_EQ(payload.sealed()->holds, nullptr);
  const std::uint64_t id = payload.id(), all = pool->used_bytes();
  Sealed* const one = lend(*payload.sealed(), pieces_of(*payload.sealed(), 0, kBytes));
  payload = Payload();
  let_go(*one, {.begin = 0, .end = 1});
  EXPECT_EQ(pool->used_bytes(), all);
  EXPECT_TRUE(pool->find(id));
  give_back(one, {});
}

TEST_F(HoldsTest, AShortenedPayloadHasFewerPieces) {
  Buffer buffer = *pool->try_allocate(kBytes, {.piece_bytes = kPiece});
  std::fill(buffer.spans().front().begin(), buffer.spans().front().end(), std::byte{1});
  buffer.filled(kPiece + 1);
  Payload payload = *seal_in_place(std::move(buffer), random_key(random), thread_key());
  const PieceRange both = pieces_of(*payload.sealed(), 0, payload.size());
  EXPECT_EQ(both.end, 2u);
  Sealed* const one = lend(*payload.sealed(), both);
  payload = Payload();
  let_go(*one, both);
  give_back(one, {});
}

}  // namespace
}  // namespace weir::buffer
