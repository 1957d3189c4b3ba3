// The line of those who wait for credit (docs/protocol.md, rules C-5 and C-7).
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

// A pool of which one message is free now and then: each answer of the hog is one message for somebody.
class CreditLine : public ::testing::Test {
 protected:
  struct Caller {
    CreditAccount account;
    std::uint8_t priority = 0;
    std::uint64_t cost = kLargest;
    int served = 0;
  };
  void SetUp() override {
    ledger.open(hog, 100 * kLargest);
    ASSERT_EQ(hog.on_received(100 * kLargest), CreditAccount::Receipt::taken);
    ledger.close(hog);  // its requests are still to be answered, and it wants no more
  }
  Caller& add(std::uint8_t priority, std::uint64_t cost = kLargest) {
    callers.push_back(std::make_unique<Caller>());
    Caller& caller = *callers.back();
    caller.priority = priority;
    caller.cost = cost;
    ledger.open(caller.account, 0);
    ask(caller);
    return caller;
  }
  void ask(Caller& caller) {
    ledger.on_blocked(caller.account, caller.account.received() + caller.cost, caller.priority);
  }
  // So many bytes are answered by somebody who wants no more. Whoever is served sends at once, keeps the server busy
  // for ever and asks for the next.
  void free_bytes(std::uint64_t bytes) {
    ledger.finish_closed(0, bytes);
    for (bool has_sent = true; has_sent;) {
      has_sent = false;
      while (ledger.take_raised() != nullptr) {
      }
      for (auto& caller : callers) {
        if (caller->account.limit() < caller->account.received() + caller->cost) continue;
        ASSERT_EQ(caller->account.on_received(caller->cost), CreditAccount::Receipt::taken);
        ++caller->served;
        order.push_back(caller->priority);
        has_sent = true;
        ask(*caller);
      }
    }
  }

  CreditLedger ledger{{.capacity = 100 * kLargest, .per_path = 100 * kLargest, .largest_cost = kLargest}};
  CreditAccount hog;
  std::vector<std::unique_ptr<Caller>> callers;
  std::vector<int> order;
};

TEST_F(CreditLine, ServesTheMoreUrgentFirstAlthoughItCameLater) {
  Caller& bulk = add(7);
  Caller& urgent = add(0);
  free_bytes(kLargest);
  EXPECT_EQ(urgent.served, 1);
  EXPECT_EQ(bulk.served, 0);
}

TEST_F(CreditLine, SharesByWeightSoThatNobodyStarves) {
  Caller& urgent = add(4);
  Caller& next = add(5);
  Caller& bulk = add(7);
  for (int i = 0; i < 91; ++i) free_bytes(kLargest);
  EXPECT_NEAR(urgent.served, 7 * 8, 1);
  EXPECT_NEAR(next.served, 7 * 4, 1);
  EXPECT_NEAR(bulk.served, 7 * 1, 1);
}

TEST_F(CreditLine, SharesBytesAndNotTurns) {
  Caller& large = add(3);
  Caller& small = add(4, kLargest / 10);
  for (int i = 0; i < 90; ++i) free_bytes(kLargest);
  // Twice the weight: twice the bytes, however they are cut.
  EXPECT_NEAR(large.served, 60, 2);
  EXPECT_NEAR(small.served, 300, 20);
}

// Four who always claim to be in a hurry share what the hurried get: none has more than the others.
TEST_F(CreditLine, WhoeverAlwaysClaimsToBeUrgentGetsAnEqualsShare) {
  for (int i = 0; i < 4; ++i) add(0);
  for (int i = 0; i < 80; ++i) {
    ask(*callers[0]);  // complaining more often does not help either
    free_bytes(kLargest);
  }
  for (auto& caller : callers) EXPECT_EQ(caller->served, 20);
}

TEST_F(CreditLine, AnUrgentRequestMovesItsPathForwardAndALateComplaintNotBack) {
  Caller& first = add(5);
  Caller& second = add(5);
  second.priority = 1;
  ask(second);
  second.priority = 6;
  ask(second);  // sent before, and overtaken on the way
  free_bytes(kLargest);
  EXPECT_EQ(second.served, 1);
  EXPECT_EQ(first.served, 0);
}

TEST_F(CreditLine, APathNamesItsPriorityAnewForEachMessage) {
  Caller& changing = add(0);
  Caller& steady = add(3);
  changing.priority = 7;  // from the second on
  for (int i = 0; i < 9; ++i) free_bytes(kLargest);
  EXPECT_EQ(order.front(), 7);
  EXPECT_EQ(steady.served, 7);
}

// A large message whose turn it is gets its bytes together although smaller ones would fit.
TEST_F(CreditLine, ASmallMessageOfTheSamePriorityDoesNotOvertakeALargeOne) {
  Caller& large = add(2);
  Caller& small = add(2, 10);
  for (int i = 0; i < 9; ++i) free_bytes(kLargest / 10);
  EXPECT_EQ(small.served, 0);
  free_bytes(kLargest / 10);
  EXPECT_EQ(large.served, 1);
}

}  // namespace
}  // namespace weir::token
