#include "base/slab.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/random.h"

namespace weir {
namespace {

struct Thing {
  int number = 0;
  std::string text;
};

TEST(Slab, RefusesMoreThanItsMaximum) {
  Slab<Thing> slab(2);
  Thing* first = slab.acquire(1, "one");
  Thing* second = slab.acquire(2, "two");
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(slab.acquire(3, "three"), nullptr);
  EXPECT_EQ(slab.live(), 2u);
  slab.release(first);
  EXPECT_EQ(slab.live(), 1u);
  EXPECT_NE(slab.acquire(3, "three"), nullptr);
  EXPECT_EQ(second->text, "two");
}

TEST(Slab, NeverMovesAnObject) {
  Slab<Thing> slab(2'000);
  std::vector<Thing*> things;
  for (int i = 0; i < 2'000; ++i) things.push_back(slab.acquire(i, std::to_string(i)));
  for (int i = 0; i < 2'000; ++i) {
    const auto index = static_cast<std::uint32_t>(i);
    ASSERT_EQ(slab.index_of(things[index]), index);
    ASSERT_EQ(slab.at(index), things[index]);
    ASSERT_EQ(things[index]->text, std::to_string(i));
  }
  EXPECT_EQ(slab.acquire(), nullptr);
}

TEST(Slab, FindsNothingUnderTheIdOfAReleasedObject) {
  Slab<Thing> slab(1);
  Thing* first = slab.acquire(1);
  const SlotId old_id = slab.id_of(first);
  EXPECT_EQ(slab.find(old_id), first);
  slab.release(first);
  EXPECT_EQ(slab.find(old_id), nullptr);
  EXPECT_EQ(slab.at(old_id.index), nullptr);
  Thing* second = slab.acquire(2);
  EXPECT_EQ(slab.index_of(second), old_id.index);
  EXPECT_EQ(slab.find(old_id), nullptr);
  EXPECT_EQ(slab.find(slab.id_of(second)), second);
}

TEST(Slab, FindsNothingAtAnIndexItNeverGaveOut) {
  Slab<Thing> slab(300);
  EXPECT_EQ(slab.at(0), nullptr);
  EXPECT_NE(slab.acquire(), nullptr);
  EXPECT_EQ(slab.at(1), nullptr);
  EXPECT_EQ(slab.at(299), nullptr);
  EXPECT_EQ(slab.at(300), nullptr);
  EXPECT_EQ(slab.at(~0u), nullptr);
  EXPECT_EQ(slab.find(SlotId{}), nullptr);
}

TEST(Slab, AllocatesNothingAfterReserving) {
  Slab<Thing> slab(1'000);
  slab.reserve(1'000);
  const std::size_t before = slab.memory_bytes();
  for (int round = 0; round < 3; ++round) {
    std::vector<Thing*> things;
    while (Thing* thing = slab.acquire()) things.push_back(thing);
    EXPECT_EQ(things.size(), 1'000u);
    for (Thing* thing : things) slab.release(thing);
  }
  EXPECT_EQ(slab.memory_bytes(), before);
}

TEST(Slab, DestroysWhatIsStillLive) {
  const auto counted = std::make_shared<int>(0);
  {
    Slab<std::shared_ptr<int>> slab(10);
    auto* released = slab.acquire(counted);
    EXPECT_NE(slab.acquire(counted), nullptr);
    EXPECT_NE(slab.acquire(counted), nullptr);
    EXPECT_EQ(counted.use_count(), 4);
    slab.release(released);
    EXPECT_EQ(counted.use_count(), 3);
  }
  EXPECT_EQ(counted.use_count(), 1);
}

TEST(Slab, VisitsLiveObjectsAndLetsThemBeReleasedMeanwhile) {
  Slab<Thing> slab(600);
  for (int i = 0; i < 600; ++i) EXPECT_NE(slab.acquire(i), nullptr);
  slab.for_each([&](Thing& thing) {
    if (thing.number % 2 == 0) slab.release(&thing);
  });
  EXPECT_EQ(slab.live(), 300u);
  int sum = 0;
  slab.for_each([&](Thing& thing) { sum += thing.number; });
  EXPECT_EQ(sum, 300 * 300);
}

TEST(SlabDeathTest, StopsTheProgramWhenAnObjectIsReleasedTwice) {
  EXPECT_DEATH(
      {
        Slab<int> slab(4);
        int* object = slab.acquire(1);
        slab.release(object);
        slab.release(object);
      },
      "released twice");
}

}  // namespace
}  // namespace weir
