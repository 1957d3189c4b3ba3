#include "recovery/sent_packets.h"

#include <gtest/gtest.h>

#include <deque>

#include "base/random.h"

namespace weir::recovery {
namespace {

TEST(SentPackets, KeepsFortyBytesAPacket) { EXPECT_EQ(sizeof(SentPacket), 40U); }

TEST(SentPackets, AgreesWithADequeWhileItGrowsAndDrains) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    Random random{seed};
    SentPackets sent{256};
    std::deque<std::uint32_t> model;
    std::uint64_t first = 0;
    for (int step = 0; step < 4'000; ++step) {
      const bool push = random.chance(step % 1'000 < 500 ? 0.7 : 0.3);
      if (push && !sent.full()) {
        const auto bytes = static_cast<std::uint32_t>(random.next());
        sent.push({.bytes = bytes});
        model.push_back(bytes);
      } else if (!push && !model.empty()) {
        sent.pop_front();
        model.pop_front();
        ++first;
      }
      ASSERT_EQ(sent.first(), first);
      ASSERT_EQ(sent.size(), model.size());
      ASSERT_LE(sent.capacity(), 256U);
      for (std::size_t i = 0; i < model.size(); ++i) ASSERT_EQ(sent[first + i].bytes, model[i]);
    }
  }
}

TEST(SentPackets, IsFullAtItsBound) {
  SentPackets sent{10};
  EXPECT_EQ(sent.bound(), 16U);
  while (!sent.full()) sent.push({});
  EXPECT_EQ(sent.size(), 16U);
}

TEST(SentPackets, GivesItsMemoryBackWhenEmptyAndGoesOnCounting) {
  SentPackets sent;
  for (int i = 0; i < 1'000; ++i) sent.push({});
  EXPECT_EQ(sent.capacity(), 1'024U);
  sent.release_memory();
  EXPECT_EQ(sent.capacity(), 1'024U);
  while (!sent.empty()) sent.pop_front();
  sent.release_memory();
  EXPECT_EQ(sent.capacity(), SentPackets::kInitialCapacity);
  EXPECT_EQ(sent.end(), 1'000U);
  sent.push({.bytes = 9});
  EXPECT_EQ(sent[1'000].bytes, 9U);
}

}  // namespace
}  // namespace weir::recovery
