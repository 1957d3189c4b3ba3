#include "buffer/holds.h"

#include "buffer/block.h"
#include "buffer/work.h"

namespace weir::buffer {
namespace {

// Relaxed: what is read of a piece next was published with its payload.
bool raise(std::atomic<std::uint32_t>& count) {
  std::uint32_t now = count.load(std::memory_order_relaxed);
  while (now != 0) {
    if (count.compare_exchange_weak(now, now + 1, std::memory_order_relaxed)) return true;
  }
  return false;
}

// A forked child changes no count: see unpin().
bool is_inherited(const Sealed& sealed) { return !detail::is_process(sealed.process); }

}  // namespace

Holds::Holds(std::size_t pieces) : counts(std::make_unique<std::atomic<std::uint32_t>[]>(pieces)) {
  for (std::size_t i = 0; i < pieces; ++i) counts[i].store(1, std::memory_order_relaxed);  // nobody else knows it yet
}

PieceRange pieces_of(const Sealed& sealed, std::uint64_t begin, std::uint64_t end) {
  if (sealed.holds == nullptr || begin == end) return {};
  return {.begin = sealed.piece_at(begin), .end = sealed.piece_at(end - 1) + 1};
}

void hold(Sealed& sealed, PieceRange pieces) noexcept {
  if (sealed.holds == nullptr) return;
  // Relaxed: as a reference is taken.
  for (std::uint32_t i = pieces.begin; i < pieces.end; ++i) {
    sealed.holds->counts[i].fetch_add(1, std::memory_order_relaxed);
  }
}

bool hold_again(Sealed& sealed, PieceRange pieces) noexcept {
  if (sealed.holds == nullptr) return true;
  for (std::uint32_t i = pieces.begin; i < pieces.end; ++i) {
    if (raise(sealed.holds->counts[i])) continue;
    let_go(sealed, {.begin = pieces.begin, .end = i});
    return false;
  }
  return true;
}

void let_go(Sealed& sealed, PieceRange pieces) noexcept {
  if (sealed.holds == nullptr || is_inherited(sealed)) return;
  auto& block = static_cast<Block&>(sealed);
  std::uint64_t freed_bytes = 0;
  for (std::uint32_t i = pieces.begin; i < pieces.end; ++i) {
    // Release: our reads of the piece happen before its memory is used again. Acquire: the last one sees that of all.
    if (sealed.holds->counts[i].fetch_sub(1, std::memory_order_acq_rel) == 1) freed_bytes += free_piece(block, i);
  }
  if (freed_bytes == 0) return;
  // Relaxed: read by whoever drops the last reference, after ours.
  sealed.holds->freed_bytes.fetch_add(freed_bytes, std::memory_order_relaxed);
  count(work.freed_bytes, freed_bytes);
  if (block.owner != nullptr) block.owner->on_freed(freed_bytes);
}

Sealed* lend(Sealed& sealed, PieceRange pieces) noexcept {
  hold(sealed, pieces);
  detail::pin(&sealed);
  return &sealed;
}

void give_back(Sealed* sealed, PieceRange pieces) noexcept {
  // Acquire: whoever is alone needs no counts, all of it goes. Nobody else can come to it: there is no handle to find.
  if (sealed->holds != nullptr && sealed->references.load(std::memory_order_acquire) != 1) let_go(*sealed, pieces);
  detail::unpin(sealed);
}

void copy_handle(Sealed& sealed) noexcept {
  if (is_inherited(sealed)) return;
  if (sealed.holds != nullptr) sealed.holds->handles.fetch_add(1, std::memory_order_relaxed);
  detail::pin(&sealed);
}

void drop_handle(Sealed* sealed) noexcept {
  if (is_inherited(*sealed)) return;
  // Acquire and release: what the application did with its handles comes before what is freed.
  if (sealed->holds != nullptr && sealed->holds->handles.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    return give_back(sealed, {.begin = 0, .end = static_cast<std::uint32_t>(sealed->parts.size())});
  }
  detail::unpin(sealed);
}

bool revive_handle(Sealed& sealed) noexcept { return sealed.holds == nullptr || raise(sealed.holds->handles); }

}  // namespace weir::buffer
