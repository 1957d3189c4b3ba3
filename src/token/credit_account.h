// Both ends of the credit of one path: what its sender may send, and what its receiver has promised (token/credit.h).
#pragma once

#include <algorithm>
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
  bool is_told = false;                               // a `credit` frame has come

  // A request of this priority waits, and the receiver does not know, or knows of less urgent ones only.
  bool should_complain(std::uint8_t priority) const { return told_blocked_at != limit || priority < told_priority; }
  void on_complained(std::uint8_t priority) {
    told_blocked_at = limit;
    told_priority = priority;
  }
  bool may_send(std::uint64_t cost) const { return used + cost <= limit; }
  // What a cold sender was told before is not set aside for it: the first limit counts instead, though it be lower.
  // True: the receiver has room for more of what was sent already.
  bool raise(std::uint64_t to) {
    const bool is_first = !std::exchange(is_told, true);
    if (is_first || to > limit) limit = to;
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
class CreditMember;
class CreditShare;

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
  // Promised, not used, and too little for what the account is in line for.
  std::uint64_t part_in_line() const { return open_ && waiting_hook_.queued ? limit_ - received_ : 0; }
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

  // What this level of the path, or of its member, holds of the room for answers.
  AnswerShare& answers();
  // Whose path it is; null: nobody's share bounds it.
  CreditMember* member() const;

 private:
  friend class CreditLedger;
  friend class CreditAccounts;
  friend class CreditShare;
  // Smallest raise worth a frame: a quarter of the window, or of what the pool and the member's share leave of it.
  std::uint64_t quantum() const {
    const std::uint64_t window = std::min(window_, limit_ - finished_);
    return window < 4 ? 1 : window / 4;
  }

  std::uint64_t received_ = 0;
  std::uint64_t finished_ = 0;
  std::uint64_t limit_ = 0;
  std::uint64_t claimed_ = 0;     // the most that the sender may have been told before the path was made
  std::uint64_t announced_ = 0;   // what the sender surely knows, as far as we know
  std::uint64_t grow_at_ = 0;     // what must have been received before the window doubles again
  std::uint64_t window_ = 0;      // how far the limit may stand beyond what is finished
  std::uint64_t needed_ = 0;      // while waiting
  AnswerShare own_answers_;       // without a member
  CreditShare* share_ = nullptr;  // its member's, of this level
  std::uint32_t owner_ = 0;
  // Bit fields: every path has an account.
  std::uint8_t level_ : 4 = 0;
  std::uint8_t priority_ : 4 = 0;  // of the wish in needed_
  bool open_ : 1 = false;
  bool for_callbacks_ : 1 = false;  // of a path that we made
  bool blocked_ : 1 = false;
  bool raised_ : 1 = false;
  schedule::QueueHook<CreditAccount> waiting_hook_;  // in the line of its pool, or of its share
  CreditAccount* next_raised_ = nullptr;
  CreditAccount* nested_ = nullptr;  // of the outermost one: levels 1 to 4 of the same path, once they are in use
};

}  // namespace weir::token
