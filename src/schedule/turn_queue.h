// Queues in which the element with the smallest key goes next.
//
// KeyHeap is the plain thing. TurnQueue is start-time fair queueing by bytes: whoever was given least goes next, and
// two that wait for the same time are given the same, but for one message each. An element that was away, or is new,
// starts at the virtual time of the service, so that it neither owes nor has saved up anything, and is next.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"

namespace weir::schedule {

// Embedded in each element.
struct HeapHook {
  std::uint64_t key = 0;
  std::uint64_t ticket = 0;  // of two with one key, the one that came first is first
  std::uint32_t position = 0;
  bool queued = false;
};

// Links elements and owns none. Single-threaded. Every change is O(log n).
template <class T, HeapHook T::*Hook>
class KeyHeap {
 public:
  KeyHeap() = default;
  KeyHeap(const KeyHeap&) = delete;
  KeyHeap& operator=(const KeyHeap&) = delete;

  void push(T& item, std::uint64_t key) {
    HeapHook& hook = item.*Hook;
    WEIR_CHECK(!hook.queued, "an element is queued once");
    hook = {.key = key, .ticket = next_ticket_++, .position = 0, .queued = true};
    heap_.push_back(&item);
    rise(heap_.size() - 1);
  }
  void remove(T& item) {
    HeapHook& hook = item.*Hook;
    WEIR_CHECK(hook.queued, "only a queued element can be removed");
    hook.queued = false;
    const std::size_t at = hook.position;
    T* const last = heap_.back();
    heap_.pop_back();
    if (last == &item) return;
    put(at, last);
    rise(at);
    sink((last->*Hook).position);
  }
  T* front() const { return heap_.empty() ? nullptr : heap_.front(); }
  bool empty() const { return heap_.empty(); }
  std::size_t size() const { return heap_.size(); }

 private:
  static bool before(const T* a, const T* b) {
    const HeapHook& one = a->*Hook;
    const HeapHook& other = b->*Hook;
    // Virtual times wrap around after years of service.
    if (one.key != other.key) return static_cast<std::int64_t>(one.key - other.key) < 0;
    return one.ticket < other.ticket;
  }
  void put(std::size_t at, T* item) {
    heap_[at] = item;
    (item->*Hook).position = static_cast<std::uint32_t>(at);
  }
  void rise(std::size_t at) {
    T* const item = heap_[at];
    for (; at != 0 && before(item, heap_[(at - 1) / 2]); at = (at - 1) / 2) put(at, heap_[(at - 1) / 2]);
    put(at, item);
  }
  void sink(std::size_t at) {
    T* const item = heap_[at];
    for (std::size_t child = 2 * at + 1; child < heap_.size(); child = 2 * at + 1) {
      if (child + 1 < heap_.size() && before(heap_[child + 1], heap_[child])) ++child;
      if (!before(heap_[child], item)) break;
      put(at, heap_[child]);
      at = child;
    }
    put(at, item);
  }

  std::vector<T*> heap_;
  std::uint64_t next_ticket_ = 0;
};

// Each element has a virtual time, which stays with it while it is away.
template <class T, HeapHook T::*Hook>
class TurnQueue {
 public:
  // `most`: what was given to it out of turn counts up to here.
  void push(T& item, std::uint64_t most = ~std::uint64_t{0} >> 1) {
    const auto ahead = static_cast<std::int64_t>((item.*Hook).key - service_time_);
    heap_.push(item, service_time_ + static_cast<std::uint64_t>(
                                         std::clamp<std::int64_t>(ahead, 0, static_cast<std::int64_t>(most))));
  }
  void remove(T& item) { heap_.remove(item); }
  // Of one that is not queued: it was given so much, because it was its turn or for another reason.
  void charge(T& item, std::uint64_t bytes, bool in_turn = true) {
    HeapHook& hook = item.*Hook;
    WEIR_CHECK(!hook.queued, "the key of a queued element stays as it is");
    if (in_turn && static_cast<std::int64_t>(service_time_ - hook.key) < 0) service_time_ = hook.key;
    hook.key += bytes;
  }
  T* front() const { return heap_.front(); }
  bool empty() const { return heap_.empty(); }
  std::size_t size() const { return heap_.size(); }

 private:
  KeyHeap<T, Hook> heap_;
  std::uint64_t service_time_ = 0;
};

// Which of two ways of choosing goes next, so that each decides over half of the bytes.
class HalfAndHalf {
 public:
  bool is_turn() const { return owed_ > 0; }  // first what is urgent
  void charge(bool by_turn, std::uint64_t bytes) {
    owed_ += by_turn ? -static_cast<std::int64_t>(bytes) : static_cast<std::int64_t>(bytes);
  }

 private:
  std::int64_t owed_ = 0;  // to those whose turn it is
};

}  // namespace weir::schedule
