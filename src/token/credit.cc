#include "token/credit.h"

#include <algorithm>

#include "base/check.h"

namespace weir::token {

bool CreditAccount::holds_unused() const {
  if (open_ && limit_ > received_ && !waiting_hook_.queued) return true;
  if (nested_ == nullptr) return false;
  return std::any_of(nested_, nested_ + kLevels - 1, [](const CreditAccount& one) { return one.holds_unused(); });
}

CreditLedger::CreditLedger(Options options) : options_(options) {
  options_.per_path = std::max(options_.per_path, options_.largest_cost);
  options_.capacity = std::max(options_.capacity, options_.largest_cost);
  bound_nested(kNestedCapacity);
}

std::uint64_t CreditLedger::bound_nested(std::uint64_t capacity, std::uint64_t all_levels) {
  WEIR_CHECK(callers_ == 0, "the ledger is bounded before the first path");
  constexpr std::uint64_t kNested = kLevels - 1;
  if (all_levels != 0 && options_.capacity + kNested * capacity > all_levels) {
    capacity = std::min(capacity, all_levels / 16);
    const std::uint64_t rest = all_levels > kNested * capacity ? all_levels - kNested * capacity : 0;
    options_.capacity =
        std::max(std::min(options_.capacity, rest), std::min(options_.capacity, 4 * options_.largest_cost));
    options_.per_path = std::min(options_.per_path, options_.capacity);
  }
  capacity = std::max(capacity, (options_.has_members ? 2 : 1) * options_.largest_cost);
  pools_[0].capacity = options_.capacity;
  pools_[0].per_path = options_.per_path;
  for (std::size_t level = 1; level < kLevels; ++level) {
    pools_[level].capacity = capacity;
    pools_[level].headroom = std::max(options_.largest_cost, capacity / 4);
    // Few calls are nested, and a path has four such levels beside its own.
    pools_[level].per_path =
        std::min(capacity, std::max(2 * options_.largest_cost, std::min(options_.per_path, capacity) / 8));
  }
  for (Pool& pool : pools_) {
    pool.member_bound = std::max(options_.largest_cost, std::min(pool.capacity / 2, pool.per_path));
  }
  return capacity;
}

std::uint64_t CreditLedger::bound_of(const CreditAccount& account) const {
  const Pool& pool = pools_[account.level_];
  const std::uint64_t per_path = account.share_ != nullptr ? pool.member_bound : pool.per_path;
  return account.for_callbacks_ ? std::min(per_path, 2 * options_.largest_cost) : per_path;
}

std::uint64_t CreditLedger::share(std::uint64_t free_bytes, std::uint64_t offers) const {
  const std::uint64_t share = free_bytes / (callers_ / 2 + offers + 8);
  return share < kSmallestAllowance ? 0 : share;  // it says `blocked` and waits its turn
}

std::uint32_t CreditLedger::cold_allowance() const {
  const std::uint64_t most = std::min<std::uint64_t>(kLargestAllowance, options_.per_path);
  return static_cast<std::uint32_t>(std::min(share(pools_[0].free_bytes(), open_offers_), most));
}

void CreditLedger::end_offers(Instant now) {
  earlier_offers_ = now - offers_from_ < 2 * kOfferLife ? open_offers_ - earlier_offers_ : 0;
  open_offers_ = earlier_offers_;
  offers_from_ = now;
}

// Any path may come to use every level, so that all paths count, not only those that nest.
std::uint32_t CreditLedger::nested_allowance() const {
  std::uint64_t free_bytes = ~std::uint64_t{0};
  for (std::size_t level = 1; level < kLevels; ++level) free_bytes = std::min(free_bytes, pools_[level].spare_bytes());
  return static_cast<std::uint32_t>(std::min(share(free_bytes, open_offers_), nested_claim()));
}

std::uint64_t CreditLedger::nested_claim() const { return std::min(2 * options_.largest_cost, pools_[1].per_path); }

void CreditLedger::open(CreditAccount& account, std::uint64_t allowance, std::uint32_t owner, CreditMember* member) {
  Pool& pool = pools_[0];
  account.owner_ = owner;
  account.claimed_ = account.announced_ = account.window_ = allowance;
  account.open_ = true;
  join(account, member);
  if (account.share_ == nullptr || account.share_->callers_++ == 0) ++callers_;
  open_offers_ -= open_offers_ != 0;  // it came of one of them, of an earlier one if there is one
  earlier_offers_ -= earlier_offers_ != 0;
  promise(pool, account, ahead(pool, account.share_, allowance));
}

void CreditLedger::open_nested(CreditAccount& account, std::uint8_t level, std::uint32_t owner, CreditMember* member) {
  Pool& pool = pools_[level];
  account.level_ = level;
  account.owner_ = owner;
  account.claimed_ = nested_claim();
  account.open_ = true;
  join(account, member);
  promise(pool, account, ahead(pool, account.share_, std::min(share(pool.spare_bytes()), nested_claim())));
  account.announced_ = account.window_ = account.limit_;
}

void CreditLedger::open_for_callbacks(CreditAccount& account, std::uint8_t level) {
  account.level_ = level;
  account.open_ = true;
  account.for_callbacks_ = true;
}

void CreditLedger::close(CreditAccount& account) {
  if (account.nested_ != nullptr) {
    for (std::size_t i = 0; i + 1 < kLevels; ++i) close(account.nested_[i]);
    account.nested_ = nullptr;
  }
  if (!account.open_) return;
  Pool& pool = pool_of(account);
  CreditShare* const share = account.share_;
  account.open_ = false;
  const std::uint64_t unused = account.limit_ - account.received_;  // what is received and unanswered stays promised
  pool.promised -= unused;
  if (account.waiting_hook_.queued) stop_waiting(pool, account);
  if (share != nullptr) {
    share->held_ -= unused;
    --share->accounts_;
    look_again(pool, *share);
  }
  if (account.level_ == 0 && !account.for_callbacks_ && (share == nullptr || --share->callers_ == 0)) --callers_;
  if (account.raised_) {
    CreditAccount** link = &raised_;
    while (*link != &account) link = &(*link)->next_raised_;
    *link = account.next_raised_;
    account.raised_ = false;
  }
  serve_waiting(pool);
}

void CreditLedger::finish(CreditAccount& account, std::uint64_t cost) {
  account.finished_ += cost;
  Pool& pool = pool_of(account);
  pool.promised -= cost;
  if (account.share_ != nullptr) account.share_->held_ -= cost;
  settle(pool, account);
}

void CreditLedger::finish_closed(std::uint8_t level, std::uint64_t cost, CreditMember* member) {
  Pool& pool = pools_[level];
  pool.promised -= cost;
  if (member != nullptr) {
    CreditShare& share = (*member)[level];
    share.held_ -= cost;
    look_again(pool, share);
  }
  serve_waiting(pool);
}

void CreditLedger::on_blocked(CreditAccount& account, std::uint64_t needed, std::uint8_t priority) {
  account.blocked_ = true;
  if (!account.open_) return;
  const std::uint64_t bound = bound_of(account);
  // A complaint often crosses the announcement that answers it, so `needed` below our limit still tells that the window
  // is what holds the sender back. It doubles at most once for each half window that arrived.
  if (account.received_ >= account.grow_at_) {
    account.window_ = std::min(std::max(account.window_ * 2, options_.largest_cost), bound);
    account.grow_at_ = account.received_ + account.window_ / 2;
  }
  // One that could send any message with what it has is not blocked, whatever it says: its complaint crossed our
  // announcement, which is repeated, or it hoards.
  if (account.limit_ < account.received_ + options_.largest_cost) {
    // At most one message more than the limit is a sane wish; a larger one is cut to that.
    const std::uint64_t wish = std::min(needed, account.limit_ + options_.largest_cost);
    // One that is in line already may change its mind, but not to more than its bound.
    const bool is_waiting = account.waiting_hook_.queued;
    if (!is_waiting || wish - account.finished_ <= bound) account.needed_ = wish;
    if (!is_waiting || priority < account.priority_) account.priority_ = priority & 7;
    if (is_waiting && account.waiting_hook_.level != account.priority_) change_priority(pool_of(account), account);
  }
  settle(pool_of(account), account);
}

// Gives the account what it needs and then a full window; or puts it in line if others are waiting or there is not
// enough. One that is at its bound per path is not in line: only its own answers make room, and they come by here.
void CreditLedger::settle(Pool& pool, CreditAccount& account) {
  if (pool.somebody_waits() || (wants(account) && !give(pool, account))) [[unlikely]]
    return settle_in_line(pool, account);
  raise(pool, account);
}

void CreditLedger::settle_in_line(Pool& pool, CreditAccount& account) {
  if (wants(account) && !account.waiting_hook_.queued && !account.for_callbacks_) wait(pool, account);
  if (account.share_ != nullptr) look_again(pool, *account.share_);
  serve_waiting(pool);
  // Members that are aside are not kept waiting by this: it leaves them what they would have had.
  if (pool.is_line_empty()) raise(pool, account);
}

// A whole message or nothing: no hold-and-wait.
bool CreditLedger::give(Pool& pool, CreditAccount& account) {
  const std::uint64_t bytes = missing(account);
  if (account.share_ != nullptr) {
    if (entitlement(pool, *account.share_, bytes) != Entitlement::yes) return false;
  } else if (bytes > pool.free_bytes()) {
    return false;
  }
  promise(pool, account, bytes);
  return true;
}

// Fills the account's window. Only while nobody is in line: a part of a message given to one would be missing to
// another, and two that hold parts would wait for each other for ever. A path that nested once and goes on with other
// work keeps what it was given unused: of a nested level that is a share that leaves enough for all others.
void CreditLedger::raise(Pool& pool, CreditAccount& account) {
  if (account.level_ != 0) [[unlikely]]
    return raise_nested(pool, account);
  const std::uint64_t target = account.finished_ + account.window_;
  if (target <= account.limit_) return;
  promise(pool, account, ahead(pool, account.share_, target - account.limit_));
}

void CreditLedger::raise_nested(Pool& pool, CreditAccount& account) {
  const std::uint64_t spare = pool.spare_bytes();
  const std::uint64_t target = std::min(account.finished_ + account.window_, account.received_ + share(spare));
  if (target <= account.limit_) return;
  promise(pool, account, ahead(pool, account.share_, std::min(target - account.limit_, spare)));
}

// Gives what was freed to whoever's turn it is: weighted by priority, and among equals to whoever waits longest. Nobody
// smaller goes first because it would fit: the turn stays where it is until there is enough, unless somebody comes
// whose priority is further behind.
void CreditLedger::serve_waiting(Pool& pool) {
  if (pool.waiting_members != 0) serve_members(pool);
  while (CreditAccount* const next = pool.line.front()) {
    CreditAccount& account = *next;
    const std::uint64_t bytes = missing(account);
    if (!give(pool, account)) return;
    pool.line.remove(account);
    pool.line.charge(account.waiting_hook_.level, bytes);
    tell(account);
  }
}

void CreditLedger::tell(CreditAccount& account) {
  account.blocked_ = true;  // it is to be told at once, however small the step
  if (account.raised_) return;
  account.raised_ = true;
  account.next_raised_ = raised_;
  raised_ = &account;
}

CreditAccount* CreditLedger::take_raised() {
  CreditAccount* account = raised_;
  if (account != nullptr) {
    raised_ = account->next_raised_;
    account->raised_ = false;
  }
  return account;
}

void CreditAccounts::open_nested() {
  nested_ = std::make_unique<std::array<CreditAccount, kLevels - 1>>();
  outermost_.nested_ = nested_->data();
  for (std::uint8_t level = 1; level < kLevels; ++level) {
    CreditAccount& account = (*nested_)[level - 1];
    if (outermost_.for_callbacks_) {
      ledger_->open_for_callbacks(account, level);
    } else {
      ledger_->open_nested(account, level, outermost_.owner_, member());
    }
  }
}

}  // namespace weir::token
