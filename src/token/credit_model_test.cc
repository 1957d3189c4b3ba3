// The ledger against a model of what it promised, in random order, with lost announcements and peers that lie
// (docs/protocol.md, rules C-2 to C-7).
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/random.h"
#include "token/credit.h"

namespace weir::token {
namespace {

constexpr std::uint64_t kLargest = 1'000;

struct ModelPath {
  std::uint8_t level = 0;  // the one that this path uses
  CreditAccount account;
  CreditSender sender;
  std::uint64_t finished = 0;
  std::uint64_t limit_before = 0;
  std::vector<std::uint64_t> unanswered;
};

class Model {
 public:
  // Paths use levels from `first_level` to `last_level`.
  Model(std::uint64_t seed, CreditLedger::Options options, std::size_t max_paths, std::uint64_t nested_capacity = 0,
        std::uint8_t first_level = 0, std::uint8_t last_level = 0)
      : random_(seed), ledger_(options), paths_(max_paths), first_level_(first_level), last_level_(last_level) {
    if (nested_capacity != 0) ledger_.bound_nested(nested_capacity);
  }

  void step() {
    const std::size_t at = random_.below(paths_.size());
    std::unique_ptr<ModelPath>& path = paths_[at];
    if (path == nullptr) {
      if (random_.chance(0.3)) open(path);
    } else {
      const std::uint64_t action = random_.below(100);
      if (action < 4) {
        close(path);
      } else if (action < 50) {
        send(*path, 1 + random_.below(kLargest));
      } else if (action < 54) {
        overrun(*path);
      } else if (action < 60) {
        complain_wildly(*path);
      } else if (action < 92) {
        finish(*path);
      } else if (!orphans_.empty()) {
        finish_orphan();
      }
    }
    if (offers_are_fresh && random_.chance(0.02)) {
      told_ = ledger_.cold_allowance();
      told_nested_ = ledger_.nested_allowance();
    }
    tell();
    check();
  }

  // Everybody wants one more message, and every request is answered: all must get there. Liars may have got hold of all
  // there is, so that those who want nothing are closed when others wait, as the engine does with idle paths.
  void drain() {
    std::vector<std::optional<std::uint64_t>> wishes(paths_.size());
    for (std::size_t i = 0; i < paths_.size(); ++i) {
      if (paths_[i] == nullptr) open(paths_[i]);
      wishes[i] = 1 + random_.below(kLargest);
    }
    for (int round = 0; round < 1'000; ++round) {
      bool anybody = false;
      for (std::size_t i = 0; i < paths_.size(); ++i) {
        if (paths_[i] != nullptr) paths_[i]->sender.told_blocked_at = ~std::uint64_t{0};  // it says so again
        if (wishes[i] && send(*paths_[i], *wishes[i])) wishes[i].reset();
        anybody = anybody || wishes[i].has_value();
      }
      for (std::size_t i = 0; i < paths_.size(); ++i) {
        if (paths_[i] == nullptr) continue;
        while (!paths_[i]->unanswered.empty()) finish(*paths_[i]);
        if (!wishes[i] && ledger_.starved(paths_[i]->level) && paths_[i]->account.holds_unused()) close(paths_[i]);
      }
      while (!orphans_.empty()) finish_orphan();
      tell();
      check();
      if (!anybody) return;
    }
    FAIL() << "somebody waits for ever";
  }

  void close_all() {
    for (auto& path : paths_) {
      if (path != nullptr) close(path);
    }
    while (!orphans_.empty()) finish_orphan();
    EXPECT_EQ(ledger_.take_raised(), nullptr);
    for (std::uint8_t level = 0; level < kLevels; ++level) {
      EXPECT_EQ(ledger_.promised(level), 0u);
      EXPECT_FALSE(ledger_.starved(level));
    }
  }

  bool offers_are_fresh = true;  // else every path was told what was free at the very beginning

  std::uint64_t sent() const { return sent_; }
  std::uint64_t complaints() const { return complaints_; }
  std::uint64_t not_now() const { return not_now_; }

 private:
  template <class T>
  T take(std::vector<T>& from) {
    std::swap(from[random_.below(from.size())], from.back());
    const T value = from.back();
    from.pop_back();
    return value;
  }
  std::uint8_t priority() { return static_cast<std::uint8_t>(random_.below(schedule::kPriorityLevels)); }
  void finish_orphan() {
    const auto [level, cost] = take(orphans_);
    ledger_.finish_closed(level, cost);
  }

  void open(std::unique_ptr<ModelPath>& path) {
    path = std::make_unique<ModelPath>();
    path->level = static_cast<std::uint8_t>(first_level_ + random_.below(last_level_ - first_level_ + 1u));
    // What it was told when it said hello, which may be long ago.
    if (path->level == 0) {
      ledger_.open(path->account, told_);
      path->sender.raise(told_);
    } else {
      ledger_.open_nested(path->account, path->level, 0);
      path->sender.raise(told_nested_);
    }
  }

  void close(std::unique_ptr<ModelPath>& path) {
    ledger_.close(path->account);
    for (const std::uint64_t cost : path->unanswered) orphans_.push_back({path->level, cost});
    path.reset();
  }

  // A sender says `blocked` once for each limit, as the protocol wants.
  bool send(ModelPath& path, std::uint64_t cost) {
    if (path.sender.may_send(cost)) {
      CreditAccount::Receipt receipt = path.account.on_received(cost);
      if (receipt == CreditAccount::Receipt::no_room) {  // as the engine does; if that is of no use, it comes again
        ledger_.on_blocked(path.account, path.account.received() + cost, priority());
        receipt = path.account.on_received(cost);
        if (receipt == CreditAccount::Receipt::no_room) {
          ++not_now_;
          return false;
        }
      }
      EXPECT_EQ(receipt, CreditAccount::Receipt::taken) << "a sender that keeps to its limits was refused";
      path.sender.used += cost;
      path.unanswered.push_back(cost);
      ++sent_;
      return true;
    }
    if (path.sender.told_blocked_at != path.sender.limit) {
      path.sender.told_blocked_at = path.sender.limit;
      ++complaints_;
      ledger_.on_blocked(path.account, path.sender.used + cost, priority());
      path.account.announce_again();  // as the engine does: it is answered in any case
    }
    return false;
  }

  void overrun(ModelPath& path) {
    const std::uint64_t claim = CreditLedger::kLargestAllowance;
    EXPECT_EQ(path.account.on_received(path.account.limit() + claim + 1), CreditAccount::Receipt::violation);
  }

  void complain_wildly(ModelPath& path) {
    ledger_.on_blocked(path.account, random_.chance(0.5) ? random_.next() : random_.below(10'000), priority());
  }

  void finish(ModelPath& path) {
    if (path.unanswered.empty()) return;
    const std::uint64_t cost = take(path.unanswered);
    path.finished += cost;
    ledger_.finish(path.account, cost);
  }

  // The engine's part: announce what should be, lose some of it, and announce that again later.
  void tell() {
    while (CreditAccount* raised = ledger_.take_raised()) {
      EXPECT_TRUE(std::any_of(paths_.begin(), paths_.end(), [&](const auto& path) {
        return path != nullptr && &path->account == raised;
      })) << "an account that is gone was handed out";
    }
    for (auto& path : paths_) {
      if (path == nullptr || !path->account.should_announce()) continue;
      const std::uint64_t limit = path->account.announce();
      if (random_.chance(0.2)) {
        path->account.announce_again();
      } else {
        path->sender.raise(limit);
      }
    }
  }

  void check() {
    std::array<std::uint64_t, kLevels> promised{};
    for (const auto& [level, cost] : orphans_) promised[level] += cost;
    for (auto& path : paths_) {
      if (path == nullptr) continue;
      const std::uint64_t limit = path->account.limit();
      EXPECT_GE(limit, path->limit_before) << "a limit fell";
      EXPECT_LE(limit - path->finished, path->level == 0 ? ledger_.options().per_path : ledger_.nested_per_path());
      path->limit_before = limit;
      promised[path->level] += limit - path->finished;
    }
    for (std::uint8_t level = 0; level < kLevels; ++level) {
      ASSERT_EQ(ledger_.promised(level), promised[level]);
      ASSERT_LE(promised[level], level == 0 ? ledger_.options().capacity : ledger_.nested_capacity());
    }
  }

  Random random_;
  CreditLedger ledger_;
  std::vector<std::unique_ptr<ModelPath>> paths_;
  std::uint8_t first_level_, last_level_;
  std::vector<std::pair<std::uint8_t, std::uint64_t>> orphans_;  // requests whose path has gone before their answer
  std::uint32_t told_ = ledger_.cold_allowance();
  std::uint32_t told_nested_ = ledger_.nested_allowance();
  std::uint64_t sent_ = 0;
  std::uint64_t not_now_ = 0;
  std::uint64_t complaints_ = 0;
};

class CreditModel : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(CreditModel, PromisesWhatTheModelSaysAndNeverMoreThanItsCapacity) {
  Model model(GetParam(), {.capacity = 40'000, .per_path = 6'000, .largest_cost = kLargest}, 12);
  for (int i = 0; i < 20'000 && !::testing::Test::HasFatalFailure(); ++i) model.step();
  model.drain();
  model.close_all();
  EXPECT_GT(model.sent(), 1'000u);
  EXPECT_GT(model.complaints(), 100u);
}

// Far more paths than the capacity can serve at once: most of the time somebody waits.
TEST_P(CreditModel, HoldsWhenNearlyEverybodyWaits) {
  Model model(GetParam(), {.capacity = 5'000, .per_path = 2'000, .largest_cost = kLargest}, 30);
  for (int i = 0; i < 20'000 && !::testing::Test::HasFatalFailure(); ++i) model.step();
  model.close_all();
  EXPECT_GT(model.complaints(), 100u);
}

// All five levels at once, none in the way of another.
TEST_P(CreditModel, EveryLevelKeepsToItsOwnCapacity) {
  Model model(GetParam(), {.capacity = 40'000, .per_path = 6'000, .largest_cost = kLargest}, 40, 20'000, 0, 4);
  for (int i = 0; i < 20'000 && !::testing::Test::HasFatalFailure(); ++i) model.step();
  model.drain();
  model.close_all();
  EXPECT_GT(model.sent(), 1'000u);
  EXPECT_GT(model.complaints(), 100u);
}

TEST_P(CreditModel, NestedLevelsHoldWhenNearlyEverybodyWaits) {
  Model model(GetParam(), {.capacity = 5'000, .per_path = 2'000, .largest_cost = kLargest}, 60, 2'000, 1, 4);
  for (int i = 0; i < 20'000 && !::testing::Test::HasFatalFailure(); ++i) model.step();
  model.close_all();
  EXPECT_GT(model.complaints(), 100u);
}

TEST_P(CreditModel, ColdSendersOfNestedLevelsFindLessThanTheyWereTold) {
  Model model(GetParam(), {.capacity = 5'000, .per_path = 2'000, .largest_cost = kLargest}, 40, 18'000, 1, 1);
  model.offers_are_fresh = false;
  for (int i = 0; i < 20'000 && !::testing::Test::HasFatalFailure(); ++i) model.step();
  model.close_all();
  EXPECT_GT(model.not_now(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, CreditModel, ::testing::Range<std::uint64_t>(1, 13));

}  // namespace
}  // namespace weir::token
