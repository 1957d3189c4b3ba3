// Hellos to addresses that have not answered (docs/protocol.md, rules I-10 and I-12).
#include "peer/hello_budget.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

namespace weir::peer {
namespace {

using namespace std::chrono_literals;

constexpr Instant kStart{1'000'000'000};

Address at(std::uint32_t host, std::uint16_t port) { return Address::v4(0x0a000000 + host, port); }

int hellos(HelloBudget& budget, const Address& to, bool is_proven, Instant now, int tries = 10) {
  int sent = 0;
  for (int i = 0; i < tries; ++i) sent += budget.spend(to, is_proven, now) ? 1 : 0;
  return sent;
}

TEST(HelloBudget, AnAddressThatDoesNotAnswerGetsThree) {
  HelloBudget budget;
  EXPECT_EQ(hellos(budget, at(1, 5'000), true, kStart), 3);
  EXPECT_EQ(hellos(budget, at(1, 5'001), true, kStart), 3) << "another port of a proven IP is another address";
  EXPECT_EQ(hellos(budget, at(2, 5'000), false, kStart), 3);
}

TEST(HelloBudget, AClaimedIpIsCountedWithAllItsPorts) {
  HelloBudget budget;
  int sent = 0;
  for (std::uint16_t port = 1; port < 1'000; ++port) sent += hellos(budget, at(1, port), false, kStart);
  EXPECT_EQ(sent, 3);
}

TEST(HelloBudget, ComesBackSlowlyAndNeverBeyondThree) {
  HelloBudget budget;
  ASSERT_EQ(hellos(budget, at(1, 1), true, kStart), 3);
  ASSERT_EQ(hellos(budget, at(2, 1), false, kStart), 3);
  int proven = 0, claimed = 0;
  for (Duration after = 100ms; after <= 60s; after += 100ms) {
    proven += hellos(budget, at(1, 1), true, kStart + after);
    claimed += hellos(budget, at(2, 1), false, kStart + after);
  }
  EXPECT_EQ(proven, 60);
  EXPECT_EQ(claimed, 2);
  EXPECT_EQ(hellos(budget, at(1, 1), true, kStart + 1h), 3);
  EXPECT_EQ(hellos(budget, at(2, 1), false, kStart + 1h), 3);
}

// A peer that restarts before it was ever heard on its data address is greeted all the same.
TEST(HelloBudget, AHandshakeAllowsOneMoreWhereThePeerHasProvenItsIp) {
  HelloBudget budget;
  const auto id = [](int number) { return CredentialId{static_cast<std::byte>(number)}; };
  const DataAddress proven{.address = at(1, 1), .validated = true}, claimed{.address = at(2, 1)};
  ASSERT_EQ(hellos(budget, proven.address, true, kStart), 3);
  ASSERT_EQ(hellos(budget, claimed.address, false, kStart), 3);
  for (int number = 1; number <= 3; ++number) {
    for (int again = 0; again < 3; ++again) {
      budget.on_credential(id(number), proven);
      budget.on_credential(id(number), claimed);
      EXPECT_EQ(hellos(budget, proven.address, true, kStart), again == 0 ? 1 : 0);
      EXPECT_EQ(hellos(budget, claimed.address, false, kStart), 0);
    }
  }
}

TEST(HelloBudget, WhatHasAnsweredIsNotCountedForAWhile) {
  HelloBudget budget;
  ASSERT_EQ(hellos(budget, at(1, 1), false, kStart), 3);
  budget.on_answer(at(1, 1), kStart);
  EXPECT_EQ(hellos(budget, at(1, 1), false, kStart, 100), 100);
  EXPECT_EQ(hellos(budget, at(1, 2), false, kStart), 3) << "of its IP each port has its own";
  EXPECT_EQ(hellos(budget, at(1, 1), false, kStart + 2h), 3) << "the address may have changed hands";
}

TEST(HelloBudget, NamingManyAddressesMakesRoomForNoFurtherHello) {
  HelloBudget budget({.capacity = 64});
  std::map<std::uint32_t, int> sent;
  for (int round = 0; round < 20; ++round) {
    for (std::uint32_t host = 1; host <= 1'000; ++host) sent[host] += hellos(budget, at(host, 1), false, kStart, 3);
  }
  for (const auto& [host, count] : sent) EXPECT_LE(count, 3) << host;
  EXPECT_EQ(budget.known(), 64u);
  EXPECT_EQ(hellos(budget, at(5'000, 1), true, kStart), 0) << "what cannot be counted is not sent";
  EXPECT_EQ(hellos(budget, at(5'000, 1), true, kStart + 90s), 3) << "those who have all their hellos back make room";
}

TEST(HelloBudget, AnswersMakeRoomForOthers) {
  HelloBudget budget({.capacity = 8});
  for (std::uint32_t host = 1; host <= 100; ++host) {
    ASSERT_TRUE(budget.spend(at(host, 1), true, kStart)) << host;
    budget.on_answer(at(host, 1), kStart);
  }
  EXPECT_EQ(budget.known(), 8u);
}

TEST(HelloBudget, ChoosesProvenAddressesAndThenThoseThatHaveHellosLeft) {
  HelloBudget budget;
  const std::vector<DataAddress> offered{{.address = at(9, 1), .worker = 0},
                                         {.address = at(1, 1), .worker = 1, .validated = true},
                                         {.address = at(8, 1), .worker = 2}};
  EXPECT_EQ(budget.choose(offered, 0, kStart).worker, 1);
  EXPECT_EQ(budget.choose(offered, 1, kStart).worker, 1) << "a claimed one is not its equal";
  ASSERT_EQ(hellos(budget, at(1, 1), true, kStart), 3);
  EXPECT_EQ(budget.choose(offered, 0, kStart).worker, 0) << "the proven one did not answer";
  EXPECT_EQ(budget.choose(offered, 1, kStart).worker, 2);
  ASSERT_EQ(hellos(budget, at(9, 1), false, kStart), 3);
  EXPECT_EQ(budget.choose(offered, 0, kStart).worker, 2);
  ASSERT_EQ(hellos(budget, at(8, 1), false, kStart), 3);
  EXPECT_EQ(budget.choose(offered, 0, kStart).worker, 0) << "nobody is left: the peer's own order";
  budget.on_answer(at(8, 1), kStart);
  EXPECT_EQ(budget.choose(offered, 0, kStart).worker, 2) << "its IP is proven now";
}

TEST(HelloBudget, EqualsAreTakenInTurn) {
  HelloBudget budget;
  std::vector<DataAddress> offered;
  for (std::uint16_t i = 0; i < 8; ++i)
    offered.push_back({.address = at(1, 5'000 + i), .worker = i, .validated = true});
  std::map<int, int> taken;
  for (std::size_t turn = 0; turn < 80; ++turn) ++taken[budget.choose(offered, turn, kStart).worker];
  ASSERT_EQ(taken.size(), 8u);
  for (const auto& [worker, times] : taken) EXPECT_EQ(times, 10) << worker;
}

}  // namespace
}  // namespace weir::peer
