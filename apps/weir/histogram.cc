#include "apps/weir/histogram.h"

#include <algorithm>
#include <cmath>

#include "apps/weir/format.h"

namespace weir::command {

void Histogram::merge(const Histogram& other) {
  for (std::size_t i = 0; i < kBuckets; ++i) buckets_[i] += other.buckets_[i];
  count_ += other.count_;
  sum_ += other.sum_;
  max_ = std::max(max_, other.max_);
  min_ = std::min(min_, other.min_);
}

std::uint64_t Histogram::middle_of(std::size_t index) {
  if (index < 2 * kParts) return index;
  std::size_t shift = index / kParts - 1;
  std::uint64_t lowest = static_cast<std::uint64_t>(index - shift * kParts) << shift;
  return lowest + (std::uint64_t{1} << shift) / 2;
}

std::uint64_t Histogram::at(double fraction) const {
  if (count_ == 0) return 0;
  double wanted = std::ceil(std::clamp(fraction, 0.0, 1.0) * static_cast<double>(count_));
  std::uint64_t rank = std::clamp(static_cast<std::uint64_t>(wanted), std::uint64_t{1}, count_);
  if (rank == count_) return max_;
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < kBuckets; ++i) {
    seen += buckets_[i];
    if (seen >= rank) return std::clamp(middle_of(i), min_, max_);
  }
  return max_;
}

std::string time_at(const Histogram& histogram, double fraction) {
  return histogram.count() == 0 ? "-" : in_time(static_cast<double>(histogram.at(fraction)));
}

}  // namespace weir::command
