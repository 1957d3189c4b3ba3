// Histogram: latencies in fixed memory. Buckets are log-linear: each power of two is cut into 64 equal parts, so that
// a percentile is within 1 % of the truth from a nanosecond to more than an hour.
//
// About 19 KiB each. One thread at a time.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>

namespace weir::command {

class Histogram {
 public:
  static constexpr std::uint64_t kLargest = (std::uint64_t{1} << 42) - 1;  // larger values count as this

  void record(std::uint64_t value) {
    if (value > kLargest) value = kLargest;
    ++buckets_[index_of(value)];
    ++count_;
    sum_ += value;
    if (value > max_) max_ = value;
    if (value < min_) min_ = value;
  }
  void merge(const Histogram& other);
  void clear() { *this = Histogram{}; }

  std::uint64_t count() const { return count_; }
  std::uint64_t min() const { return count_ == 0 ? 0 : min_; }
  std::uint64_t max() const { return max_; }
  double mean() const { return count_ == 0 ? 0 : static_cast<double>(sum_) / static_cast<double>(count_); }

  // The value that `fraction` (0 to 1) of all recorded ones do not exceed. 0 if nothing was recorded.
  std::uint64_t at(double fraction) const;

 private:
  static constexpr unsigned kPartBits = 6;
  static constexpr std::size_t kParts = std::size_t{1} << kPartBits;
  static constexpr std::size_t kBuckets = (42 - kPartBits + 1) * kParts;

  // Values below 2 * kParts have a bucket each. Above, the leading kPartBits + 1 bits choose the bucket.
  static std::size_t index_of(std::uint64_t value) {
    unsigned width = static_cast<unsigned>(std::bit_width(value | 1));
    unsigned shift = width > kPartBits + 1 ? width - (kPartBits + 1) : 0;
    return shift * kParts + static_cast<std::size_t>(value >> shift);
  }
  static std::uint64_t middle_of(std::size_t index);

  std::array<std::uint64_t, kBuckets> buckets_{};
  std::uint64_t count_ = 0;
  std::uint64_t sum_ = 0;
  std::uint64_t max_ = 0;
  std::uint64_t min_ = UINT64_MAX;
};

// Of nanoseconds, as people read them; "-" if nothing was recorded.
std::string time_at(const Histogram& histogram, double fraction);

}  // namespace weir::command
