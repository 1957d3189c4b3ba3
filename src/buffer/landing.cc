#include "buffer/landing.h"

#include <new>

namespace weir::buffer {
namespace {

constexpr std::size_t kBodyOffset = rounded_up(sizeof(Landing), kPieceAlignment) + kLargestHeaderBytes;
static_assert(kBodyOffset % kPieceAlignment == 0);

void release_landing(detail::Pin* pin) noexcept {
  auto* landing = static_cast<Landing*>(pin);
  crypto::wipe(landing->key);
  Memory* const memory = landing->memory;
  const Piece piece = landing->piece;
  if (landing->returns != nullptr) landing->returns->on_returned(*landing);
  landing->~Landing();
  memory->give_back(piece);
}

}  // namespace

Landing* make_landing(Memory& memory, std::uint64_t capacity, std::uint32_t record_bytes, int numa_node) {
  if (capacity > kLargestPayloadBytes || record_bytes < kSmallestRecordBytes || record_bytes > kLargestRecordBytes) {
    return nullptr;
  }
  const std::uint64_t tags_offset = kBodyOffset + rounded_up(capacity, kPieceAlignment);
  const std::uint64_t bytes = tags_offset + records_of(capacity, record_bytes) * crypto::kTagBytes;
  const Piece piece = memory.take(bytes, numa_node);
  if (!piece) return nullptr;
  auto* landing = ::new (piece.data) Landing{{.references{1}, .release = &release_landing}};
  landing->capacity = capacity;
  landing->body = piece.data + kBodyOffset;
  landing->tags = piece.data + tags_offset;
  landing->record_bytes = record_bytes;
  landing->memory = &memory;
  landing->piece = piece;
  return landing;
}

}  // namespace weir::buffer
