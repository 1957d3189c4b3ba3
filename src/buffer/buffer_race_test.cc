// Threads that allocate, seal, share, find, drop and wait at once; for the thread sanitizer above all.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <semaphore>
#include <thread>
#include <vector>

#include "buffer/buffer_pool.h"
#include "buffer/buffer_testing.h"
#include "buffer/cached_memory.h"
#include "buffer/heap_memory.h"
#include "buffer/holds.h"
#include "buffer/seal.h"

namespace weir::buffer {
namespace {

constexpr std::size_t kBytes = 40'000;
constexpr int kRounds = 3'000;

template <class Run>
void on_threads(int count, Run run) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back(run, i);
  for (auto& thread : threads) thread.join();
}

std::shared_ptr<BufferPool> make_pool(std::uint64_t bytes) {
  auto cached = std::make_shared<CachedMemory>(std::make_shared<HeapMemory>(std::uint64_t{64} << 20), 8 << 20);
  return BufferPool::create(std::move(cached), {.bytes = bytes});
}

TEST(BufferRace, AnIdIsFoundWholeOrNotAtAllWhileItsPayloadEnds) {
  const auto pool = make_pool(std::uint64_t{64} << 20);
  std::array<std::atomic<std::uint64_t>, 4> ids{};
  std::atomic<int> makers = 2;
  std::atomic<std::uint64_t> found = 0;
  on_threads(4, [&](int number) {
    if (number < 2) {
      Random random{static_cast<std::uint64_t>(number) + 1};
      for (int round = 0; round < kRounds; ++round) {
        Buffer buffer = *pool->try_allocate(kBytes);
        ids[random.below(ids.size())].store(buffer.id(), std::memory_order_relaxed);  // before it is sealed
        store<std::uint64_t>(buffer.span().data(), buffer.id());
        store<std::uint64_t>(buffer.span().data() + kBytes - 8, buffer.id());
        const auto payload = adopt(std::move(buffer), {});
        const Payload copy = *payload;
        if (round % 8 == 0) std::this_thread::yield();
      }
      // However the threads were scheduled: one more, until somebody has found something.
      Buffer last = *pool->try_allocate(kBytes);
      store<std::uint64_t>(last.span().data(), last.id());
      store<std::uint64_t>(last.span().data() + kBytes - 8, last.id());
      const std::uint64_t id = last.id();
      const auto payload = adopt(std::move(last), {});
      while (found.load(std::memory_order_relaxed) == 0) {
        ids[0].store(id, std::memory_order_relaxed);
        std::this_thread::yield();
      }
      makers.fetch_sub(1);
      return;
    }
    std::size_t next = 0;
    while (makers.load() != 0) {
      const std::uint64_t id = ids[next++ % ids.size()].load(std::memory_order_relaxed);
      const Payload payload = pool->find(id);
      if (!payload) continue;
      found.fetch_add(1, std::memory_order_relaxed);
      const ByteSpan bytes = payload.sealed()->at(0);
      ASSERT_EQ(payload.id(), id);
      ASSERT_EQ(load<std::uint64_t>(bytes.data()), id);
      ASSERT_EQ(load<std::uint64_t>(bytes.data() + kBytes - 8), id);
      const Payload another = payload;
    }
  });
  EXPECT_GT(found, 0u);
  EXPECT_EQ(pool->used_bytes(), 0u);
  EXPECT_EQ(pool->buffers(), 0u);
}

TEST(BufferRace, APayloadThatManyThreadsShareEndsOnce) {
  const auto pool = make_pool(std::uint64_t{1} << 20);
  Random random{1};
  for (int round = 0; round < 200; ++round) {
    Buffer buffer = *pool->try_allocate(kBytes);
    std::fill(buffer.span().begin(), buffer.span().end(), std::byte{1});
    Payload payload = *seal_in_place(std::move(buffer), random_key(random), thread_key());
    std::array<Payload, 3> copies{payload, payload, payload};
    payload = {};
    on_threads(3, [&](int number) {
      Payload mine = std::move(copies[static_cast<std::size_t>(number)]);
      const Payload another = mine;
      mine = {};
      EXPECT_TRUE(pool->find(another.id()));
    });
    ASSERT_EQ(pool->used_bytes(), 0u);
  }
}

// Room for two buffers, four threads that want one each: everybody gets one in the end, whoever gives it.
TEST(BufferRace, EveryWaiterIsServedOnceThoughMemoryComesBackOnManyThreads) {
  struct Waiting final : BufferPool::Waiter {
    void on_allocated(Result<Buffer> given) noexcept override {
      result = std::move(given);
      ready.release();
    }
    Result<Buffer> result{std::unexpected(Error(Code::system, "not told"))};
    std::binary_semaphore ready{0};
  };
  const auto pool = make_pool(2 * (kBytes + 2'000));
  std::atomic<int> given = 0;
  on_threads(4, [&](int number) {
    Random random{static_cast<std::uint64_t>(number) + 1};
    for (int round = 0; round < kRounds; ++round) {
      Waiting waiting;
      auto now = pool->allocate(kBytes, {}, waiting);
      if (!now) {
        if (random.below(4) == 0 && pool->cancel(waiting)) continue;
        waiting.ready.acquire();
        now.emplace(std::move(waiting.result));
      }
      if (*now) {
        given.fetch_add(1, std::memory_order_relaxed);
        (**now).span()[0] = static_cast<std::byte>(number);
      } else {
        ASSERT_EQ(now->error().code(), Code::cancelled);
      }
    }
  });
  EXPECT_GT(given.load(), 0);
  EXPECT_EQ(pool->used_bytes(), 0u);
  EXPECT_EQ(pool->waiting(), 0u);
}

// Handles come and go, are found and lost, while messages let go piece by piece: each piece goes back once, and nobody
// reads one that has.
TEST(BufferRace, PiecesAreFreedOnceWhileHandlesAndMessagesEnd) {
  const auto pool = make_pool(std::uint64_t{64} << 20);
  constexpr std::size_t kPieces = 6;
  constexpr std::uint64_t kSize = kPieces * kRecordBytes;
  for (int round = 0; round < kRounds / 6; ++round) {
    Buffer buffer = *pool->try_allocate(kSize, {.piece_bytes = kRecordBytes});
    for (const auto& span : buffer.spans()) span[0] = std::byte{5};
    Payload payload = *adopt(std::move(buffer), {});
    const std::uint64_t id = payload.id();
    std::array<Sealed*, 3> lent{};
    for (Sealed*& each : lent) each = lend(*payload.sealed(), {.begin = 0, .end = kPieces});
    on_threads(4, [&](int number) {
      if (number == 3) {
        payload = Payload();
        while (const Payload found = pool->find(id)) {
          EXPECT_EQ(found.sealed()->at(kSize - kRecordBytes)[0], std::byte{5});
          const Payload copy = found;
        }
        return;
      }
      Sealed* const mine = lent[static_cast<std::size_t>(number)];
      PieceRange held{.begin = 0, .end = kPieces};
      for (; held.begin < kPieces; ++held.begin) {
        EXPECT_EQ(mine->at(held.begin * kRecordBytes)[0], std::byte{5});
        let_go(*mine, {.begin = held.begin, .end = held.begin + 1});
        if (held.begin == 3 && hold_again(*mine, {.begin = 2, .end = 4})) {
          EXPECT_EQ(mine->at(2 * kRecordBytes)[0], std::byte{5});
          let_go(*mine, {.begin = 2, .end = 4});
        }
      }
      give_back(mine, held);
    });
    ASSERT_EQ(pool->used_bytes(), 0u) << round;
  }
}

}  // namespace
}  // namespace weir::buffer
