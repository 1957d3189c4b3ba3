#include "crypto/secret.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <cstring>

namespace weir::crypto {

void wipe(MutableByteSpan bytes) {
  if (bytes.empty()) return;
#ifdef __GNUC__
  // As OPENSSL_cleanse() does it, for less: strangers can make us wipe (docs/decisions/0010).
  std::memset(bytes.data(), 0, bytes.size());
  asm volatile("" : : "r"(bytes.data()) : "memory");  // somebody may read it: so it is not dropped
#else
  OPENSSL_cleanse(bytes.data(), bytes.size());
#endif
}

bool equal_in_constant_time(ByteSpan left, ByteSpan right) {
  if (left.size() != right.size()) return false;
  return left.empty() || CRYPTO_memcmp(left.data(), right.data(), left.size()) == 0;
}

Secret::Secret(std::span<const std::byte, kSecretBytes> bytes) {
  std::copy(bytes.begin(), bytes.end(), bytes_.begin());
}

Secret::Secret(Secret&& other) noexcept : bytes_(other.bytes_) { wipe(other.bytes_); }

Secret& Secret::operator=(Secret&& other) noexcept {
  if (this != &other) {
    bytes_ = other.bytes_;
    wipe(other.bytes_);
  }
  return *this;
}

}  // namespace weir::crypto
