#include "crypto/nonce_ledger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <set>
#include <thread>

#include "base/random.h"

namespace weir::crypto {
namespace {

KeyBytes key_number(std::uint64_t number) {
  KeyBytes key{};
  store<std::uint64_t>(key.data(), number);
  return key;
}

TEST(NumberSet, RejectsANumberSeenBefore) {
  NumberSet numbers;
  EXPECT_TRUE(numbers.insert(5));
  EXPECT_FALSE(numbers.insert(5));
  EXPECT_TRUE(numbers.insert(6));
  EXPECT_FALSE(numbers.insert(5));
  EXPECT_FALSE(numbers.insert(6));
}

TEST(NumberSet, JoinsNeighbours) {
  NumberSet numbers;
  for (const std::uint64_t number : {10, 12, 14, 16}) EXPECT_TRUE(numbers.insert(number));
  EXPECT_EQ(numbers.interval_count(), 4u);
  EXPECT_TRUE(numbers.insert(13));
  EXPECT_EQ(numbers.interval_count(), 3u);
  EXPECT_TRUE(numbers.insert(9));
  EXPECT_TRUE(numbers.insert(17));
  EXPECT_EQ(numbers.interval_count(), 3u);
  EXPECT_FALSE(numbers.insert(13));
}

TEST(NumberSet, HoldsBothEndsOfTheRange) {
  constexpr std::uint64_t kLargest = std::numeric_limits<std::uint64_t>::max();
  NumberSet numbers;
  EXPECT_TRUE(numbers.insert(kLargest));
  EXPECT_TRUE(numbers.insert(0));
  EXPECT_EQ(numbers.interval_count(), 2u);
  EXPECT_FALSE(numbers.insert(kLargest));
  EXPECT_FALSE(numbers.insert(0));
  EXPECT_TRUE(numbers.insert(kLargest - 1));
  EXPECT_TRUE(numbers.insert(1));
  EXPECT_EQ(numbers.interval_count(), 2u);
}

TEST(NumberSet, AgreesWithASetOfNumbers) {
  Random random{1};
  NumberSet numbers;
  std::set<std::uint64_t> model;
  for (int i = 0; i < 20'000; ++i) {
    const std::uint64_t number = random.below(4000);
    ASSERT_EQ(numbers.insert(number), model.insert(number).second) << number;
  }
  std::size_t runs = 0;
  for (const std::uint64_t number : model) runs += model.contains(number - 1) ? 0 : 1;
  EXPECT_EQ(numbers.interval_count(), runs);
}

TEST(NonceLedger, KeepsAnOrderlyConversationInOneInterval) {
  NonceLedger ledger;
  const auto key = fingerprint_of(key_number(1));
  for (std::uint64_t number = 0; number < 100'000; ++number) ASSERT_TRUE(ledger.record(key, make_nonce(7, number)));
  EXPECT_EQ(ledger.space_count(), 1u);
  EXPECT_EQ(ledger.interval_count(), 1u);
  EXPECT_FALSE(ledger.record(key, make_nonce(7, 31'415)));
}

TEST(NonceLedger, TellsKeysAndDomainsApart) {
  NonceLedger ledger;
  const auto one = fingerprint_of(key_number(1));
  const auto two = fingerprint_of(key_number(2));
  EXPECT_TRUE(ledger.record(one, make_nonce(0, 5)));
  EXPECT_TRUE(ledger.record(two, make_nonce(0, 5)));
  EXPECT_TRUE(ledger.record(one, make_nonce(1, 5)));
  EXPECT_FALSE(ledger.record(one, make_nonce(0, 5)));
  EXPECT_FALSE(ledger.record(fingerprint_of(key_number(2)), make_nonce(0, 5)));
}

TEST(NonceLedger, ForgetsTheOldestSpaceWhenFull) {
  NonceLedger ledger{NonceLedger::kShards};  // one space per shard
  for (std::uint64_t key = 0; key < 1000; ++key) {
    ASSERT_TRUE(ledger.record(fingerprint_of(key_number(key)), make_nonce(0, 1)));
    ASSERT_FALSE(ledger.record(fingerprint_of(key_number(key)), make_nonce(0, 1)));
  }
  EXPECT_LE(ledger.space_count(), NonceLedger::kShards);
  EXPECT_EQ(ledger.space_count() + ledger.forgotten_spaces(), 1000u);
}

TEST(NonceLedger, ClearStartsAnew) {
  NonceLedger ledger;
  const auto key = fingerprint_of(key_number(1));
  EXPECT_TRUE(ledger.record(key, make_nonce(0, 1)));
  ledger.clear();
  EXPECT_EQ(ledger.space_count(), 0u);
  EXPECT_TRUE(ledger.record(key, make_nonce(0, 1)));
}

TEST(NonceLedger, LetsExactlyOneOfManyThreadsUseANonce) {
  NonceLedger ledger;
  constexpr std::uint64_t kNumbers = 5000;
  std::atomic<std::uint64_t> fresh = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (std::uint64_t number = 0; number < kNumbers; ++number) {
          const auto key = fingerprint_of(key_number(number % 5));
          if (ledger.record(key, make_nonce(0, number))) fresh.fetch_add(1, std::memory_order_relaxed);
        }
      });
    }
  }
  EXPECT_EQ(fresh.load(), kNumbers);
}

TEST(NonceLedger, BuildSaysWhetherItChecks) {
#ifdef WEIR_CHECK_NONCES
  EXPECT_TRUE(nonces_are_checked());
#else
  EXPECT_FALSE(nonces_are_checked());
#endif
}

}  // namespace
}  // namespace weir::crypto
