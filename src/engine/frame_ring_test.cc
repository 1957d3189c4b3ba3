#include "engine/frame_ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

#include "base/random.h"

namespace weir::engine {
namespace {

TEST(FrameRing, KeepsWhatADequeKeeps) {
  Random random(1);
  FrameRing ring;
  std::deque<std::uint64_t> model;
  std::uint64_t next = 0;
  for (int step = 0; step < 20'000; ++step) {
    // Fills more than it empties at first, then the other way round.
    const bool fills = random.below(100) < (step < 10'000 ? 60u : 40u);
    if (fills) {
      for (std::uint64_t count = random.below(40); count > 0; --count) {
        ring.push({.slot = static_cast<std::uint32_t>(next & 0xffffff), .generation = next});
        model.push_back(next++);
      }
    } else if (random.below(4) == 0 && !model.empty()) {
      ASSERT_EQ(ring.pop().generation, model.front());
      model.pop_front();
    } else {
      const std::uint64_t count = random.below(std::min<std::uint64_t>(model.size() + 1, 60));
      ring.release_until(ring.begin() + count);
      model.erase(model.begin(), model.begin() + static_cast<std::ptrdiff_t>(count));
    }
    ring.release_until(0);  // what is gone stays gone
    if (model.empty()) ring.release_memory();
    ASSERT_EQ(ring.size(), model.size());
    ASSERT_EQ(ring.end(), next);
    if (model.empty()) continue;
    const std::uint64_t some = random.below(model.size());
    ASSERT_EQ(ring[ring.begin() + some].generation, model[some]);
    ASSERT_EQ(ring[ring.end() - 1].generation, model.back());
  }
  ring.clear();
  EXPECT_TRUE(ring.empty());
  EXPECT_EQ(ring.begin(), next);
}

}  // namespace
}  // namespace weir::engine
