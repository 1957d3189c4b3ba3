#include "buffer/registry.h"

#include <gtest/gtest.h>

#include <vector>

#include "buffer/block.h"

namespace weir::buffer {
namespace {

void end(Registry& registry, std::uint64_t id) {
  ASSERT_TRUE(registry.let_go(id));
  registry.recycle(id);
}

TEST(Registry, FindsWhatIsInItAndNothingElse) {
  Registry registry;
  Block first, second;
  const std::uint64_t first_id = registry.insert(first);
  const std::uint64_t second_id = registry.insert(second);
  EXPECT_NE(first_id, second_id);
  EXPECT_EQ(registry.hold(first_id), &first);
  EXPECT_EQ(registry.hold(second_id), &second);
  for (const std::uint64_t nonsense :
       {std::uint64_t{0}, first_id + 1, first_id - 1, ~std::uint64_t{0}, std::uint64_t{5'000} << 40 | 1}) {
    EXPECT_EQ(registry.hold(nonsense), nullptr);
  }
  EXPECT_FALSE(registry.let_go(first_id));
  EXPECT_FALSE(registry.let_go(second_id));
  end(registry, first_id);
  end(registry, second_id);
  EXPECT_EQ(registry.hold(first_id), nullptr);
}

TEST(Registry, WhoeverLetsGoLastEndsIt) {
  Registry registry;
  Block block;
  const std::uint64_t id = registry.insert(block);
  ASSERT_EQ(registry.hold(id), &block);
  EXPECT_FALSE(registry.let_go(id));  // the block's own
  EXPECT_EQ(registry.hold(id), &block) << "a look-up is still under way";
  EXPECT_FALSE(registry.let_go(id));
  EXPECT_TRUE(registry.let_go(id));
  EXPECT_EQ(registry.hold(id), nullptr);
  registry.recycle(id);
}

TEST(Registry, ASlotThatComesBackHasTheNextGeneration) {
  Registry registry{1};
  Block block;
  std::uint64_t before = 0;
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t id = registry.insert(block);
    EXPECT_EQ(id, before + 1);
    EXPECT_EQ(registry.hold(before), nullptr);
    EXPECT_EQ(registry.insert(block), 0u) << "it is full";
    end(registry, id);
    before = id;
  }
}

TEST(Registry, ASlotAtTheEndOfItsGenerationsIsRetired) {
  Registry registry{2, Registry::kLastGeneration};
  Block block;
  const std::uint64_t first = registry.insert(block);
  end(registry, first);
  const std::uint64_t second = registry.insert(block);
  EXPECT_NE(second, 0u);
  EXPECT_NE(second >> 40, first >> 40);
  end(registry, second);
  EXPECT_EQ(registry.insert(block), 0u);
  EXPECT_EQ(registry.hold(first), nullptr);
}

TEST(Registry, GrowsBySegments) {
  Registry registry;
  std::vector<Block> blocks(3 * Registry::kSegmentSlots);
  std::vector<std::uint64_t> ids;
  for (Block& block : blocks) ids.push_back(registry.insert(block));
  EXPECT_EQ(registry.size(), blocks.size());
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    ASSERT_EQ(registry.hold(ids[i]), &blocks[i]);
    ASSERT_FALSE(registry.let_go(ids[i]));
    end(registry, ids[i]);
  }
}

}  // namespace
}  // namespace weir::buffer
