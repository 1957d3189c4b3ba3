#include "recovery/ack_ranges.h"

#include <algorithm>

namespace weir::recovery {

namespace {

// The first range that begins above `number`.
auto range_above(auto& ranges, std::uint64_t number) {
  return std::upper_bound(ranges.begin(), ranges.end(), number,
                          [](std::uint64_t value, const PacketRange& range) { return value < range.first; });
}

}  // namespace

bool AckRanges::contains(std::uint64_t number) const {
  const auto above = range_above(ranges_, number);
  return above != ranges_.begin() && std::prev(above)->last >= number;
}

bool AckRanges::insert_out_of_order(std::uint64_t number) {
  if (number < floor_) return false;
  auto above = range_above(ranges_, number);
  const bool has_below = above != ranges_.begin();
  if (has_below && std::prev(above)->last >= number) return false;

  const bool joins_below = has_below && std::prev(above)->last + 1 == number;
  const bool joins_above = above != ranges_.end() && above->first == number + 1;
  if (joins_below && joins_above) {
    std::prev(above)->last = above->last;
    ranges_.erase(above);
  } else if (joins_below) {
    std::prev(above)->last = number;
  } else if (joins_above) {
    above->first = number;
  } else {
    if (ranges_.size() == kMaxRanges) {
      if (!has_below) return false;
      floor_ = ranges_.front().last + 1;
      // Shifts the ranges below the new one over the oldest.
      std::move(ranges_.begin() + 1, above, ranges_.begin());
      *std::prev(above) = {number, number};
      return true;
    }
    ranges_.insert(above, {number, number});
  }
  return true;
}

void AckRanges::prune_below(std::uint64_t number) {
  if (number <= floor_) return;
  floor_ = number;
  const auto keep =
      std::find_if(ranges_.begin(), ranges_.end(), [number](const PacketRange& range) { return range.last >= number; });
  ranges_.erase(ranges_.begin(), keep);
  if (!ranges_.empty()) ranges_.front().first = std::max(ranges_.front().first, number);
}

void AckRanges::release_memory() {
  if (!ranges_.empty()) floor_ = ranges_.back().last + 1;
  ranges_ = {};
  ranges_.reserve(kInitialRanges);
}

}  // namespace weir::recovery
