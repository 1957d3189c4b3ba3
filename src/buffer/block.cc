#include "buffer/block.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/check.h"
#include "buffer/size_class.h"

namespace weir::buffer {
namespace {

constexpr std::size_t kTextOffset = rounded_up(sizeof(Block), kPieceAlignment);

std::uint64_t rounded_piece(const BlockShape& shape) {
  if (shape.piece_bytes == 0) return shape.bytes;
  return std::min(shape.bytes, records_of(shape.piece_bytes, shape.record_bytes) * shape.record_bytes);
}

std::uint64_t pieces_of(const BlockShape& shape) {
  const std::uint64_t piece = rounded_piece(shape);
  return piece == 0 ? 1 : (shape.bytes + piece - 1) / piece;
}

// What a piece takes of memory.
std::uint64_t taken(std::uint64_t bytes) { return std::max<std::uint64_t>(bytes, kSmallestClassBytes); }

struct FirstPiece {
  std::uint64_t tags_offset;
  std::uint64_t bytes;
};

FirstPiece first_piece_of(const BlockShape& shape) {
  const std::uint64_t tags = kTextOffset + rounded_up(rounded_piece(shape), kPieceAlignment);
  return {.tags_offset = tags, .bytes = tags + records_of(shape.bytes, shape.record_bytes) * crypto::kTagBytes};
}

void release_block(detail::Pin* pin) noexcept {
  auto& block = *static_cast<Block*>(static_cast<Sealed*>(pin));
  if (block.owner != nullptr) {
    block.owner->on_unreferenced(block);
  } else {
    destroy(block);
  }
}

// The pieces behind the first. False: there is no memory for all of them.
bool take_others(Block& block, const BlockShape& shape, int numa_node) {
  const std::uint64_t piece_bytes = rounded_piece(shape);
  const std::uint64_t count = pieces_of(shape);
  if (count == 1) return true;
  block.others.reserve(count - 1);
  block.many.reserve(count);
  block.many.push_back(block.only);
  for (std::uint64_t i = 1; i < count; ++i) {
    const std::uint64_t bytes = std::min(piece_bytes, shape.bytes - i * piece_bytes);
    const Piece piece = block.memory->take(bytes, numa_node);
    if (!piece) return false;
    block.others.push_back(piece);
    block.many.push_back({piece.data, bytes});
  }
  return true;
}

}  // namespace

bool is_possible(const BlockShape& shape) {
  if (shape.record_bytes < kSmallestRecordBytes || shape.record_bytes > kLargestRecordBytes) return false;
  return shape.bytes <= kLargestPayloadBytes && shape.piece_bytes <= kLargestPayloadBytes &&
         pieces_of(shape) <= kMaxPieces;
}

std::uint64_t memory_bytes_of(const BlockShape& shape) {
  const std::uint64_t piece = rounded_piece(shape), count = pieces_of(shape);
  const std::uint64_t first = taken(first_piece_of(shape).bytes);
  if (count == 1) return first;
  return first + (count - 2) * taken(piece) + taken(shape.bytes - (count - 1) * piece);
}

Block* make_block(Memory& memory, const BlockShape& shape, int numa_node) {
  const FirstPiece layout = first_piece_of(shape);
  const Piece first = memory.take(layout.bytes, numa_node);
  if (!first) return nullptr;
  auto* block = ::new (first.data) Block{};
  block->references.store(1, std::memory_order_relaxed);  // nobody else knows it yet
  block->release = &release_block;
  block->bytes = shape.bytes;
  block->record_bytes = shape.record_bytes;
  block->writable_tags = first.data + layout.tags_offset;
  block->tags = block->writable_tags;
  block->memory = &memory;
  block->first = first;
  block->only = {first.data + kTextOffset, rounded_piece(shape)};
  if (!take_others(*block, shape, numa_node)) {
    destroy(*block);
    return nullptr;
  }
  const auto spans = block->spans();
  block->parts.reserve(spans.size());
  std::uint64_t begin = 0;
  for (const auto& span : spans) {
    block->parts.push_back({.begin = begin, .bytes = span});
    begin += span.size();
  }
  if (spans.size() > 1) block->holds = std::make_unique<Holds>(spans.size());
  return block;
}

void shorten(Block& block, std::uint64_t bytes) {
  WEIR_CHECK(bytes <= block.bytes, "a buffer is filled with at most what it has room for");
  block.bytes = bytes;
  while (block.parts.size() > 1 && block.parts.back().begin >= bytes) block.parts.pop_back();
  auto& last = block.parts.back();
  last.bytes = last.bytes.first(bytes - last.begin);
}

std::uint64_t free_piece(Block& block, std::uint32_t piece) noexcept {
  if (piece == 0) return 0;
  block.parts[piece].bytes = {};  // others read only where it begins
  block.memory->give_back(std::exchange(block.others[piece - 1], {}));
  return taken(block.many[piece].size());
}

void destroy(Block& block) noexcept {
  crypto::wipe(block.key);
  Memory* const memory = block.memory;
  const Piece first = block.first;
  for (const Piece& piece : block.others) {
    if (piece) memory->give_back(piece);
  }
  block.~Block();
  memory->give_back(first);
}

}  // namespace weir::buffer
