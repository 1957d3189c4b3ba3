#include "buffer/cached_memory.h"

#include <new>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#endif
#endif

// So that builds with the address sanitizer see who reads a piece after giving it back.
#ifndef ASAN_POISON_MEMORY_REGION
#define ASAN_POISON_MEMORY_REGION(data, bytes) ((void)(data), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(data, bytes) ((void)(data), (void)(bytes))
#endif

namespace weir::buffer {

CachedMemory::CachedMemory(std::shared_ptr<Memory> inner, std::uint64_t keep_bytes)
    : inner_(std::move(inner)), kept_(keep_bytes), stacks_(std::make_unique<std::array<Stacks, kNodeSlots>>()) {}

CachedMemory::~CachedMemory() { trim(); }

Piece CachedMemory::take(std::size_t bytes, int numa_node) {
  const int node = node_for(numa_node);
  std::size_t wanted = bytes;
  if (bytes <= kLargestClassBytes) [[likely]] {
    const std::size_t index = class_for(bytes);
    if (const Piece piece = pop(stacks_of(node)[index])) [[likely]]
      return piece;
    wanted = class_bytes(index);
  }
  if (const Piece piece = inner_->take(wanted, node)) return piece;
  // What is kept counts against the inner memory's bound.
  trim();
  if (const Piece piece = inner_->take(wanted, node)) return piece;
  return wanted == bytes ? Piece{} : inner_->take(bytes, node);
}

void CachedMemory::give_back(const Piece& piece) noexcept {
  if (piece.bytes < kSmallestClassBytes || piece.bytes > kLargestClassBytes || !kept_.charge(piece.bytes)) {
    inner_->give_back(piece);
    return;
  }
  Stack& stack = stacks_of(piece.numa_node)[class_within(piece.bytes)];
  auto* const kept = ::new (piece.data) Kept{.next = nullptr, .piece = piece};
  ASAN_POISON_MEMORY_REGION(kept + 1, piece.bytes - sizeof(Kept));
  const std::lock_guard lock{stack.mutex};
  kept->next = std::exchange(stack.top, kept);
}

void CachedMemory::trim() noexcept {
  for (Stacks& stacks : *stacks_) {
    for (Stack& stack : stacks) {
      while (const Piece piece = pop(stack)) inner_->give_back(piece);
    }
  }
}

CachedMemory::Stacks& CachedMemory::stacks_of(int numa_node) {
  return (*stacks_)[numa_node < 0 ? 0 : 1 + static_cast<std::size_t>(numa_node) % (kNodeSlots - 1)];
}

Piece CachedMemory::pop(Stack& stack) {
  Kept* kept;
  {
    const std::lock_guard lock{stack.mutex};
    kept = stack.top;
    if (kept == nullptr) return {};
    stack.top = kept->next;
  }
  const Piece piece = kept->piece;
  kept_.refund(piece.bytes);
  ASAN_UNPOISON_MEMORY_REGION(piece.data, piece.bytes);
  return piece;
}

}  // namespace weir::buffer
