// What the paths of one member may have of a pool together (docs/protocol.md, rule C-11).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "token/credit.h"

namespace weir::token {
namespace {

constexpr std::uint64_t kLargest = 1'000;

struct MemberModel {
  explicit MemberModel(std::size_t paths) : accounts(paths) {}
  CreditMember credit;
  std::deque<CreditAccount> accounts;  // one for each path

  void open(CreditLedger& ledger) {
    for (CreditAccount& account : accounts) ledger.open(account, ledger.cold_allowance(), 0, &credit);
  }
  // Sends as many largest messages as it may, and says that it is blocked.
  void send(CreditLedger& ledger, std::uint8_t priority) {
    for (CreditAccount& account : accounts) {
      while (account.received() + kLargest <= account.limit()) (void)account.on_received(kLargest);
      ledger.on_blocked(account, account.received() + kLargest, priority);
    }
  }
  void finish_one(CreditLedger& ledger) {
    for (CreditAccount& account : accounts) {
      if (account.unanswered() < kLargest) continue;
      return ledger.finish(account, kLargest);
    }
  }
  void close(CreditLedger& ledger) {
    for (CreditAccount& account : accounts) {
      const std::uint64_t left = account.unanswered();
      ledger.close(account);
      if (left != 0) ledger.finish_closed(0, left, &credit);
    }
  }
};

// One member takes all it can, on many paths and with the most urgent priority, and gives nothing back.
class CreditShares : public ::testing::TestWithParam<std::size_t> {};

TEST_P(CreditShares, OneThatTakesAllItCanLeavesEachOtherItsShare) {
  for (const std::uint64_t capacity : {4 * kLargest, 12 * kLargest, 64 * kLargest}) {
    CreditLedger ledger({.capacity = capacity, .per_path = capacity, .largest_cost = kLargest});
    MemberModel hostile(20);
    hostile.open(ledger);
    for (int i = 0; i < 200; ++i) hostile.send(ledger, 0);
    EXPECT_LE(hostile.credit.held(0), capacity / 2);
    std::deque<MemberModel> honest;
    for (std::size_t i = 0; i < GetParam(); ++i) honest.emplace_back(1).open(ledger);
    std::vector<std::uint64_t> sums(GetParam());
    constexpr int kRounds = 2'000;
    std::uint64_t dice = GetParam();
    for (int round = 0; round < 2 * kRounds; ++round) {
      hostile.send(ledger, 0);
      for (std::size_t i = 0; i < honest.size(); ++i) {
        honest[i].send(ledger, 7);
        if (round >= kRounds) sums[i] += honest[i].credit.held(0);
      }
      while (ledger.take_raised() != nullptr) {
      }
      // One of those whose messages are there, in no order.
      dice = dice * 6'364'136'223'846'793'005u + 1;
      for (std::size_t i = 0, at = dice >> 40; i < honest.size(); ++i, ++at) {
        MemberModel& one = honest[at % honest.size()];
        if (one.accounts[0].unanswered() < kLargest) continue;
        one.finish_one(ledger);
        break;
      }
      ASSERT_LE(hostile.credit.held(0), capacity / 2);
      ASSERT_LE(ledger.promised(), capacity);
    }
    for (const std::uint64_t sum : sums) {
      EXPECT_GE(sum / kRounds, capacity / (2 * (GetParam() + 1))) << "of " << capacity;
    }
    for (MemberModel& each : honest) each.close(ledger);
    hostile.close(ledger);
    EXPECT_EQ(ledger.promised(), 0u);
    EXPECT_TRUE(hostile.credit.is_unused());
  }
}

INSTANTIATE_TEST_SUITE_P(Members, CreditShares, ::testing::Values(1, 2, 3, 7));

// Two messages are half of what is left beside it; a quarter of all is more than one.
TEST(CreditShare, OneOtherMemberOfASmallPoolHasMoreThanOneMessage) {
  CreditLedger ledger({.capacity = 4 * kLargest + 850, .per_path = 8 * kLargest, .largest_cost = kLargest});
  MemberModel hostile(20), honest(1);
  hostile.open(ledger);
  for (int i = 0; i < 200; ++i) hostile.send(ledger, 0);
  honest.open(ledger);
  for (int i = 0; i < 10; ++i) honest.send(ledger, 7);
  EXPECT_EQ(honest.credit.held(0), 2 * kLargest);
  honest.close(ledger);
  hostile.close(ledger);
}

TEST(CreditShare, ANewcomerHasRoomForOneMessageWhateverOneOtherHolds) {
  CreditLedger ledger({.capacity = 4 * kLargest, .per_path = 4 * kLargest, .largest_cost = kLargest});
  MemberModel hostile(50);
  hostile.open(ledger);
  for (int i = 0; i < 50; ++i) hostile.send(ledger, 0);
  MemberModel newcomer(1);
  newcomer.open(ledger);
  newcomer.send(ledger, 7);
  newcomer.send(ledger, 7);
  EXPECT_GE(newcomer.accounts[0].received(), kLargest);
  newcomer.close(ledger);
  hostile.close(ledger);
}

// Everybody wants one message more than there is room for: the most urgent priority does not have every grant.
TEST(CreditShare, WhoNamesTheMostUrgentPriorityLeavesEverySecondGrantToOthers) {
  CreditLedger ledger({.capacity = 4 * kLargest, .per_path = 4 * kLargest, .largest_cost = kLargest});
  MemberModel hostile(8);
  hostile.open(ledger);
  std::deque<MemberModel> honest;
  for (int i = 0; i < 5; ++i) honest.emplace_back(1).open(ledger);
  std::uint64_t rounds = 0;
  for (; rounds < 600; ++rounds) {
    hostile.send(ledger, 0);
    for (MemberModel& each : honest) each.send(ledger, 7);
    while (ledger.take_raised() != nullptr) {
    }
    if (hostile.credit.held(0) >= kLargest) hostile.finish_one(ledger);
    for (MemberModel& each : honest) each.finish_one(ledger);
  }
  for (MemberModel& each : honest) EXPECT_GE(each.accounts[0].received() / kLargest, rounds / 12);
  for (MemberModel& each : honest) each.close(ledger);
  hostile.close(ledger);
}

// What a share that holds `held` may be promised ahead of need, as rule C-11 says it.
std::uint64_t room_ahead(std::uint64_t free_bytes, std::uint64_t held, std::uint64_t bound) {
  const std::uint64_t left = free_bytes > kLargest ? free_bytes - kLargest : 0;
  const std::uint64_t first = held < kLargest ? std::min(kLargest - held, left) : 0;
  if (held >= bound || held >= left) return first;
  return std::max(first, std::min((left - held) / 2, bound - held));
}

TEST(CreditShare, GrowsAheadOfNeedByNoMoreThanItsBoundAndWhatIsFreeAllow) {
  std::uint64_t dice = 1, grown_in_full = 0, cut = 0;
  const auto roll = [&dice](std::uint64_t below) {
    dice = dice * 6'364'136'223'846'793'005u + 1;
    return (dice >> 33) % below;
  };
  for (const std::uint64_t capacity : {4 * kLargest + 850, 9 * kLargest, 40 * kLargest}) {
    for (const std::uint64_t per_path : {3 * kLargest, capacity}) {
      CreditLedger ledger({.capacity = capacity, .per_path = per_path, .largest_cost = kLargest});
      std::deque<MemberModel> members;
      for (int i = 0; i < 3; ++i) members.emplace_back(2).open(ledger);
      std::map<const CreditAccount*, std::uint64_t> asked_for;
      for (int step = 0; step < 20'000; ++step) {
        MemberModel& member = members[roll(members.size())];
        CreditAccount& account = member.accounts[roll(2)];
        const std::uint64_t cost = 1 + roll(kLargest);
        if (roll(2) == 0) {
          if (account.received() + cost <= account.limit()) {
            (void)account.on_received(cost);
          } else {
            asked_for[&account] = account.received() + cost;
            ledger.on_blocked(account, account.received() + cost);
          }
          continue;
        }
        const std::uint64_t answered = std::min(cost, account.unanswered());
        const bool is_plain = !ledger.starved(0) && asked_for[&account] <= account.limit();  // it needs nothing at once
        const std::uint64_t limit = account.limit();
        const std::uint64_t room = room_ahead(capacity - (ledger.promised() - answered),
                                              member.credit.held(0) - answered, ledger.per_member(0));
        ledger.finish(account, answered);
        while (ledger.take_raised() != nullptr) {
        }
        if (!is_plain) continue;
        const std::uint64_t grown = account.limit() - limit;
        ASSERT_LE(grown, room);
        if (grown != 0) ++(grown < room ? grown_in_full : cut);
      }
      for (MemberModel& each : members) each.close(ledger);
    }
  }
  EXPECT_GT(grown_in_full, 50u);
  EXPECT_GT(cut, 50u);
}

}  // namespace
}  // namespace weir::token
