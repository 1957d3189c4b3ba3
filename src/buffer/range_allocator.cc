#include "buffer/range_allocator.h"

#include "base/check.h"

namespace weir::buffer {

RangeAllocator::RangeAllocator(std::size_t bytes) : bytes_(bytes) {
  WEIR_CHECK(bytes != 0 && bytes % kUnit == 0, "an extent is made of whole pages");
  add(0, bytes);
}

std::optional<std::size_t> RangeAllocator::take(std::size_t bytes) {
  const auto fit = by_size_.lower_bound({bytes, 0});
  if (fit == by_size_.end()) return std::nullopt;
  const auto [room, offset] = *fit;
  remove(by_offset_.find(offset));
  if (room > bytes) add(offset + bytes, room - bytes);
  return offset;
}

void RangeAllocator::give_back(std::size_t offset, std::size_t bytes) {
  WEIR_CHECK(bytes != 0 && offset + bytes <= bytes_, "what is given back was taken from here");
  auto after = by_offset_.lower_bound(offset);
  if (after != by_offset_.begin()) {
    const auto before = std::prev(after);
    WEIR_CHECK(before->first + before->second <= offset, "a range is given back once");
    if (before->first + before->second == offset) {
      offset = before->first;
      bytes += before->second;
      remove(before);
    }
  }
  if (after != by_offset_.end()) {
    WEIR_CHECK(offset + bytes <= after->first, "a range is given back once");
    if (offset + bytes == after->first) {
      bytes += after->second;
      remove(after);
    }
  }
  add(offset, bytes);
}

void RangeAllocator::add(std::size_t offset, std::size_t bytes) {
  by_offset_.emplace(offset, bytes);
  by_size_.emplace(bytes, offset);
  free_bytes_ += bytes;
}

void RangeAllocator::remove(ByOffset::iterator range) {
  by_size_.erase({range->second, range->first});
  free_bytes_ -= range->second;
  by_offset_.erase(range);
}

}  // namespace weir::buffer
