// Credit of one level (docs/protocol.md, rules C-1 to C-5 and C-7).
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

TEST(CreditSender, TheFirstLimitReplacesWhatAColdSenderWasOffered) {
  CreditSender sender;
  sender.limit = 8'000;
  sender.used = 1'000;
  EXPECT_FALSE(sender.raise(0)) << "there is no room for what was sent";
  EXPECT_FALSE(sender.may_send(1));
  EXPECT_TRUE(sender.raise(1'000));
  EXPECT_FALSE(sender.may_send(1));
  EXPECT_FALSE(sender.raise(500)) << "it came late";
  EXPECT_EQ(sender.limit, 1'000u);
}

TEST(CreditSender, AHigherFirstLimitIsNotLoweredByAnOlderOne) {
  CreditSender sender;
  sender.limit = 1'000;
  sender.raise(3'000);
  sender.raise(2'000);
  EXPECT_EQ(sender.limit, 3'000u);
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

// A server with the receive buffer that Linux gives by default, and hellos of 300 cold callers in one round trip.
TEST(CreditLedger, OffersToManyWhoHaveNoPathYetAddUpToLessThanTheBuffer) {
  constexpr std::uint64_t kReceiveBuffer = 212'992;
  constexpr Instant kStart{1'000'000'000};
  CreditLedger ledger({.largest_cost = kLargest});
  static_cast<void>(ledger.bound_nested(CreditLedger::kNestedCapacity, kReceiveBuffer / 4));
  const std::uint32_t first = ledger.cold_allowance();
  std::uint64_t sum = 0;
  for (int i = 0; i < 300; ++i) {
    sum += ledger.cold_allowance();
    ledger.forget_offers(kStart);
    ledger.on_offered();
  }
  EXPECT_LT(sum, kReceiveBuffer);
  EXPECT_GT(sum, kReceiveBuffer / 4) << "many are offered something";
  // Who comes back after that, or later, is offered more again.
  CreditAccount account;
  const std::uint32_t before = ledger.cold_allowance();
  for (int i = 0; i < 290; ++i) {
    CreditAccount one;
    ledger.open(one, 0);
    ledger.close(one);
  }
  EXPECT_GT(ledger.cold_allowance(), before);
  for (int i = 0; i < 5'000; ++i) ledger.on_offered();
  ledger.forget_offers(kStart + 3 * CreditLedger::kOfferLife);
  ledger.forget_offers(kStart + 5 * CreditLedger::kOfferLife);
  EXPECT_GE(ledger.cold_allowance(), first * 8 / 9);
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
