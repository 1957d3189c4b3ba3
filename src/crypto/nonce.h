// A GCM nonce: 4 bytes that name a number space (a domain), 8 bytes of number in it, little-endian.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"

namespace weir::crypto {

inline constexpr std::size_t kNonceBytes = 12;
using Nonce = std::array<std::byte, kNonceBytes>;

inline Nonce make_nonce(std::uint32_t domain, std::uint64_t number) {
  Nonce nonce;
  store<std::uint32_t>(nonce.data(), domain);
  store<std::uint64_t>(nonce.data() + 4, number);
  return nonce;
}

}  // namespace weir::crypto
