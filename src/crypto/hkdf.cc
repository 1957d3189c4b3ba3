#include "crypto/hkdf.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/check.h"

namespace weir::crypto {
namespace {

void hmac_sha256(ByteSpan key, ByteSpan message, std::span<std::byte, kSecretBytes> out) {
  // Null means "no new key" to OpenSSL, which is not the same as an empty one.
  static constexpr unsigned char kEmpty[1] = {};
  const void* const key_bytes = key.empty() ? static_cast<const void*>(kEmpty) : key.data();
  const auto* const bytes = message.empty() ? kEmpty : reinterpret_cast<const unsigned char*>(message.data());
  unsigned int length = 0;
  const unsigned char* const done = HMAC(EVP_sha256(), key_bytes, static_cast<int>(key.size()), bytes, message.size(),
                                         reinterpret_cast<unsigned char*>(out.data()), &length);
  WEIR_CHECK(done != nullptr && length == kSecretBytes, "OpenSSL failed to compute HMAC-SHA256");
}

}  // namespace

Secret hkdf_extract(ByteSpan salt, ByteSpan input_key_material) {
  Secret pseudorandom_key;
  hmac_sha256(salt, input_key_material, pseudorandom_key.writable());
  return pseudorandom_key;
}

void hkdf_expand(const Secret& pseudorandom_key, ByteSpan info, MutableByteSpan out) {
  WEIR_CHECK(out.size() <= kMaxExpandBytes, "HKDF gives at most 8,160 bytes");
  // Each block is the HMAC of: the block before, info, a counter. The first has no block before it.
  std::vector<std::byte> message(kSecretBytes + info.size() + 1);
  std::copy(info.begin(), info.end(), message.begin() + kSecretBytes);
  Secret block;
  std::size_t before = 0;
  std::uint8_t counter = 0;
  while (!out.empty()) {
    message.back() = static_cast<std::byte>(++counter);
    std::copy_n(block.bytes().begin(), before, message.begin());
    hmac_sha256(pseudorandom_key.bytes(), ByteSpan{message}.subspan(kSecretBytes - before), block.writable());
    const std::size_t take = std::min(out.size(), kSecretBytes);
    std::memcpy(out.data(), block.bytes().data(), take);
    out = out.subspan(take);
    before = kSecretBytes;
  }
  wipe(message);
}

}  // namespace weir::crypto
