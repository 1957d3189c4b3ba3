// VouchedSources: from which addresses packets of which paths have authenticated after they were handed over between
// engines at one port. The engine that receives a datagram has no key of the path that the datagram names; it asks here
// whether the one that has the key has seen a genuine packet of that path from that address.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/address.h"

namespace weir::engine {

// Shared by those engines. Any thread, without a lock. What is forgotten for want of room is vouched for again by the
// next packet that gets through.
class VouchedSources {
 public:
  static constexpr std::size_t kSets = 256, kWays = 4;

  explicit VouchedSources(std::uint64_t seed) : seed_(seed) {}
  VouchedSources(const VouchedSources&) = delete;
  VouchedSources& operator=(const VouchedSources&) = delete;

  // Relaxed, here and below: an entry publishes nothing but itself.
  bool contains(std::uint32_t path, const Address& from) const {
    const std::uint64_t mark = mark_of(path, from);
    for (const auto& way : sets_[mark % kSets]) {
      if (way.load(std::memory_order_relaxed) == mark) return true;
    }
    return false;
  }

  void add(std::uint32_t path, const Address& from) {
    if (contains(path, from)) return;
    const std::uint64_t mark = mark_of(path, from);
    sets_[mark % kSets][next_.fetch_add(1, std::memory_order_relaxed) % kWays].store(mark, std::memory_order_relaxed);
  }

 private:
  std::uint64_t mark_of(std::uint32_t path, const Address& from) const {
    std::uint64_t mark = seed_ ^ AddressHash {}(from);
    for (const std::uint64_t word : {std::uint64_t{path}, std::uint64_t{from.port}, seed_}) {
      mark = (mark ^ word) * 0x9e37'79b9'7f4a'7c15;
      mark ^= mark >> 29;
    }
    return mark | 1u << 31;  // never what an empty place holds
  }

  const std::uint64_t seed_;
  std::array<std::array<std::atomic<std::uint64_t>, kWays>, kSets> sets_{};
  std::atomic<std::uint32_t> next_{0};
};

}  // namespace weir::engine
