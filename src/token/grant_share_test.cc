// What members that wait for memory are given, whatever priorities others name (docs/protocol.md, rules C-11 and G-3).
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <numeric>
#include <vector>

#include "token/grant_ledger.h"

namespace weir::token {
namespace {

constexpr std::uint64_t kTotal = 16'000, kLargest = 4'000;

// Bytes that each sender is given. The first two, which may have all of it together, name the most urgent priority, the
// others the least urgent one. All want more than there is, and what is granted is released soon after.
std::vector<std::uint64_t> share(std::size_t honest, bool by_member) {
  GrantLedger ledger({.requests = {kTotal, kTotal / 2}, .by_member = by_member});
  std::deque<SenderAccount> senders(honest + 1);
  std::deque<Ask> asks;
  std::vector<std::uint64_t> given(honest + 1);
  const auto ask = [&](std::size_t sender) {
    asks.push_back({.account = &senders[sender],
                    .bytes = sender < 2 ? kLargest : kLargest / (1 + sender % 4),
                    .priority = static_cast<std::uint8_t>(sender < 2 ? 0 : 7)});
    ledger.ask(asks.back());
  };
  for (std::size_t i = 0; i <= honest; ++i) {
    ledger.open(senders[i]);
    for (int n = 0; n < 8; ++n) ask(i);
  }
  std::deque<Ask*> held;
  for (int round = 0; round < 4'000; ++round) {
    while (Ask* const next = ledger.next()) {
      const auto sender = static_cast<std::size_t>(
          std::ranges::find_if(senders, [&](const SenderAccount& each) { return &each == next->account; }) -
          senders.begin());
      given[sender] += next->bytes;
      held.push_back(next);
      ask(sender);
    }
    ledger.release(*held.front()->account, 0, held.front()->bytes);
    held.pop_front();
  }
  for (SenderAccount& each : senders) ledger.close(each);
  return given;
}

class GrantShares : public ::testing::TestWithParam<std::size_t> {};

TEST_P(GrantShares, WhoNamesTheMostUrgentPriorityLeavesEachOtherItsShare) {
  const std::vector<std::uint64_t> given = share(GetParam(), true);
  const std::uint64_t all = std::accumulate(given.begin(), given.end(), std::uint64_t{0});
  for (const std::uint64_t bytes : given) EXPECT_GE(bytes + 2 * kLargest, all / (2 * given.size()));
}

TEST_P(GrantShares, WithoutMembersOnlyWeightsCount) {
  const std::vector<std::uint64_t> given = share(GetParam(), false);
  const std::uint64_t all = std::accumulate(given.begin(), given.end(), std::uint64_t{0});
  EXPECT_LT(given[2] + 2 * kLargest, all / (2 * given.size()));
}

INSTANTIATE_TEST_SUITE_P(Members, GrantShares, ::testing::Values(2, 3, 7));

}  // namespace
}  // namespace weir::token
