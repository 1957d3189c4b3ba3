// Room for answers (docs/protocol.md, rule C-9).
#include "token/answer_room.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/random.h"

namespace weir::token {
namespace {

constexpr std::uint64_t kLargest = 100;

std::uint64_t take_all(AnswerRoom& room, std::uint8_t level, AnswerShare& share) {
  while (room.take(level, share)) {
  }
  return share.bytes;
}

TEST(AnswerRoom, OnePathGetsAtMostHalfAndNewcomersFindSome) {
  AnswerRoom room(160'000, kLargest);
  for (std::uint8_t level = 0; level < kLevels; ++level) {
    const std::uint64_t capacity = room.capacity(level);
    AnswerShare hostile[3], newcomer;
    EXPECT_LE(take_all(room, level, hostile[0]), capacity / 2);
    EXPECT_GT(hostile[0].bytes, capacity / 2 - 2 * kLargest);
    EXPECT_LE(take_all(room, level, hostile[1]), capacity / 4);
    EXPECT_LE(take_all(room, level, hostile[2]), capacity / 8);
    EXPECT_TRUE(room.take(level, newcomer));
    EXPECT_LE(room.used(level), capacity);
  }
}

TEST(AnswerRoom, NoLevelTakesFromAnother) {
  AnswerRoom room(AnswerRoom::least(kLargest), kLargest);
  EXPECT_EQ(room.capacity(), AnswerRoom::least(kLargest));
  for (std::uint8_t level = 0; level < kLevels; ++level) {
    AnswerShare first, second, third;
    EXPECT_TRUE(room.take(level, first));
    EXPECT_FALSE(room.take(level, first)) << "there would be none for a second path";
    EXPECT_TRUE(room.take(level, second));
    EXPECT_TRUE(room.is_full(level));
    EXPECT_FALSE(room.take(level, third));
  }
  EXPECT_EQ(room.used(), room.capacity());
}

TEST(AnswerRoom, ASmallerBoundThanOneAnswerForEachLevelIsRaised) {
  AnswerRoom room(1, kLargest);
  for (std::uint8_t level = 0; level < kLevels; ++level) EXPECT_GE(room.capacity(level), kLargest);
}

class AnswerRoomModel : public ::testing::TestWithParam<std::uint64_t> {};

// Random takers, answers of every size and acknowledgements, some after their path has gone.
TEST_P(AnswerRoomModel, HoldsWhatTheModelSaysAndNobodyIsLockedOut) {
  struct Held {
    std::size_t path;  // kGone: it ended
    std::uint8_t level;
    std::uint64_t bytes;
  };
  constexpr std::size_t kGone = ~std::size_t{0};
  Random random(GetParam());
  AnswerRoom room(AnswerRoom::least(kLargest) + random.below(20'000), kLargest);
  struct Shares {
    AnswerShare of[kLevels];
  };
  std::vector<Shares> paths(1 + random.below(30));
  std::vector<Held> held;
  std::uint64_t refused = 0;
  for (int i = 0; i < 30'000; ++i) {
    const std::size_t at = random.below(paths.size());
    const auto level = static_cast<std::uint8_t>(random.below(kLevels));
    AnswerShare& share = paths[at].of[level];
    if (random.chance(0.55)) {
      const bool full = room.is_full(level);
      const std::uint64_t before = share.bytes;
      if (room.take(level, share)) {
        ASSERT_FALSE(full);
        held.push_back({at, level, kLargest});
      } else {
        ++refused;
        ASSERT_TRUE(full || before != 0) << "a newcomer was refused although there was room";
        ASSERT_EQ(share.bytes, before);
      }
    } else if (!held.empty()) {
      std::swap(held[random.below(held.size())], held.back());
      Held& one = held.back();
      const std::uint64_t back = random.chance(0.5) ? one.bytes : random.below(one.bytes + 1);
      room.give_back(one.level, one.path == kGone ? nullptr : &paths[one.path].of[one.level], back);
      one.bytes -= back;
      if (one.bytes == 0) held.pop_back();
    }
    if (random.chance(0.002)) {
      for (Held& one : held) one.path = one.path == at ? kGone : one.path;
      paths[at] = {};
    }
    std::uint64_t used[kLevels] = {};
    for (const Held& one : held) used[one.level] += one.bytes;
    for (std::uint8_t each = 0; each < kLevels; ++each) {
      ASSERT_EQ(room.used(each), used[each]);
      ASSERT_LE(used[each], room.capacity(each));
    }
  }
  EXPECT_GT(refused, 100u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, AnswerRoomModel, ::testing::Range<std::uint64_t>(1, 9));

}  // namespace
}  // namespace weir::token
