// ParkedRequests: requests that found no place in the executor's queue, in lines by member and priority. Nobody waits
// behind another member's.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "pool/incoming_record.h"
#include "schedule/priority_queue.h"

namespace weir::pool {

// One per post, on its worker. Links records and owns none; the credit that they keep bounds them.
class ParkedRequests {
 public:
  using Record = detail::IncomingRecord;

  struct Lines {
    std::uint64_t member = 0;
    std::array<Record*, schedule::kPriorityLevels> first{}, last{};
    std::uint32_t occupied = 0;  // a bit for each line that is not empty
    Lines* next = nullptr;       // a ring of all
    Lines* previous = nullptr;
  };

  bool empty() const { return members_.empty(); }
  // Null: none of that member's.
  Lines* find(std::uint64_t member) {
    const auto found = members_.find(member);
    return found == members_.end() ? nullptr : &found->second;
  }

  void push_back(Record& record, std::uint64_t member) {
    const auto [found, is_new] = members_.try_emplace(member);
    Lines& lines = found->second;
    if (is_new) join(lines, member);
    const unsigned level = record.priority;
    record.waiting = {};
    (lines.last[level] != nullptr ? lines.last[level]->waiting.next : lines.first[level]) = &record;
    lines.last[level] = &record;
    lines.occupied |= 1u << level;
  }

  // The first one of a line that is not empty.
  static void pop_front(Lines& lines, unsigned level) { replace_front(lines, level, lines.first[level]->waiting.next); }
  // The same, when it has gone already: `next` was behind it.
  static void replace_front(Lines& lines, unsigned level, Record* next) {
    lines.first[level] = next;
    if (lines.first[level] != nullptr) return;
    lines.last[level] = nullptr;
    lines.occupied &= ~(1u << level);
  }

  // After its lines may have become empty.
  void forget_if_empty(Lines& lines) {
    if (lines.occupied != 0) return;
    lines.previous->next = lines.next;
    lines.next->previous = lines.previous;
    if (next_ == &lines) next_ = lines.next == &lines ? nullptr : lines.next;
    members_.erase(lines.member);
  }

  // Null: there is none left.
  Record* pop_any() {
    if (next_ == nullptr) return nullptr;
    Lines& lines = *next_;
    const auto level = static_cast<unsigned>(std::countr_zero(lines.occupied));
    Record* const record = lines.first[level];
    pop_front(lines, level);
    forget_if_empty(lines);
    return record;
  }

  // Another one each time, in turn. There must be one.
  Lines& next() {
    Lines& lines = *next_;
    next_ = lines.next;
    return lines;
  }

 private:
  void join(Lines& lines, std::uint64_t member) {
    lines.member = member;
    if (next_ == nullptr) next_ = lines.next = lines.previous = &lines;
    lines.next = next_;
    lines.previous = next_->previous;
    lines.previous->next = lines.next->previous = &lines;
  }

  std::unordered_map<std::uint64_t, Lines> members_;
  Lines* next_ = nullptr;
};

}  // namespace weir::pool
