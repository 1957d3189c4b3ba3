// What one member has of a pool of credit (docs/protocol.md, rule C-11).
//
// A member holds at most half of a pool, and is given more than one largest message only while it holds less than what
// is free. So one member that takes all it can leaves each of N others 1/(2(N+1)) of the pool, nobody counts who is
// active, and what is free is a newcomer's. Members that have their share wait aside, where they are in nobody's way.
//
// Members for whom there is no room wait in line. Half of the bytes that are given go by weight of priority, the other
// half to the member that was given least: whoever always names the most urgent priority leaves each of N others
// 1/(2(N+1)) of what is given.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "schedule/priority_queue.h"
#include "schedule/turn_queue.h"
#include "token/credit_account.h"

namespace weir::token {

// What one member has of one level (see credit_share.h).
class CreditShare {
 public:
  CreditShare() = default;
  CreditShare(const CreditShare&) = delete;
  CreditShare& operator=(const CreditShare&) = delete;

  // Promised to its paths, and what paths that are gone have left unanswered.
  std::uint64_t held() const { return held_; }
  bool is_unused() const { return held_ == 0 && accounts_ == 0 && answers.bytes == 0; }

  AnswerShare answers;  // what the member holds of the room for answers of this level

 private:
  friend class CreditAccount;
  friend class CreditLedger;
  friend class CreditMember;
  using Line = schedule::WeightedQueue<CreditAccount, &CreditAccount::waiting_hook_>;
  enum class Place : std::uint8_t {
    nowhere,
    in_line,
    aside,    // it has its share: its paths wait until it holds less, or more is free
    at_bound  // the same, and only the former helps
  };
  bool waits() const { return line_ != nullptr && !line_->empty(); }
  bool is_aside() const { return place_ == Place::aside || place_ == Place::at_bound; }

  CreditMember* member_ = nullptr;
  std::uint64_t held_ = 0;
  std::uint32_t accounts_ = 0;  // open
  std::uint32_t callers_ = 0;   // of these, of paths that the member made
  Place place_ = Place::nowhere;
  std::unique_ptr<Line> line_;             // its paths that wait; made when the first of them does
  schedule::QueueHook<CreditShare> hook_;  // in line, by the priority of its next path
  schedule::HeapHook turn_;                // in line, by what it was given
  schedule::HeapHook aside_;               // aside, by what it holds
};

// What one member has of all levels. Those of nested levels take memory once they are used.
class CreditMember {
 public:
  CreditMember() { outermost_.member_ = this; }
  CreditMember(const CreditMember&) = delete;
  CreditMember& operator=(const CreditMember&) = delete;

  CreditShare& operator[](std::size_t level) {
    if (level == 0) [[likely]]
      return outermost_;
    if (nested_ == nullptr) [[unlikely]]
      make_nested();
    return (*nested_)[level - 1];
  }
  std::uint64_t held(std::size_t level) const {
    if (level == 0) return outermost_.held();
    return nested_ == nullptr ? 0 : (*nested_)[level - 1].held();
  }
  bool is_unused() const {
    return outermost_.is_unused() &&
           (nested_ == nullptr || std::ranges::all_of(*nested_, [](const CreditShare& s) { return s.is_unused(); }));
  }

 private:
  void make_nested();

  CreditShare outermost_;
  std::unique_ptr<std::array<CreditShare, kLevels - 1>> nested_;
};

inline AnswerShare& CreditAccount::answers() { return share_ != nullptr ? share_->answers : own_answers_; }
inline CreditMember* CreditAccount::member() const { return share_ != nullptr ? share_->member_ : nullptr; }

}  // namespace weir::token
