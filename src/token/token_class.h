// The sizes of regions that a receiver grants ahead of need (docs/protocol.md, rule G-7): 64 KiB, doubling up to 1 MiB.
// A sender's next message is seldom as long as its last one, but it is often of its class. Larger messages get regions
// of exactly their size, once they are there: memory of that size is too dear to lie idle in a guess.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace weir::token {

inline constexpr std::uint64_t kSmallestToken = 64 * 1024;
inline constexpr std::size_t kTokenClasses = 5;
inline constexpr std::uint64_t kLargestToken = kSmallestToken << (kTokenClasses - 1);

// What a token for messages of this size should hold; 0: none is granted ahead.
constexpr std::uint64_t token_capacity(std::uint64_t message_bytes) {
  if (message_bytes > kLargestToken) return 0;
  return message_bytes <= kSmallestToken ? kSmallestToken : std::bit_ceil(message_bytes);
}

// The class that a region of this capacity, which is whatever the receiver says, is kept in: the largest that it can
// serve, or the first.
constexpr std::size_t token_class_of(std::uint64_t capacity) {
  if (capacity >= kLargestToken) return kTokenClasses - 1;
  return capacity < kSmallestToken ? 0 : static_cast<std::size_t>(std::bit_width(capacity / kSmallestToken)) - 1;
}

}  // namespace weir::token
