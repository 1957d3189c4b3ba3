#include "crypto/secret.h"

#include <openssl/crypto.h>

#include <algorithm>

namespace weir::crypto {

void wipe(MutableByteSpan bytes) {
  if (!bytes.empty()) OPENSSL_cleanse(bytes.data(), bytes.size());
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
