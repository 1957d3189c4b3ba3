#include "worker/deadline_heap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/random.h"

namespace weir::worker {
namespace {

struct Item {
  Instant deadline{};
  std::size_t heap_index = DeadlineHeap<Item>::kOutside;
};

TEST(DeadlineHeap, GivesTheEarliestThroughUpdatesAndRemovals) {
  DeadlineHeap<Item> heap;
  std::vector<Item> items(100);
  std::vector<bool> inside(items.size(), false);
  Random random(7);
  for (int step = 0; step < 20'000; ++step) {
    const std::size_t i = random.below(items.size());
    if (random.below(4) == 0) {
      heap.remove(items[i]);
      inside[i] = false;
    } else {
      heap.update(items[i], Instant{static_cast<std::int64_t>(random.below(1'000))});
      inside[i] = true;
    }
    Instant least = Instant::never();
    for (std::size_t k = 0; k < items.size(); ++k) {
      if (inside[k]) least = earliest(least, items[k].deadline);
    }
    ASSERT_EQ(heap.size(), static_cast<std::size_t>(std::count(inside.begin(), inside.end(), true)));
    if (heap.size() == 0) {
      ASSERT_EQ(heap.top(), nullptr);
    } else {
      ASSERT_EQ(heap.top()->deadline, least);
    }
  }
}

}  // namespace
}  // namespace weir::worker
