// AES-128-GCM, and AES-128 for CMAC, behind one interface with two implementations, chosen at run time: intel-ipsec-mb
// where it was built in and the CPU has AES instructions, OpenSSL everywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "crypto/block_key.h"
#include "crypto/nonce.h"
#include "crypto/secret.h"

namespace weir::crypto {

inline constexpr std::size_t kTagBytes = 16;
// More than any caller seals at once; both libraries can do it without splitting.
inline constexpr std::size_t kMaxSealBytes = std::size_t{1} << 30;

enum class Backend : std::uint8_t { ipsec_mb, openssl };

struct BackendInfo {
  Backend backend;
  const char* name;    // "ipsec-mb", "openssl"
  const char* detail;  // "ipsec-mb 1.3.0, AVX512 VAES"; both live as long as the process
};

// What works in this process on this CPU, fastest first; never empty.
std::vector<BackendInfo> available_backends();
BackendInfo default_backend();

// One key with its schedule, in one 64-byte aligned block of about 1 KiB with ipsec-mb. One per direction, path and
// key id; an idle peer drops its own (making it again costs less than sealing a packet). Wiped when destroyed. One
// thread at a time. Nothing here allocates, and sealing cannot fail: a text over kMaxSealBytes is a CHECK.
//
// A nonce must never be used twice to seal or mac under one key, whatever object holds the key. Builds with
// WEIR_CHECK_NONCES stop the process when that happens (crypto/nonce_ledger.h). In a forked child a key of its parent
// seals nothing: the text becomes zeros, with a tag of zeros.
class AeadKey {
 public:
  AeadKey() = default;
  AeadKey(const AeadKey&) = delete;
  AeadKey& operator=(const AeadKey&) = delete;
  virtual ~AeadKey() = default;

  // Becomes another key, in the same memory: for keys that are used once.
  virtual void rekey(std::span<const std::byte, kKeyBytes> key) = 0;

  // Encrypts `text` in place and writes 16 bytes of tag over text and `aad`.
  virtual void seal(const Nonce& nonce, ByteSpan aad, MutableByteSpan text, std::byte* tag) = 0;

  // Decrypts `text` in place. False if the tag does not fit: `text` is then all zeros, so that forged plaintext
  // cannot be read by mistake, and the ciphertext is gone, so that a second key cannot be tried on it.
  [[nodiscard]] virtual bool open(const Nonce& nonce, ByteSpan aad, MutableByteSpan text, const std::byte* tag) = 0;

  // The same from one place to another: `to` gets as many bytes as `from` has, and does not overlap it. Opening what
  // does not fit leaves `from` as it was and zeros in `to`.
  virtual void seal_into(const Nonce& nonce, ByteSpan aad, ByteSpan from, std::byte* to, std::byte* tag) = 0;
  [[nodiscard]] virtual bool open_into(const Nonce& nonce, ByteSpan aad, ByteSpan from, std::byte* to,
                                       const std::byte* tag) = 0;

  // GMAC: a tag over `aad` alone.
  virtual void mac(const Nonce& nonce, ByteSpan aad, std::byte* tag) = 0;
  [[nodiscard]] virtual bool verify_mac(const Nonce& nonce, ByteSpan aad, const std::byte* tag) = 0;
};

// Makes keys of one backend. One per thread that makes keys. Keys may outlive it and may move to another thread.
class Aead {
 public:
  // Null if the backend is not among available_backends().
  static std::unique_ptr<Aead> create(Backend backend);

  Aead() = default;
  Aead(const Aead&) = delete;
  Aead& operator=(const Aead&) = delete;
  virtual ~Aead() = default;

  virtual std::unique_ptr<AeadKey> make_key(std::span<const std::byte, kKeyBytes> key) = 0;
  virtual std::unique_ptr<BlockKey> make_block_key(std::span<const std::byte, kKeyBytes> key) = 0;
  virtual BackendInfo info() const = 0;
};

}  // namespace weir::crypto
