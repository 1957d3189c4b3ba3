// Coverage: which bytes of a region are there (docs/protocol.md, rule G-6). Slices mostly come in order, so a region
// itself knows only how far it is covered from its beginning; what lies beyond a gap is kept in a record of ranges that
// is borrowed while there is one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace weir::token {

struct CoverageRange {
  std::uint64_t begin, end;
};

// What lies beyond the first gap: in order, apart from each other. Bounded, because each hole is remembered: a sender
// whose packets leave more holes than that has the newest ones refused, and they come again.
struct CoverageRanges {
  static constexpr std::size_t kMax = 63;  // with the part from the beginning: 64

  std::array<CoverageRange, kMax> ranges;  // the first `count` mean something
  std::size_t count = 0;
  CoverageRanges* next_free = nullptr;
};

// Lends records of ranges. Keeps as many as were ever lent at once: at most one for each region.
class CoveragePool {
 public:
  CoverageRanges* take();
  void give_back(CoverageRanges* ranges);
  std::size_t lent() const { return lent_; }

 private:
  std::vector<std::unique_ptr<CoverageRanges>> all_;
  CoverageRanges* free_ = nullptr;
  std::size_t lent_ = 0;
};

class Coverage {
 public:
  enum class Added : std::uint8_t { grew, nothing_new, no_room };

  [[nodiscard]] Added add(CoveragePool& pool, std::uint64_t begin, std::uint64_t end) {
    if (begin <= prefix_ && beyond_ == nullptr) [[likely]] {
      if (end <= prefix_) return Added::nothing_new;
      prefix_ = end;
      return Added::grew;
    }
    return add_beyond(pool, begin, end);
  }
  bool covers(std::uint64_t bytes) const { return prefix_ >= bytes; }
  std::uint64_t prefix() const { return prefix_; }
  std::uint64_t bytes() const;  // that are there, in all
  void clear(CoveragePool& pool) {
    if (beyond_ != nullptr) pool.give_back(beyond_);
    beyond_ = nullptr;
    prefix_ = 0;
  }

 private:
  [[gnu::noinline]] Added add_beyond(CoveragePool& pool, std::uint64_t begin, std::uint64_t end);

  std::uint64_t prefix_ = 0;  // [0, prefix_) is there
  CoverageRanges* beyond_ = nullptr;
};

}  // namespace weir::token
