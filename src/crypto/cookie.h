// A keyed pseudorandom function, so that a responder can hand out a random without remembering it: the random of
// hello number N from address A is Prf(N, A), now and when the initiator comes back from there.
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

  // Becomes the function of another key, in the same memory.
  void rekey(std::span<const std::byte, kKeyBytes> key) { key_->rekey(key); }

  using Context = std::array<std::byte, 20>;

  // The same sequence and context always give the same 32 bytes, different ones give unrelated bytes. A chain over
  // inputs of one fixed length: sequence, then the context in two pieces, each mixed into what came out before.
  std::array<std::byte, 32> operator()(std::uint64_t sequence, const Context& context) const {
    std::array<std::byte, 32> out;
    key_->keystream(make_nonce(kDomain, sequence), out);
    static_assert(2 * kPieceBytes == sizeof(Context) && kPieceBytes <= kNonceBytes);
    for (std::size_t begin = 0; begin < context.size(); begin += kPieceBytes) {
      Nonce nonce;
      for (std::size_t i = 0; i < nonce.size(); ++i) {
        nonce[i] = i < kPieceBytes ? out[i] ^ context[begin + i] : out[i];
      }
      key_->keystream(nonce, out);
    }
    return out;
  }

 private:
  static constexpr std::size_t kPieceBytes = 10;
  static constexpr std::uint32_t kDomain = 0x6b6f6f63;  // "cook"
  std::unique_ptr<AeadKey> key_;
};

}  // namespace weir::crypto
