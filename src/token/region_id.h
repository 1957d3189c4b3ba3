// How a region is named on the wire (docs/protocol.md, rule G-4): slot in the low 24 bits, generation in the high 40.
// Generations begin at 1, so that 0 names no region.
#pragma once

#include <cstdint>

namespace weir::token {

inline constexpr unsigned kRegionSlotBits = 24;
inline constexpr std::uint32_t kMaxRegionSlots = 1u << kRegionSlotBits;
inline constexpr std::uint64_t kLastRegionGeneration = (std::uint64_t{1} << (64 - kRegionSlotBits)) - 1;

struct RegionId {
  std::uint32_t slot = 0;
  std::uint64_t generation = 0;

  constexpr std::uint64_t packed() const { return slot | (generation << kRegionSlotBits); }
  static constexpr RegionId unpack(std::uint64_t packed) {
    return {static_cast<std::uint32_t>(packed & (kMaxRegionSlots - 1)), packed >> kRegionSlotBits};
  }
};

}  // namespace weir::token
