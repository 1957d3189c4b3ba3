#include "token/credit.h"

#include <algorithm>

namespace weir::token {

CreditLedger::CreditLedger(Options options) : options_(options) {
  options_.per_path = std::max(options_.per_path, options_.largest_cost);
  options_.capacity = std::max(options_.capacity, options_.largest_cost);
}

std::uint32_t CreditLedger::cold_allowance() const {
  const std::uint64_t share = free_bytes() / (paths_ / 2 + 8);
  if (share < kSmallestAllowance) return 0;  // it says `blocked` and waits its turn
  return static_cast<std::uint32_t>(std::min({share, kLargestAllowance, options_.per_path}));
}

void CreditLedger::open(CreditAccount& account, std::uint64_t allowance, std::uint32_t owner) {
  account.owner_ = owner;
  account.claimed_ = account.announced_ = account.window_ = allowance;
  account.limit_ = std::min(allowance, free_bytes());
  account.pooled_ = true;
  promised_ += account.limit_;
  ++paths_;
}

void CreditLedger::open_reserve(CreditAccount& account) {
  account.limit_ = account.announced_ = account.window_ = nested_allowance();
}

void CreditLedger::close(CreditAccount& account) {
  if (!account.pooled_) return;
  account.pooled_ = false;
  promised_ -= account.limit_ - account.received_;  // what is received and unanswered stays promised
  --paths_;
  if (account.waiting_) {
    CreditAccount** link = &first_waiting_;
    CreditAccount* before = nullptr;
    while (*link != &account) {
      before = *link;
      link = &(*link)->next_waiting_;
    }
    *link = account.next_waiting_;
    if (last_waiting_ == &account) last_waiting_ = before;
    account.waiting_ = false;
  }
  if (account.raised_) {
    CreditAccount** link = &raised_;
    while (*link != &account) link = &(*link)->next_raised_;
    *link = account.next_raised_;
    account.raised_ = false;
  }
  serve_waiting();
}

void CreditLedger::finish(CreditAccount& account, std::uint64_t cost) {
  account.finished_ += cost;
  if (!account.pooled_) {
    account.limit_ = account.finished_ + account.window_;
    return;
  }
  promised_ -= cost;
  settle(account);
}

void CreditLedger::finish_closed(std::uint64_t cost, bool reserve) {
  if (reserve) return;
  promised_ -= cost;
  serve_waiting();
}

void CreditLedger::on_blocked(CreditAccount& account, std::uint64_t needed) {
  account.blocked_ = true;
  if (!account.pooled_) return;
  // A complaint often crosses the announcement that answers it, so `needed` below our limit still tells that the window
  // is what holds the sender back. It doubles at most once for each half window that arrived.
  if (account.received_ >= account.grow_at_) {
    account.window_ = std::min(std::max(account.window_ * 2, options_.largest_cost), options_.per_path);
    account.grow_at_ = account.received_ + account.window_ / 2;
  }
  // One that could send any message with what it has is not blocked, whatever it says: its complaint crossed our
  // announcement, which is repeated, or it hoards.
  if (account.limit_ < account.received_ + options_.largest_cost) {
    // At most one message more than the limit is a sane wish; a larger one is cut to that.
    const std::uint64_t wish = std::min(needed, account.limit_ + options_.largest_cost);
    // One that is in line already may change its mind, but not to more than its bound.
    if (!account.waiting_ || wish - account.finished_ <= options_.per_path) account.needed_ = wish;
  }
  settle(account);
}

// Gives the account what it needs and then a full window; or puts it in line if others are waiting or there is not
// enough. One that is at its bound per path is not in line: only its own answers make room, and they come by here.
void CreditLedger::settle(CreditAccount& account) {
  const bool wants = account.needed_ > account.limit_ && account.needed_ - account.finished_ <= options_.per_path;
  if (first_waiting_ != nullptr || (wants && !give(account))) {
    if (wants && !account.waiting_) {
      account.waiting_ = true;
      account.next_waiting_ = nullptr;
      (last_waiting_ != nullptr ? last_waiting_->next_waiting_ : first_waiting_) = &account;
      last_waiting_ = &account;
    }
    serve_waiting();
  }
  if (first_waiting_ == nullptr) raise(account);
}

// A whole message or nothing: no hold-and-wait.
bool CreditLedger::give(CreditAccount& account) {
  const std::uint64_t missing = account.needed_ > account.limit_ ? account.needed_ - account.limit_ : 0;
  if (missing > free_bytes()) return false;
  account.limit_ += missing;
  promised_ += missing;
  return true;
}

// Fills the account's window. Only while nobody waits: a part of a message given to one would be missing to another,
// and two that hold parts would wait for each other for ever.
void CreditLedger::raise(CreditAccount& account) {
  const std::uint64_t target = account.finished_ + account.window_;
  if (target <= account.limit_) return;
  const std::uint64_t step = std::min(target - account.limit_, free_bytes());
  account.limit_ += step;
  promised_ += step;
}

// Gives what was freed to whoever waits longest.
void CreditLedger::serve_waiting() {
  while (first_waiting_ != nullptr) {
    CreditAccount& account = *first_waiting_;
    if (!give(account)) return;
    first_waiting_ = account.next_waiting_;
    if (first_waiting_ == nullptr) last_waiting_ = nullptr;
    account.waiting_ = false;
    account.blocked_ = true;  // it is to be told at once, however small the step
    if (!account.raised_) {
      account.raised_ = true;
      account.next_raised_ = raised_;
      raised_ = &account;
    }
  }
}

CreditAccount* CreditLedger::take_raised() {
  CreditAccount* account = raised_;
  if (account != nullptr) {
    raised_ = account->next_raised_;
    account->raised_ = false;
  }
  return account;
}

}  // namespace weir::token
