#include "buffer/extent_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

namespace weir::buffer {
namespace {

constexpr std::size_t kMebibyte = std::size_t{1} << 20;

// Heap memory that pretends to be extents, on two nodes, and says no above `largest`.
struct FakeSource final : ExtentSource {
  std::size_t unit() const override { return 64 << 10; }
  Result<Extent> map(std::size_t bytes, int numa_node) override {
    if (bytes > largest) return std::unexpected(Error(Code::system, "the disk is full"));
    return Extent{static_cast<std::byte*>(std::aligned_alloc(4'096, bytes)), bytes, numa_node};
  }
  void unmap(const Extent& extent) noexcept override { std::free(extent.data); }
  int node_for(int wish) const override { return nodes ? wish : -1; }

  std::size_t largest = ~std::size_t{0};
  bool nodes = false;
};

struct Fixture {
  explicit Fixture(ExtentMemory::Limits limits) : memory(make(), limits) {}
  std::unique_ptr<ExtentSource> make() {
    auto made = std::make_unique<FakeSource>();
    source = made.get();
    return made;
  }
  std::vector<std::size_t> sizes() const {
    std::vector<std::size_t> all;
    for (const Extent& extent : memory.extents()) all.push_back(extent.bytes / kMebibyte);
    return all;
  }
  FakeSource* source = nullptr;
  ExtentMemory memory;
};

using Sizes = std::vector<std::size_t>;

TEST(ExtentMemory, GrowsByExtentsThatDoubleUpToTheLargest) {
  Fixture f{{.bytes = 64 * kMebibyte, .first_extent_bytes = kMebibyte, .largest_extent_bytes = 4 * kMebibyte}};
  std::vector<Piece> pieces;
  for (int i = 0; i < 15; ++i) pieces.push_back(f.memory.take(kMebibyte));
  EXPECT_EQ(f.sizes(), (Sizes{1, 2, 4, 4, 4}));
  for (const Piece& piece : pieces) {
    ASSERT_TRUE(piece);
    f.memory.give_back(piece);
  }
  EXPECT_EQ(f.memory.taken_bytes(), 0u);
}

// Addresses that nobody may touch: what there is to see is how much is asked for.
struct ReservingSource final : ExtentSource {
  std::size_t unit() const override { return kMebibyte; }
  Result<Extent> map(std::size_t bytes, int numa_node) override {
    void* const data = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) return std::unexpected(Error(Code::system, "no addresses"));
    return Extent{static_cast<std::byte*>(data), bytes, numa_node};
  }
  void unmap(const Extent& extent) noexcept override { munmap(extent.data, extent.bytes); }
  int node_for(int) const override { return -1; }
};

TEST(ExtentMemory, DoublesUpToThirtyTwoGibibytesUnlessToldOtherwise) {
  ExtentMemory memory(std::make_unique<ReservingSource>(), {.bytes = std::uint64_t{256} << 30});
  std::vector<Piece> pieces;
  Sizes wanted;
  for (std::size_t mebibytes = 64; mebibytes <= 32 * 1024; mebibytes *= 2) wanted.push_back(mebibytes);
  for (int i = 0; i < 2; ++i) wanted.push_back(32 * 1024);
  for (const std::size_t mebibytes : wanted) {  // each extent is filled by one piece
    pieces.push_back(memory.take(mebibytes * kMebibyte - kMebibyte));
    ASSERT_TRUE(pieces.back()) << mebibytes;
    pieces.push_back(memory.take(kMebibyte));
    ASSERT_TRUE(pieces.back()) << mebibytes;
  }
  Sizes sizes;
  for (const Extent& extent : memory.extents()) sizes.push_back(extent.bytes / kMebibyte);
  EXPECT_EQ(sizes, wanted);
  for (const Piece& piece : pieces) memory.give_back(piece);
}

TEST(ExtentMemory, AnExtentIsAsLargeAsThePieceThatNeedsIt) {
  Fixture f{{.bytes = 64 * kMebibyte, .first_extent_bytes = kMebibyte, .largest_extent_bytes = 4 * kMebibyte}};
  const Piece piece = f.memory.take(9 * kMebibyte);
  ASSERT_TRUE(piece);
  EXPECT_EQ(f.sizes(), (Sizes{9}));
  f.memory.give_back(piece);
}

TEST(ExtentMemory, UsesWhatCameBackBeforeItGrows) {
  Fixture f{{.bytes = 64 * kMebibyte, .first_extent_bytes = kMebibyte}};
  for (int i = 0; i < 100; ++i) {
    const Piece piece = f.memory.take(700 << 10);
    ASSERT_TRUE(piece);
    f.memory.give_back(piece);
  }
  EXPECT_EQ(f.sizes(), (Sizes{1}));
}

TEST(ExtentMemory, StopsAtItsBound) {
  Fixture f{{.bytes = 5 * kMebibyte, .first_extent_bytes = 2 * kMebibyte}};
  std::vector<Piece> pieces;
  while (const Piece piece = f.memory.take(kMebibyte)) pieces.push_back(piece);
  EXPECT_EQ(pieces.size(), 5u);
  EXPECT_EQ(f.sizes(), (Sizes{2, 3}));
  EXPECT_FALSE(f.memory.take(~std::size_t{0}));
  for (const Piece& piece : pieces) f.memory.give_back(piece);
}

TEST(ExtentMemory, TakesASmallerExtentWhereTheSystemHasLessAndSaysWhy) {
  Fixture f{{.bytes = 64 * kMebibyte, .first_extent_bytes = 16 * kMebibyte}};
  f.source->largest = 5 * kMebibyte;
  const Piece piece = f.memory.take(kMebibyte);
  ASSERT_TRUE(piece);
  EXPECT_EQ(f.sizes(), (Sizes{4}));
  EXPECT_FALSE(f.memory.take(6 * kMebibyte));
  ASSERT_TRUE(f.memory.last_error());
  EXPECT_EQ(f.memory.last_error()->message(), "the disk is full");
  f.memory.give_back(piece);
}

TEST(ExtentMemory, KeepsNodesApartAndPrefersAForeignPieceToNone) {
  Fixture f{{.bytes = 2 * kMebibyte, .first_extent_bytes = kMebibyte}};
  f.source->nodes = true;
  const Piece first = f.memory.take(4'096, 0);
  const Piece second = f.memory.take(4'096, 1);
  EXPECT_EQ(first.numa_node, 0);
  EXPECT_EQ(second.numa_node, 1);
  EXPECT_EQ(f.memory.extents().size(), 2u);
  const Piece third = f.memory.take(4'096, 5);  // the bound lets no third extent be
  EXPECT_TRUE(third);
  for (const Piece& piece : {first, second, third}) f.memory.give_back(piece);
}

TEST(ExtentMemory, AWishThatMakesNoDifferenceDoesNotMakeItGrow) {
  Fixture f{{.bytes = 64 * kMebibyte, .first_extent_bytes = kMebibyte}};
  for (int node = 0; node < 8; ++node) {
    const Piece piece = f.memory.take(4'096, node);
    ASSERT_TRUE(piece);
    f.memory.give_back(piece);
  }
  EXPECT_EQ(f.sizes(), (Sizes{1}));
}

}  // namespace
}  // namespace weir::buffer
