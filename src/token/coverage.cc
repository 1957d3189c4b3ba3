#include "token/coverage.h"

#include <algorithm>

#include "base/check.h"

namespace weir::token {

CoverageRanges* CoveragePool::take() {
  CoverageRanges* ranges = free_;
  if (ranges != nullptr) {
    free_ = ranges->next_free;
  } else {
    ranges = all_.emplace_back(std::make_unique_for_overwrite<CoverageRanges>()).get();
  }
  ranges->count = 0;
  ranges->next_free = nullptr;
  ++lent_;
  return ranges;
}

void CoveragePool::give_back(CoverageRanges* ranges) {
  WEIR_CHECK(lent_ > 0, "a record of ranges was given back twice");
  ranges->next_free = free_;
  free_ = ranges;
  --lent_;
}

std::uint64_t Coverage::bytes() const {
  std::uint64_t sum = prefix_;
  if (beyond_ == nullptr) return sum;
  for (std::size_t i = 0; i < beyond_->count; ++i) sum += beyond_->ranges[i].end - beyond_->ranges[i].begin;
  return sum;
}

Coverage::Added Coverage::add_beyond(CoveragePool& pool, std::uint64_t begin, std::uint64_t end) {
  if (end <= prefix_) return Added::nothing_new;
  if (beyond_ == nullptr) beyond_ = pool.take();
  auto& ranges = beyond_->ranges;
  std::size_t& count = beyond_->count;

  if (begin <= prefix_) {  // the gap after the prefix shrinks or closes
    prefix_ = end;
    std::size_t reached = 0;
    while (reached < count && ranges[reached].begin <= prefix_) prefix_ = std::max(prefix_, ranges[reached++].end);
    std::copy(ranges.begin() + reached, ranges.begin() + count, ranges.begin());
    count -= reached;
    if (count == 0) {
      pool.give_back(beyond_);
      beyond_ = nullptr;
    }
    return Added::grew;
  }

  // From the back: what comes after a loss comes in order.
  std::size_t after = count;  // the first range that lies wholly behind
  while (after > 0 && ranges[after - 1].begin > end) --after;
  std::size_t at = after;  // the first range that touches [begin, end)
  while (at > 0 && ranges[at - 1].end >= begin) --at;
  if (at == after) {
    if (count == CoverageRanges::kMax) return Added::no_room;
    std::copy_backward(ranges.begin() + at, ranges.begin() + count, ranges.begin() + count + 1);
    ++count;
    ranges[at] = {begin, end};
    return Added::grew;
  }
  if (ranges[at].begin <= begin && ranges[at].end >= end) return Added::nothing_new;
  ranges[at] = {std::min(begin, ranges[at].begin), std::max(end, ranges[after - 1].end)};
  std::copy(ranges.begin() + after, ranges.begin() + count, ranges.begin() + at + 1);
  count -= after - at - 1;
  return Added::grew;
}

}  // namespace weir::token
