// Credit of calls from inside handlers: each level has a pool of its own (docs/protocol.md, rule C-6).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "token/credit.h"

namespace weir::token {
namespace {

constexpr std::uint64_t kLargest = 1'000;

CreditLedger::Options small_options() { return {.capacity = 20'000, .per_path = 8'000, .largest_cost = kLargest}; }

class NestedCredit : public ::testing::TestWithParam<int> {
 protected:
  std::uint8_t level() const { return static_cast<std::uint8_t>(GetParam()); }
  static constexpr CreditAccount::Receipt kTaken = CreditAccount::Receipt::taken;
};

TEST_P(NestedCredit, HasRoomWhateverTheOtherLevelsHold) {
  CreditLedger ledger(small_options());
  ledger.bound_nested(8'000);
  CreditAccount hogs[kLevels];
  ledger.open(hogs[0], 20'000);
  ASSERT_EQ(hogs[0].on_received(20'000), kTaken);
  for (std::uint8_t other = 1; other < kLevels; ++other) {
    if (other == level()) continue;
    ledger.open_nested(hogs[other], other, 0);
    for (int i = 0; i < 100 && ledger.promised(other) < 8'000; ++i) {
      ledger.on_blocked(hogs[other], hogs[other].received() + kLargest);
      (void)hogs[other].on_received(hogs[other].limit() - hogs[other].received());
    }
  }
  CreditAccount nested;
  ledger.open_nested(nested, level(), 1);
  for (int round = 0; round < 10; ++round) {
    ledger.on_blocked(nested, nested.received() + kLargest);
    ASSERT_EQ(nested.on_received(kLargest), kTaken);
    ledger.finish(nested, kLargest);
  }
  EXPECT_FALSE(ledger.starved(level()));
}

TEST_P(NestedCredit, WhatAColdPathIsToldShrinksWithTheNumberOfPaths) {
  CreditLedger ledger({.capacity = 64u << 20, .per_path = 4u << 20, .largest_cost = kLargest});
  ledger.bound_nested(1u << 20);
  std::vector<std::unique_ptr<CreditAccount>> accounts;
  std::uint32_t before = ledger.nested_allowance();
  EXPECT_EQ(before, 2 * kLargest);
  for (int i = 0; i < 4'000; ++i) {
    EXPECT_LE(ledger.nested_allowance(), before);
    before = ledger.nested_allowance();
    accounts.push_back(std::make_unique<CreditAccount>());
    ledger.open(*accounts.back(), ledger.cold_allowance());
  }
  EXPECT_EQ(before, 0u);
}

TEST_P(NestedCredit, AThousandPathsStayWithinThePoolAndEachGetsItsTurn) {
  CreditLedger ledger({.capacity = 64u << 20, .per_path = 4u << 20, .largest_cost = kLargest});
  const std::uint64_t capacity = ledger.bound_nested(20'000);
  ASSERT_EQ(capacity, 20'000u);
  std::vector<std::unique_ptr<CreditAccount>> outermost, accounts;
  for (std::uint32_t i = 0; i < 1'000; ++i) {
    outermost.push_back(std::make_unique<CreditAccount>());
    ledger.open(*outermost.back(), 0, i);
    accounts.push_back(std::make_unique<CreditAccount>());
    ledger.open_nested(*accounts.back(), level(), i);
    ledger.on_blocked(*accounts.back(), kLargest);
    ASSERT_LE(ledger.promised(level()), capacity);
  }
  EXPECT_TRUE(ledger.starved(level()));
  EXPECT_EQ(ledger.promised(), 0u);
  std::size_t served = 0;
  for (auto& account : accounts) {
    ASSERT_GE(account->limit(), kLargest) << served;
    ASSERT_EQ(account->on_received(kLargest), kTaken);
    ledger.finish(*account, kLargest);
    ledger.close(*account);
    ASSERT_LE(ledger.promised(level()), capacity);
    ++served;
  }
  EXPECT_EQ(ledger.promised(level()), 0u);
}

// Cold senders were told more than there is by the time they call.
TEST_P(NestedCredit, WhatIsNotThereAnyMoreIsNotNowTakenAndNoViolation) {
  CreditLedger ledger(small_options());
  ledger.bound_nested(4'000);
  CreditAccount hog, cold;
  ledger.open_nested(hog, level(), 0);
  while (ledger.promised(level()) < 4'000) {
    ledger.on_blocked(hog, hog.received() + kLargest);
    ASSERT_EQ(hog.on_received(hog.limit() - hog.received()), kTaken);
    if (hog.received() - 0 >= ledger.nested_per_path()) break;
  }
  CreditAccount second;
  ledger.open_nested(second, level(), 1);
  while (ledger.promised(level()) < 4'000) {
    ledger.on_blocked(second, second.received() + kLargest);
    ASSERT_EQ(second.on_received(second.limit() - second.received()), kTaken);
  }
  ledger.open_nested(cold, level(), 2);
  EXPECT_EQ(cold.on_received(2 * kLargest), CreditAccount::Receipt::no_room);
  EXPECT_EQ(cold.on_received(2 * kLargest + 1), CreditAccount::Receipt::violation);
  ledger.on_blocked(cold, kLargest);
  EXPECT_EQ(cold.on_received(kLargest), CreditAccount::Receipt::no_room);
  EXPECT_TRUE(ledger.starved(level()));
  ledger.finish(hog, kLargest);
  EXPECT_EQ(ledger.take_raised(), &cold);
  EXPECT_EQ(cold.on_received(kLargest), kTaken);
}

// Paths that called from inside handlers once, and then go on with other work, are never idle and so never closed. What
// they keep unused must leave enough for a message.
TEST_P(NestedCredit, ThoseWhoKeepWhatTheyDoNotUseLeaveRoomForAMessage) {
  for (const std::uint64_t capacity : {1'000ull, 2'000ull, 8'000ull, 100'000ull}) {
    CreditLedger ledger(small_options());
    ledger.bound_nested(capacity);
    std::vector<std::unique_ptr<CreditAccount>> keepers;
    for (std::uint32_t i = 0; i < 300; ++i) {
      keepers.push_back(std::make_unique<CreditAccount>());
      CreditAccount& keeper = *keepers.back();
      ledger.open_nested(keeper, level(), i);
      for (int round = 0; round < 5; ++round) {
        ledger.on_blocked(keeper, keeper.received() + 700);
        ASSERT_EQ(keeper.on_received(700), kTaken) << capacity << " " << i;
        ledger.finish(keeper, 700);
      }
    }
    CreditAccount late;
    ledger.open_nested(late, level(), 300);
    ledger.on_blocked(late, kLargest);
    EXPECT_GE(late.limit(), kLargest) << capacity;
  }
}

TEST_P(NestedCredit, GoesWithItsPath) {
  CreditLedger ledger(small_options());
  CreditAccounts accounts;
  accounts.open(ledger, 500, 7);
  CreditAccount& nested = accounts[level()];
  EXPECT_EQ(nested.owner(), 7u);
  EXPECT_EQ(nested.level(), level());
  ASSERT_EQ(accounts[0].on_received(500), kTaken);
  EXPECT_TRUE(accounts[0].holds_unused()) << "closing the path would give back what its nested levels hold";
  ledger.on_blocked(nested, kLargest);
  ASSERT_EQ(nested.on_received(kLargest), kTaken);
  ledger.close(accounts[0]);
  ledger.finish_closed(0, 500);
  EXPECT_EQ(ledger.promised(level()), kLargest);
  ledger.finish_closed(level(), kLargest);
  for (std::uint8_t each = 0; each < kLevels; ++each) EXPECT_EQ(ledger.promised(each), 0u);
}

INSTANTIATE_TEST_SUITE_P(Levels, NestedCredit, ::testing::Range(1, static_cast<int>(kLevels)));

TEST(CreditLedger, AllLevelsTogetherPromiseNoMoreThanTheSocketCanTake) {
  for (const std::uint64_t all : {400'000ull, 1'000'000ull, 16'000'000ull, 1'000'000'000ull}) {
    CreditLedger ledger({.capacity = std::min<std::uint64_t>(all, 64u << 20), .per_path = 4u << 20});
    const std::uint64_t nested = ledger.bound_nested(8u << 20, all);
    EXPECT_EQ(nested, ledger.nested_capacity());
    EXPECT_LE(ledger.options().capacity + 4 * nested, all);
    EXPECT_LE(ledger.options().per_path, ledger.options().capacity);
    EXPECT_GE(nested, ledger.options().largest_cost);
  }
}

}  // namespace
}  // namespace weir::token
