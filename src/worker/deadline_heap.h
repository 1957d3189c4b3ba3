// A binary heap of seats by their next deadline, each knowing its place, so that a deadline can move in O(log n).
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "base/time.h"

namespace weir::worker {

// `Item` has `Instant deadline` and `std::size_t heap_index`, both the heap's while the item is inside. Owns nothing.
template <class Item>
class DeadlineHeap {
 public:
  static constexpr std::size_t kOutside = ~std::size_t{0};

  void update(Item& item, Instant deadline) {
    item.deadline = deadline;
    if (item.heap_index == kOutside) {
      item.heap_index = items_.size();
      items_.push_back(&item);
    }
    sift_down(sift_up(item.heap_index));
  }

  void remove(Item& item) {
    if (item.heap_index == kOutside) return;
    const std::size_t hole = std::exchange(item.heap_index, kOutside);
    Item* last = items_.back();
    items_.pop_back();
    if (last == &item) return;
    items_[hole] = last;
    last->heap_index = hole;
    sift_down(sift_up(hole));
  }

  Item* top() const { return items_.empty() ? nullptr : items_.front(); }
  std::size_t size() const { return items_.size(); }

 private:
  void swap(std::size_t a, std::size_t b) {
    std::swap(items_[a], items_[b]);
    items_[a]->heap_index = a;
    items_[b]->heap_index = b;
  }

  std::size_t sift_up(std::size_t index) {
    while (index > 0 && items_[index]->deadline < items_[(index - 1) / 2]->deadline) {
      swap(index, (index - 1) / 2);
      index = (index - 1) / 2;
    }
    return index;
  }

  void sift_down(std::size_t index) {
    for (;;) {
      std::size_t least = index;
      for (std::size_t child = 2 * index + 1; child <= 2 * index + 2 && child < items_.size(); ++child) {
        if (items_[child]->deadline < items_[least]->deadline) least = child;
      }
      if (least == index) return;
      swap(index, least);
      index = least;
    }
  }

  std::vector<Item*> items_;
};

}  // namespace weir::worker
