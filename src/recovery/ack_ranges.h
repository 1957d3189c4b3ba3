// Receiver side: which packet numbers to acknowledge, as ranges (docs/protocol.md, rule A-3).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace weir::recovery {

// Both ends included.
struct PacketRange {
  std::uint64_t first = 0;
  std::uint64_t last = 0;

  bool operator==(const PacketRange&) const = default;
};

// One per path; single-threaded. Grows only while packets are missing, up to kMaxRanges; then the oldest range goes,
// and its packets are never acknowledged again: their sender repeats the frames, which are idempotent.
class AckRanges {
 public:
  static constexpr std::size_t kMaxRanges = 64;
  static constexpr std::size_t kInitialRanges = 1;

  AckRanges() { ranges_.reserve(kInitialRanges); }

  // False if the number is present already, or older than what is kept.
  bool insert(std::uint64_t number) {
    if (!ranges_.empty() && number == ranges_.back().last + 1) [[likely]] {
      ranges_.back().last = number;
      return true;
    }
    return insert_out_of_order(number);
  }

  bool contains(std::uint64_t number) const;

  bool empty() const { return ranges_.empty(); }
  std::size_t size() const { return ranges_.size(); }
  // Of a non-empty set.
  std::uint64_t largest() const { return ranges_.back().last; }
  // The index counts from the newest range: 0 holds largest().
  const PacketRange& operator[](std::size_t index) const { return ranges_[ranges_.size() - 1 - index]; }
  // Oldest first.
  std::span<const PacketRange> ascending() const { return ranges_; }

  // The peer has seen an acknowledgement of everything below `number`: forget it.
  void prune_below(std::uint64_t number);
  // Forgets everything and gives the memory of a burst of gaps back.
  void release_memory();

 private:
  bool insert_out_of_order(std::uint64_t number);

  std::vector<PacketRange> ranges_;  // ascending, disjoint, not adjacent
  std::uint64_t floor_ = 0;          // below it nothing is kept
};

}  // namespace weir::recovery
