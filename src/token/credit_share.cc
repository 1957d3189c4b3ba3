#include "token/credit_share.h"

#include <algorithm>

#include "token/credit.h"

namespace weir::token {

void CreditMember::make_nested() {
  nested_ = std::make_unique<std::array<CreditShare, kLevels - 1>>();
  for (CreditShare& share : *nested_) share.member_ = this;
}

// ---- how much ----

void CreditLedger::join(CreditAccount& account, CreditMember* member) {
  if (member == nullptr) return;
  account.share_ = &(*member)[account.level_];
  ++account.share_->accounts_;
}

// Of a share that grows because one of its paths needs it: a whole message. Beyond the first one it may grow while it
// holds less than what is free. That is asked before it grows: of a pool that has room for a few messages, it would
// otherwise have less than it should.
CreditLedger::Entitlement CreditLedger::entitlement(const Pool& pool, const CreditShare& share,
                                                    std::uint64_t bytes) const {
  const std::uint64_t free_bytes = pool.free_bytes();
  const std::uint64_t after = share.held_ + bytes;
  if (after > options_.largest_cost && (after > pool.member_bound || share.held_ >= free_bytes)) {
    return Entitlement::over_share;
  }
  return bytes <= free_bytes ? Entitlement::yes : Entitlement::no_room;
}

// What a share may grow by ahead of need: it leaves room for one message of somebody else, and, beyond one message of
// its own, as much again as it then holds.
std::uint64_t CreditLedger::room_ahead(const Pool& pool, const CreditShare& share) const {
  const std::uint64_t free_bytes = pool.free_bytes();
  const std::uint64_t largest = options_.largest_cost;
  if (free_bytes <= largest) return 0;
  const std::uint64_t left = free_bytes - largest;
  const std::uint64_t first = share.held_ < largest ? std::min(largest - share.held_, left) : 0;
  const std::uint64_t bound = pool.member_bound;
  if (share.held_ >= bound || share.held_ >= left) return first;
  return std::max(first, std::min((left - share.held_) / 2, bound - share.held_));
}

bool CreditLedger::is_clogged(std::uint8_t level, std::uint64_t parts) const {
  const Pool& pool = pools_[level];
  const std::uint64_t kept = pool.shares.empty() ? 0 : pool.member_bound;
  return !pool.is_line_empty() && parts + kept + options_.largest_cost > pool.capacity;
}

// Beside one that keeps its half the member is entitled to more while it holds less than half of the rest.
bool CreditLedger::is_clogged_by_own(std::uint8_t level, std::uint64_t parts) const {
  const Pool& pool = pools_[level];
  const std::uint64_t bound = pool.member_bound;
  return parts + options_.largest_cost > bound || 2 * parts >= pool.capacity - bound;
}

// ---- the line ----

void CreditLedger::wait(Pool& pool, CreditAccount& account) {
  if (account.share_ == nullptr) return pool.line.push_back(account, account.priority_);
  CreditShare& share = *account.share_;
  if (share.line_ == nullptr) share.line_ = std::make_unique<CreditShare::Line>();
  if (share.line_->empty()) ++pool.waiting_members;
  share.line_->push_back(account, account.priority_);
  place(pool, share);
}

void CreditLedger::stop_waiting(Pool& pool, CreditAccount& account) {
  if (account.share_ == nullptr) return pool.line.remove(account);
  CreditShare& share = *account.share_;
  share.line_->remove(account);
  if (share.line_->empty()) --pool.waiting_members;
  place(pool, share);
}

void CreditLedger::change_priority(Pool& pool, CreditAccount& account) {
  if (account.share_ == nullptr) {
    pool.line.remove(account);
    return pool.line.push_back(account, account.priority_);
  }
  account.share_->line_->remove(account);
  account.share_->line_->push_back(account, account.priority_);
  place(pool, *account.share_);
}

// The paths of a share that wait have changed: it stands in line at the priority of the one whose turn it is, or aside
// by what that one needs.
void CreditLedger::place(Pool& pool, CreditShare& share) {
  if (!share.waits()) return take_out(pool, share);
  if (share.place_ == CreditShare::Place::in_line && share.hook_.level == share.line_->next_level()) return;
  take_out(pool, share);
  share.place_ = CreditShare::Place::in_line;
  pool.shares.push_back(share, share.line_->next_level());
  pool.turns.push(share, kMostOutOfTurn * options_.largest_cost);
}

void CreditLedger::take_out(Pool& pool, CreditShare& share) {
  switch (share.place_) {
    case CreditShare::Place::in_line:
      pool.shares.remove(share);
      pool.turns.remove(share);
      break;
    case CreditShare::Place::aside:
      pool.aside.remove(share);
      break;
    case CreditShare::Place::at_bound:
    case CreditShare::Place::nowhere:
      break;
  }
  share.place_ = CreditShare::Place::nowhere;
}

void CreditLedger::set_aside(Pool& pool, CreditShare& share) {
  take_out(pool, share);
  if (share.held_ + missing(*share.line_->front()) > pool.member_bound) {
    share.place_ = CreditShare::Place::at_bound;
  } else {
    share.place_ = CreditShare::Place::aside;
    pool.aside.push(share, share.held_);
  }
}

// A share holds less now. If it is aside, it may soon go back in line: behind those that hold less, and behind those
// that hold as much and are aside for longer, so that what is left of the pool goes round.
void CreditLedger::look_again(Pool& pool, CreditShare& share) {
  if (share.is_aside()) set_aside(pool, share);
}

// Half of the bytes are given by weight of priority, and among equals to whoever waits longest; the other half to the
// member that was given least. Nobody smaller goes first because it would fit. A member that has its share steps aside.
void CreditLedger::serve_members(Pool& pool) {
  for (;;) {
    while (CreditShare* const next = pool.aside.front()) {
      const std::uint64_t bytes = missing(*next->line_->front());
      if (entitlement(pool, *next, bytes) == Entitlement::over_share) break;
      place(pool, *next);
    }
    const bool by_turn = pool.halves.is_turn();
    CreditShare* const share = by_turn ? pool.turns.front() : pool.shares.front();
    if (share == nullptr) return;
    CreditAccount& account = *share->line_->front();
    const std::uint64_t bytes = missing(account);
    const Entitlement entitled = entitlement(pool, *share, bytes);
    if (entitled == Entitlement::no_room) return;
    if (entitled == Entitlement::over_share) {
      set_aside(pool, *share);
      continue;
    }
    promise(pool, account, bytes);
    const unsigned priority = share->hook_.level;
    take_out(pool, *share);
    share->line_->charge(account.waiting_hook_.level, bytes);
    pool.turns.charge(*share, bytes, by_turn);
    if (!by_turn) pool.shares.charge(priority, bytes);
    pool.halves.charge(by_turn, bytes);
    stop_waiting(pool, account);  // to the end of its priority, if others of its paths wait
    tell(account);
  }
}

}  // namespace weir::token
