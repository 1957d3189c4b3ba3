// Secrets that leave no trace: memory is wiped in a way the compiler may not drop.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"

namespace weir::crypto {

inline constexpr std::size_t kSecretBytes = 32;
inline constexpr std::size_t kKeyBytes = 16;

// An AES-128 key before its schedule. It does not wipe itself: whoever holds one calls wipe() after make_key().
using KeyBytes = std::array<std::byte, kKeyBytes>;

void wipe(MutableByteSpan bytes);

// In time that depends on the length only. Different lengths are unequal.
[[nodiscard]] bool equal_in_constant_time(ByteSpan left, ByteSpan right);

// 32 bytes that wipe themselves. Copies are allowed (a path and its successor may hold one) and each wipes its own;
// a moved-from secret is all zeros. Immutable otherwise, so any thread may read it.
class Secret {
 public:
  Secret() = default;
  explicit Secret(std::span<const std::byte, kSecretBytes> bytes);
  Secret(const Secret&) = default;
  Secret& operator=(const Secret&) = default;
  Secret(Secret&& other) noexcept;
  Secret& operator=(Secret&& other) noexcept;
  ~Secret() { wipe(bytes_); }

  std::span<const std::byte, kSecretBytes> bytes() const { return bytes_; }
  std::span<std::byte, kSecretBytes> writable() { return bytes_; }

  bool operator==(const Secret& other) const { return equal_in_constant_time(bytes_, other.bytes_); }

 private:
  std::array<std::byte, kSecretBytes> bytes_{};
};

}  // namespace weir::crypto
