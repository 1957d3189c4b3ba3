// Readers against the writer. What is wrong in SecretMap's order of operations shows here, or under the thread
// sanitizer.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "base/random.h"
#include "peer/secret_map.h"
#include "peer/secret_map_testing.h"

namespace weir::peer {
namespace {

using namespace std::chrono_literals;
using testing::numbered;
using testing::numbered_address;
using testing::numbered_id;
using Installation = SecretMap::Installation;
using Confirmation = SecretMap::Confirmation;
using Side = SecretMap::Side;

constexpr Instant kStart{1'000'000'000};

// The thread sanitizer needs no luck, and every load costs it dearly.
#if defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kRounds = 15'000;
#else
constexpr std::uint64_t kRounds = 300'000;
#endif

// A small map, long chains and constant replacement, so that slots change hands under the readers' eyes. Each address
// always has a current credential, which is held: readers must never miss it.
TEST(SecretMap, ReadersNeverSeeHalfAnEntryNorMissOneThatStays) {
  constexpr std::uint64_t kOwners = 12, kPrepared = 600;
  SecretMap map({.capacity = 16, .grace = 1ns});
  std::vector<Credential> prepared;  // number i belongs to owner i % kOwners + 1
  for (std::uint64_t i = 0; i < kPrepared; ++i) prepared.push_back(numbered(i, i % kOwners + 1));
  const auto put = [&](std::uint64_t number, Instant now) {
    const Credential& credential = prepared[number % kPrepared];
    ASSERT_EQ(map.install(credential, now), Installation::installed);
    ASSERT_TRUE(map.hold(credential.id));
    ASSERT_EQ(map.confirm(credential.id, now), Confirmation::current);
  };
  for (std::uint64_t i = 0; i < kOwners; ++i) put(i, kStart);
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> newest{kOwners - 1};
  std::atomic<std::uint64_t> torn{0}, missed{0}, wrong{0}, found{0};
  const auto read = [&](std::uint64_t seed) {
    Random random{seed};
    Credential out;
    while (!stop.load(std::memory_order_relaxed)) {
      for (int i = 0; i < 16; ++i) {
        const std::uint64_t owner = random.below(kOwners) + 1;
        if (!map.find_by_address(numbered_address(owner), out)) {
          ++missed;
          continue;
        }
        const std::uint64_t number = load<std::uint64_t>(out.id.data());
        if (number >= kPrepared || !(out == prepared[number])) ++torn;
        if (out.handshake_address != numbered_address(owner)) ++wrong;
      }
      const std::uint64_t number = (newest.load(std::memory_order_relaxed) + kPrepared - random.below(16)) % kPrepared;
      if (map.find(numbered_id(number), out)) {
        ++found;
        if (!(out == prepared[number])) ++torn;
      }
      map.mark_used(numbered_id(number), Side::both);
      if (map.hold(numbered_id(number))) map.release(numbered_id(number));
    }
  };
  std::thread first(read, 1), second(read, 2);
  Instant now = kStart;
  for (std::uint64_t number = kOwners; number < kRounds && !HasFatalFailure(); ++number) {
    now = now + 1us;
    put(number, now);
    const CredentialId& before = prepared[(number - kOwners) % kPrepared].id;  // at the same address
    map.release(before);
    if (number % 2 == 0) map.retire(before, now);
    newest.store(number, std::memory_order_relaxed);
    if (number % 3 == 0) map.expire(now);
  }
  stop = true;
  first.join();
  second.join();
  EXPECT_EQ(torn, 0u);
  EXPECT_EQ(missed, 0u);
  EXPECT_EQ(wrong, 0u);
  EXPECT_GT(found, 0u);
  EXPECT_GT(map.stats().evicted, kRounds / 10);
  EXPECT_GT(map.stats().expired, kRounds / 10);
}

TEST(SecretMap, WhatAReaderHoldsStaysWhileOthersAreEvicted) {
  constexpr std::uint64_t kPrepared = 600;
  SecretMap map({.capacity = 16});
  std::vector<Credential> prepared;
  for (std::uint64_t i = 0; i < kPrepared; ++i) prepared.push_back(numbered(i, 0));
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> newest{0}, held{0}, lost{0};
  const auto read = [&](std::uint64_t seed) {
    Random random{seed};
    Credential out;
    while (!stop.load(std::memory_order_relaxed)) {
      const std::uint64_t number = (newest.load(std::memory_order_relaxed) + kPrepared - random.below(20)) % kPrepared;
      if (!map.hold(numbered_id(number))) continue;
      ++held;
      for (int i = 0; i < 4; ++i) lost += map.find(numbered_id(number), out) ? 0 : 1;
      map.release(numbered_id(number));
    }
  };
  std::thread first(read, 1), second(read, 2);
  std::uint64_t known = 0;
  for (std::uint64_t number = 0; number < kRounds; ++number) {
    // A reader that was interrupted while it holds one may keep it for rounds.
    const Installation done = map.install(prepared[number % kPrepared], kStart);
    EXPECT_NE(done, Installation::full);
    known += done == Installation::known ? 1 : 0;
    newest.store(number, std::memory_order_relaxed);
  }
  stop = true;
  first.join();
  second.join();
  EXPECT_EQ(lost, 0u);
  EXPECT_GT(held, 0u);
  EXPECT_GE(map.stats().evicted, kRounds - known - 16);
}

}  // namespace
}  // namespace weir::peer
