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
// always has a current credential. While the map has room for all that are not expired readers must never miss it; a
// crowded one may have given it up, but shows no half of it.
struct Race : ::testing::TestWithParam<bool> {};

TEST_P(Race, ReadersNeverSeeHalfAnEntryNorMissOneThatStays) {
  const bool is_crowded = GetParam();
  constexpr std::uint64_t kOwners = 12, kPrepared = 600;
  SecretMap map({.capacity = is_crowded ? 16u : 32u, .grace = 1ns});
  std::vector<Credential> prepared;  // number i belongs to owner i % kOwners + 1
  for (std::uint64_t i = 0; i < kPrepared; ++i) {
    prepared.push_back(numbered(i, i % kOwners + 1));
    prepared.back().may_call = true;
  }
  const auto put = [&](std::uint64_t number, Instant now) {
    const Credential& credential = prepared[number % kPrepared];
    ASSERT_TRUE(map.install(credential, now));
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
        if (!map.find_by_address(numbered_address(owner), Instant{}, out)) {
          ++missed;
          continue;
        }
        const std::uint64_t number = load<std::uint64_t>(out.id.data());
        if (number >= kPrepared || !(out == prepared[number])) ++torn;
        if (out.handshake_address != numbered_address(owner)) ++wrong;
      }
      const std::uint64_t number = (newest.load(std::memory_order_relaxed) + kPrepared - random.below(16)) % kPrepared;
      if (map.find(numbered_id(number), Instant{}, out)) {
        ++found;
        if (!(out == prepared[number])) ++torn;
      }
      KnownCredential known;
      if (map.find_caller(numbered_id(number), Instant{}, known)) {
        const Credential& whole = prepared[number];
        if (known.secret.secret() != whole.secret || known.hello_key != whole.hello_key ||
            known.answer_key != whole.answer_key || known.expires.ns != whole.expires_ns) {
          ++torn;
        }
      }
      map.mark_used(numbered_id(number), Side::both);
    }
  };
  std::thread first(read, 1), second(read, 2);
  Instant now = kStart;
  for (std::uint64_t number = kOwners; number < kRounds && !HasFatalFailure(); ++number) {
    now = now + 1us;
    put(number, now);
    const CredentialId& before = prepared[(number - kOwners) % kPrepared].id;  // at the same address
    if (!is_crowded || number % 2 == 0) map.retire(before, now);
    newest.store(number, std::memory_order_relaxed);
    if (number % (is_crowded ? 64 : 3) == 0) map.expire(now);
  }
  stop = true;
  first.join();
  second.join();
  EXPECT_EQ(torn, 0u);
  EXPECT_EQ(wrong, 0u);
  EXPECT_GT(found, 0u);
  if (is_crowded) {
    EXPECT_GT(map.stats().evicted, kRounds / 10);
  } else {
    EXPECT_EQ(missed, 0u);
    EXPECT_EQ(map.stats().evicted, 0u);
    EXPECT_GT(map.stats().expired, kRounds / 2);
  }
}
INSTANTIATE_TEST_SUITE_P(SecretMap, Race, ::testing::Bool(),
                         [](const auto& each) { return each.param ? "Crowded" : "WithRoom"; });

}  // namespace
}  // namespace weir::peer
