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

// Shared by those engines. Any thread, without a lock. Each path has one address here, the last that was added, so a
// caller that changes its address all the time displaces nobody else's. What is forgotten for want of room is vouched
// for again by the next packet that gets through.
class VouchedSources {
 public:
  static constexpr std::size_t kSets = 256, kWays = 4;

  explicit VouchedSources(std::uint64_t seed) : seed_(seed) {}
  VouchedSources(const VouchedSources&) = delete;
  VouchedSources& operator=(const VouchedSources&) = delete;

  // Relaxed, here and below: an entry publishes nothing but itself.
  bool contains(std::uint32_t path, const Address& from) const {
    const std::uint64_t mark = mark_of(path, from);
    for (const auto& way : sets_[set_of(path)]) {
      if (way.load(std::memory_order_relaxed) == mark) return true;
    }
    return false;
  }

  void add(std::uint32_t path, const Address& from) {
    if (contains(path, from)) return;
    const std::uint64_t mark = mark_of(path, from);
    auto& set = sets_[set_of(path)];
    for (auto& way : set) {
      const std::uint64_t held = way.load(std::memory_order_relaxed);
      if (held != 0 && held >> 32 == path) return way.store(mark, std::memory_order_relaxed);
    }
    set[next_.fetch_add(1, std::memory_order_relaxed) % kWays].store(mark, std::memory_order_relaxed);
  }

 private:
  std::uint64_t mix(std::uint64_t word) const {
    for (int i = 0; i < 2; ++i) {
      word = (word ^ seed_) * 0x9e37'79b9'7f4a'7c15;
      word ^= word >> 29;
    }
    return word;
  }
  std::size_t set_of(std::uint32_t path) const { return mix(path) % kSets; }
  // The path, and a hash of the address that is never 0, as an empty place is.
  std::uint64_t mark_of(std::uint32_t path, const Address& from) const {
    const std::uint64_t source = mix(AddressHash{}(from) ^ mix(from.port));
    return std::uint64_t{path} << 32 | static_cast<std::uint32_t>(source >> 32) | 1u;
  }

  const std::uint64_t seed_;
  std::array<std::array<std::atomic<std::uint64_t>, kWays>, kSets> sets_{};
  std::atomic<std::uint32_t> next_{0};
};

}  // namespace weir::engine
