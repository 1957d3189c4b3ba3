#include "schedule/turn_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <random>
#include <vector>

namespace weir::schedule {
namespace {

struct Item {
  HeapHook hook;
  std::uint64_t given = 0;
};
using Heap = KeyHeap<Item, &Item::hook>;
using Turns = TurnQueue<Item, &Item::hook>;

TEST(KeyHeap, GivesTheSmallestKeyFirstWhateverIsRemovedInBetween) {
  std::mt19937 dice(7);
  std::deque<Item> items(200);
  Heap heap;
  std::vector<Item*> queued;
  for (int step = 0; step < 20'000; ++step) {
    Item& item = items[dice() % items.size()];
    if (item.hook.queued) {
      heap.remove(item);
      std::erase(queued, &item);
    } else {
      heap.push(item, dice() % 50);
      queued.push_back(&item);
    }
    ASSERT_EQ(heap.size(), queued.size());
    if (queued.empty()) continue;
    Item* const first =
        *std::ranges::min_element(queued, {}, [](const Item* i) { return std::pair(i->hook.key, i->hook.ticket); });
    ASSERT_EQ(heap.front(), first);
  }
}

TEST(TurnQueue, GivesTheSameBytesToAllWhateverTheSizesOfTheirMessages) {
  std::array<Item, 3> items;
  const std::array<std::uint64_t, 3> sizes = {100, 1'000, 16'000};
  Turns turns;
  for (Item& item : items) turns.push(item);
  for (int i = 0; i < 20'000; ++i) {
    Item& item = *turns.front();
    const std::uint64_t bytes = sizes[static_cast<std::size_t>(&item - items.data())];
    turns.remove(item);
    item.given += bytes;
    turns.charge(item, bytes);
    turns.push(item);
    const auto [least, most] = std::ranges::minmax(items, {}, &Item::given);
    ASSERT_LE(most.given - least.given, 32'000u);
  }
}

TEST(TurnQueue, WhoComesBackIsNextAndHasSavedNothing) {
  std::array<Item, 3> items;
  Turns turns;
  const auto serve = [&] {
    Item& item = *turns.front();
    turns.remove(item);
    item.given += 10;
    turns.charge(item, 10);
    turns.push(item);
    return &item;
  };
  turns.push(items[0]);
  turns.push(items[1]);
  for (int i = 0; i < 100; ++i) serve();
  turns.push(items[2]);
  std::vector<Item*> order;
  for (int i = 0; i < 12; ++i) order.push_back(serve());
  EXPECT_LE(std::ranges::find(order, &items[2]) - order.begin(), 1);
  EXPECT_LE(std::ranges::count(order, &items[2]), 5);
}

TEST(HalfAndHalf, EachWayDecidesOverHalfOfTheBytes) {
  HalfAndHalf halves;
  std::array<std::int64_t, 2> given{};
  for (int i = 0; i < 1'000; ++i) {
    const bool by_turn = halves.is_turn();
    const std::uint64_t bytes = by_turn ? 100 : 16'000;
    halves.charge(by_turn, bytes);
    given[by_turn ? 1 : 0] += static_cast<std::int64_t>(bytes);
    ASSERT_LE(std::abs(given[0] - given[1]), 16'000);
  }
}

}  // namespace
}  // namespace weir::schedule
