#include "token/ahead.h"

#include <gtest/gtest.h>

#include <deque>
#include <vector>

#include "token/dice_testing.h"

namespace weir::token {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kMiB = 1u << 20;

Ask ask_of(std::uint64_t bytes, std::uint8_t priority = 3, std::uint8_t purse = 0) {
  Ask ask;
  ask.bytes = bytes;
  ask.priority = priority;
  ask.purse = purse;
  return ask;
}

TEST(Ahead, TwoOfOneSizeAreAskedForHoweverLargeTheyAre) {
  Ahead ahead(16 * kMiB);
  std::array<Ask, 4> asks{};
  asks.fill(ask_of(100 * kMiB));
  EXPECT_TRUE(ahead.enter(asks[0]));
  EXPECT_TRUE(ahead.enter(asks[1]));
  EXPECT_FALSE(ahead.enter(asks[2]));
  EXPECT_FALSE(ahead.enter(asks[3]));
  EXPECT_TRUE(asks[2].is_waiting());
  EXPECT_EQ(ahead.next(), nullptr);
  ahead.leave(asks[1]);
  EXPECT_EQ(ahead.next(), &asks[2]);
  EXPECT_FALSE(asks[2].is_waiting()) << "it is the ledger's now";
  EXPECT_EQ(ahead.next(), nullptr);
  ahead.leave(asks[0]);
  ahead.leave(asks[2]);
  EXPECT_EQ(ahead.next(), &asks[3]);
  EXPECT_EQ(ahead.held(), 0u);
}

TEST(Ahead, SmallOnesAreAskedForUpToTheBound) {
  Ahead ahead(16 * kMiB);
  std::deque<Ask> asks;
  for (int i = 0; i < 16; ++i) EXPECT_TRUE(ahead.enter(asks.emplace_back(ask_of(kMiB)))) << i;
  EXPECT_FALSE(ahead.enter(asks.emplace_back(ask_of(kMiB))));
  EXPECT_FALSE(ahead.enter(asks.emplace_back(ask_of(1)))) << "nobody overtakes";
}

TEST(Ahead, NeitherAnotherPriorityNorAnotherPurseIsHeldUp) {
  Ahead ahead(16 * kMiB);
  std::array<Ask, 3> asks{};
  asks.fill(ask_of(100 * kMiB));
  for (Ask& ask : asks) static_cast<void>(ahead.enter(ask));
  EXPECT_EQ(ahead.held(), 1u);
  Ask urgent = ask_of(kMiB, 0), idle = ask_of(kMiB, 7), reply = ask_of(kMiB, 3, kReplyPurse);
  EXPECT_TRUE(ahead.enter(urgent));
  EXPECT_TRUE(ahead.enter(idle));
  EXPECT_TRUE(ahead.enter(reply));
}

TEST(Ahead, OneThatWaitsCanLeave) {
  Ahead ahead(1);
  std::array<Ask, 5> asks{};
  asks.fill(ask_of(kMiB));
  for (Ask& ask : asks) static_cast<void>(ahead.enter(ask));
  ahead.leave(asks[3]);
  EXPECT_FALSE(asks[3].is_waiting());
  ahead.leave(asks[3]);  // nothing happens
  ahead.leave(asks[0]);
  ahead.leave(asks[1]);
  EXPECT_EQ(ahead.next(), &asks[2]);
  EXPECT_EQ(ahead.next(), &asks[4]);
  EXPECT_EQ(ahead.next(), nullptr);
}

TEST(Ahead, ReachesFurtherWhereMoreComesWithinARoundTrip) {
  Ahead ahead(16 * kMiB);
  Instant now = Instant{} + 1s;
  ahead.on_arrived(8 * kMiB, 100us, now);
  EXPECT_EQ(ahead.most(), 16 * kMiB) << "one message in a second";
  // 16 MiB in each round trip of 80 ms: the bound is what holds the sender up.
  for (int i = 0; i < 2; ++i) ahead.on_arrived(8 * kMiB, 80ms, now + 40ms);
  now = now + 80ms;
  ahead.on_arrived(1, 80ms, now);
  EXPECT_GT(ahead.most(), 60 * kMiB);
  EXPECT_LE(ahead.most(), 64 * kMiB);
  now = now + 10s;
  ahead.on_arrived(1, 80ms, now);
  EXPECT_EQ(ahead.most(), 16 * kMiB) << "it is idle again";
  // Whatever clocks and sizes say.
  for (int i = 0; i < 4; ++i) ahead.on_arrived(~std::uint64_t{0} >> 1, Duration::max(), now = now + 1ms);
  ahead.on_arrived(~std::uint64_t{0} >> 1, 1h, now = now + 1ns);
  ahead.on_arrived(1, Duration{}, now);
  EXPECT_GE(ahead.most(), 16 * kMiB);
}

// Against the plainest model there is: everything in the order in which it came.
TEST(Ahead, DoesWhatASimpleModelDoes) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Dice dice(seed);
    const std::uint64_t least = 1 + dice.below(1'000);
    Ahead ahead(least);
    std::deque<Ask> asks;            // stay where they are
    std::vector<Ask*> waiting, out;  // in the order in which they came; asked for and not there yet
    const auto admits = [&](const Ask& ask) {
      std::uint64_t bytes = 0;
      for (const Ask* other : out) {
        if (other->purse == ask.purse && other->priority == ask.priority) bytes += other->bytes;
      }
      return bytes <= ask.bytes || bytes + ask.bytes <= least;
    };
    const auto first_that_may = [&]() -> Ask* {
      for (std::size_t i = 0; i < waiting.size(); ++i) {
        bool is_first = true;
        for (std::size_t j = 0; j < i; ++j) {
          is_first &= waiting[j]->purse != waiting[i]->purse || waiting[j]->priority != waiting[i]->priority;
        }
        if (is_first && admits(*waiting[i])) return waiting[i];
      }
      return nullptr;
    };
    for (int step = 0; step < 300; ++step) {
      if (dice.below(2) == 0) {
        Ask& ask = asks.emplace_back(ask_of(1 + dice.below(500), static_cast<std::uint8_t>(dice.below(2)),
                                            dice.one_in(2) ? kReplyPurse : std::uint8_t{0}));
        bool is_behind = false;
        for (const Ask* other : waiting) is_behind |= other->purse == ask.purse && other->priority == ask.priority;
        const bool may = !is_behind && admits(ask);
        ASSERT_EQ(ahead.enter(ask), may) << "seed " << seed;
        (may ? out : waiting).push_back(&ask);
      } else if (std::vector<Ask*>& from = dice.one_in(4) ? waiting : out; !from.empty()) {
        const auto at = from.begin() + static_cast<std::ptrdiff_t>(dice.below(from.size()));
        ahead.leave(**at);
        ASSERT_FALSE((*at)->is_waiting());
        from.erase(at);
      }
      if (dice.one_in(3)) {
        while (Ask* const next = ahead.next()) {
          ASSERT_NE(first_that_may(), nullptr) << "seed " << seed;
          ASSERT_TRUE(admits(*next)) << "seed " << seed;
          ASSERT_EQ(std::erase(waiting, next), 1u);
          out.push_back(next);
        }
        ASSERT_EQ(first_that_may(), nullptr) << "seed " << seed;
      }
      ASSERT_EQ(ahead.held(), waiting.size());
    }
  }
}

}  // namespace
}  // namespace weir::token
