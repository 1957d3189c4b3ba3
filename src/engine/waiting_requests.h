// WaitingRequests: the requests of one member that are complete and wait for room for their answers (docs/protocol.md,
// rule C-10), by level and priority; without members those of one path. AnswerLine: all of these of one level, weighted
// by priority; among requests of one priority the members take turns. One that has its share is looked at once for each
// priority, however many paths it has.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "schedule/priority_queue.h"
#include "token/answer_room.h"
#include "transfer/incoming_transfer.h"

namespace weir::engine {

// What an answer takes beyond its transfer's record.
inline std::uint32_t answer_bytes_of(std::size_t message_bytes) {
  if (message_bytes <= transfer::IncomingTransfer::kInlineBytes) return 0;
  for (const std::size_t capacity : transfer::BlockPool::kClassBytes) {
    if (message_bytes <= capacity) return static_cast<std::uint32_t>(capacity + transfer::Block::kHeaderBytes);
  }
  return static_cast<std::uint32_t>(transfer::BlockPool::kMaxBlockBytes + transfer::Block::kHeaderBytes);
}

// Made when the first request has to wait. Links transfers by the hook that queues their replies
// later, and owns none.
class WaitingRequests {
 public:
  // Those of one level and priority, oldest first.
  struct List {
    transfer::IncomingTransfer* first = nullptr;
    transfer::IncomingTransfer* last = nullptr;
    schedule::QueueHook<List> hook;  // in the line of its level, as long as there are some
  };

  WaitingRequests() = default;
  WaitingRequests(const WaitingRequests&) = delete;
  WaitingRequests& operator=(const WaitingRequests&) = delete;

  bool empty(std::uint8_t level) const { return count_[level] == 0; }
  List& list(std::uint8_t level, unsigned priority) { return lists_[level][priority]; }

  void push_back(transfer::IncomingTransfer& transfer, std::uint8_t level) {
    List& list = lists_[level][transfer.priority];
    transfer.hook = {.next = nullptr, .previous = list.last};
    (list.last != nullptr ? list.last->hook.next : list.first) = &transfer;
    list.last = &transfer;
    ++count_[level];
  }
  void remove(transfer::IncomingTransfer& transfer, std::uint8_t level) {
    List& list = lists_[level][transfer.priority];
    auto& hook = transfer.hook;
    (hook.previous != nullptr ? hook.previous->hook.next : list.first) = hook.next;
    (hook.next != nullptr ? hook.next->hook.previous : list.last) = hook.previous;
    --count_[level];
  }

 private:
  std::array<std::uint32_t, token::kLevels> count_{};
  std::array<std::array<List, schedule::kPriorityLevels>, token::kLevels> lists_;
};

// One per level and engine. In each priority those at the front have not been looked at since room was last given back.
class AnswerLine {
 public:
  using List = WaitingRequests::List;
  static constexpr std::uint32_t kStep = 64;  // lists looked at in one go; the rest comes with the next turn

  std::size_t size() const { return queue_.size(); }
  bool has_unseen() const { return unseen_levels_ != 0; }
  void push_back(List& list, unsigned priority) {
    queue_.push_back(list, priority);
    ++sizes_[priority];
  }
  void remove(List& list) {
    const unsigned priority = list.hook.level;
    queue_.remove(list);
    --sizes_[priority];
    see(priority, unseen_[priority] < sizes_[priority] ? unseen_[priority] : sizes_[priority]);
  }
  // Room was given back: all may try again.
  void forget_seen() {
    for (unsigned priority = 0; priority < schedule::kPriorityLevels; ++priority) see(priority, sizes_[priority]);
  }
  // There is no room for anybody.
  void see_all() {
    unseen_.fill(0);
    unseen_levels_ = 0;
  }
  // Whose turn it is, of those not seen, which there must be. It goes to the end of its priority.
  List& take_turn() {
    const unsigned priority = queue_.furthest_behind(unseen_levels_);
    List& list = *queue_.front_of(priority);
    if (list.hook.next != nullptr) {  // a priority that becomes empty would lose what it is behind
      queue_.remove(list);
      queue_.push_back(list, priority);
    }
    see(priority, unseen_[priority] - 1);
    return list;
  }
  // One of this priority was served; it may have another, and stands behind those who found no room.
  void charge(unsigned priority, std::uint64_t bytes) {
    queue_.charge(priority, bytes);
    see(priority, sizes_[priority]);
  }

 private:
  void see(unsigned priority, std::uint32_t left) {
    unseen_[priority] = left;
    unseen_levels_ = left != 0 ? unseen_levels_ | 1u << priority : unseen_levels_ & ~(1u << priority);
  }

  schedule::WeightedQueue<List, &List::hook> queue_;
  std::array<std::uint32_t, schedule::kPriorityLevels> sizes_{};
  std::array<std::uint32_t, schedule::kPriorityLevels> unseen_{};
  std::uint32_t unseen_levels_ = 0;  // bit per priority that has some
};

}  // namespace weir::engine
