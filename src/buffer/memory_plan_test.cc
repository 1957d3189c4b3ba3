#include "buffer/memory_plan.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <vector>

namespace weir::buffer {
namespace {

constexpr std::size_t kMebibyte = std::size_t{1} << 20;

TEST(MemoryPlan, EveryKindGivesAlignedMemoryUpToItsBoundAndTakesItBack) {
  for (const BufferMemory kind :
       {BufferMemory::heap, BufferMemory::pages, BufferMemory::huge_pages, BufferMemory::files}) {
    for (const std::uint64_t keep : {std::uint64_t{0}, 8 * std::uint64_t{kMebibyte}}) {
      SCOPED_TRACE(static_cast<int>(kind));
      const auto memory =
          build_memory({.kind = kind, .bytes = 8 * kMebibyte, .keep_bytes = keep, .directory = testing::TempDir()});
      ASSERT_TRUE(memory) << memory.error().to_string();
      for (int round = 0; round < 3; ++round) {
        std::vector<Piece> pieces;
        while (const Piece piece = (*memory)->take(kMebibyte, 0)) {
          ASSERT_EQ(reinterpret_cast<std::uintptr_t>(piece.data) % kPieceAlignment, 0u);
          std::memset(piece.data, round, piece.bytes);
          pieces.push_back(piece);
          ASSERT_LE(pieces.size(), 8u);
        }
        EXPECT_EQ(pieces.size(), 8u);
        for (const Piece& piece : pieces) (*memory)->give_back(piece);
      }
    }
  }
}

TEST(MemoryPlan, APlanThatCannotWorkIsAnErrorAtOnce) {
  EXPECT_FALSE(build_memory({.kind = BufferMemory::files, .bytes = 8 * kMebibyte}));
  EXPECT_FALSE(build_memory({.kind = BufferMemory::files, .bytes = 8 * kMebibyte, .directory = "/nowhere/at/all"}));
  EXPECT_FALSE(build_memory({.kind = BufferMemory::pages, .bytes = 4'096}));
}

}  // namespace
}  // namespace weir::buffer
