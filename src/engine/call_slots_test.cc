#include "engine/call_slots.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace weir::engine {
namespace {

using transfer::OutgoingCall;

constexpr std::uint64_t kHighestGeneration = (1ull << 40) - 1;

TEST(CallSlots, GiveTheSlotThatWasFreedLast) {
  CallSlots slots;
  OutgoingCall calls[4];
  for (std::uint32_t i = 0; i < 3; ++i) EXPECT_EQ(slots.take(calls[i]), i);
  slots.free(0);
  slots.free(2);
  EXPECT_EQ(slots[0], nullptr);
  EXPECT_EQ(slots[1], &calls[1]);
  EXPECT_EQ(slots.taken(), 1u);
  EXPECT_EQ(slots.take(calls[3]), 2u);
  EXPECT_EQ(slots.take(calls[0]), 0u);
  EXPECT_EQ(slots.take(calls[2]), 3u);
  EXPECT_EQ(slots[2], &calls[3]);
  EXPECT_EQ(slots.size(), 4u);
}

TEST(CallSlots, AreHeldUntilTheirOwnGenerationFreesThem) {
  CallSlots slots;
  OutgoingCall call, other;
  ASSERT_EQ(slots.take(call), 0u);
  slots.hold(0, kHighestGeneration);
  EXPECT_EQ(slots[0], nullptr);
  EXPECT_EQ(slots.taken(), 1u);
  EXPECT_EQ(slots.take(other), 1u);
  EXPECT_FALSE(slots.free_held(0, kHighestGeneration - 1));
  EXPECT_FALSE(slots.free_held(1, kHighestGeneration));  // there is a call
  EXPECT_FALSE(slots.free_held(2, kHighestGeneration));  // there is no such slot
  EXPECT_TRUE(slots.free_held(0, kHighestGeneration));
  EXPECT_FALSE(slots.free_held(0, kHighestGeneration));  // once
  EXPECT_EQ(slots.taken(), 1u);
  EXPECT_EQ(slots.take(call), 0u);
}

TEST(CallSlots, StartOverWhenNoneIsTaken) {
  CallSlots slots;
  std::vector<std::unique_ptr<OutgoingCall>> calls;
  for (std::uint32_t i = 0; i < 1'000; ++i) {
    calls.push_back(std::make_unique<OutgoingCall>());
    ASSERT_EQ(slots.take(*calls.back()), i);
  }
  for (std::uint32_t i = 0; i < 1'000; ++i) {
    ASSERT_EQ(slots[i], calls[i].get());
    slots.free(i);
  }
  slots.release_memory();
  EXPECT_EQ(slots.size(), 0u);
  EXPECT_EQ(slots.take(*calls[7]), 0u);
}

}  // namespace
}  // namespace weir::engine
