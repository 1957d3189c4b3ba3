// The ledger against a model of what it promised, in random order, with lost announcements and peers that lie.
#include <gtest/gtest.h>

#include <algorithm>
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
  CreditAccount account;
  CreditSender sender;
  std::uint64_t finished = 0;
  std::uint64_t limit_before = 0;
  std::vector<std::uint64_t> unanswered;
};

class Model {
 public:
  Model(std::uint64_t seed, CreditLedger::Options options, std::size_t max_paths)
      : random_(seed), ledger_(options), paths_(max_paths) {}

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
        ledger_.finish_closed(take(orphans_), false);
      }
    }
    tell();
    check();
  }

  // Everybody wants one more message, and every request is answered: all must get there.
  void drain() {
    std::vector<std::optional<std::uint64_t>> wishes(paths_.size());
    for (std::size_t i = 0; i < paths_.size(); ++i) {
      if (paths_[i] == nullptr) open(paths_[i]);
      wishes[i] = 1 + random_.below(kLargest);
    }
    for (int round = 0; round < 1'000; ++round) {
      bool anybody = false;
      for (std::size_t i = 0; i < paths_.size(); ++i) {
        if (wishes[i] && send(*paths_[i], *wishes[i])) wishes[i].reset();
        anybody = anybody || wishes[i].has_value();
      }
      for (auto& path : paths_) {
        while (!path->unanswered.empty()) finish(*path);
      }
      while (!orphans_.empty()) ledger_.finish_closed(take(orphans_), false);
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
    while (!orphans_.empty()) ledger_.finish_closed(take(orphans_), false);
    EXPECT_EQ(ledger_.promised(), 0u);
    EXPECT_EQ(ledger_.take_raised(), nullptr);
    EXPECT_FALSE(ledger_.starved());
  }

  std::uint64_t sent() const { return sent_; }
  std::uint64_t complaints() const { return complaints_; }

 private:
  std::uint64_t take(std::vector<std::uint64_t>& from) {
    std::swap(from[random_.below(from.size())], from.back());
    const std::uint64_t value = from.back();
    from.pop_back();
    return value;
  }

  void open(std::unique_ptr<ModelPath>& path) {
    path = std::make_unique<ModelPath>();
    const std::uint32_t allowance = ledger_.cold_allowance();
    ledger_.open(path->account, allowance);
    path->sender.raise(allowance);
  }

  void close(std::unique_ptr<ModelPath>& path) {
    ledger_.close(path->account);
    orphans_.insert(orphans_.end(), path->unanswered.begin(), path->unanswered.end());
    path.reset();
  }

  // A sender says `blocked` once for each limit, as the protocol wants.
  bool send(ModelPath& path, std::uint64_t cost) {
    if (path.sender.may_send(cost)) {
      path.sender.used += cost;
      EXPECT_EQ(path.account.on_received(cost), CreditAccount::Receipt::taken)
          << "a sender that keeps to its limits was refused";
      path.unanswered.push_back(cost);
      ++sent_;
      return true;
    }
    if (path.sender.told_blocked_at != path.sender.limit) {
      path.sender.told_blocked_at = path.sender.limit;
      ++complaints_;
      ledger_.on_blocked(path.account, path.sender.used + cost);
    }
    return false;
  }

  void overrun(ModelPath& path) {
    EXPECT_EQ(path.account.on_received(path.account.limit() - path.sender.used + 1), CreditAccount::Receipt::violation);
  }

  void complain_wildly(ModelPath& path) {
    ledger_.on_blocked(path.account, random_.chance(0.5) ? random_.next() : random_.below(10'000));
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
    std::uint64_t promised = 0;
    for (const std::uint64_t cost : orphans_) promised += cost;
    for (auto& path : paths_) {
      if (path == nullptr) continue;
      const std::uint64_t limit = path->account.limit();
      EXPECT_GE(limit, path->limit_before) << "a limit fell";
      EXPECT_LE(path->sender.limit, limit);
      EXPECT_LE(limit - path->finished, ledger_.options().per_path);
      path->limit_before = limit;
      promised += limit - path->finished;
    }
    ASSERT_EQ(ledger_.promised(), promised);
    ASSERT_LE(promised, ledger_.options().capacity);
  }

  Random random_;
  CreditLedger ledger_;
  std::vector<std::unique_ptr<ModelPath>> paths_;
  std::vector<std::uint64_t> orphans_;  // requests whose path has gone before their answer
  std::uint64_t sent_ = 0;
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

INSTANTIATE_TEST_SUITE_P(Seeds, CreditModel, ::testing::Range<std::uint64_t>(1, 13));

}  // namespace
}  // namespace weir::token
