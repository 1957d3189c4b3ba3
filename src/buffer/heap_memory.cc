#include "buffer/heap_memory.h"

#include <cstdlib>

#include "base/check.h"

namespace weir::buffer {

HeapMemory::~HeapMemory() { WEIR_CHECK(budget_.used() == 0, "memory ends after everything that was taken from it"); }

Piece HeapMemory::take(std::size_t bytes, int) {
  if (bytes > kLargestPieceBytes) return {};
  const std::size_t whole = rounded_up(bytes, kPieceAlignment);
  if (!budget_.charge(whole)) return {};
  void* data = std::aligned_alloc(kPieceAlignment, whole);
  if (data == nullptr) {
    budget_.refund(whole);
    return {};
  }
  return {.data = static_cast<std::byte*>(data), .bytes = whole};
}

void HeapMemory::give_back(const Piece& piece) noexcept {
  std::free(piece.data);
  budget_.refund(piece.bytes);
}

}  // namespace weir::buffer
