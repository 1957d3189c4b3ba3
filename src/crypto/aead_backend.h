// What the two AEAD implementations share. Included by src/crypto/*.cc only.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "base/check.h"
#include "base/fork_guard.h"
#include "crypto/aead.h"
#include "crypto/nonce_ledger.h"

namespace weir::crypto {

std::unique_ptr<Aead> create_openssl();
BackendInfo openssl_info();

#ifdef WEIR_HAVE_IPSEC_MB
// Empty if this CPU lacks the instructions or the library's self-test failed.
std::optional<BackendInfo> ipsec_mb_info();
std::unique_ptr<Aead> create_ipsec_mb();
#endif

// Asked before every seal. A key seals only in the process that was given it: a forked child has its parent's counters,
// and would use the same nonces. Reports every seal to the process's nonce ledger in builds that check.
class NonceGuard {
  ForkGuard fork_guard_;

 public:
#ifdef WEIR_CHECK_NONCES
  explicit NonceGuard(std::span<const std::byte, kKeyBytes> key) { become(key); }
  NonceGuard(const NonceGuard&) = delete;
  NonceGuard& operator=(const NonceGuard&) = delete;
  ~NonceGuard() { wipe(bytes_); }
  void become(std::span<const std::byte, kKeyBytes> key) {
    std::copy(key.begin(), key.end(), bytes_.begin());
    known_ = false;
    fork_guard_ = {};
  }
  [[nodiscard]] bool may_seal(const Nonce& nonce) {
    if (fork_guard_.is_in_child()) return false;
    if (!known_) {  // a key that only opens has no use for one, and computing it allocates
      fingerprint_ = fingerprint_of(bytes_);
      wipe(bytes_);
      known_ = true;
    }
    WEIR_CHECK(process_nonce_ledger().record(fingerprint_, nonce),
               "a nonce was used twice under one key; give each key one number space and never restart it");
    return true;
  }

 private:
  KeyBytes bytes_{};  // until the fingerprint is known
  KeyFingerprint fingerprint_{};
  bool known_ = false;
#else
  explicit NonceGuard(std::span<const std::byte, kKeyBytes>) {}
  void become(std::span<const std::byte, kKeyBytes>) { fork_guard_ = {}; }
  [[nodiscard]] bool may_seal(const Nonce&) const { return !fork_guard_.is_in_child(); }
#endif
};

// What a key that must not seal leaves instead: nothing of the text.
void leave_zeros(std::byte* to, std::size_t bytes, std::byte* tag);

inline void check_sizes(ByteSpan aad, ByteSpan text) {
  WEIR_CHECK(aad.size() <= kMaxSealBytes && text.size() <= kMaxSealBytes, "one seal covers at most 1 GiB; use records");
}

// No branch depends on the tags' bytes before both have been read whole.
inline bool tags_equal(const std::byte* left, const std::byte* right) {
  const std::uint64_t low = load<std::uint64_t>(left) ^ load<std::uint64_t>(right);
  const std::uint64_t high = load<std::uint64_t>(left + 8) ^ load<std::uint64_t>(right + 8);
  return (low | high) == 0;
}

}  // namespace weir::crypto
