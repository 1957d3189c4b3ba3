#include "recovery/sent_packets.h"

#include <algorithm>
#include <bit>

namespace weir::recovery {

SentPackets::SentPackets(std::size_t bound)
    : ring_(std::make_unique<SentPacket[]>(kInitialCapacity)),
      mask_(kInitialCapacity - 1),
      bound_(static_cast<std::uint32_t>(std::bit_ceil(std::max(bound, kInitialCapacity)))) {}

void SentPackets::grow() {
  WEIR_CHECK(capacity() < bound_, "the record of sent packets is full; ask full() before sending");
  const std::uint32_t mask = mask_ * 2 + 1;
  auto ring = std::make_unique<SentPacket[]>(std::size_t{mask} + 1);
  for (std::uint64_t number = first_; number < end_; ++number) ring[number & mask] = ring_[number & mask_];
  ring_ = std::move(ring);
  mask_ = mask;
}

void SentPackets::release_memory() {
  if (!empty() || capacity() == kInitialCapacity) return;
  ring_ = std::make_unique<SentPacket[]>(kInitialCapacity);
  mask_ = kInitialCapacity - 1;
}

}  // namespace weir::recovery
