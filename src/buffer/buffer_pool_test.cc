#include "buffer/buffer_pool.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "buffer/buffer_testing.h"
#include "buffer/cached_memory.h"
#include "buffer/heap_memory.h"
#include "buffer/seal.h"

namespace weir::buffer {
namespace {

constexpr std::size_t kHundred = 100'000;
constexpr std::uint64_t kRoom = kHundred + 2'000;  // with what a buffer needs for itself

std::shared_ptr<BufferPool> pool_for(std::uint64_t buffers, std::uint64_t memory = std::uint64_t{64} << 20) {
  return BufferPool::create(std::make_shared<HeapMemory>(memory), {.bytes = buffers * kRoom});
}

struct Waiting final : BufferPool::Waiter {
  explicit Waiting(std::vector<int>* told = nullptr, int number = 0) : told_(told), number_(number) {}
  void on_allocated(Result<Buffer> given) noexcept override {
    result.emplace(std::move(given));
    if (told_ != nullptr) told_->push_back(number_);
  }
  std::optional<Result<Buffer>> result;

 private:
  std::vector<int>* told_;
  int number_;
};

Payload sealed(Buffer buffer, Random& random) {
  std::fill(buffer.span().begin(), buffer.span().end(), std::byte{7});
  return *seal_in_place(std::move(buffer), random_key(random), thread_key());
}

TEST(Buffer, IsAllocatedThenWrittenThenFilled) {
  const auto pool = pool_for(1);
  Buffer buffer = *pool->try_allocate(kHundred);
  EXPECT_EQ(buffer.state(), Buffer::State::allocated);
  EXPECT_EQ(buffer.span().size(), kHundred);
  EXPECT_EQ(buffer.state(), Buffer::State::writing);
  EXPECT_EQ(buffer.spans().size(), 1u);
  buffer.filled(10);
  EXPECT_EQ(buffer.state(), Buffer::State::filled);
  EXPECT_EQ(buffer.size(), 10u);
}

TEST(Buffer, PiecesAreWholeRecords) {
  const auto pool = pool_for(8);
  Buffer buffer = *pool->try_allocate(5 * kRecordBytes + 3, {.piece_bytes = kRecordBytes + 1});
  std::vector<std::size_t> sizes;
  for (const auto& span : buffer.spans()) sizes.push_back(span.size());
  EXPECT_EQ(sizes, (std::vector<std::size_t>{2 * kRecordBytes, 2 * kRecordBytes, kRecordBytes + 3}));
}

TEST(BufferDeath, MisuseIsNamed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto pool = pool_for(8);
  Buffer buffer = *pool->try_allocate(kHundred);
  Buffer moved = std::move(buffer);
  EXPECT_DEATH((void)buffer.size(), "moved from, sealed or never allocated");  // NOLINT: what is tested
  EXPECT_DEATH((void)buffer.span(), "moved from, sealed or never allocated");  // NOLINT
  EXPECT_DEATH(moved.filled(10), "after something was written");
  (void)moved.span();
  EXPECT_DEATH(moved.filled(kHundred + 1), "at most what it has room for");
  moved.filled(10);
  EXPECT_DEATH((void)moved.span(), "not written any more");
  EXPECT_DEATH(moved.filled(10), "filled once");
  Buffer pieces = *pool->try_allocate(kHundred, {.piece_bytes = 1});
  EXPECT_DEATH((void)pieces.span(), "write through spans");
}

TEST(Payload, AnEmptyOneIsNothing) {
  const Payload empty;
  const Payload copy = empty;
  EXPECT_FALSE(copy);
  EXPECT_EQ(copy.size(), 0u);
  EXPECT_EQ(copy.id(), 0u);
  EXPECT_EQ(copy.records(), 0u);
}

TEST(BufferPool, WhatIsDroppedComesBack) {
  const auto pool = pool_for(2);
  Random random{11};
  {
    const Buffer first = *pool->try_allocate(kHundred);
    const Payload second = sealed(*pool->try_allocate(kHundred), random);
    const Payload copy = second;
    EXPECT_EQ(copy.size(), kHundred);
    EXPECT_EQ(copy.records(), 2u);
    EXPECT_EQ(pool->buffers(), 2u);
    EXPECT_EQ(pool->try_allocate(kHundred).error().code(), Code::overloaded);
  }
  EXPECT_EQ(pool->used_bytes(), 0u);
  EXPECT_EQ(pool->buffers(), 0u);
  EXPECT_TRUE(pool->try_allocate(kHundred));
}

TEST(BufferPool, MoreThanAllOfItIsTooLargeAndNeverWaits) {
  const auto pool = pool_for(1);
  Waiting waiting;
  for (const std::size_t bytes : {std::size_t{kRoom}, std::size_t{1} << 50, ~std::size_t{0}}) {
    EXPECT_EQ(pool->try_allocate(bytes).error().code(), Code::too_large);
    const auto result = pool->allocate(bytes, {}, waiting);
    ASSERT_TRUE(result);
    EXPECT_EQ(result->error().code(), Code::too_large);
  }
  EXPECT_EQ(pool->waiting(), 0u);
}

TEST(BufferPool, APayloadIsFoundByItsIdWhileSomebodyHoldsIt) {
  const auto pool = pool_for(2);
  Random random{12};
  Buffer buffer = *pool->try_allocate(kHundred);
  const std::uint64_t id = buffer.id();
  EXPECT_FALSE(pool->find(id)) << "nobody but its holder has a buffer that is not sealed";
  Payload payload = sealed(std::move(buffer), random);
  EXPECT_EQ(payload.id(), id);
  Payload found = pool->find(id);
  EXPECT_EQ(found.sealed(), payload.sealed());
  payload = {};
  EXPECT_EQ(pool->find(id).id(), id);
  found = {};
  EXPECT_FALSE(pool->find(id));
  EXPECT_EQ(pool->used_bytes(), 0u);
  for (const std::uint64_t nonsense :
       {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}, id + 1, id | std::uint64_t{1} << 60}) {
    EXPECT_FALSE(pool->find(nonsense));
  }
}

TEST(BufferPool, ARecycledSlotHasAnotherId) {
  const auto pool = pool_for(2);
  Random random{13};
  std::uint64_t before = 0;
  for (int round = 0; round < 100; ++round) {
    const Payload payload = sealed(*pool->try_allocate(kHundred), random);
    EXPECT_NE(payload.id(), before);
    EXPECT_FALSE(pool->find(before));
    EXPECT_TRUE(pool->find(payload.id()));
    before = payload.id();
  }
}

TEST(BufferPool, ThoseWhoWaitAreServedInOrderAndAsManyAsThereIsRoomFor) {
  const auto pool = pool_for(3);
  std::vector<Buffer> held;
  for (int i = 0; i < 3; ++i) held.push_back(*pool->try_allocate(kHundred));
  std::vector<int> told;
  Waiting large{&told, 0}, second{&told, 1}, third{&told, 2};
  EXPECT_FALSE(pool->allocate(2 * kHundred, {}, large));
  EXPECT_FALSE(pool->allocate(kHundred, {}, second));
  EXPECT_FALSE(pool->allocate(kHundred, {}, third));
  held.pop_back();
  EXPECT_TRUE(told.empty()) << "nobody overtakes the large one";
  EXPECT_EQ(pool->try_allocate(kHundred).error().code(), Code::overloaded);
  EXPECT_EQ(pool->allocate(kHundred, {.wait = false}, third)->error().code(), Code::overloaded);
  held.pop_back();
  EXPECT_EQ(told, (std::vector<int>{0}));
  EXPECT_EQ((*large.result)->size(), 2 * kHundred);
  held.pop_back();
  EXPECT_EQ(told, (std::vector<int>{0, 1}));
  large.result.reset();
  EXPECT_EQ(told, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(pool->waiting(), 0u);
}

TEST(BufferPool, ACancelledWaiterIsNotToldAndLetsThoseBehindItGo) {
  const auto pool = pool_for(3);
  Buffer held = *pool->try_allocate(2 * kHundred);
  std::vector<int> told;
  Waiting large{&told, 0}, small{&told, 1};
  EXPECT_FALSE(pool->allocate(2 * kHundred, {}, large));
  EXPECT_FALSE(pool->allocate(kHundred, {}, small));
  EXPECT_TRUE(pool->cancel(large));
  EXPECT_EQ(told, (std::vector<int>{1}));
  EXPECT_FALSE(pool->cancel(large));
  EXPECT_FALSE(pool->cancel(small));
}

TEST(BufferPool, ClosingTellsAllWhoWaitAndKeepsWhatIsHeld) {
  auto pool = pool_for(1);
  Buffer held = *pool->try_allocate(kHundred);
  Waiting first, second;
  EXPECT_FALSE(pool->allocate(kHundred, {}, first));
  EXPECT_FALSE(pool->allocate(kHundred, {}, second));
  pool->close();
  EXPECT_EQ(first.result->error().code(), Code::closed);
  EXPECT_EQ(second.result->error().code(), Code::closed);
  EXPECT_EQ(pool->try_allocate(1).error().code(), Code::closed);
  EXPECT_EQ(pool->allocate(1, {}, first)->error().code(), Code::closed);
  pool.reset();
  held.span()[kHundred - 1] = std::byte{1};  // the buffer keeps all that it needs
}

TEST(BufferPool, MoreWaitersThanItsLimitAreRefused) {
  const auto pool =
      BufferPool::create(std::make_shared<HeapMemory>(1 << 20), {.bytes = kRoom, .buffers = 8, .waiters = 1});
  Buffer held = *pool->try_allocate(kHundred);
  Waiting first, second;
  EXPECT_FALSE(pool->allocate(kHundred, {}, first));
  EXPECT_EQ(pool->allocate(kHundred, {}, second)->error().code(), Code::overloaded);
  held = {};
  EXPECT_TRUE(*first.result);
}

TEST(BufferPool, MemoryThatHasLessThanThePoolIsWaitedForWhileSomebodyHasSome) {
  const auto pool = pool_for(4, kRoom + 100);  // the memory has room for one
  Buffer held = *pool->try_allocate(kHundred);
  Waiting waiting;
  EXPECT_FALSE(pool->allocate(kHundred, {}, waiting));
  EXPECT_FALSE(waiting.result);
  held = {};
  ASSERT_TRUE(waiting.result);
  EXPECT_TRUE(*waiting.result);
}

TEST(BufferPool, MemoryThatNobodyCanBringBackIsNotWaitedFor) {
  const auto memory = std::make_shared<HeapMemory>(kRoom);
  const Piece elsewhere = memory->take(kHundred);
  const auto pool = BufferPool::create(memory, {.bytes = kRoom});
  Waiting waiting;
  EXPECT_FALSE(pool->allocate(kHundred, {}, waiting));
  ASSERT_TRUE(waiting.result);
  EXPECT_EQ(waiting.result->error().code(), Code::overloaded);
  memory->give_back(elsewhere);
}

TEST(BufferPool, SmallBuffersAreChargedWhatTheyTake) {
  const auto inner = std::make_shared<HeapMemory>(std::uint64_t{1} << 30);
  const auto pool = BufferPool::create(std::make_shared<CachedMemory>(inner, 0), {.bytes = 64 * kSmallestClassBytes});
  std::vector<Buffer> held;
  while (true) {
    Result<Buffer> one = pool->try_allocate(1);
    if (!one) break;
    held.push_back(std::move(*one));
  }
  EXPECT_EQ(held.size(), 64u);
  EXPECT_LE(inner->taken_bytes(), pool->bound_bytes());
}

// Each one that is told drops its buffer at once, which serves the next: no deeper than one at a time.
TEST(BufferPool, AsManyAsWaitCanBeServedByOneReturn) {
  struct Dropping final : BufferPool::Waiter {
    void on_allocated(Result<Buffer> result) noexcept override { told = result.has_value(); }
    bool told = false;
  };
  const auto pool = pool_for(1);
  Buffer held = *pool->try_allocate(kHundred);
  std::vector<std::unique_ptr<Dropping>> waiting;
  for (int i = 0; i < 50'000; ++i) {
    waiting.push_back(std::make_unique<Dropping>());
    ASSERT_FALSE(pool->allocate(kHundred, {}, *waiting.back()));
  }
  held = {};
  for (const auto& one : waiting) EXPECT_TRUE(one->told);
  EXPECT_EQ(pool->used_bytes(), 0u);
}

}  // namespace
}  // namespace weir::buffer
