#include "schedule/priority_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <vector>

#include "base/random.h"

namespace weir::schedule {
namespace {

struct Item {
  QueueHook<Item> hook;
  std::uint64_t bytes = 1'000;
};
using Queue = WeightedQueue<Item, &Item::hook>;

TEST(WeightedQueue, IsAFifoWithinOneLevel) {
  Queue queue;
  std::array<Item, 5> items;
  for (auto& item : items) queue.push_back(item, 3);
  for (auto& item : items) {
    EXPECT_EQ(queue.front(), &item);
    EXPECT_EQ(queue.pop(), &item);
    queue.charge(item.hook.level, item.bytes);
  }
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.pop(), nullptr);
  EXPECT_EQ(queue.front(), nullptr);
}

TEST(WeightedQueue, PutsAnElementBackAtTheFront) {
  Queue queue;
  Item first, second;
  queue.push_back(first, 0);
  queue.push_back(second, 0);
  EXPECT_EQ(queue.pop(), &first);
  queue.push_front(first, 0);
  EXPECT_EQ(queue.pop(), &first);
  EXPECT_EQ(queue.pop(), &second);
}

TEST(WeightedQueue, RemovesFromTheMiddle) {
  Queue queue;
  std::array<Item, 3> items;
  for (auto& item : items) queue.push_back(item, 1);
  queue.remove(items[1]);
  EXPECT_FALSE(items[1].hook.queued);
  EXPECT_EQ(queue.size(), 2U);
  EXPECT_EQ(queue.pop(), &items[0]);
  EXPECT_EQ(queue.pop(), &items[2]);
}

TEST(WeightedQueue, MovesAnElementBehindAnother) {
  Queue queue;
  std::array<Item, 4> items;
  for (auto& item : items) queue.push_back(item, 2);
  queue.move_behind(items[0], items[2]);  // 1 2 0 3
  queue.move_behind(items[2], items[3]);  // 1 0 3 2
  queue.move_behind(items[1], items[0]);  // 0 1 3 2
  queue.move_behind(items[1], items[0]);  // where it was
  EXPECT_EQ(queue.size(), 4U);
  EXPECT_EQ(queue.last_of(2), &items[2]);
  for (const std::size_t next : {0u, 1u, 3u, 2u}) EXPECT_EQ(queue.pop(), &items[next]);
  EXPECT_TRUE(queue.empty());
}

TEST(WeightedQueue, ServesBackloggedLevelsByTheirWeights) {
  Queue queue;
  std::vector<std::vector<Item>> items(kPriorityLevels);
  for (unsigned level = 0; level < kPriorityLevels; ++level) {
    items[level] = std::vector<Item>(6'000);
    for (auto& item : items[level]) queue.push_back(item, level);
  }
  std::array<std::uint64_t, kPriorityLevels> served{};
  for (int i = 0; i < 255 * 40; ++i) {
    Item* item = queue.pop();
    served[item->hook.level] += item->bytes;
    queue.charge(item->hook.level, item->bytes);
  }
  for (unsigned level = 0; level < kPriorityLevels; ++level) {
    const std::uint64_t fair = std::uint64_t{40'000} * priority_weight(level);
    EXPECT_NEAR(static_cast<double>(served[level]), static_cast<double>(fair), 2'000.0) << level;
  }
}

TEST(WeightedQueue, AnUrgentElementOvertakesABacklogOfBulkAtOnce) {
  Queue queue;
  std::vector<Item> bulk(1'000);
  for (auto& item : bulk) queue.push_back(item, 7);
  for (int i = 0; i < 500; ++i) queue.charge(queue.pop()->hook.level, 60'000);
  Item urgent;
  queue.push_back(urgent, 0);
  EXPECT_EQ(queue.pop(), &urgent);
}

TEST(WeightedQueue, ALevelThatWasIdleHasSavedUpNothing) {
  Queue queue;
  std::vector<Item> urgent(2'000), bulk(200);
  for (auto& item : urgent) queue.push_back(item, 0);
  for (int i = 0; i < 1'000; ++i) queue.charge(queue.pop()->hook.level, 1'000);
  for (auto& item : bulk) queue.push_back(item, 7);
  int bulk_served = 0;
  for (int i = 0; i < 129 * 3; ++i) {
    Item* item = queue.pop();
    bulk_served += item->hook.level == 7;
    queue.charge(item->hook.level, 1'000);
  }
  EXPECT_GE(bulk_served, 2);
  EXPECT_LE(bulk_served, 4);
}

TEST(WeightedQueue, AgreesWithAModelUnderRandomUse) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    Random random{seed};
    Queue queue;
    std::vector<Item> items(100);
    std::array<std::deque<Item*>, kPriorityLevels> model;
    std::size_t count = 0;
    for (int step = 0; step < 5'000; ++step) {
      Item& item = items[random.below(items.size())];
      if (item.hook.queued && random.chance(0.3)) {
        auto& level = model[item.hook.level];
        level.erase(std::find(level.begin(), level.end(), &item));
        queue.remove(item);
        --count;
      } else if (!item.hook.queued && random.chance(0.6)) {
        const auto level = static_cast<unsigned>(random.below(kPriorityLevels));
        if (random.chance(0.5)) {
          queue.push_back(item, level);
          model[level].push_back(&item);
        } else {
          queue.push_front(item, level);
          model[level].push_front(&item);
        }
        ++count;
      } else if (Item* front = queue.front(); front != nullptr) {
        ASSERT_EQ(queue.pop(), front);
        ASSERT_EQ(model[front->hook.level].front(), front);
        model[front->hook.level].pop_front();
        queue.charge(front->hook.level, random.below(10'000));
        --count;
      }
      ASSERT_EQ(queue.size(), count);
      ASSERT_EQ(queue.empty(), count == 0);
      for (unsigned level = 0; level < kPriorityLevels; ++level) {
        ASSERT_EQ((queue.occupied_levels() >> level) & 1, !model[level].empty());
        ASSERT_EQ(queue.front_of(level), model[level].empty() ? nullptr : model[level].front());
      }
    }
  }
}

}  // namespace
}  // namespace weir::schedule
