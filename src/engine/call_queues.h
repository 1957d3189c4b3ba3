// CallQueues: the calls to one peer that wait to be sent. Calls from outside handlers are one weighted queue, and so
// are those of each depth of nesting, so that no depth waits behind another.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "engine/config.h"
#include "schedule/priority_queue.h"
#include "transfer/outgoing_call.h"

namespace weir::engine {

// A queue that takes no memory while its owner is idle: most peers are, most of the time.
template <class T, schedule::QueueHook<T> T::*Hook>
class SparseQueue {
 public:
  using Queue = schedule::WeightedQueue<T, Hook>;

  bool empty() const { return queue_ == nullptr || queue_->empty(); }
  T* front() const { return queue_ == nullptr ? nullptr : queue_->front(); }
  T* front_of(unsigned level) const { return queue_ == nullptr ? nullptr : queue_->front_of(level); }
  T* last_of(unsigned level) const { return queue_ == nullptr ? nullptr : queue_->last_of(level); }
  unsigned occupied_levels() const { return queue_ == nullptr ? 0 : queue_->occupied_levels(); }
  void push_back(T& item, unsigned level) { queue().push_back(item, level); }
  void push_front(T& item, unsigned level) { queue().push_front(item, level); }
  void remove(T& item) { queue().remove(item); }
  void charge(unsigned level, std::uint64_t bytes) { queue().charge(level, bytes); }
  void release_memory() {
    if (empty()) queue_.reset();
  }

 private:
  Queue& queue() {
    if (queue_ == nullptr) [[unlikely]]
      queue_ = std::make_unique<Queue>();
    return *queue_;
  }
  std::unique_ptr<Queue> queue_;
};

// Owns no calls. One per peer.
class CallQueues {
 public:
  using Queue = SparseQueue<transfer::OutgoingCall, &transfer::OutgoingCall::hook>;

  Queue& operator[](std::size_t depth) {
    if (depth == 0) [[likely]]
      return outermost_;
    if (nested_ == nullptr) [[unlikely]]
      nested_ = std::make_unique<Nested>();
    return nested_->queues[depth - 1];
  }
  // Depths below this number have been used.
  std::size_t in_use() const { return nested_ == nullptr ? 1 : kMaxDepth + 1; }
  bool empty() const { return outermost_.empty() && (nested_ == nullptr || nested_->size == 0); }

  void push_back(transfer::OutgoingCall& call) {
    if (call.depth == 0) [[likely]]
      return outermost_.push_back(call, call.priority);
    (*this)[call.depth].push_back(call, call.priority);
    ++nested_->size;
  }
  void push_front(transfer::OutgoingCall& call) {
    (*this)[call.depth].push_front(call, call.priority);
    if (call.depth != 0) ++nested_->size;
  }
  [[gnu::noinline]] void remove(transfer::OutgoingCall& call) {  // seldom: most calls leave by send()
    if (call.depth == 0) [[likely]]
      return outermost_.remove(call);
    (*this)[call.depth].remove(call);
    --nested_->size;
  }
  // The call leaves, and so many bytes with it.
  void send(transfer::OutgoingCall& call, std::uint64_t bytes) {
    if (call.depth == 0) [[likely]] {
      outermost_.remove(call);
      return outermost_.charge(call.priority, bytes);
    }
    remove(call);
    (*this)[call.depth].charge(call.priority, bytes);
  }
  // Priorities of all that wait, a bit each.
  unsigned occupied_levels() const {
    unsigned levels = outermost_.occupied_levels();
    if (nested_ != nullptr && nested_->size != 0) [[unlikely]] {
      for (const Queue& queue : nested_->queues) levels |= queue.occupied_levels();
    }
    return levels;
  }
  void release_memory() {
    outermost_.release_memory();
    if (nested_ != nullptr && nested_->size == 0) nested_.reset();
  }

 private:
  struct Nested {
    std::array<Queue, kMaxDepth> queues;
    std::size_t size = 0;  // of all of them
  };
  Queue outermost_;
  std::unique_ptr<Nested> nested_;
};

}  // namespace weir::engine
