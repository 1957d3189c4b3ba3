#include "buffer/heap_memory.h"

#include <sys/mman.h>

#include <cstdlib>

#include "base/check.h"

namespace weir::buffer {
namespace {

// A piece that has a huge page in it begins at one, and wishes for them: they need no privilege and no reservation
// where the system hands them out to those who ask. Reading and writing such a piece takes the processor less time.
void* allocate(std::size_t bytes) {
  if (bytes < HeapMemory::kHugePageBytes) return std::aligned_alloc(kPieceAlignment, bytes);
  void* data = nullptr;
  if (::posix_memalign(&data, HeapMemory::kHugePageBytes, bytes) != 0) return nullptr;
#ifdef MADV_HUGEPAGE
  ::madvise(data, bytes / HeapMemory::kHugePageBytes * HeapMemory::kHugePageBytes, MADV_HUGEPAGE);  // a wish
#endif
  return data;
}

}  // namespace

HeapMemory::~HeapMemory() { WEIR_CHECK(budget_.used() == 0, "memory ends after everything that was taken from it"); }

Piece HeapMemory::take(std::size_t bytes, int) {
  if (bytes > kLargestPieceBytes) return {};
  const std::size_t whole = rounded_up(bytes, kPieceAlignment);
  if (!budget_.charge(whole)) return {};
  void* data = allocate(whole);
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
