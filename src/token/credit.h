// Byte credit for inline requests (docs/protocol.md, rules C-*).
//
// The receiver tells each sender up to which total, counted from the path's start, it may send. Limits only grow, so a
// lost or repeated frame is harmless. A request's cost comes back when its handler has answered, not when it arrived:
// the same number bounds what is in flight and what is in memory, and a slow handler slows its callers.
//
// All promises of one engine come from one ledger. A cold path gets a small allowance, smaller the more paths there
// are. A path that says it is blocked has its window doubled, up to the bound per path. When the ledger is used up,
// blocked paths wait in order, and the engine is told that closing an idle path would help.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace weir::token {

inline constexpr std::size_t kLevels = 5;              // calls from outside handlers, and four levels of nested calls
inline constexpr std::uint32_t kRequestOverhead = 64;  // what a request costs beyond its bytes

inline std::uint32_t request_cost(std::uint32_t bytes) { return bytes + kRequestOverhead; }

// The sender's view of one level of one path.
struct CreditSender {
  std::uint64_t used = 0;
  std::uint64_t limit = 0;
  std::uint64_t told_blocked_at = ~std::uint64_t{0};  // the limit that a `blocked` frame was last sent for

  bool may_send(std::uint64_t cost) const { return used + cost <= limit; }
  void raise(std::uint64_t to) {
    if (to > limit) limit = to;
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
  bool is_reserve() const { return !pooled_; }
  std::uint32_t owner() const { return owner_; }  // the path, as its engine numbers it
  // Promised and not used, and not in line for more: closing the path would give it back.
  bool holds_unused() const { return pooled_ && limit_ > received_ && !waiting_; }
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

 private:
  friend class CreditLedger;
  std::uint64_t quantum() const { return window_ < 4 ? 1 : window_ / 4; }  // smallest raise worth a frame

  std::uint64_t received_ = 0;
  std::uint64_t finished_ = 0;
  std::uint64_t limit_ = 0;
  std::uint64_t claimed_ = 0;    // the allowance that the sender was told before the path was made
  std::uint64_t announced_ = 0;  // what the sender surely knows, as far as we know
  std::uint64_t grow_at_ = 0;    // what must have been received before the window doubles again
  std::uint64_t window_ = 0;     // how far the limit may stand beyond what is finished
  std::uint64_t needed_ = 0;     // while waiting
  std::uint32_t owner_ = 0;
  bool pooled_ = false;  // open, and its promises come out of the ledger's capacity
  bool blocked_ = false;
  bool waiting_ = false;
  bool raised_ = false;
  CreditAccount* next_waiting_ = nullptr;
  CreditAccount* next_raised_ = nullptr;
};

// One per engine. Level 0 of all paths shares `capacity`; every nested level of every path has its own small reserve,
// fixed for the path's life, so that a nested call never waits for room that its own caller holds.
class CreditLedger {
 public:
  struct Options {
    std::uint64_t capacity = 64u << 20;  // level 0, all paths together
    std::uint64_t per_path = 4u << 20;   // level 0, one path
    std::uint64_t largest_cost = 16 * 1024 + kRequestOverhead;
  };
  static constexpr std::uint64_t kLargestAllowance = 64 * 1024;
  static constexpr std::uint64_t kSmallestAllowance = 1024;

  // A bound below one message would let none through, so none is taken to be smaller.
  explicit CreditLedger(Options options);

  // What a new path may be promised now.
  std::uint32_t cold_allowance() const;
  std::uint32_t nested_allowance() const { return static_cast<std::uint32_t>(2 * options_.largest_cost); }

  // The allowance was promised without being kept free: what is not there any more is owed.
  void open(CreditAccount& account, std::uint64_t allowance, std::uint32_t owner = 0);
  void open_reserve(CreditAccount& account);
  // `unanswered` requests keep their promise until finish_closed() is called for each.
  void close(CreditAccount& account);
  void finish(CreditAccount& account, std::uint64_t cost);
  void finish_closed(std::uint64_t cost, bool reserve);
  // The sender needs its limit to be `needed`.
  void on_blocked(CreditAccount& account, std::uint64_t needed);

  // Paths whose limit grew because others finished; the engine must look at their accounts.
  CreditAccount* take_raised();
  bool starved() const { return first_waiting_ != nullptr; }
  std::uint64_t promised() const { return promised_; }
  const Options& options() const { return options_; }

 private:
  std::uint64_t free_bytes() const { return options_.capacity > promised_ ? options_.capacity - promised_ : 0; }
  void raise(CreditAccount& account);
  bool give(CreditAccount& account);
  void settle(CreditAccount& account);
  void serve_waiting();

  Options options_;
  std::uint64_t promised_ = 0;  // level 0: sum of limit - finished
  std::uint64_t paths_ = 0;
  CreditAccount* first_waiting_ = nullptr;
  CreditAccount* last_waiting_ = nullptr;
  CreditAccount* raised_ = nullptr;
};

// The accounts of one path, by level. Those of nested levels take memory once they are used: most paths never nest.
class CreditAccounts {
 public:
  void open(CreditLedger& ledger, std::uint64_t allowance, std::uint32_t owner) {
    ledger_ = &ledger;
    ledger.open(outermost_, allowance, owner);
  }
  // Level 0 has no share in the ledger either.
  void open_reserve(CreditLedger& ledger) {
    ledger_ = &ledger;
    ledger.open_reserve(outermost_);
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
  void open_nested() {
    nested_ = std::make_unique<std::array<CreditAccount, kLevels - 1>>();
    for (CreditAccount& account : *nested_) ledger_->open_reserve(account);
  }

  CreditLedger* ledger_ = nullptr;
  CreditAccount outermost_;
  std::unique_ptr<std::array<CreditAccount, kLevels - 1>> nested_;
};

}  // namespace weir::token
