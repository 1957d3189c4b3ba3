#include "causality/map.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "base/random.h"
#include "causality/map_testing.h"

namespace weir::causality {
namespace {

using testing::Listener;

Condition sent(Token token) { return {.token = token, .moment = Moment::sent}; }
Condition responded(Token token) { return {.token = token, .moment = Moment::responded}; }
Condition or_failed(Condition condition) {
  condition.or_failed = true;
  return condition;
}

TEST(Map, MeetsThoseWhoWaitForTheRequestBeforeThoseWhoWaitForTheReply) {
  Map map;
  const Token token = map.begin();
  Listener early(1), late(1);
  EXPECT_EQ(map.add(early, sent(token)), Registration::waits);
  EXPECT_EQ(map.add(late, responded(token)), Registration::waits);
  EXPECT_EQ(map.waiting(), 2u);
  map.note_sent(token);
  EXPECT_EQ(early.goes(), 1);
  EXPECT_EQ(late.goes(), 0);
  map.end(token, false);
  EXPECT_EQ(early.goes(), 1);
  EXPECT_EQ(late.goes(), 1);
  EXPECT_EQ(map.waiting(), 0u);
  EXPECT_EQ(map.tracked(), 0u);
  early.release();
  late.release();
  EXPECT_TRUE(early.is_forgotten() && late.is_forgotten());
}

TEST(Map, FailsOnlyThoseWhoseConditionWasNotMetAndWhoDidNotSayOrFailed) {
  Map map;
  const Token token = map.begin();
  Listener early(1), late(1), regardless(1);
  ASSERT_EQ(map.add(early, sent(token)), Registration::waits);
  ASSERT_EQ(map.add(late, responded(token)), Registration::waits);
  ASSERT_EQ(map.add(regardless, or_failed(responded(token))), Registration::waits);
  map.note_sent(token);
  map.end(token, true);
  EXPECT_EQ(early.goes(), 1);
  EXPECT_EQ(early.fails(), 0);
  EXPECT_EQ(late.fails(), 1);
  EXPECT_EQ(regardless.goes(), 1);
}

TEST(Map, AFailureBeforeTheRequestWasSentFailsThoseWhoWaitForIt) {
  Map map;
  const Token token = map.begin();
  Listener early(1), regardless(1);
  ASSERT_EQ(map.add(early, sent(token)), Registration::waits);
  ASSERT_EQ(map.add(regardless, or_failed(sent(token))), Registration::waits);
  map.end(token, true);
  EXPECT_EQ(early.fails(), 1);
  EXPECT_EQ(regardless.goes(), 1);
}

TEST(Map, SuccessMeetsBothMomentsEvenIfTheFirstWasNotNoted) {
  Map map;
  const Token token = map.begin();
  Listener early(1);
  ASSERT_EQ(map.add(early, sent(token)), Registration::waits);
  map.end(token, false);
  EXPECT_EQ(early.goes(), 1);
}

TEST(Map, KnowsHowTransfersEndedThatAreGone) {
  Map map(1);
  const Token good = map.begin();
  map.end(good, false);
  const Token bad = map.begin();
  map.end(bad, true);
  const Token late = map.begin();
  map.note_sent(late);
  map.end(late, true);
  const Token running = map.begin();
  EXPECT_EQ(map.begin(), 0u) << "one at a time";
  Listener waiter(1);
  EXPECT_EQ(map.add(waiter, responded(good)), Registration::met);
  EXPECT_EQ(map.add(waiter, sent(good)), Registration::met);
  EXPECT_EQ(map.add(waiter, responded(bad)), Registration::failed);
  EXPECT_EQ(map.add(waiter, sent(bad)), Registration::failed);
  EXPECT_EQ(map.add(waiter, or_failed(sent(bad))), Registration::met);
  EXPECT_EQ(map.add(waiter, responded(late)), Registration::failed);
  EXPECT_EQ(map.add(waiter, sent(late)), Registration::met);
  EXPECT_EQ(map.waiting(), 0u);
  map.end(running, false);
}

TEST(Map, SaysWhenItHasForgotten) {
  Map map(1);
  const Token first = map.begin();
  map.end(first, false);
  Listener waiter(1);
  for (std::uint64_t i = 1; i < Map::kRemembered; ++i) {
    map.end(map.begin(), true);
    ASSERT_EQ(map.add(waiter, responded(first)), Registration::met) << i;
  }
  map.end(map.begin(), true);
  EXPECT_EQ(map.add(waiter, responded(first)), Registration::forgotten);
  EXPECT_EQ(map.add(waiter, or_failed(responded(first))), Registration::met);
  EXPECT_EQ(map.add(waiter, responded(12345)), Registration::forgotten) << "there is no such slot";
}

// However many are under way meanwhile.
TEST(Map, KnowsHowTransfersEndedForTensOfThousandsOfOthers) {
  for (const std::uint32_t under_way : {0u, 4'095u, 10'000u}) {
    Map map;
    for (std::uint32_t i = 0; i < under_way; ++i) ASSERT_NE(map.begin(), 0u);
    const Token bad = map.begin();
    map.end(bad, true);
    Listener waiter(1);
    for (std::uint32_t i = 0; i < Map::kResting * 20; ++i) {
      map.end(map.begin(), false);
      if (i % 64 != 0) continue;
      ASSERT_EQ(map.add(waiter, responded(bad)), Registration::failed) << i << " others, " << under_way << " under way";
    }
  }
}

TEST(Map, TellsThoseFirstWhoCameFirst) {
  struct InOrder final : Waiter {
    InOrder(int number_, std::vector<int>& order_) : Waiter(1), number(number_), order(order_) {
      static_cast<void>(arrive());
    }
    void tell(Answer) override { order.push_back(number); }
    void destroy() override { delete this; }
    int number;
    std::vector<int>& order;
  };
  std::vector<int> order, expected;
  Map map;
  const Token token = map.begin();
  // More than are looked through for those who have left, which keeps the order.
  for (int i = 0; i < 5'000; ++i) {
    auto* const waiter = new InOrder(i, order);
    ASSERT_EQ(map.add(*waiter, responded(token)), Registration::waits);
    if (i % 3 == 0) {
      EXPECT_TRUE(waiter->leave());
    } else {
      expected.push_back(i);
    }
    waiter->release();
  }
  map.end(token, false);
  EXPECT_EQ(order, expected);
}

TEST(Map, ThoseWhoHaveLeftAreForgottenLongBeforeTheMomentComes) {
  struct Counted final : Waiter {
    explicit Counted(int& alive_) : Waiter(1), alive(alive_) {
      static_cast<void>(arrive());
      ++alive;
    }
    void tell(Answer) override { ADD_FAILURE() << "it has left"; }
    void destroy() override {
      --alive;
      delete this;
    }
    int& alive;
  };
  int alive = 0;
  Map map(4, 4'096);
  const Token token = map.begin();
  for (int i = 0; i < 100'000; ++i) {
    auto* const waiter = new Counted(alive);
    ASSERT_EQ(map.add(*waiter, i % 2 == 0 ? sent(token) : responded(token)), Registration::waits) << i;
    ASSERT_TRUE(waiter->leave());
    waiter->release();
    ASSERT_LE(alive, static_cast<int>(2 * Map::kLongList));
  }
  map.end(token, true);
  EXPECT_EQ(alive, 0);
  EXPECT_EQ(map.waiting(), 0u);
}

TEST(Map, SaysWhenAsManyWaitAsCan) {
  Map map(4, 3);
  const Token token = map.begin();
  Listener waiter(4);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(map.add(waiter, responded(token)), Registration::waits);
  EXPECT_EQ(map.add(waiter, responded(token)), Registration::full);
  map.end(token, false);
  EXPECT_EQ(map.add(waiter, responded(map.begin())), Registration::waits) << "there is room again";
}

TEST(Map, WhatHasComeNeedsNoRoomToBeSeen) {
  Map map(4, 1);
  const Token busy = map.begin(), good = map.begin(), bad = map.begin(), sent_only = map.begin();
  map.end(good, false);
  map.end(bad, true);
  map.note_sent(sent_only);
  Listener waiter(1), other(1);
  ASSERT_EQ(map.add(waiter, responded(busy)), Registration::waits);
  EXPECT_EQ(map.add(other, responded(busy)), Registration::full);
  EXPECT_EQ(map.add(other, responded(good)), Registration::met);
  EXPECT_EQ(map.add(other, responded(bad)), Registration::failed);
  EXPECT_EQ(map.add(other, sent(sent_only)), Registration::met);
  map.end(busy, false);
}

TEST(Map, ThoseWhoHaveLeftManyShortListsMakeRoom) {
  Map map(64, 64);
  std::vector<Token> tokens;
  Listener gone(64);
  for (int i = 0; i < 64; ++i) {
    tokens.push_back(map.begin());
    ASSERT_EQ(map.add(gone, responded(tokens.back())), Registration::waits);
  }
  Listener waiter(1);
  EXPECT_TRUE(gone.leave());
  EXPECT_EQ(map.add(waiter, responded(tokens[0])), Registration::waits);
  EXPECT_EQ(map.waiting(), 1u);
  for (const Token token : tokens) map.end(token, false);
  EXPECT_EQ(waiter.goes(), 1);
  EXPECT_EQ(gone.goes() + gone.fails(), 0);
}

TEST(Map, LetsGoOfWhoeverStillWaitsWhenItGoes) {
  Listener waiter(2);
  {
    Map map;
    const Token token = map.begin();
    ASSERT_EQ(map.add(waiter, responded(token)), Registration::waits);
    ASSERT_EQ(map.add(waiter, sent(token)), Registration::waits);
    waiter.release();
    EXPECT_FALSE(waiter.is_forgotten());
  }
  EXPECT_TRUE(waiter.is_forgotten());
  EXPECT_EQ(waiter.goes() + waiter.fails(), 0);
}

// Random operations, against one variable per transfer and per waiter.
TEST(Map, AgreesWithASimpleModel) {
  struct Transfer {
    Token token = 0;
    bool is_sent = false;
    std::optional<bool> failed;
  };
  struct Waiting {
    std::unique_ptr<Listener> listener;
    std::vector<std::pair<std::size_t, Condition>> conditions;  // that it waited for
    bool is_failed = false;                                     // already when it was added
  };
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    Random random(seed);
    std::vector<Waiting> waiting;  // outlives the map, which may have some of them still
    Map map(16, 64);
    std::vector<Transfer> transfers;
    std::deque<std::size_t> running;
    const auto expected = [&](const Transfer& transfer, const Condition& condition) {
      if (condition.moment == Moment::sent && transfer.is_sent) return Registration::met;
      if (!transfer.failed) return Registration::waits;
      return !*transfer.failed || condition.or_failed ? Registration::met : Registration::failed;
    };
    for (int step = 0; step < 2'000; ++step) {
      switch (random.below(5)) {
        case 0: {
          const Token token = map.begin();
          ASSERT_EQ(token == 0, running.size() == 16);
          if (token == 0) break;
          running.push_back(transfers.size());
          transfers.push_back({.token = token});
          break;
        }
        case 1: {
          if (running.empty()) break;
          Transfer& transfer = transfers[running[random.below(running.size())]];
          if (transfer.is_sent) break;
          transfer.is_sent = true;
          map.note_sent(transfer.token);
          break;
        }
        case 2: {
          if (running.empty()) break;
          const auto at = running.begin() + static_cast<std::ptrdiff_t>(random.below(running.size()));
          Transfer& transfer = transfers[*at];
          running.erase(at);
          transfer.failed = random.below(3) == 0;
          map.end(transfer.token, *transfer.failed);
          break;
        }
        default: {
          if (transfers.empty()) break;
          const auto count = static_cast<std::uint32_t>(1 + random.below(3));
          Waiting one{.listener = std::make_unique<Listener>(count)};
          for (std::uint32_t i = 0; i < count; ++i) {
            // Not older than slots remember: that one is tested above.
            const std::size_t back = std::min<std::size_t>(transfers.size(), 20);
            const std::size_t which = transfers.size() - 1 - random.below(back);
            const Condition condition{.token = transfers[which].token,
                                      .moment = random.below(2) == 0 ? Moment::sent : Moment::responded,
                                      .or_failed = random.below(2) == 0};
            const Registration found = map.add(*one.listener, condition);
            if (found == Registration::full) {
              ASSERT_EQ(map.waiting(), 64u);
              one.is_failed = true;
              break;
            }
            ASSERT_EQ(found, expected(transfers[which], condition));
            if (found == Registration::met) one.listener->meet();
            if (found == Registration::failed) one.listener->fail();
            one.conditions.emplace_back(which, condition);
          }
          waiting.push_back(std::move(one));
        }
      }
      std::size_t waits = 0;
      for (const Waiting& one : waiting) {
        std::size_t unmet = 0, failed = 0;
        for (const auto& [which, condition] : one.conditions) {
          const Registration now = expected(transfers[which], condition);
          unmet += now == Registration::waits;
          failed += now == Registration::failed;
        }
        waits += unmet;
        if (one.is_failed) continue;
        ASSERT_EQ(one.listener->fails(), failed != 0);
        ASSERT_EQ(one.listener->goes(), failed == 0 && unmet == 0);
      }
      ASSERT_EQ(map.waiting(), waits);
      ASSERT_EQ(map.tracked(), running.size());
    }
  }
}

}  // namespace
}  // namespace weir::causality
