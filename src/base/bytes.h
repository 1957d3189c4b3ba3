// Little-endian loads and stores. Callers have checked the bounds.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace weir {

static_assert(std::endian::native == std::endian::little, "weir's wire format is little-endian; add byte swaps here");

using ByteSpan = std::span<const std::byte>;
using MutableByteSpan = std::span<std::byte>;

template <class T>
inline T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <class T>
inline void store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

inline std::uint32_t load24(const std::byte* from) {
  return static_cast<std::uint32_t>(load<std::uint16_t>(from)) | (static_cast<std::uint32_t>(from[2]) << 16);
}

inline void store24(std::byte* to, std::uint32_t value) {
  store<std::uint16_t>(to, static_cast<std::uint16_t>(value));
  to[2] = static_cast<std::byte>(value >> 16);
}

}  // namespace weir
