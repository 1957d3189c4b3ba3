#include "token/credit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

namespace weir::token {
namespace {

constexpr std::uint64_t kLargest = 1'000;

CreditLedger::Options small_options() { return {.capacity = 20'000, .per_path = 8'000, .largest_cost = kLargest}; }

TEST(CreditSender, MaySendUpToItsLimitAndNotBeyond) {
  CreditSender sender;
  EXPECT_FALSE(sender.may_send(1));
  sender.raise(100);
  EXPECT_TRUE(sender.may_send(100));
  EXPECT_FALSE(sender.may_send(101));
}

TEST(CreditSender, AnOldOrRepeatedLimitIsHarmless) {
  CreditSender sender;
  sender.raise(100);
  sender.raise(40);
  EXPECT_EQ(sender.limit, 100u);
  sender.raise(100);
  EXPECT_EQ(sender.limit, 100u);
}

TEST(CreditAccount, RefusesWhatGoesOverTheLimitAndCountsNothingOfIt) {
  CreditLedger ledger(small_options());
  CreditAccount account;
  ledger.open(account, 500);
  EXPECT_EQ(account.on_received(500), CreditAccount::Receipt::taken);
  EXPECT_EQ(account.on_received(1), CreditAccount::Receipt::violation);
  EXPECT_EQ(account.unanswered(), 500u);
}

TEST(CreditAccount, AnnouncesOnceAQuarterOfTheWindowIsFree) {
  CreditLedger ledger(small_options());
  CreditAccount account;
  ledger.open(account, 1'000);
  ASSERT_EQ(account.on_received(1'000), CreditAccount::Receipt::taken);
  ledger.finish(account, 249);
  EXPECT_FALSE(account.should_announce());
  ledger.finish(account, 1);
  EXPECT_TRUE(account.should_announce());
  EXPECT_EQ(account.announce(), 1'250u);
  EXPECT_FALSE(account.should_announce());
}

TEST(CreditAccount, AnnouncesTheSmallestRaiseToASenderThatIsBlocked) {
  CreditLedger ledger(small_options());
  CreditAccount hog;
  CreditAccount account;
  ledger.open(hog, 19'000);
  ledger.open(account, 1'000);
  ASSERT_EQ(hog.on_received(19'000), CreditAccount::Receipt::taken);
  ASSERT_EQ(account.on_received(1'000), CreditAccount::Receipt::taken);
  ledger.on_blocked(account, 1'001);
  EXPECT_FALSE(account.should_announce());
  ledger.finish(hog, 1);
  EXPECT_TRUE(account.should_announce());
  EXPECT_EQ(account.announce(), 1'001u);
}

TEST(CreditAccount, AnnouncesAgainAfterALossHoweverSmallTheRaise) {
  CreditLedger ledger(small_options());
  CreditAccount waiting;
  CreditAccount hog;
  ledger.open(waiting, 10);
  ledger.open(hog, 19'990);
  ASSERT_EQ(hog.on_received(1'000), CreditAccount::Receipt::taken);
  ledger.on_blocked(waiting, 20);
  ledger.finish(hog, 1'000);
  ASSERT_TRUE(waiting.should_announce());
  const std::uint64_t limit = waiting.announce();
  EXPECT_GE(limit, 20u);
  EXPECT_FALSE(waiting.should_announce());
  waiting.announce_again();
  EXPECT_TRUE(waiting.should_announce());
  EXPECT_EQ(waiting.announce(), limit);
}

TEST(CreditLedger, AColdPathGetsLessTheMorePathsThereAre) {
  CreditLedger ledger({.capacity = 1u << 20, .per_path = 1u << 20, .largest_cost = kLargest});
  std::vector<std::unique_ptr<CreditAccount>> accounts;
  std::uint32_t before = ledger.cold_allowance();
  EXPECT_EQ(before, CreditLedger::kLargestAllowance);
  bool reached_zero = false;
  for (int i = 0; i < 2'000; ++i) {
    const std::uint32_t allowance = ledger.cold_allowance();
    EXPECT_LE(allowance, before);
    EXPECT_TRUE(allowance == 0 || allowance >= CreditLedger::kSmallestAllowance);
    before = allowance;
    reached_zero = reached_zero || allowance == 0;
    accounts.push_back(std::make_unique<CreditAccount>());
    ledger.open(*accounts.back(), allowance);
    ASSERT_LE(ledger.promised(), ledger.options().capacity);
  }
  EXPECT_TRUE(reached_zero);
}

TEST(CreditLedger, ABoundBelowOneMessageStillLetsOneThrough) {
  CreditLedger ledger({.capacity = 1, .per_path = 1, .largest_cost = kLargest});
  CreditAccount account;
  ledger.open(account, 0);
  ledger.on_blocked(account, kLargest);
  EXPECT_EQ(account.limit(), kLargest);
}

TEST(CreditLedger, CostComesBackWhenTheAnswerWasGivenNotWhenTheRequestArrived) {
  CreditLedger ledger(small_options());
  CreditAccount account;
  ledger.open(account, 1'000);
  ASSERT_EQ(account.on_received(1'000), CreditAccount::Receipt::taken);
  EXPECT_EQ(account.limit(), 1'000u);
  EXPECT_EQ(ledger.promised(), 1'000u);
  ledger.finish(account, 1'000);
  EXPECT_EQ(account.limit(), 2'000u);
  EXPECT_EQ(ledger.promised(), 1'000u);
}

TEST(CreditLedger, ABlockedPathIsServedAtOnceIfThereIsRoom) {
  CreditLedger ledger(small_options());
  CreditAccount account;
  ledger.open(account, 100);
  ASSERT_EQ(account.on_received(100), CreditAccount::Receipt::taken);  // its handler takes its time
  ledger.on_blocked(account, 100 + kLargest);
  EXPECT_GE(account.limit(), 100 + kLargest);
  EXPECT_TRUE(account.should_announce());
  EXPECT_FALSE(ledger.starved());
  EXPECT_EQ(ledger.take_raised(), nullptr);  // whoever asked looks for itself
}

TEST(CreditLedger, ASenderThatFillsItsWindowAndIsBlockedGetsTwiceAsMuchUpToTheBoundPerPath) {
  CreditLedger ledger(small_options());
  CreditAccount account;
  ledger.open(account, 2'000);
  std::uint64_t used = 0;
  for (const std::uint64_t window : {2'000, 4'000, 8'000, 8'000}) {
    EXPECT_EQ(account.limit() - used, window);
    ASSERT_EQ(account.on_received(window), CreditAccount::Receipt::taken);
    used += window;
    ledger.finish(account, window);
    ledger.on_blocked(account, used + 1);
  }
}

TEST(CreditLedger, ALiarsComplaintsGiveItNoMoreThanTheBoundPerPath) {
  CreditLedger ledger(small_options());
  CreditAccount account;
  ledger.open(account, 100);
  for (int i = 0; i < 100; ++i) ledger.on_blocked(account, ~std::uint64_t{0} - static_cast<std::uint64_t>(i % 3));
  EXPECT_LE(account.limit(), 8'000u);
  ledger.on_blocked(account, 0);
  EXPECT_LE(account.limit(), 8'000u);
}

TEST(CreditLedger, APathAtItsOwnBoundIsServedFromItsOwnAnswers) {
  CreditLedger ledger(small_options());
  CreditAccount account;
  ledger.open(account, 8'000);
  ASSERT_EQ(account.on_received(8'000), CreditAccount::Receipt::taken);
  ledger.on_blocked(account, 9'000);
  EXPECT_EQ(account.limit(), 8'000u);
  EXPECT_FALSE(ledger.starved());
  ledger.finish(account, 1'000);
  EXPECT_EQ(account.limit(), 9'000u);
}

// Its own answers made room within its bound, but somebody else was first in line and took it.
TEST(CreditLedger, APathAtItsOwnBoundIsNotForgottenBehindOthers) {
  CreditLedger ledger(small_options());
  CreditAccount full;
  CreditAccount other;
  CreditAccount waiting;
  ledger.open(full, 8'000);
  ledger.open(other, 12'000);
  ledger.open(waiting, 0);
  ASSERT_EQ(full.on_received(8'000), CreditAccount::Receipt::taken);
  ASSERT_EQ(other.on_received(12'000), CreditAccount::Receipt::taken);
  ledger.on_blocked(full, 8'600);
  ledger.on_blocked(waiting, 1'000);
  EXPECT_TRUE(ledger.starved());
  ledger.finish(full, 600);  // too little for `waiting`
  ledger.finish(other, 1'000);
  EXPECT_EQ(waiting.limit(), 1'000u);
  EXPECT_EQ(full.limit(), 8'600u);
}

TEST(CreditLedger, AWholeMessageOrNothingWhileOthersWait) {
  CreditLedger ledger(small_options());
  CreditAccount hog;
  CreditAccount first;
  CreditAccount second;
  ledger.open(hog, 19'200);
  ledger.open(first, 0);
  ledger.open(second, 0);
  ASSERT_EQ(hog.on_received(19'200), CreditAccount::Receipt::taken);
  // 800 are left: not enough for either, and half a message each would block both for ever.
  ledger.on_blocked(first, 1'000);
  ledger.on_blocked(second, 900);
  EXPECT_EQ(first.limit(), 0u);
  EXPECT_EQ(second.limit(), 0u);
  ledger.finish(hog, 300);
  EXPECT_EQ(first.limit(), 1'000u);
  EXPECT_EQ(second.limit(), 0u);
  ledger.finish(hog, 800);
  EXPECT_EQ(second.limit(), 900u);
}

TEST(CreditLedger, NobodyOvertakesThoseWhoWait) {
  CreditLedger ledger(small_options());
  CreditAccount hog;
  CreditAccount first;
  CreditAccount late;
  ledger.open(hog, 19'500);
  ledger.open(first, 0);
  ledger.open(late, 0);
  ASSERT_EQ(hog.on_received(19'500), CreditAccount::Receipt::taken);
  ledger.on_blocked(first, 1'000);
  ledger.on_blocked(late, 100);  // would fit
  EXPECT_EQ(late.limit(), 0u);
  ledger.finish(hog, 500);
  EXPECT_EQ(first.limit(), 1'000u);
  ledger.finish(hog, 100);
  EXPECT_EQ(late.limit(), 100u);
}

TEST(CreditLedger, ClosingReturnsThePromiseExceptWhatIsUnanswered) {
  CreditLedger ledger(small_options());
  CreditAccount account;
  ledger.open(account, 5'000);
  ASSERT_EQ(account.on_received(2'000), CreditAccount::Receipt::taken);
  ledger.close(account);
  EXPECT_EQ(ledger.promised(), 2'000u);
  ledger.finish_closed(0, 1'500);
  ledger.finish_closed(0, 500);
  EXPECT_EQ(ledger.promised(), 0u);
}

TEST(CreditLedger, ClosingServesThoseWhoWait) {
  CreditLedger ledger(small_options());
  CreditAccount idle;
  CreditAccount waiting;
  ledger.open(idle, 20'000);
  ledger.open(waiting, 0);
  ledger.on_blocked(waiting, 700);
  EXPECT_TRUE(ledger.starved());
  ledger.close(idle);
  EXPECT_FALSE(ledger.starved());
  EXPECT_EQ(waiting.limit(), 700u);
  EXPECT_EQ(ledger.take_raised(), &waiting);
  EXPECT_EQ(ledger.take_raised(), nullptr);
}

TEST(CreditLedger, ClosingTwiceOrWithoutOpeningChangesNothing) {
  CreditLedger ledger(small_options());
  CreditAccount account;
  CreditAccount never_opened;
  ledger.open(account, 1'000);
  ledger.close(account);
  ledger.close(account);
  ledger.close(never_opened);
  EXPECT_EQ(ledger.promised(), 0u);
  EXPECT_GT(ledger.cold_allowance(), 0u);
}

// The other side of a path that we made may call, but hardly ever does: it is told nothing and gets a little.
TEST(CreditLedger, APathThatWeMadeIsPromisedNothingUntilItAsks) {
  CreditLedger ledger(small_options());
  CreditAccount account;
  const std::uint32_t allowance = ledger.cold_allowance();
  ledger.open_for_callbacks(account);
  EXPECT_EQ(ledger.promised(), 0u);
  EXPECT_EQ(ledger.cold_allowance(), allowance);
  EXPECT_EQ(account.on_received(1), CreditAccount::Receipt::violation);
  for (int i = 0; i < 10; ++i) ledger.on_blocked(account, ~std::uint64_t{0});
  EXPECT_EQ(account.limit(), kLargest);
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(account.on_received(account.limit() - account.received()), CreditAccount::Receipt::taken);
    ledger.on_blocked(account, ~std::uint64_t{0});
    EXPECT_LE(account.limit(), 2 * kLargest);
  }
  EXPECT_EQ(ledger.promised(), account.limit());
  ledger.close(account);
  EXPECT_EQ(ledger.promised(), account.received());
  ledger.finish_closed(0, account.received());
  EXPECT_EQ(ledger.promised(), 0u);
}

TEST(CreditLedger, APathThatWeMadeNeverWaitsInLine) {
  CreditLedger ledger(small_options());
  CreditAccount hog, ours;
  ledger.open(hog, 20'000);
  ledger.open_for_callbacks(ours);
  ASSERT_EQ(hog.on_received(20'000), CreditAccount::Receipt::taken);
  ledger.on_blocked(ours, 500);
  EXPECT_EQ(ours.limit(), 0u);
  EXPECT_FALSE(ledger.starved());
  ledger.finish(hog, 20'000);
  ledger.on_blocked(ours, 500);
  EXPECT_EQ(ours.limit(), 0u) << "the hog's window took all of it again";
  ledger.close(hog);
  ledger.on_blocked(ours, 500);
  EXPECT_GE(ours.limit(), 500u);
}

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
  EXPECT_TRUE(ledger.starved());
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

class ListSurgery : public ::testing::TestWithParam<int> {};

// Three accounts wait; the one that closes is the first, the middle or the last in line.
TEST_P(ListSurgery, AnAccountThatClosesWhileItWaitsLeavesTheOthersInLine) {
  CreditLedger ledger(small_options());
  CreditAccount hog;
  CreditAccount waiting[4];
  ledger.open(hog, 20'000);
  ASSERT_EQ(hog.on_received(20'000), CreditAccount::Receipt::taken);
  for (int i = 0; i < 3; ++i) {
    ledger.open(waiting[i], 0);
    ledger.on_blocked(waiting[i], 1'000);
  }
  ledger.close(waiting[GetParam()]);
  ledger.open(waiting[3], 0);
  ledger.on_blocked(waiting[3], 1'000);  // goes to the end of the mended line
  for (int i = 0; i < 4; ++i) {
    if (i == GetParam()) continue;
    EXPECT_EQ(waiting[i].limit(), 0u);
    ledger.finish(hog, 1'000);
    EXPECT_EQ(waiting[i].limit(), 1'000u) << i;
  }
  EXPECT_FALSE(ledger.starved());
}

TEST_P(ListSurgery, AnAccountThatClosesAfterItWasRaisedIsNotHandedOut) {
  CreditLedger ledger(small_options());
  CreditAccount hog;
  CreditAccount waiting[3];
  ledger.open(hog, 20'000);
  ASSERT_EQ(hog.on_received(20'000), CreditAccount::Receipt::taken);
  for (auto& account : waiting) {
    ledger.open(account, 0);
    ledger.on_blocked(account, 1'000);
  }
  ledger.finish(hog, 3'000);
  CreditAccount* const closed = &waiting[GetParam()];
  ledger.close(*closed);
  int raised = 0;
  while (CreditAccount* account = ledger.take_raised()) {
    EXPECT_NE(account, closed);
    ++raised;
  }
  EXPECT_EQ(raised, 2);
}

INSTANTIATE_TEST_SUITE_P(FirstMiddleLast, ListSurgery, ::testing::Values(0, 1, 2));

TEST(CreditLedger, OpensAColdPathWithWhatIsLeftAndAsksTheSenderToComeAgain) {
  CreditLedger ledger({.capacity = 40'000, .per_path = 40'000, .largest_cost = kLargest});
  CreditAccount first, second;
  ledger.open(first, 30'000);
  ledger.open(second, 30'000);  // both were told 30,000 before either had a path
  EXPECT_EQ(ledger.promised(), 40'000u);
  EXPECT_EQ(second.on_received(10'000), CreditAccount::Receipt::taken);
  EXPECT_EQ(second.on_received(1), CreditAccount::Receipt::no_room);
  EXPECT_EQ(second.on_received(20'001), CreditAccount::Receipt::violation);
  ASSERT_EQ(first.on_received(30'000), CreditAccount::Receipt::taken);
  ledger.on_blocked(second, 10'500);
  ledger.finish(first, 30'000);
  EXPECT_EQ(second.on_received(500), CreditAccount::Receipt::taken);
}

TEST(CreditAccount, ARequestCancelledBeforeItCameTakesNoRoom) {
  CreditLedger ledger({.capacity = 20'000, .per_path = 20'000, .largest_cost = kLargest});
  CreditAccount hog, cold;
  ledger.open(hog, 20'000);
  ledger.open(cold, 1'000);
  ASSERT_EQ(cold.on_received(800), CreditAccount::Receipt::no_room);
  cold.forgive(800);
  EXPECT_EQ(cold.unanswered(), 0u);
  EXPECT_EQ(ledger.promised(), 20'000u);
  ledger.close(cold);
  EXPECT_EQ(ledger.promised(), 20'000u);
}

}  // namespace
}  // namespace weir::token
