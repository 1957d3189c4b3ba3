// Whose turn it is to be granted memory (docs/protocol.md, rules G-3 and G-7).
#include "token/grant_ledger.h"

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <string>
#include <vector>

namespace weir::token {
namespace {

using namespace std::chrono_literals;

constexpr std::uint8_t kPurse = 0;

// One purse of 1,000 bytes, of which a sender may have 600, unless a test says otherwise.
class Ledger : public ::testing::Test {
 protected:
  Ledger() {
    for (SenderAccount& sender : senders) ledger.open(sender);
  }
  Ask& ask(std::size_t sender, std::uint64_t bytes, std::uint8_t priority = 3, std::uint8_t purse = kPurse) {
    Ask& made =
        asks.emplace_back(Ask{.account = &senders[sender], .bytes = bytes, .purse = purse, .priority = priority});
    ledger.ask(made);
    return made;
  }
  std::vector<Ask*> granted() {
    std::vector<Ask*> all;
    while (Ask* one = ledger.next()) all.push_back(one);
    verify();
    return all;
  }
  void release(std::size_t sender, std::uint64_t bytes, std::uint8_t purse = kPurse) {
    ledger.release(senders[sender], purse, bytes);
    verify();
  }
  void verify() {
    std::array<const SenderAccount*, 8> all{};
    for (std::size_t i = 0; i < senders.size(); ++i) all[i] = &senders[i];
    ledger.verify(all.data(), all.size());
  }
  using Asks = std::vector<Ask*>;

  GrantLedger ledger{{.requests = {1'000, 600}, .nested = {500, 500}, .replies = {1'000, 600}}};
  std::array<SenderAccount, 8> senders;
  std::deque<Ask> asks;
};

TEST_F(Ledger, GrantsWhatFitsAndReservesIt) {
  Ask& first = ask(0, 400);
  EXPECT_TRUE(first.is_waiting());
  EXPECT_EQ(granted(), Asks{&first});
  EXPECT_FALSE(first.is_waiting());
  EXPECT_EQ(ledger.used(kPurse), 400u);
  EXPECT_EQ(senders[0].bytes[kPurse], 400u);
  EXPECT_EQ(ledger.next(), nullptr);
  release(0, 400);
  EXPECT_EQ(ledger.used(kPurse), 0u);
}

TEST_F(Ledger, AnAskThatCanNeverBeGrantedIsKnownBeforehand) {
  EXPECT_TRUE(ledger.can_ever(kPurse, 600));
  EXPECT_FALSE(ledger.can_ever(kPurse, 601));
  EXPECT_FALSE(ledger.can_ever(kPurse, 0));
  EXPECT_FALSE(ledger.can_ever(1, 501));
  EXPECT_FALSE(ledger.can_ever(kReplyPurse, ~std::uint64_t{0}));
  EXPECT_DEATH(ask(0, 601), "can_ever");
}

TEST_F(Ledger, NoPurseWaitsForAnother) {
  ask(0, 600), ask(1, 400);
  EXPECT_EQ(granted().size(), 2u);
  Ask& stuck = ask(2, 100);
  Ask& nested = ask(2, 500, 3, request_purse(1));
  Ask& deeper = ask(2, 500, 3, request_purse(4));
  Ask& reply = ask(2, 600, 7, kReplyPurse);
  const Asks all = granted();
  EXPECT_EQ(all.size(), 3u);
  EXPECT_TRUE(stuck.is_waiting());
  EXPECT_FALSE(nested.is_waiting() || deeper.is_waiting() || reply.is_waiting());
}

TEST_F(Ledger, WithinASenderAndPriorityTheFirstComesFirst) {
  Ask& a = ask(0, 100);
  Ask& b = ask(0, 10);
  Ask& c = ask(0, 50);
  EXPECT_EQ(granted(), (Asks{&a, &b, &c}));
}

TEST_F(Ledger, OneSenderWithManyAsksDoesNotStarveAnother) {
  std::vector<Ask*> many;
  for (int i = 0; i < 1'000; ++i) many.push_back(&ask(0, 100));
  Ask& lonely = ask(1, 100);
  EXPECT_EQ(ledger.next(), many[0]);
  EXPECT_EQ(ledger.next(), &lonely);
  EXPECT_EQ(ledger.next(), many[1]);
}

TEST_F(Ledger, SendersOfOnePriorityTakeTurns) {
  Ask& a1 = ask(0, 10);
  Ask& a2 = ask(0, 10);
  Ask& b1 = ask(1, 10);
  Ask& b2 = ask(1, 10);
  Ask& c1 = ask(2, 10);
  EXPECT_EQ(granted(), (Asks{&a1, &b1, &c1, &a2, &b2}));
}

TEST_F(Ledger, PrioritiesShareByTheirWeights) {
  // Each sender asks again as soon as it is granted: levels 0 and 1 get bytes in the ratio of 2 to 1.
  GrantLedger wide({.requests = {1'000'000, 1'000'000}});
  SenderAccount urgent, lesser;
  wide.open(urgent), wide.open(lesser);
  Ask a{.account = &urgent, .bytes = 100, .priority = 0}, b{.account = &lesser, .bytes = 100, .priority = 1};
  wide.ask(a), wide.ask(b);
  int of_urgent = 0, of_lesser = 0;
  for (int i = 0; i < 300; ++i) {
    Ask* const one = wide.next();
    ASSERT_NE(one, nullptr);
    ++(one == &a ? of_urgent : of_lesser);
    wide.release(*one->account, 0, one->bytes);
    wide.ask(*one);
  }
  EXPECT_NEAR(of_urgent, 200, 2);
  EXPECT_NEAR(of_lesser, 100, 2);
}

TEST_F(Ledger, APriorityThatWasIdleHasSavedUpNothing) {
  GrantLedger wide({.requests = {1'000'000, 1'000'000}});
  SenderAccount busy, late;
  wide.open(busy), wide.open(late);
  Ask a{.account = &busy, .bytes = 100, .priority = 3}, b{.account = &late, .bytes = 100, .priority = 4};
  const auto serve = [&](int grants) {
    int of_late = 0;
    for (int i = 0; i < grants; ++i) {
      Ask* const one = wide.next();
      if (one == &b) ++of_late;
      wide.release(*one->account, 0, one->bytes);
      wide.ask(*one);
    }
    return of_late;
  };
  wide.ask(a);
  EXPECT_EQ(serve(1'000), 0);
  wide.ask(b);
  EXPECT_NEAR(serve(30), 10, 1);
}

TEST_F(Ledger, AnUrgentAskOvertakesALargeOneThatDoesNotFit) {
  ask(0, 600);
  EXPECT_EQ(granted().size(), 1u);
  Ask& large = ask(1, 500, 5);
  EXPECT_EQ(granted(), Asks{});
  Ask& urgent = ask(2, 100, 0);
  EXPECT_EQ(granted(), Asks{&urgent});
  EXPECT_TRUE(large.is_waiting());
}

TEST_F(Ledger, ALargeAskThatDoesNotFitKeepsItsTurn) {
  ask(0, 600);
  EXPECT_EQ(granted().size(), 1u);
  Ask& large = ask(1, 500);
  EXPECT_EQ(granted(), Asks{});
  Ask& equal = ask(2, 50);
  Ask& lesser = ask(3, 50, 6);
  EXPECT_EQ(granted(), Asks{}) << "both would fit, but came later and are no more urgent";
  release(0, 50);
  EXPECT_EQ(granted(), Asks{});
  release(0, 50);
  EXPECT_EQ(granted(), Asks{&large});
  release(0, 100);
  const Asks rest = granted();
  EXPECT_EQ(rest.size(), 2u);
  EXPECT_FALSE(equal.is_waiting() || lesser.is_waiting());
}

TEST_F(Ledger, LessUrgentOnesDoNotSlipPastALargeAskWhenItsTurnComes) {
  ask(0, 600, 2);
  EXPECT_EQ(granted().size(), 1u);
  Ask& large = ask(1, 500, 3);
  Ask& lesser = ask(2, 50, 6);
  EXPECT_EQ(granted(), Asks{});
  ledger.withdraw(large);
  EXPECT_EQ(granted(), Asks{&lesser});
}

TEST_F(Ledger, MoreUrgentOnesGoAheadOfALargeAskOnlyForTheirShare) {
  ask(0, 600, 2);
  EXPECT_EQ(granted().size(), 1u);
  Ask& large = ask(1, 500, 4);
  EXPECT_EQ(granted(), Asks{});
  // Level 3 has twice the weight: it gets 1,000 bytes for the 500 that wait, then waits itself.
  std::uint64_t overtaken = 0;
  for (int i = 0; i < 100; ++i) {
    Ask& urgent = ask(2, 100, 3);
    if (granted().empty()) {
      ledger.withdraw(urgent);
      break;
    }
    overtaken += 100;
    release(2, 100);
  }
  EXPECT_EQ(overtaken, 1'000u);
  Ask& urgent = ask(2, 100, 3);
  release(0, 100);
  EXPECT_EQ(granted(), Asks{&large});
  release(0, 500);
  EXPECT_EQ(granted(), Asks{&urgent});
}

TEST_F(Ledger, AnAskBlockedByItsSendersBoundHoldsUpNobodyElse) {
  ask(0, 600);
  EXPECT_EQ(granted().size(), 1u);
  Ask& own_fault = ask(0, 100, 0);
  Ask& other = ask(1, 300, 7);
  EXPECT_EQ(granted(), Asks{&other});
  EXPECT_TRUE(own_fault.is_waiting());
  release(0, 100);
  EXPECT_EQ(granted(), Asks{&own_fault});
}

TEST_F(Ledger, WithinASendersBoundSmallAsksDoNotStarveALargeOne) {
  ask(0, 300), ask(0, 300);
  EXPECT_EQ(granted().size(), 2u);
  Ask& large = ask(0, 500, 3);
  EXPECT_EQ(granted(), Asks{});
  Ask& small = ask(0, 100, 5);
  release(0, 300);
  EXPECT_EQ(granted(), Asks{}) << "the small one would fit, but is less urgent and came later";
  release(0, 200);
  EXPECT_EQ(granted(), (Asks{&large}));
  EXPECT_TRUE(small.is_waiting());
  release(0, 100);
  EXPECT_EQ(granted(), Asks{&small});
}

TEST_F(Ledger, WithinASendersBoundMoreUrgentOnesGoAheadForTheirShare) {
  ask(0, 400);
  EXPECT_EQ(granted().size(), 1u);
  Ask& large = ask(0, 300, 4);
  EXPECT_EQ(granted(), Asks{});
  std::uint64_t overtaken = 0;
  for (int i = 0; i < 100; ++i) {
    Ask& urgent = ask(0, 100, 3);
    if (granted().empty()) {
      ledger.withdraw(urgent);
      break;
    }
    overtaken += 100;
    release(0, 100);
  }
  EXPECT_EQ(overtaken, 600u);
  Ask& urgent = ask(0, 100, 3);
  release(0, 100);
  EXPECT_EQ(granted(), (Asks{&large}));
  release(0, 300);
  EXPECT_EQ(granted(), Asks{&urgent});
}

// A stream of asks that each fit must not keep out one that needs all that a sender may have, at any priority.
TEST_F(Ledger, NobodyIsStarvedByAStreamOfSmallAsks) {
  for (std::uint8_t priority = 0; priority < kGrantPriorities; ++priority) {
    for (const std::size_t victim_sender : {std::size_t{0}, std::size_t{1}}) {  // the stream's own sender, and another
      GrantLedger own({.requests = {1'000, 600}});
      std::array<SenderAccount, 2> accounts;
      own.open(accounts[0]), own.open(accounts[1]);
      std::array<Ask, 30> stream;
      for (std::size_t i = 0; i < stream.size(); ++i) {
        stream[i] = {.account = &accounts[0], .bytes = 100, .priority = static_cast<std::uint8_t>(i % 8)};
        own.ask(stream[i]);
      }
      std::deque<Ask*> held;
      for (int i = 0; i < 5; ++i) held.push_back(own.next());
      Ask victim{.account = &accounts[victim_sender], .bytes = 600, .priority = priority};
      own.ask(victim);
      int steps = 0;
      for (; victim.is_waiting() && steps < 20'000; ++steps) {
        while (Ask* one = own.next()) held.push_back(one);
        if (!victim.is_waiting()) break;
        ASSERT_FALSE(held.empty());
        Ask* const done = held.front();
        held.pop_front();
        own.release(*done->account, done->purse, done->bytes);
        own.ask(*done);
      }
      EXPECT_FALSE(victim.is_waiting()) << "priority " << int{priority} << ", sender " << victim_sender;
      own.close(accounts[0]), own.close(accounts[1]);
    }
  }
}

TEST_F(Ledger, WithdrawingTheOneWithTheTurnLetsTheOthersGo) {
  ask(0, 600);
  EXPECT_EQ(granted().size(), 1u);
  Ask& large = ask(1, 500);
  Ask& behind = ask(1, 100);
  Ask& other = ask(2, 100);
  EXPECT_EQ(granted(), Asks{});
  ledger.withdraw(large);
  EXPECT_FALSE(large.is_waiting());
  EXPECT_EQ(granted(), (Asks{&behind, &other}));
  ledger.withdraw(large);  // a second time: nothing
}

TEST_F(Ledger, WithdrawingFromTheMiddleOfALineKeepsTheRest) {
  ask(0, 600);
  EXPECT_EQ(granted().size(), 1u);
  Ask& a = ask(0, 100);
  Ask& b = ask(0, 100);
  Ask& c = ask(0, 100);
  Ask& d = ask(0, 100);
  ledger.withdraw(b);
  ledger.withdraw(d);
  EXPECT_EQ(ledger.waiting(kPurse), 2u);
  EXPECT_EQ(ledger.waiting_bytes(kPurse), 200u);
  release(0, 600);
  EXPECT_EQ(granted(), (Asks{&a, &c}));
}

TEST_F(Ledger, ASenderThatGoesLeavesWhatTheApplicationHolds) {
  ask(0, 600);
  EXPECT_EQ(granted().size(), 1u);
  Ask& waiting = ask(0, 100);
  Ask& also = ask(0, 100, 1, kReplyPurse);
  Ask& large = ask(1, 500);
  ledger.close(senders[0]);
  EXPECT_FALSE(waiting.is_waiting() || also.is_waiting());
  EXPECT_EQ(ledger.used(kPurse), 600u);
  EXPECT_EQ(granted(), Asks{});
  ledger.release_closed(kPurse, 100);
  EXPECT_EQ(granted(), Asks{&large});
  ledger.release_closed(kPurse, 500);
  EXPECT_EQ(ledger.used(kPurse), 500u);
  ledger.open(senders[0]);
  EXPECT_EQ(senders[0].bytes[kPurse], 0u);
  EXPECT_DEATH(ledger.release_closed(kPurse, 1), "left behind");
  EXPECT_DEATH(ledger.release(senders[0], kPurse, 1), "more was released");
}

TEST_F(Ledger, MemoryAheadOfNeedIsGivenOnlyWhileThereIsPlenty) {
  GrantLedger wide({.requests = {1'000, 800}});
  SenderAccount one, two, three;
  wide.open(one), wide.open(two), wide.open(three);
  EXPECT_TRUE(wide.may_speculate(one, 0, 200));
  EXPECT_FALSE(wide.may_speculate(one, 0, 201)) << "a quarter of what the sender may have";
  wide.speculate(one, 0, 200);
  wide.speculate(two, 0, 200);
  EXPECT_TRUE(wide.may_speculate(three, 0, 100));
  EXPECT_FALSE(wide.may_speculate(three, 0, 101)) << "half of the purse";
  wide.release(one, 0, 200);
  wide.end_speculation(one);
  Ask large{.account = &one, .bytes = 800};
  wide.ask(large);
  EXPECT_FALSE(wide.may_speculate(three, 0, 10)) << "somebody waits";
  EXPECT_EQ(wide.next(), &large);
  wide.release(one, 0, 800);
  EXPECT_TRUE(wide.may_speculate(three, 0, 10));
  SenderAccount closed;
  EXPECT_FALSE(wide.may_speculate(closed, 0, 10));
}

TEST_F(Ledger, ASenderHasFewRegionsAheadOfNeed) {
  for (std::uint32_t i = 0; i < GrantLedger::kMaxSpeculative; ++i) {
    ASSERT_TRUE(ledger.may_speculate(senders[0], kPurse, 1));
    ledger.speculate(senders[0], kPurse, 1);
  }
  EXPECT_FALSE(ledger.may_speculate(senders[0], kPurse, 1));
  EXPECT_TRUE(ledger.may_speculate(senders[1], kPurse, 1));
  ledger.end_speculation(senders[0]);
  EXPECT_TRUE(ledger.may_speculate(senders[0], kPurse, 1));
  EXPECT_EQ(ledger.used(kPurse), GrantLedger::kMaxSpeculative) << "one that is used stays reserved";
}

TEST_F(Ledger, HintsGrowWithWhatIsAheadAndStayWithinBounds) {
  constexpr std::uint64_t kMega = 1'000'000;
  GrantLedger big({.requests = {100 * kMega, 100 * kMega}});
  SenderAccount one;
  big.open(one);
  Ask first{.account = &one, .bytes = 100 * kMega};
  EXPECT_EQ(big.hint(first), GrantLedger::kShortestHint);
  big.ask(first);
  EXPECT_EQ(big.next(), &first);
  Ask second{.account = &one, .bytes = 5 * kMega}, third{.account = &one, .bytes = 100 * kMega};
  big.ask(second);
  EXPECT_EQ(big.hint(second), 5ms);
  big.ask(third);
  EXPECT_EQ(big.hint(third), GrantLedger::kLongestHint);
  big.close(one);
}

TEST_F(Ledger, BoundsThatMakeNoSenseAreCutToOnesThatDo) {
  const GrantLedger odd({.requests = {100, 500}, .replies = {~std::uint64_t{0}, ~std::uint64_t{0}}});
  EXPECT_EQ(odd.bound(0).per_sender, 100u);
  EXPECT_EQ(odd.bound(kReplyPurse).total, GrantLedger::kLargestTotal);
  EXPECT_EQ(odd.bound(kReplyPurse).per_sender, GrantLedger::kLargestTotal);
}

}  // namespace
}  // namespace weir::token
