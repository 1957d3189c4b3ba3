// RangeAllocator: which parts of one extent are taken. Best fit, neighbours grow together again. Not for the hot path:
// a cache stands in front of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace weir::buffer {

// One thread at a time. Offsets and sizes are multiples of kUnit.
class RangeAllocator {
 public:
  static constexpr std::size_t kUnit = 4'096;

  explicit RangeAllocator(std::size_t bytes);

  // The smallest free range that is large enough, and of those the lowest. Empty: there is none.
  [[nodiscard]] std::optional<std::size_t> take(std::size_t bytes);
  void give_back(std::size_t offset, std::size_t bytes);

  std::size_t free_bytes() const { return free_bytes_; }
  std::size_t free_ranges() const { return by_offset_.size(); }

 private:
  using ByOffset = std::map<std::size_t, std::size_t>;
  void add(std::size_t offset, std::size_t bytes);
  void remove(ByOffset::iterator range);

  ByOffset by_offset_;                                     // offset -> bytes
  std::set<std::pair<std::size_t, std::size_t>> by_size_;  // bytes, offset
  std::size_t bytes_;
  std::size_t free_bytes_ = 0;
};

}  // namespace weir::buffer
