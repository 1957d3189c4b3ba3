// Block: one allocated buffer, and the Sealed that it becomes. It lies in front of its own first piece of memory, with
// the tags behind that piece's text, so that sealing in place allocates nothing and moves nothing.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "buffer/holds.h"
#include "buffer/memory.h"
#include "buffer/sealed.h"

namespace weir::buffer {

struct Block;

// Told, by whichever thread dropped the last reference, that nobody holds a block any more; destroys it.
struct BlockOwner {
  virtual ~BlockOwner() = default;
  virtual void on_unreferenced(Block& block) noexcept = 0;
  // Told, by whichever thread let go of them last, that some of its pieces are back already.
  virtual void on_freed(std::uint64_t bytes) noexcept = 0;
};

struct Block final : Sealed {
  enum class State : std::uint8_t { allocated, writing, filled, sealed };

  // Until it is sealed one thread at a time holds it; `sealed` is stored last (release), after the ciphertext, for
  // those who find it by its id (acquire).
  std::atomic<State> state = State::allocated;
  std::byte* writable_tags = nullptr;

  Memory* memory = nullptr;
  Piece first;  // holds this object too
  std::vector<Piece> others;
  std::span<std::byte> only;               // the text's room, if there is one piece
  std::vector<std::span<std::byte>> many;  // if there are several: of each
  std::shared_ptr<BlockOwner> owner;       // null: nobody is told
  std::uint64_t charged_bytes = 0;

  std::span<const std::span<std::byte>> spans() const {
    return many.empty() ? std::span<const std::span<std::byte>>{&only, 1} : many;
  }
};

struct BlockShape {
  std::uint64_t bytes = 0;
  std::uint64_t piece_bytes = 0;  // 0: one piece; else rounded up to whole records
  std::uint32_t record_bytes = kRecordBytes;
};

inline constexpr std::uint64_t kMaxPieces = 65'536;

// False: too large, too many pieces, or records that nobody can open.
bool is_possible(const BlockShape& shape);
// What a block of this shape takes of memory, over all its pieces. Memory that is kept for reuse comes in size classes:
// no piece takes less than the smallest.
std::uint64_t memory_bytes_of(const BlockShape& shape);

// One reference, the caller's. Null: there is no memory. `memory` outlives it. The shape is possible.
[[nodiscard]] Block* make_block(Memory& memory, const BlockShape& shape, int numa_node = -1);

// Shortens it to its first `bytes`; not sealed yet.
void shorten(Block& block, std::uint64_t bytes);

// Gives back the memory of a piece that nobody holds; how much of it was charged. The first piece stays: 0.
std::uint64_t free_piece(Block& block, std::uint32_t piece) noexcept;

// For owners.
void destroy(Block& block) noexcept;

}  // namespace weir::buffer
