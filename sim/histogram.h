// Histograms and series of bounded size, for runs of any length.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/time.h"

namespace weir::sim {

// Counts of values of any size, each known to within 1/32.
class LogHistogram {
 public:
  void add(std::uint64_t value, std::uint64_t count = 1) {
    const std::size_t bin = bin_of(value);
    if (bin >= bins_.size()) bins_.resize(bin + 1);
    bins_[bin] += count;
    total_ += count;
    largest_ = std::max(largest_, value);
  }
  void add(const LogHistogram& other) {
    if (bins_.size() < other.bins_.size()) bins_.resize(other.bins_.size());
    for (std::size_t i = 0; i < other.bins_.size(); ++i) bins_[i] += other.bins_[i];
    total_ += other.total_;
    largest_ = std::max(largest_, other.largest_);
  }
  void clear() { *this = {}; }

  std::uint64_t total() const { return total_; }
  std::uint64_t largest() const { return largest_; }
  // What this share of the values does not exceed; 0 if there are none.
  std::uint64_t quantile(double share) const {
    const auto wanted = static_cast<std::uint64_t>(share * static_cast<double>(total_));
    std::uint64_t sum = 0;
    for (std::size_t bin = 0; bin < bins_.size(); ++bin) {
      sum += bins_[bin];
      if (sum > wanted || sum == total_) return std::min(upper(bin), largest_);
    }
    return largest_;
  }
  // (value, how many do not exceed it), for each bin that has any.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> cumulative() const {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> points;
    std::uint64_t sum = 0;
    for (std::size_t bin = 0; bin < bins_.size(); ++bin) {
      if (bins_[bin] == 0) continue;
      sum += bins_[bin];
      points.emplace_back(std::min(upper(bin), largest_), sum);
    }
    return points;
  }

 private:
  static constexpr unsigned kBits = 5;  // bins per doubling: 2^5

  static std::size_t bin_of(std::uint64_t value) {
    if (value < (1u << kBits)) return value;
    const auto shift = static_cast<unsigned>(std::bit_width(value)) - kBits - 1;
    return (std::size_t{shift} << kBits) + (value >> shift);
  }
  static std::uint64_t upper(std::size_t bin) {
    if (bin < (2u << kBits)) return bin;
    const std::size_t shift = (bin >> kBits) - 1;
    return ((((bin & ((1u << kBits) - 1)) | (1u << kBits)) + 1) << shift) - 1;
  }

  std::vector<std::uint64_t> bins_;
  std::uint64_t total_ = 0;
  std::uint64_t largest_ = 0;
};

// Values over time: of each span the largest, the sum and the number. A series that becomes too long doubles its spans.
class TimeSeries {
 public:
  struct Span {
    std::uint64_t largest = 0, sum = 0, count = 0;
    double mean() const { return count == 0 ? 0 : static_cast<double>(sum) / static_cast<double>(count); }
  };

  void start(Instant now) {
    spans_.clear();
    width_ = kFirstWidth;
    start_ = now;
  }
  void add(Instant now, std::uint64_t value) {
    if (now < start_) return;
    auto index = static_cast<std::size_t>((now - start_) / width_);
    while (index >= kMaxSpans) {
      halve();
      index = static_cast<std::size_t>((now - start_) / width_);
    }
    if (index >= spans_.size()) spans_.resize(index + 1);
    Span& span = spans_[index];
    span.largest = std::max(span.largest, value);
    span.sum += value;
    ++span.count;
  }

  Duration width() const { return width_; }
  const std::vector<Span>& spans() const { return spans_; }

 private:
  static constexpr std::size_t kMaxSpans = 400;
  static constexpr Duration kFirstWidth{5'000};

  void halve() {
    for (std::size_t i = 0; i < spans_.size(); ++i) {
      Span moved = std::exchange(spans_[i], {});
      Span& to = spans_[i / 2];
      to.largest = std::max(to.largest, moved.largest);
      to.sum += moved.sum;
      to.count += moved.count;
    }
    spans_.resize((spans_.size() + 1) / 2);
    width_ *= 2;
  }

  Instant start_{};
  Duration width_ = kFirstWidth;
  std::vector<Span> spans_;
};

}  // namespace weir::sim
