#include "buffer/extent_memory.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace weir::buffer {

ExtentMemory::ExtentMemory(std::unique_ptr<ExtentSource> source, const Limits& limits)
    : source_(std::move(source)),
      limits_(limits),
      next_extent_bytes_(rounded_up(limits.first_extent_bytes, source_->unit())) {}

ExtentMemory::~ExtentMemory() {
  WEIR_CHECK(taken_bytes_ == 0, "memory ends after everything that was taken from it");
  for (const Held& held : held_) source_->unmap(held.extent);
}

Piece ExtentMemory::take(std::size_t bytes, int wish) {
  if (bytes > kLargestPieceBytes) return {};
  const Piece piece = take_locked(rounded_up(bytes, RangeAllocator::kUnit), node_for(wish));
  source_->tell();
  return piece;
}

Piece ExtentMemory::take_locked(std::size_t whole, int numa_node) {
  const std::lock_guard lock{mutex_};
  // The newest extents are the largest. Where the wish cannot be met, memory elsewhere is better than none.
  const auto try_all = [&](bool anywhere) {
    for (std::size_t i = held_.size(); i-- > 0;) {
      if (!anywhere && numa_node != -1 && held_[i].extent.numa_node != numa_node) continue;
      if (const Piece piece = cut(i, whole)) return piece;
    }
    return Piece{};
  };
  if (const Piece piece = try_all(false)) return piece;
  if (grow(whole, numa_node)) return cut(held_.size() - 1, whole);
  return try_all(true);
}

void ExtentMemory::give_back(const Piece& piece) noexcept {
  const std::lock_guard lock{mutex_};
  WEIR_CHECK(piece.token < held_.size(), "what is given back was taken from here");
  Held& held = held_[piece.token];
  held.ranges.give_back(static_cast<std::size_t>(piece.data - held.extent.data), piece.bytes);
  taken_bytes_ -= piece.bytes;
}

std::vector<Extent> ExtentMemory::extents() const {
  const std::lock_guard lock{mutex_};
  std::vector<Extent> all;
  for (const Held& held : held_) all.push_back(held.extent);
  return all;
}

std::uint64_t ExtentMemory::taken_bytes() const {
  const std::lock_guard lock{mutex_};
  return taken_bytes_;
}

std::optional<Error> ExtentMemory::last_error() const {
  const std::lock_guard lock{mutex_};
  return last_error_;
}

Piece ExtentMemory::cut(std::size_t index, std::size_t bytes) {
  Held& held = held_[index];
  const auto offset = held.ranges.take(bytes);
  if (!offset) return {};
  taken_bytes_ += bytes;
  return {.data = held.extent.data + *offset, .bytes = bytes, .token = index, .numa_node = held.extent.numa_node};
}

bool ExtentMemory::grow(std::size_t bytes, int numa_node) {
  const std::size_t unit = source_->unit();
  const std::size_t needed = rounded_up(bytes, unit);
  const std::uint64_t left = (limits_.bytes - mapped_bytes_) & ~static_cast<std::uint64_t>(unit - 1);
  if (held_.size() == kMaxExtents || needed > left) return false;
  std::size_t wanted = std::min<std::uint64_t>(std::max(next_extent_bytes_, needed), left);
  for (;;) {
    Result<Extent> mapped = source_->map(wanted, numa_node);
    if (mapped) {
      mapped_bytes_ += mapped->bytes;
      held_.push_back({.extent = *mapped, .ranges = RangeAllocator{mapped->bytes}});
      next_extent_bytes_ = std::max(next_extent_bytes_, std::min(2 * wanted, limits_.largest_extent_bytes));
      return true;
    }
    last_error_ = std::move(mapped).error();
    if (wanted == needed) return false;
    wanted = std::max(needed, rounded_up(wanted / 2, unit));  // the system may have less than we like but enough
  }
}

}  // namespace weir::buffer
