// Where pool.allocate() asks for memory to be.
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "buffer/heap_memory.h"
#include "pool/pool_state.h"

namespace weir {
namespace {

struct RecordingMemory final : buffer::Memory {
  buffer::Piece take(std::size_t bytes, int numa_node = -1) override {
    nodes.push_back(numa_node);
    return heap.take(bytes);
  }
  void give_back(const buffer::Piece& piece) noexcept override { heap.give_back(piece); }

  buffer::HeapMemory heap{std::uint64_t{1} << 30};
  std::vector<int> nodes;
};

class Allocate : public ::testing::Test {
 protected:
  int asked_node(const AllocateOptions& options) {
    memory->nodes.clear();
    const Result<Buffer> page = pool->allocate(100'000, options).get();
    EXPECT_TRUE(page);
    EXPECT_FALSE(memory->nodes.empty());
    return memory->nodes.empty() ? -2 : memory->nodes.front();
  }

  static Config three_places() {
    Config config;
    config.places = {{.numa_node = 3}, {.numa_node = 1}};  // the third worker is anywhere
    return config;
  }

  const std::shared_ptr<RecordingMemory> memory = std::make_shared<RecordingMemory>();
  const std::shared_ptr<worker::Crew> crew = worker::Crew::open({.threads = 3}).value();
  const std::shared_ptr<detail::PoolState> pool =
      std::make_shared<detail::PoolState>(three_places(), crew, true, memory);
};

TEST_F(Allocate, TheNodeReachesTheMemory) {
  EXPECT_EQ(asked_node({}), -1);
  EXPECT_EQ(asked_node({.numa_node = 5}), 5);
  EXPECT_EQ(asked_node({.worker = 0}), 3);
  EXPECT_EQ(asked_node({.worker = 1}), 1);
  EXPECT_EQ(asked_node({.worker = 2}), -1);
  EXPECT_EQ(asked_node({.worker = 0, .numa_node = 5}), 5) << "who names a node means it";
}

TEST_F(Allocate, AWorkerThatThereIsNotIsAnInvalidArgument) {
  for (const int worker : {3, 100, -2}) {
    for (const int node : {-1, 5}) {
      const Result<Buffer> page = pool->allocate(100'000, {.worker = worker, .numa_node = node}).get();
      ASSERT_FALSE(page) << worker;
      EXPECT_EQ(page.error().code(), Code::invalid_argument) << page.error().to_string();
    }
  }
  EXPECT_TRUE(memory->nodes.empty());
}

}  // namespace
}  // namespace weir
