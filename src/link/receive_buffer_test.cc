#include "link/receive_buffer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <set>
#include <thread>
#include <vector>

namespace weir::link {
namespace {

TEST(ReceiveBufferPool, StopsAtItsBoundAndGoesOnAfterARelease) {
  ReceiveBufferPool pool{{.max_buffers = 3}};
  std::vector<ReceiveBuffer*> held;
  for (int i = 0; i < 3; ++i) held.push_back(pool.acquire());
  EXPECT_EQ(std::set<ReceiveBuffer*>(held.begin(), held.end()).size(), 3u);
  EXPECT_EQ(pool.acquire(), nullptr);
  EXPECT_EQ(pool.in_use(), 3u);
  held[1]->release_ref();
  EXPECT_EQ(pool.in_use(), 2u);
  ReceiveBuffer* again = pool.acquire();
  EXPECT_EQ(again, held[1]);
  EXPECT_EQ(pool.acquire(), nullptr);
  for (ReceiveBuffer* buffer : held) buffer->release_ref();
  EXPECT_EQ(pool.in_use(), 0u);
}

TEST(ReceiveBufferPool, RecyclesATouchedBuffer) {
  ReceiveBufferPool pool{{.max_buffers = 8, .touched_buffers = 2}};
  EXPECT_EQ(pool.in_use(), 0u);
  ReceiveBuffer* first = pool.acquire();
  ReceiveBuffer* second = pool.acquire();
  EXPECT_NE(first, second);
  EXPECT_EQ(first->bytes().size(), 64u * 1024u);
  std::memset(first->bytes().data(), 0xab, first->bytes().size() + ReceiveBuffer::kSlack);
  first->release_ref();
  second->release_ref();
}

TEST(ReceiveBuffer, ComesBackOnlyWithItsLastReference) {
  ReceiveBufferPool pool{{.max_buffers = 1}};
  ReceiveBuffer* buffer = pool.acquire();
  EXPECT_TRUE(buffer->is_sole_reference());
  buffer->add_ref();
  EXPECT_FALSE(buffer->is_sole_reference());
  buffer->release_ref();
  EXPECT_TRUE(buffer->is_sole_reference());
  EXPECT_EQ(pool.acquire(), nullptr);
  buffer->release_ref();
  ReceiveBuffer* again = pool.acquire();
  EXPECT_EQ(again, buffer);
  EXPECT_TRUE(again->is_sole_reference());
  again->release_ref();
}

// The address sanitizer sees both a use after free and a leak here.
TEST(ReceiveBuffer, OutlivesItsPool) {
  auto pool = std::make_unique<ReceiveBufferPool>(ReceiveBufferPool::Options{.max_buffers = 4, .touched_buffers = 3});
  ReceiveBuffer* kept = pool->acquire();
  ReceiveBuffer* returned = pool->acquire();
  ReceiveBuffer* kept_too = pool->acquire();
  std::memset(kept->bytes().data(), 1, kept->bytes().size());
  returned->release_ref();
  pool.reset();
  EXPECT_EQ(kept->bytes()[100], std::byte{1});
  kept->release_ref();
  kept_too->bytes()[0] = std::byte{2};
  EXPECT_EQ(kept_too->bytes()[0], std::byte{2});
  kept_too->release_ref();
}

TEST(ReceiveBufferPool, TakesBuffersBackFromManyThreads) {
  constexpr std::size_t kThreads = 4;
  constexpr std::size_t kRounds = 2000;
  auto pool = std::make_unique<ReceiveBufferPool>(ReceiveBufferPool::Options{.max_buffers = 16});
  // One mailbox per thread; the owner fills it, the thread empties it and releases.
  std::vector<std::atomic<ReceiveBuffer*>> mailboxes(kThreads);
  std::atomic<bool> is_over{false};
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (;;) {
        const bool was_over = is_over.load(std::memory_order_acquire);
        if (ReceiveBuffer* buffer = mailboxes[t].exchange(nullptr, std::memory_order_acq_rel)) {
          buffer->bytes()[t] = static_cast<std::byte>(t);
          buffer->release_ref();
        } else if (was_over) {
          return;
        } else {
          std::this_thread::yield();
        }
      }
    });
  }
  std::size_t given = 0;
  while (given < kRounds) {
    for (auto& mailbox : mailboxes) {
      if (mailbox.load(std::memory_order_acquire) != nullptr) continue;
      ReceiveBuffer* buffer = pool->acquire();
      if (buffer == nullptr) continue;
      ASSERT_TRUE(buffer->is_sole_reference());
      std::memset(buffer->bytes().data(), 0, kThreads);
      mailbox.store(buffer, std::memory_order_release);
      ++given;
    }
    std::this_thread::yield();
  }
  EXPECT_LE(pool->in_use(), 16u);
  pool.reset();  // while some are still out
  is_over.store(true, std::memory_order_release);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace weir::link
