// Size classes: four to a doubling, from 32 KiB to 64 MiB, so that a piece is at most a quarter larger than asked for.
#pragma once

#include <bit>
#include <cstddef>

namespace weir::buffer {

inline constexpr std::size_t kSmallestClassLog = 15;
inline constexpr std::size_t kLargestClassLog = 26;
inline constexpr std::size_t kSmallestClassBytes = std::size_t{1} << kSmallestClassLog;
inline constexpr std::size_t kLargestClassBytes = std::size_t{1} << kLargestClassLog;
inline constexpr std::size_t kSizeClasses = 4 * (kLargestClassLog - kSmallestClassLog) + 1;

inline constexpr std::size_t class_bytes(std::size_t index) {
  return (std::size_t{1} << (kSmallestClassLog + index / 4)) / 4 * (4 + index % 4);
}

// The smallest class that holds `bytes`, which are at most kLargestClassBytes.
inline constexpr std::size_t class_for(std::size_t bytes) {
  if (bytes <= kSmallestClassBytes) return 0;
  const std::size_t log = std::bit_width(bytes - 1) - 1;
  const std::size_t quarter = (std::size_t{1} << log) / 4;
  return 4 * (log - kSmallestClassLog) + (bytes - 4 * quarter + quarter - 1) / quarter;
}

// The largest class that `bytes`, from kSmallestClassBytes to kLargestClassBytes, can serve.
inline constexpr std::size_t class_within(std::size_t bytes) {
  const std::size_t log = std::bit_width(bytes) - 1;
  const std::size_t quarter = (std::size_t{1} << log) / 4;
  return 4 * (log - kSmallestClassLog) + (bytes - 4 * quarter) / quarter;
}

}  // namespace weir::buffer
