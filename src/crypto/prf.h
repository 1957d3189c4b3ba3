// A keyed pseudorandom function, so that a responder can hand out a random without remembering it: the random of
// hello number N from address A is Prf(N, A), now and when the initiator comes back from there.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "crypto/cmac.h"

namespace weir::crypto {

// Owns a key of its own, which must be used for nothing else. One per responder; one thread at a time. A call allocates
// nothing.
class Prf {
 public:
  Prf(Aead& aead, std::span<const std::byte, kKeyBytes> key) : cmac_(aead, key) {}

  // Becomes the function of another key, in the same memory.
  void rekey(std::span<const std::byte, kKeyBytes> key) { cmac_.rekey(key); }

  using Context = std::array<std::byte, 20>;
  using Half = std::array<std::byte, 16>;

  // The same sequence and context always give the same 32 bytes, different ones give unrelated bytes.
  std::array<std::byte, 32> operator()(std::uint64_t sequence, const Context& context) const {
    std::array<std::byte, 32> out;
    for (std::uint32_t i = 0; i < 2; ++i) std::ranges::copy(half(sequence, context, i), out.begin() + i * sizeof(Half));
    return out;
  }

  // The first 16 of them, for half the work.
  Half half(std::uint64_t sequence, const Context& context) const { return half(sequence, context, 0); }

 private:
  Half half(std::uint64_t sequence, const Context& context, std::uint32_t which) const {
    std::array<std::byte, 2 * kBlockBytes> input;
    store<std::uint64_t>(input.data(), sequence);
    std::ranges::copy(context, input.begin() + sizeof sequence);
    store<std::uint32_t>(input.data() + sizeof sequence + sizeof context, which);
    static_assert(sizeof sequence + sizeof context + sizeof which == sizeof input);
    return cmac_.of_blocks(input);
  }

  Cmac cmac_;
};

}  // namespace weir::crypto
