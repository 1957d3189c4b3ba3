// Footprint: what others can make one engine hold at the very worst, by its limits. Every table that they can fill is
// in here; pool.limits() prints it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "weir/config.h"

namespace weir::engine {

inline constexpr std::uint32_t kMaxTransfers = 1u << 20;     // requests whose reply is not yet acknowledged
inline constexpr std::uint32_t kMaxReassemblies = 1u << 18;  // messages in fragments, in both directions

inline constexpr std::uint32_t kMaxArrivals = 1u << 18;  // large messages that arrive or wait for memory
inline constexpr std::uint32_t kMaxWriters = 1u << 18;   // large messages that are sent
inline constexpr std::uint32_t kMaxRegions = 1u << 16;   // memory granted to senders

struct Footprint {
  std::size_t message_bytes = 0;   // requests, answers and replies, in the blocks that they need at worst
  std::size_t transfer_bytes = 0;  // their records
  std::size_t path_bytes = 0;      // one path, all its tables full

  std::size_t total(std::size_t peers) const { return message_bytes + transfer_bytes + peers * path_bytes; }
};

Footprint footprint_of(const Limits& limits);

}  // namespace weir::engine
