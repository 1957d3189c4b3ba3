// A keyed pseudorandom function, so that a responder can hand out a random without remembering it: the random of
// hello number N is Prf(N), now and when the initiator comes back.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "crypto/aead.h"

namespace weir::crypto {

// Owns a key of its own, which must come from Entropy and be used for nothing else. One per responder; one thread at
// a time. A call allocates nothing.
class Prf {
 public:
  Prf(Aead& aead, std::span<const std::byte, kKeyBytes> key) : key_(aead.make_key(key)) {}

  // AES in counter mode: the same sequence always gives the same 32 bytes, different ones give unrelated bytes.
  std::array<std::byte, 32> operator()(std::uint64_t sequence) const {
    std::array<std::byte, 32> out;
    key_->keystream(make_nonce(kDomain, sequence), out);
    return out;
  }

 private:
  static constexpr std::uint32_t kDomain = 0x6b6f6f63;  // "cook"
  std::unique_ptr<AeadKey> key_;
};

}  // namespace weir::crypto
