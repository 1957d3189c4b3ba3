// A bounded queue from one thread to one other.
//
// Items are published in batches: handing over one cache line per item costs ten times as much as one per sixteen.
// Each side keeps a private copy of the other's index and looks at the shared one only when the copy says full or
// empty, so in a busy stream most operations touch no shared line at all.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/sync.h"

namespace weir {

// Owns its items. Exactly one thread calls the producer's functions and exactly one the consumer's; construction and
// destruction happen while neither runs.
template <class T>
class SpscRing {
 public:
  // `capacity` is rounded up to a power of two.
  explicit SpscRing(std::size_t capacity) : mask_(std::bit_ceil(capacity) - 1), items_(new T[mask_ + 1]) {
    WEIR_CHECK(capacity > 0 && capacity <= kMaxCapacity, "a ring holds between 1 and 2^30 items");
  }
  SpscRing(const SpscRing&) = delete;
  SpscRing& operator=(const SpscRing&) = delete;

  static constexpr std::size_t kMaxCapacity = std::size_t{1} << 30;

  std::size_t capacity() const { return mask_ + 1; }

  // ---- Producer ----

  // False if the ring is full; `item` is then untouched. The consumer sees the item after publish().
  [[nodiscard]] bool try_push(T&& item) {
    if (producer_.written - producer_.head_seen > mask_) {
      // acquire: the consumer's move out of the slot happened before we overwrite it.
      producer_.head_seen = head_.load(std::memory_order_acquire);
      if (producer_.written - producer_.head_seen > mask_) return false;
    }
    items_[producer_.written & mask_] = std::move(item);
    ++producer_.written;
    return true;
  }

  [[nodiscard]] bool try_push(const T& item) {
    T copy = item;
    return try_push(std::move(copy));
  }

  // Hands everything pushed so far to the consumer. True if there was anything.
  bool publish() {
    if (producer_.published == producer_.written) return false;
    producer_.published = producer_.written;
    // release: the items are complete before the index that covers them is seen.
    tail_.store(producer_.written, std::memory_order_release);
    return true;
  }

  // How many more items certainly fit.
  std::size_t free_space() {
    // acquire: as in try_push, the slots counted as free may be overwritten.
    producer_.head_seen = head_.load(std::memory_order_acquire);
    return capacity() - (producer_.written - producer_.head_seen);
  }

  // ---- Consumer ----

  [[nodiscard]] bool try_pop(T& item) {
    if (available() == 0) return false;
    item = std::move(items_[consumer_.read & mask_]);
    ++consumer_.read;
    give_back();
    return true;
  }

  // Moves up to out.size() items, gives their slots back at once, and returns how many there were.
  std::size_t pop_batch(std::span<T> out) {
    std::size_t taken = 0;
    return pop_batch(out.size(), [&](T&& item) { out[taken++] = std::move(item); });
  }

  // Calls take(T&&) for up to `limit` items. `take` must not pop from this ring.
  template <class Take>
    requires requires(Take take, T item) { take(std::move(item)); }
  std::size_t pop_batch(std::size_t limit, Take&& take) {
    const std::size_t count = std::min(limit, available());
    for (std::size_t i = 0; i < count; ++i) take(std::move(items_[(consumer_.read + i) & mask_]));
    consumer_.read += count;
    if (count > 0) give_back();
    return count;
  }

  // True if nothing has been published that was not popped.
  bool empty() { return available() == 0; }

 private:
  // Two lines: adjacent-line prefetchers pull lines in pairs.
  static constexpr std::size_t kApart = 128;

  std::size_t available() {
    if (consumer_.tail_seen == consumer_.read) {
      // acquire: pairs with publish(), so the items below the index are complete.
      consumer_.tail_seen = tail_.load(std::memory_order_acquire);
    }
    return consumer_.tail_seen - consumer_.read;
  }

  void give_back() {
    // release: we have moved the items out before the producer sees their slots as free.
    head_.store(consumer_.read, std::memory_order_release);
  }

  struct Producer {
    std::size_t written = 0;
    std::size_t published = 0;
    std::size_t head_seen = 0;
  };
  struct Consumer {
    std::size_t read = 0;
    std::size_t tail_seen = 0;
  };

  const std::size_t mask_;
  const std::unique_ptr<T[]> items_;
  alignas(kApart) Producer producer_;
  alignas(kApart) sync::Atomic<std::size_t> tail_ = 0;  // items below it are published; written by the producer
  alignas(kApart) Consumer consumer_;
  alignas(kApart) sync::Atomic<std::size_t> head_ = 0;  // items below it are consumed; written by the consumer
};

}  // namespace weir
