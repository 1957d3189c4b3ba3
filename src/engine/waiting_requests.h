// WaitingRequests: the requests of one path that are complete and wait for room for their answers (docs/protocol.md,
// rule C-10), by level and priority. AnswerLine: the paths that have such requests at one level, in the order of their
// turns.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "schedule/priority_queue.h"
#include "token/answer_room.h"
#include "transfer/incoming_transfer.h"

namespace weir::engine {

struct Path;

// What an answer takes beyond its transfer's record.
inline std::uint32_t answer_bytes_of(std::size_t message_bytes) {
  if (message_bytes <= transfer::IncomingTransfer::kInlineBytes) return 0;
  for (const std::size_t capacity : transfer::BlockPool::kClassBytes) {
    if (message_bytes <= capacity) return static_cast<std::uint32_t>(capacity + transfer::Block::kHeaderBytes);
  }
  return static_cast<std::uint32_t>(transfer::BlockPool::kMaxBlockBytes + transfer::Block::kHeaderBytes);
}

// Made for a path when the first of its requests has to wait. Links transfers by the hook that queues their replies
// later, and owns none.
class WaitingRequests {
 public:
  explicit WaitingRequests(Path& path) : path_(path) {}
  WaitingRequests(const WaitingRequests&) = delete;
  WaitingRequests& operator=(const WaitingRequests&) = delete;

  Path& path() { return path_; }
  bool empty(std::uint8_t level) const { return levels_[level].priorities == 0; }

  void push_back(transfer::IncomingTransfer& transfer, std::uint8_t level) {
    Level& at = levels_[level];
    const unsigned priority = transfer.priority;
    transfer.hook.next = nullptr;
    transfer.hook.previous = at.last[priority];
    (at.last[priority] != nullptr ? at.last[priority]->hook.next : at.first[priority]) = &transfer;
    at.last[priority] = &transfer;
    at.priorities |= 1u << priority;
  }
  // The most urgent one, of these the oldest. Not empty.
  transfer::IncomingTransfer& front(std::uint8_t level) {
    Level& at = levels_[level];
    return *at.first[std::countr_zero(at.priorities)];
  }
  void remove(transfer::IncomingTransfer& transfer, std::uint8_t level) {
    Level& at = levels_[level];
    const unsigned priority = transfer.priority;
    auto& hook = transfer.hook;
    (hook.previous != nullptr ? hook.previous->hook.next : at.first[priority]) = hook.next;
    (hook.next != nullptr ? hook.next->hook.previous : at.last[priority]) = hook.previous;
    if (at.first[priority] == nullptr) at.priorities &= ~(1u << priority);
  }

 private:
  friend class AnswerLine;
  struct Level {
    std::array<transfer::IncomingTransfer*, schedule::kPriorityLevels> first{};
    std::array<transfer::IncomingTransfer*, schedule::kPriorityLevels> last{};
    std::uint32_t priorities = 0;          // bit per priority that has some
    WaitingRequests* next_path = nullptr;  // in the level's line
    WaitingRequests* previous_path = nullptr;
  };
  Path& path_;
  std::array<Level, token::kLevels> levels_{};
};

// One per level and engine. A path is in it as long as requests of its level wait.
class AnswerLine {
 public:
  static constexpr std::uint32_t kStep = 64;  // paths looked at in one go; the rest comes with the next turn

  explicit AnswerLine(std::uint8_t level) : level_(level) {}

  WaitingRequests* first() { return first_; }
  std::uint32_t size() const { return size_; }
  void push_back(WaitingRequests& requests) {
    auto& at = requests.levels_[level_];
    at.next_path = nullptr;
    at.previous_path = last_;
    (last_ != nullptr ? last_->levels_[level_].next_path : first_) = &requests;
    last_ = &requests;
    ++size_;
  }
  void remove(WaitingRequests& requests) {
    auto& at = requests.levels_[level_];
    (at.previous_path != nullptr ? at.previous_path->levels_[level_].next_path : first_) = at.next_path;
    (at.next_path != nullptr ? at.next_path->levels_[level_].previous_path : last_) = at.previous_path;
    --size_;
  }

  std::uint32_t unseen = 0;  // paths not looked at since room was last given back

 private:
  WaitingRequests* first_ = nullptr;
  WaitingRequests* last_ = nullptr;
  std::uint32_t size_ = 0;
  std::uint8_t level_;
};

}  // namespace weir::engine
