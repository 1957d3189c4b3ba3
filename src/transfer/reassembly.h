// Reassembly: a message that travels in fragments, as its receiver collects it, or which parts of it were
// acknowledged, as its sender counts them. Fragments come in any order, cut anywhere, some of them twice.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "transfer/block_pool.h"

namespace weir::transfer {

// Which bytes of [0, total) are there. Bounded: an honest sender cuts by path MTU, at 1,200 bytes or more, so that even
// 64 KiB have fewer than 30 gaps; the rest is for lost fragments that were cut anew into smaller ones.
class ByteRanges {
 public:
  static constexpr std::size_t kMaxRanges = 64;

  ByteRanges() { ranges_[0] = {0, 0}; }

  // False if the set would need more than kMaxRanges.
  [[nodiscard]] bool add(std::uint32_t begin, std::uint32_t end) {
    std::size_t at = 0;
    while (at < count_ && ranges_[at].end < begin) ++at;
    std::size_t merged = at;
    while (merged < count_ && ranges_[merged].begin <= end) {
      begin = std::min(begin, ranges_[merged].begin);
      end = std::max(end, ranges_[merged].end);
      ++merged;
    }
    if (merged == at) {
      if (count_ == kMaxRanges) return false;
      std::copy_backward(ranges_.begin() + static_cast<std::ptrdiff_t>(at),
                         ranges_.begin() + static_cast<std::ptrdiff_t>(count_),
                         ranges_.begin() + static_cast<std::ptrdiff_t>(count_) + 1);
      ++count_;
    } else {
      std::copy(ranges_.begin() + static_cast<std::ptrdiff_t>(merged),
                ranges_.begin() + static_cast<std::ptrdiff_t>(count_),
                ranges_.begin() + static_cast<std::ptrdiff_t>(at) + 1);
      count_ -= merged - at - 1;
    }
    ranges_[at] = {begin, end};
    return true;
  }

  bool covers(std::uint32_t total) const { return count_ == 1 && ranges_[0].begin == 0 && ranges_[0].end >= total; }

 private:
  struct Range {
    std::uint32_t begin, end;
  };
  std::array<Range, kMaxRanges> ranges_;
  std::size_t count_ = 0;
};

// Lives in a slab of one engine, bounded by what credit and reply room allow.
class Reassembly {
 public:
  // `block` is null when only acknowledgements are counted.
  Reassembly(Block* block, std::uint16_t total, std::uint16_t header_bytes)
      : block_(block), total_(total), header_bytes_(header_bytes) {}
  Reassembly(const Reassembly&) = delete;
  Reassembly& operator=(const Reassembly&) = delete;
  ~Reassembly() {
    if (block_ != nullptr) detail::unpin(block_);
  }

  bool fits(std::uint16_t total, std::uint16_t header_bytes) const {
    return total == total_ && header_bytes == header_bytes_;
  }
  [[nodiscard]] bool add(std::uint32_t offset, ByteSpan bytes) {
    if (!ranges_.add(offset, offset + static_cast<std::uint32_t>(bytes.size()))) return false;
    std::copy(bytes.begin(), bytes.end(), block_->bytes() + offset);
    return true;
  }
  [[nodiscard]] bool acknowledge(std::uint32_t offset, std::uint32_t length) {
    return ranges_.add(offset, offset + length);
  }
  bool complete() const { return ranges_.covers(total_); }
  ByteSpan bytes() const { return {block_->bytes(), total_}; }
  std::uint16_t header_bytes() const { return header_bytes_; }
  Block* block() const { return block_; }

 private:
  Block* block_;
  std::uint16_t total_;
  std::uint16_t header_bytes_;
  ByteRanges ranges_;
};

}  // namespace weir::transfer
