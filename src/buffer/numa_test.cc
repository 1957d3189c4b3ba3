#include "buffer/numa.h"

#include <gtest/gtest.h>

#include "buffer/balanced_memory.h"

namespace weir::buffer {
namespace {

using Nodes = std::vector<int>;

TEST(Numa, ReadsTheKernelsListsOfNodes) {
  EXPECT_EQ(parse_nodes("0\n"), (Nodes{0}));
  EXPECT_EQ(parse_nodes("0-2,5"), (Nodes{0, 1, 2, 5}));
  EXPECT_EQ(parse_nodes("62-1000"), (Nodes{62, 63}));
  for (const char* nonsense : {"", "\n", "x", "1-", "2-1", "1,", "1;2", "-1", "99999999999999999999"}) {
    EXPECT_EQ(parse_nodes(nonsense), Nodes{}) << nonsense;
  }
}

TEST(Numa, ThereIsAtLeastOneNode) { EXPECT_FALSE(numa_nodes().empty()); }

TEST(Numa, ANodeThatCannotBeIsNoNode) {
  EXPECT_FALSE(prefer_node(nullptr, 4'096, -1));
  EXPECT_FALSE(prefer_node(nullptr, 4'096, kMaxNumaNodes));
}

struct WishMemory final : Memory {
  Piece take(std::size_t, int numa_node) override {
    wishes.push_back(numa_node);
    return {};
  }
  void give_back(const Piece&) noexcept override {}
  Nodes wishes;
};

TEST(BalancedMemory, NodesTakeTurnsWhereNobodyWishesForOne) {
  const auto inner = std::make_shared<WishMemory>();
  BalancedMemory memory{inner, {0, 2, 3}};
  for (int i = 0; i < 4; ++i) (void)memory.take(1);
  (void)memory.take(1, 2);
  (void)memory.take(1);
  EXPECT_EQ(inner->wishes, (Nodes{0, 2, 3, 0, 2, 2}));
}

TEST(BalancedMemory, WithOneNodeNobodyIsSentAnywhere) {
  const auto inner = std::make_shared<WishMemory>();
  BalancedMemory memory{inner, {0}};
  (void)memory.take(1);
  EXPECT_EQ(inner->wishes, (Nodes{-1}));
}

}  // namespace
}  // namespace weir::buffer
