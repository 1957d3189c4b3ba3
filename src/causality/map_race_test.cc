// Many threads at one map. What the thread sanitizer sees here is the point of it, and that nobody is told twice or
// never.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "base/mpmc_ring.h"
#include "base/random.h"
#include "causality/map.h"
#include "causality/map_testing.h"

namespace weir::causality {
namespace {

using testing::Listener;

TEST(MapRace, EveryWaiterIsToldOnceWhoeverEndsWhatItWaitsFor) {
  constexpr int kThreads = 4, kRounds = 4'000, kShared = 16;
  Map map(256, 1'024, 4);
  // Tokens that all threads wait for; each is replaced by the thread that ends it.
  std::atomic<Token> shared[kShared];
  for (auto& token : shared) token = map.begin();
  std::atomic<std::uint64_t> told{0}, asked{0};
  std::vector<std::jthread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Random random(static_cast<std::uint64_t>(t));
      std::vector<std::unique_ptr<Listener>> mine;
      for (int round = 0; round < kRounds; ++round) {
        auto listener = std::make_unique<Listener>(2);
        for (int i = 0; i < 2; ++i) {
          const Token token = shared[random.below(kShared)].load();
          if (token == 0) {
            listener->meet();
            continue;
          }
          switch (map.add(*listener, {.token = token,
                                      .moment = random.below(2) == 0 ? Moment::sent : Moment::responded,
                                      .or_failed = random.below(2) == 0})) {
            case Registration::met:
              listener->meet();
              break;
            case Registration::failed:
            case Registration::forgotten:
            case Registration::full:
              listener->fail();
              break;
            case Registration::waits:
              break;
          }
        }
        ++asked;
        if (random.below(4) == 0 && listener->leave()) listener->leave_told();
        mine.push_back(std::move(listener));
        // Take one out, so that nobody else ends it, and put another in its place.
        if (const Token token = shared[random.below(kShared)].exchange(0); token != 0) {
          if (random.below(2) == 0) map.note_sent(token);
          map.end(token, random.below(3) == 0);
          const Token next = map.begin();
          if (next != 0) {
            Token nobody = 0;
            bool is_placed = false;
            for (auto& place : shared) {
              nobody = 0;
              if (place.compare_exchange_strong(nobody, next)) {
                is_placed = true;
                break;
              }
            }
            if (!is_placed) map.end(next, false);
          }
        }
      }
      for (auto& place : shared) {
        if (const Token token = place.exchange(0); token != 0) map.end(token, false);
      }
      for (auto& listener : mine) {
        while (listener->goes() + listener->fails() == 0) std::this_thread::yield();
        if (listener->goes() + listener->fails() == 1) ++told;
        listener->release();
        while (!listener->is_forgotten()) std::this_thread::yield();  // who tells it lets go of it
      }
    });
  }
  threads.clear();
  EXPECT_EQ(told, asked);
  EXPECT_EQ(map.waiting(), 0u);
  EXPECT_EQ(map.tracked(), 0u);
}

TEST(MpmcRing, LosesAndDoublesNothing) {
  constexpr std::uint32_t kThreads = 4, kEach = 20'000;
  MpmcRing ring(64);
  std::atomic<std::uint64_t> sum{0};
  std::vector<std::jthread> threads;
  for (std::uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::uint32_t pushed = 0, popped = 0;
      while (pushed < kEach || popped < kEach) {
        std::uint32_t value = 0;
        if (pushed < kEach && ring.try_push(t * kEach + pushed + 1)) ++pushed;
        if (popped < kEach && ring.try_pop(value)) {
          ++popped;
          sum += value;
        }
        if (pushed == kEach) std::this_thread::yield();
      }
    });
  }
  threads.clear();
  constexpr std::uint64_t kAll = std::uint64_t{kThreads} * kEach;
  EXPECT_EQ(sum, kAll * (kAll + 1) / 2);
  std::uint32_t value = 0;
  EXPECT_FALSE(ring.try_pop(value));
}

TEST(MpmcRing, IsFirstInFirstOutAndBounded) {
  MpmcRing ring(4);
  std::uint32_t value = 0;
  EXPECT_FALSE(ring.try_pop(value));
  for (std::uint32_t round = 0; round < 3; ++round) {
    for (std::uint32_t i = 0; i < 4; ++i) EXPECT_TRUE(ring.try_push(i));
    EXPECT_FALSE(ring.try_push(4));
    for (std::uint32_t i = 0; i < 4; ++i) {
      ASSERT_TRUE(ring.try_pop(value));
      EXPECT_EQ(value, i);
    }
  }
}

}  // namespace
}  // namespace weir::causality
