// Byte credit for inline requests (docs/protocol.md, rules C-1 to C-7).
//
// The receiver tells each sender up to which total, counted from the path's start, it may send. Limits only grow, so a
// lost or repeated frame is harmless. A request's cost comes back when its handler has answered, not when it arrived:
// the same number bounds what is in flight and what is in memory, and a slow handler slows its callers.
//
// All promises of one engine come from one ledger, which has a pool of bytes for each level of nesting. A cold path
// gets a small allowance, smaller the more paths there are. A path that says it is blocked has its window doubled, up
// to the bound per path. When a pool is used up, blocked paths wait in line, weighted by the priority of the most
// urgent request that each has waiting, and the engine is told that closing an idle path would help.
//
// Paths of members (rule C-11) share what one member may have of a pool: see credit_share.h.
//
// No level waits for the memory of another. Whoever holds some of level n waits at most for level n + 1, and requests
// of the last level call nobody, so that nested calls cannot wait for each other in a circle.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/time.h"
#include "schedule/priority_queue.h"
#include "schedule/turn_queue.h"
#include "token/credit_account.h"
#include "token/credit_share.h"

namespace weir::token {

// One per engine: a pool for each level, shared by all paths.
class CreditLedger {
 public:
  struct Options {
    std::uint64_t capacity = 64u << 20;  // level 0, all paths together
    std::uint64_t per_path = 4u << 20;   // level 0, one path, and all paths of one member
    std::uint64_t largest_cost = 16 * 1024 + kRequestOverhead;
    bool has_members = false;  // no level has room for less than two messages, so that one member leaves one to others
  };
  static constexpr std::uint64_t kLargestAllowance = 64 * 1024;
  static constexpr std::uint64_t kSmallestAllowance = 1024;
  static constexpr Duration kOfferLife = std::chrono::milliseconds(50);  // an offer counts for once or twice as long
  static constexpr std::uint64_t kNestedCapacity = 8u << 20;  // each nested level, all paths together, by default

  // A bound below one message would let none through, so none is taken to be smaller.
  explicit CreditLedger(Options options);
  // Before the first path: what each nested level may promise to all paths together. All levels together promise at
  // most `all_levels`, if that is not 0, as far as one message for each allows. Returns what is in force.
  std::uint64_t bound_nested(std::uint64_t capacity, std::uint64_t all_levels = 0);

  // Before the two below: offers of long ago do not count.
  void forget_offers(Instant now) {
    if (now - offers_from_ >= kOfferLife) [[unlikely]]
      end_offers(now);
  }
  // What a new path may be promised now, at level 0 and at each nested level.
  std::uint32_t cold_allowance() const;
  std::uint32_t nested_allowance() const;
  // Both were offered to somebody who may make a path. While he has not, others are offered less.
  void on_offered() { ++open_offers_; }

  // The allowance was promised without being kept free: what is not there any more is owed. `member`: whose path it is;
  // it outlives the account, and what the account leaves unanswered. Null: nobody's share bounds the account.
  void open(CreditAccount& account, std::uint64_t allowance, std::uint32_t owner = 0, CreditMember* member = nullptr);
  // A nested level, used for the first time. Nobody remembers what this path was told, so that the most that any is
  // told counts as its claim.
  void open_nested(CreditAccount& account, std::uint8_t level, std::uint32_t owner, CreditMember* member = nullptr);
  // Of a path that we made, whose other side seldom calls: it is promised nothing, then a little, while there is some,
  // and never waits in line.
  void open_for_callbacks(CreditAccount& account, std::uint8_t level = 0);
  void open_reserve(CreditAccount& account) { open_for_callbacks(account); }
  // `unanswered` requests keep their promise until finish_closed() is called for each. The outermost account takes the
  // nested ones of its path with it.
  void close(CreditAccount& account);
  void finish(CreditAccount& account, std::uint64_t cost);
  // `member`: of the account that is closed.
  void finish_closed(std::uint8_t level, std::uint64_t cost, CreditMember* member = nullptr);
  // The sender needs its limit to be `needed`, for a request of this priority. One that is in line already keeps the
  // most urgent priority that it has named, so that a late complaint changes nothing.
  void on_blocked(CreditAccount& account, std::uint64_t needed, std::uint8_t priority = 0);

  // Paths whose limit grew because others finished; the engine must look at their accounts.
  CreditAccount* take_raised();
  bool has_raised() const { return raised_ != nullptr; }
  // Somebody waits whom it would help if others gave something back. Not a member that waits for its own bound.
  bool starved(std::uint8_t level = 0) const { return !pools_[level].is_line_empty() || !pools_[level].aside.empty(); }
  // What a member must hold at least to give something back for those who wait.
  std::uint64_t least_to_give_back(std::uint8_t level) const {
    return pools_[level].is_line_empty() ? pools_[level].aside.front()->held() : 0;
  }
  // The account waits because its member has its share: what the member gives back would help it.
  bool waits_for_own(const CreditAccount& account) const {
    return account.waiting_hook_.queued && account.share_ != nullptr && account.share_->is_aside();
  }
  // Some wait for room, and might do so for ever: accounts that wait hold `parts` of messages, which they can use only
  // with the rest, and one member may keep what it may have.
  bool is_clogged(std::uint8_t level, std::uint64_t parts) const;
  // The same of a member that has its share: `parts` are of its accounts that wait.
  bool is_clogged_by_own(std::uint8_t level, std::uint64_t parts) const;
  // The most that one member may hold of a level.
  std::uint64_t per_member(std::uint8_t level) const { return pools_[level].member_bound; }
  std::uint64_t promised(std::uint8_t level = 0) const { return pools_[level].promised; }
  const Options& options() const { return options_; }  // of level 0
  std::uint64_t capacity() const { return pools_[0].capacity; }
  std::uint64_t nested_capacity() const { return pools_[1].capacity; }
  std::uint64_t nested_per_path() const { return pools_[1].per_path; }

 private:
  struct alignas(64) Pool {
    std::uint64_t capacity = 0;
    std::uint64_t per_path = 0;
    std::uint64_t headroom = 0;         // only for what a request needs at once, never for windows; level 0 has none
    std::uint64_t promised = 0;         // sum of limit - finished
    std::uint64_t member_bound = 0;     // the most that one member may hold
    std::uint32_t waiting_members = 0;  // in line or not
    // Who waits. Bytes given to one are charged to its priority: a path that always names the most urgent one shares
    // what that level gets with the others who do, message by message.
    schedule::WeightedQueue<CreditAccount, &CreditAccount::waiting_hook_> line;
    // The same of members, by the priority of the next path of each, and by what each was given.
    schedule::WeightedQueue<CreditShare, &CreditShare::hook_> shares;
    schedule::TurnQueue<CreditShare, &CreditShare::turn_> turns;
    schedule::HalfAndHalf halves;
    schedule::KeyHeap<CreditShare, &CreditShare::aside_> aside;

    bool somebody_waits() const { return !line.empty() || waiting_members != 0; }
    bool is_line_empty() const { return line.empty() && shares.empty(); }
    std::uint64_t free_bytes() const { return capacity > promised ? capacity - promised : 0; }
    std::uint64_t spare_bytes() const {
      const std::uint64_t kept = promised + headroom;
      return capacity > kept ? capacity - kept : 0;
    }
  };
  Pool& pool_of(const CreditAccount& account) { return pools_[account.level_]; }
  std::uint64_t bound_of(const CreditAccount& account) const;
  std::uint64_t share(std::uint64_t free_bytes, std::uint64_t offers = 0) const;
  std::uint64_t nested_claim() const;
  void end_offers(Instant now);
  bool wants(const CreditAccount& account) const {
    return account.needed_ > account.limit_ && account.needed_ - account.finished_ <= bound_of(account);
  }
  static std::uint64_t missing(const CreditAccount& account) {
    return account.needed_ > account.limit_ ? account.needed_ - account.limit_ : 0;
  }
  static void promise(Pool& pool, CreditAccount& account, std::uint64_t bytes) {
    account.limit_ += bytes;
    pool.promised += bytes;
    if (account.share_ != nullptr) account.share_->held_ += bytes;
  }
  void raise(Pool& pool, CreditAccount& account);
  [[gnu::noinline]] void raise_nested(Pool& pool, CreditAccount& account);
  bool give(Pool& pool, CreditAccount& account);
  void settle(Pool& pool, CreditAccount& account);
  [[gnu::noinline]] void settle_in_line(Pool& pool, CreditAccount& account);
  void serve_waiting(Pool& pool);
  void tell(CreditAccount& account);

  // ---- credit_share.cc ----
  // What a member was given by weight makes it later in turn, by up to so many largest messages.
  static constexpr std::uint64_t kMostOutOfTurn = 4;
  // Whether a share may grow by so much now.
  enum class Entitlement : std::uint8_t { yes, no_room, over_share };
  void join(CreditAccount& account, CreditMember* member);
  Entitlement entitlement(const Pool& pool, const CreditShare& share, std::uint64_t bytes) const;
  // How much of `bytes` an account of this share, which may be null, is promised ahead of need.
  std::uint64_t ahead(const Pool& pool, const CreditShare* share, std::uint64_t bytes) const {
    if (share == nullptr) return std::min(bytes, pool.free_bytes());
    // What room_ahead() leaves to a share that is far from its bound, in a pool that has plenty.
    if (share->held_ + bytes <= pool.member_bound &&
        pool.free_bytes() >= options_.largest_cost + share->held_ + 2 * bytes) [[likely]] {
      return bytes;
    }
    return std::min(bytes, room_ahead(pool, *share));
  }
  std::uint64_t room_ahead(const Pool& pool, const CreditShare& share) const;
  void wait(Pool& pool, CreditAccount& account);
  void stop_waiting(Pool& pool, CreditAccount& account);
  void change_priority(Pool& pool, CreditAccount& account);
  void place(Pool& pool, CreditShare& share);
  static void take_out(Pool& pool, CreditShare& share);
  void set_aside(Pool& pool, CreditShare& share);
  void look_again(Pool& pool, CreditShare& share);
  void serve_members(Pool& pool);

  Options options_;
  std::uint64_t callers_ = 0;         // members with paths that they made, and such paths of nobody
  std::uint32_t open_offers_ = 0;     // of which no path came yet: of this period, and of the one before it
  std::uint32_t earlier_offers_ = 0;  // of the one before it
  Instant offers_from_{};
  CreditAccount* raised_ = nullptr;
  std::array<Pool, kLevels> pools_;
};

// The accounts of one path, by level. Those of nested levels take memory once they are used: most paths never nest.
class CreditAccounts {
 public:
  void open(CreditLedger& ledger, std::uint64_t allowance, std::uint32_t owner, CreditMember* member = nullptr) {
    ledger_ = &ledger;
    ledger.open(outermost_, allowance, owner, member);
  }
  // For a path that we made ourselves.
  void open_reserve(CreditLedger& ledger) {
    ledger_ = &ledger;
    ledger.open_for_callbacks(outermost_);
  }
  CreditAccount& operator[](std::size_t level) {
    if (level == 0) [[likely]]
      return outermost_;
    if (nested_ == nullptr) [[unlikely]]
      open_nested();
    return (*nested_)[level - 1];
  }
  const CreditAccount& outermost() const { return outermost_; }
  CreditMember* member() const { return outermost_.member(); }
  // Levels below this number have been used.
  std::size_t in_use() const { return nested_ == nullptr ? 1 : kLevels; }

 private:
  void open_nested();

  CreditLedger* ledger_ = nullptr;
  CreditAccount outermost_;
  std::unique_ptr<std::array<CreditAccount, kLevels - 1>> nested_;
};

}  // namespace weir::token
