// The ledger under operations in any order, beside a plain record of who waits and who has what.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <vector>

#include "base/check.h"
#include "token/dice_testing.h"
#include "token/grant_ledger.h"

namespace weir::token {

class GrantModel {
 public:
  static constexpr std::size_t kSenders = 5;
  static constexpr std::size_t kMostAsks = 60;

  explicit GrantModel(Dice& dice) : dice_(dice) {
    for (Sender& sender : senders_) ledger_.open(sender.account);
  }
  ~GrantModel() {
    for (Sender& sender : senders_) ledger_.close(sender.account);
  }

  void step() {
    const auto sender = static_cast<std::size_t>(dice_.below(kSenders));
    switch (dice_.below(8)) {
      case 0:
      case 1:
      case 2:
        ask(sender);
        break;
      case 3:
        if (!waiting_.empty()) withdraw(pick(waiting_));
        break;
      case 4:
      case 5:
        if (!held_.empty()) release(pick(held_));
        break;
      case 6:
        if (dice_.one_in(8)) {
          reopen(sender);
        } else {
          speculate(sender);
        }
        break;
      default:
        if (!left_.empty()) release_left(pick(left_));
        break;
    }
    if (dice_.below(3) != 0) grant_all();
    check_sums();
  }

  // Whatever is granted is given back: then everybody is served, and within a bounded number of rounds.
  void drain() {
    for (int round = 0; !waiting_.empty(); ++round) {
      WEIR_CHECK(round < 10'000, "somebody waits for ever");
      grant_all();
      while (!held_.empty()) release(held_.begin());
      while (!left_.empty()) release_left(left_.begin());
      check_sums();
    }
    while (!held_.empty()) release(held_.begin());
    while (!left_.empty()) release_left(left_.begin());
    for (std::uint8_t purse = 0; purse < kPurses; ++purse) {
      WEIR_CHECK(ledger_.used(purse) == 0 && ledger_.waiting(purse) == 0, "an idle ledger holds nothing");
    }
  }

  std::uint64_t grants() const { return grants_; }
  std::uint64_t stuck() const { return stuck_; }

 private:
  struct Sender {
    SenderAccount account;
    std::array<std::uint64_t, kPurses> bytes{};
    std::uint32_t speculative = 0;
  };
  struct Waiting {
    std::size_t sender;
    Ask ask;
  };
  struct Held {
    std::size_t sender;
    std::uint8_t purse;
    std::uint64_t bytes;
    bool speculative;
  };
  struct Left {
    std::uint8_t purse;
    std::uint64_t bytes;
  };

  template <class List>
  typename List::iterator pick(List& list) {
    auto at = list.begin();
    std::advance(at, static_cast<std::ptrdiff_t>(dice_.below(list.size())));
    return at;
  }

  void ask(std::size_t sender) {
    if (waiting_.size() == kMostAsks) return;
    const auto purse = static_cast<std::uint8_t>(dice_.one_in(4) ? kReplyPurse : dice_.below(2));
    const auto priority = static_cast<std::uint8_t>(dice_.below(8));
    const std::uint64_t bytes = dice_.one_in(4) ? dice_.below(700) : dice_.below(100);
    if (!ledger_.can_ever(purse, bytes)) {
      WEIR_CHECK(bytes == 0 || bytes > ledger_.bound(purse).per_sender, "an ask was refused for no reason");
      return;
    }
    waiting_.push_back({sender, {}});
    Ask& made = waiting_.back().ask;
    made = {.account = &senders_[sender].account, .bytes = bytes, .purse = purse, .priority = priority};
    ledger_.ask(made);
  }

  void withdraw(std::list<Waiting>::iterator at) {
    ledger_.withdraw(at->ask);
    WEIR_CHECK(!at->ask.is_waiting(), "a withdrawn ask waits");
    waiting_.erase(at);
  }

  void release(std::list<Held>::iterator at) {
    Sender& sender = senders_[at->sender];
    if (at->speculative) {
      ledger_.end_speculation(sender.account);
      --sender.speculative;
    }
    ledger_.release(sender.account, at->purse, at->bytes);
    sender.bytes[at->purse] -= at->bytes;
    held_.erase(at);
  }

  void release_left(std::list<Left>::iterator at) {
    ledger_.release_closed(at->purse, at->bytes);
    left_.erase(at);
  }

  void speculate(std::size_t at) {
    Sender& sender = senders_[at];
    const auto purse = static_cast<std::uint8_t>(dice_.below(kPurses));
    const std::uint64_t bytes = dice_.below(200);
    if (!ledger_.may_speculate(sender.account, purse, bytes)) return;
    for (const Waiting& one : waiting_) WEIR_CHECK(one.ask.purse != purse, "memory ahead of need while somebody waits");
    ledger_.speculate(sender.account, purse, bytes);
    sender.bytes[purse] += bytes;
    ++sender.speculative;
    held_.push_back({at, purse, bytes, true});
    WEIR_CHECK(used(purse) <= ledger_.bound(purse).total / 2, "too much was given ahead of need");
  }

  void reopen(std::size_t at) {
    Sender& sender = senders_[at];
    ledger_.close(sender.account);
    std::erase_if(waiting_, [&](const Waiting& one) {
      WEIR_CHECK(one.sender != at || !one.ask.is_waiting(), "an ask of a sender that is gone waits");
      return one.sender == at;
    });
    std::erase_if(held_, [&](const Held& one) {
      if (one.sender == at) left_.push_back({one.purse, one.bytes});
      return one.sender == at;
    });
    sender.bytes = {};
    sender.speculative = 0;
    ledger_.open(sender.account);
  }

  void grant_all() {
    while (Ask* const ask = ledger_.next()) {
      auto at = waiting_.begin();
      while (at != waiting_.end() && &at->ask != ask) {
        WEIR_CHECK(at->ask.account != ask->account || at->ask.purse != ask->purse || at->ask.priority != ask->priority,
                   "an ask went before an older one of its sender and priority");
        ++at;
      }
      WEIR_CHECK(at != waiting_.end() && !ask->is_waiting(), "somebody was granted who does not wait");
      Sender& sender = senders_[at->sender];
      sender.bytes[ask->purse] += ask->bytes;
      WEIR_CHECK(sender.bytes[ask->purse] <= ledger_.bound(ask->purse).per_sender, "a sender has more than its bound");
      WEIR_CHECK(used(ask->purse) + ask->bytes <= ledger_.bound(ask->purse).total,
                 "a purse has given more than it has");
      held_.push_back({at->sender, ask->purse, ask->bytes, false});
      waiting_.erase(at);
      ++grants_;
    }
    for (const Waiting& one : waiting_) {
      WEIR_CHECK(!fits(one.ask) || has_excuse(one), "an ask waits for nothing");
      ++stuck_;
    }
  }

  bool fits_purse(const Ask& ask) const { return used(ask.purse) + ask.bytes <= ledger_.bound(ask.purse).total; }
  bool fits_sender(const Ask& ask) const {
    return ask.account->bytes[ask.purse] + ask.bytes <= ledger_.bound(ask.purse).per_sender;
  }
  bool fits(const Ask& ask) const { return fits_purse(ask) && fits_sender(ask); }

  // What fits waits only behind somebody who does not: in its purse for the purse, in its sender for the sender.
  bool has_excuse(const Waiting& who) const {
    for (const Waiting& other : waiting_) {
      if (other.ask.purse != who.ask.purse) continue;
      if (!fits_purse(other.ask) && fits_sender(other.ask)) return true;
      if (other.sender == who.sender && !fits_sender(other.ask)) return true;
    }
    return false;
  }

  std::uint64_t used(std::uint8_t purse) const {
    std::uint64_t sum = 0;
    for (const Held& one : held_) sum += one.purse == purse ? one.bytes : 0;
    for (const Left& one : left_) sum += one.purse == purse ? one.bytes : 0;
    return sum;
  }

  void check_sums() const {
    std::array<const SenderAccount*, kSenders> accounts{};
    for (std::size_t i = 0; i < kSenders; ++i) {
      accounts[i] = &senders_[i].account;
      WEIR_CHECK(senders_[i].account.bytes == senders_[i].bytes, "a sender is charged what it has");
      WEIR_CHECK(senders_[i].account.speculative == senders_[i].speculative, "regions ahead of need are counted");
    }
    for (std::uint8_t purse = 0; purse < kPurses; ++purse) {
      WEIR_CHECK(ledger_.used(purse) == used(purse), "a purse has given what its senders have");
    }
    ledger_.verify(accounts.data(), accounts.size());
  }

  Dice& dice_;
  GrantLedger ledger_{{.requests = {1'000, 600}, .nested = {500, 300}, .replies = {700, 700}}};
  std::array<Sender, kSenders> senders_;
  std::list<Waiting> waiting_;  // in the order they came
  std::list<Held> held_;
  std::list<Left> left_;  // by senders that are gone
  std::uint64_t grants_ = 0;
  std::uint64_t stuck_ = 0;
};

}  // namespace weir::token
