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
// No level waits for the memory of another. Whoever holds some of level n waits at most for level n + 1, and requests
// of the last level call nobody, so that nested calls cannot wait for each other in a circle.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "schedule/priority_queue.h"
#include "token/answer_room.h"

namespace weir::token {

inline constexpr std::uint32_t kRequestOverhead = 64;  // what a request costs beyond its bytes

inline std::uint32_t request_cost(std::uint32_t bytes) { return bytes + kRequestOverhead; }

// The sender's view of one level of one path.
struct CreditSender {
  std::uint64_t used = 0;
  std::uint64_t limit = 0;
  std::uint64_t told = 0;                             // the highest limit that a `credit` frame named
  std::uint64_t told_blocked_at = ~std::uint64_t{0};  // the limit that a `blocked` frame was last sent for
  std::uint8_t told_priority = 0;                     // and the priority in it

  // A request of this priority waits, and the receiver does not know, or knows of less urgent ones only.
  bool should_complain(std::uint8_t priority) const { return told_blocked_at != limit || priority < told_priority; }
  void on_complained(std::uint8_t priority) {
    told_blocked_at = limit;
    told_priority = priority;
  }
  bool may_send(std::uint64_t cost) const { return used + cost <= limit; }
  // True: the receiver has room for more of what was sent already, on the word of what a cold sender was told.
  bool raise(std::uint64_t to) {
    if (to > limit) limit = to;
    if (to <= told) return false;
    return std::exchange(told, to) != 0 || to >= used;
  }
};

// The sender's view of one path, by level. Nested levels take memory once they are used.
class CreditSenders {
 public:
  void open(std::uint64_t allowance, std::uint64_t nested_allowance) {
    outermost_.limit = allowance;
    nested_allowance_ = nested_allowance;
  }
  CreditSender& operator[](std::size_t level) {
    if (level == 0) [[likely]]
      return outermost_;
    if (nested_ == nullptr) [[unlikely]] {
      nested_ = std::make_unique<std::array<CreditSender, kLevels - 1>>();
      for (CreditSender& sender : *nested_) sender.limit = nested_allowance_;
    }
    return (*nested_)[level - 1];
  }
  // Levels below this number have been used.
  std::size_t in_use() const { return nested_ == nullptr ? 1 : kLevels; }

 private:
  CreditSender outermost_;
  std::uint64_t nested_allowance_ = 0;
  std::unique_ptr<std::array<CreditSender, kLevels - 1>> nested_;
};

class CreditLedger;

// The receiver's view of one level of one path.
class CreditAccount {
 public:
  enum class Receipt : std::uint8_t {
    taken,
    no_room,    // within what a cold sender was told, but the ledger has promised that to others meanwhile
    violation,  // over its limit, which an honest sender never is
  };
  [[nodiscard]] Receipt on_received(std::uint64_t cost) {
    if (received_ + cost > limit_) [[unlikely]]
      return received_ + cost > claimed_ ? Receipt::violation : Receipt::no_room;
    received_ += cost;
    return Receipt::taken;
  }
  std::uint64_t received() const { return received_; }
  // A request that takes no room because it was cancelled before it came: received and answered in one.
  void forgive(std::uint64_t cost) {
    received_ += cost;
    finished_ += cost;
    limit_ += cost;
  }
  std::uint64_t limit() const { return limit_; }
  std::uint64_t unanswered() const { return received_ - finished_; }
  std::uint32_t owner() const { return owner_; }  // the path, as its engine numbers it
  std::uint8_t level() const { return level_; }
  // Promised and not used, and not in line for more: closing the path would give it back. Of the outermost account,
  // with the nested ones of its path.
  bool holds_unused() const;
  bool should_announce() const {
    return limit_ > announced_ && (blocked_ || limit_ - announced_ >= quantum());  // a cold sender may know of more
  }
  std::uint64_t announce() {
    announced_ = limit_;
    blocked_ = false;
    return limit_;
  }
  // The frame that carried the last announcement was lost, however small the raise in it was.
  void announce_again() {
    announced_ = 0;
    blocked_ = true;
  }

  AnswerShare answers;  // what this level of the path holds of the room for answers

 private:
  friend class CreditLedger;
  friend class CreditAccounts;
  std::uint64_t quantum() const { return window_ < 4 ? 1 : window_ / 4; }  // smallest raise worth a frame

  std::uint64_t received_ = 0;
  std::uint64_t finished_ = 0;
  std::uint64_t limit_ = 0;
  std::uint64_t claimed_ = 0;    // the most that the sender may have been told before the path was made
  std::uint64_t announced_ = 0;  // what the sender surely knows, as far as we know
  std::uint64_t grow_at_ = 0;    // what must have been received before the window doubles again
  std::uint64_t window_ = 0;     // how far the limit may stand beyond what is finished
  std::uint64_t needed_ = 0;     // while waiting
  std::uint32_t owner_ = 0;
  std::uint8_t level_ = 0;
  bool open_ = false;
  bool for_callbacks_ = false;  // of a path that we made
  bool blocked_ = false;
  bool raised_ = false;
  std::uint8_t priority_ = 0;                        // of the wish in needed_
  schedule::QueueHook<CreditAccount> waiting_hook_;  // in the line of its pool
  CreditAccount* next_raised_ = nullptr;
  CreditAccount* nested_ = nullptr;  // of the outermost one: levels 1 to 4 of the same path, once they are in use
};

// One per engine: a pool for each level, shared by all paths.
class CreditLedger {
 public:
  struct Options {
    std::uint64_t capacity = 64u << 20;  // level 0, all paths together
    std::uint64_t per_path = 4u << 20;   // level 0, one path
    std::uint64_t largest_cost = 16 * 1024 + kRequestOverhead;
  };
  static constexpr std::uint64_t kLargestAllowance = 64 * 1024;
  static constexpr std::uint64_t kSmallestAllowance = 1024;
  static constexpr std::uint64_t kNestedCapacity = 8u << 20;  // each nested level, all paths together, by default

  // A bound below one message would let none through, so none is taken to be smaller.
  explicit CreditLedger(Options options);
  // Before the first path: what each nested level may promise to all paths together. All levels together promise at
  // most `all_levels`, if that is not 0, as far as one message for each allows. Returns what is in force.
  std::uint64_t bound_nested(std::uint64_t capacity, std::uint64_t all_levels = 0);

  // What a new path may be promised now, at level 0 and at each nested level.
  std::uint32_t cold_allowance() const;
  std::uint32_t nested_allowance() const;

  // The allowance was promised without being kept free: what is not there any more is owed.
  void open(CreditAccount& account, std::uint64_t allowance, std::uint32_t owner = 0);
  // A nested level, used for the first time. Nobody remembers what this path was told, so that the most that any is
  // told counts as its claim.
  void open_nested(CreditAccount& account, std::uint8_t level, std::uint32_t owner);
  // Of a path that we made, whose other side seldom calls: it is promised nothing, then a little, while there is some,
  // and never waits in line.
  void open_for_callbacks(CreditAccount& account, std::uint8_t level = 0);
  void open_reserve(CreditAccount& account) { open_for_callbacks(account); }
  // `unanswered` requests keep their promise until finish_closed() is called for each. The outermost account takes the
  // nested ones of its path with it.
  void close(CreditAccount& account);
  void finish(CreditAccount& account, std::uint64_t cost);
  void finish_closed(std::uint8_t level, std::uint64_t cost);
  // The sender needs its limit to be `needed`, for a request of this priority. One that is in line already keeps the
  // most urgent priority that it has named, so that a late complaint changes nothing.
  void on_blocked(CreditAccount& account, std::uint64_t needed, std::uint8_t priority = 0);

  // Paths whose limit grew because others finished; the engine must look at their accounts.
  CreditAccount* take_raised();
  // Somebody waits in the pool of whoever complained last.
  bool starved() const { return !pools_[complained_].line.empty(); }
  bool starved(std::uint8_t level) const { return !pools_[level].line.empty(); }
  std::uint64_t promised(std::uint8_t level = 0) const { return pools_[level].promised; }
  const Options& options() const { return options_; }  // of level 0
  std::uint64_t capacity() const { return pools_[0].capacity; }
  std::uint64_t nested_capacity() const { return pools_[1].capacity; }
  std::uint64_t nested_per_path() const { return pools_[1].per_path; }

 private:
  struct alignas(64) Pool {
    std::uint64_t capacity = 0;
    std::uint64_t per_path = 0;
    std::uint64_t headroom = 0;  // only for what a request needs at once, never for windows; level 0 has none
    std::uint64_t promised = 0;  // sum of limit - finished
    // Who waits. Bytes given to one are charged to its priority: a path that always names the most urgent one shares
    // what that level gets with the others who do, message by message.
    schedule::WeightedQueue<CreditAccount, &CreditAccount::waiting_hook_> line;

    std::uint64_t free_bytes() const { return capacity > promised ? capacity - promised : 0; }
    std::uint64_t spare_bytes() const { return free_bytes() > headroom ? free_bytes() - headroom : 0; }
  };
  Pool& pool_of(const CreditAccount& account) { return pools_[account.level_]; }
  std::uint64_t bound_of(const CreditAccount& account) const;
  std::uint64_t share(std::uint64_t free_bytes) const;
  std::uint64_t nested_claim() const;
  void raise(Pool& pool, CreditAccount& account);
  [[gnu::noinline]] void raise_nested(Pool& pool, CreditAccount& account);
  static bool give(Pool& pool, CreditAccount& account);
  void settle(Pool& pool, CreditAccount& account);
  void serve_waiting(Pool& pool);

  Options options_;
  std::array<Pool, kLevels> pools_;
  std::uint64_t paths_ = 0;      // that others made
  std::uint8_t complained_ = 0;  // the level of the last complaint
  CreditAccount* raised_ = nullptr;
};

// The accounts of one path, by level. Those of nested levels take memory once they are used: most paths never nest.
class CreditAccounts {
 public:
  void open(CreditLedger& ledger, std::uint64_t allowance, std::uint32_t owner) {
    ledger_ = &ledger;
    ledger.open(outermost_, allowance, owner);
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
  // Levels below this number have been used.
  std::size_t in_use() const { return nested_ == nullptr ? 1 : kLevels; }

 private:
  void open_nested();

  CreditLedger* ledger_ = nullptr;
  CreditAccount outermost_;
  std::unique_ptr<std::array<CreditAccount, kLevels - 1>> nested_;
};

}  // namespace weir::token
