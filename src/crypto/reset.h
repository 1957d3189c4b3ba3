// Keys and tags of answers by somebody who has lost his state (docs/protocol.md, rules R-*). The keys come from a
// signer that outlives the loss; the peer was told its own while all was well.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "crypto/aead.h"
#include "crypto/prf.h"
#include "crypto/secret.h"

namespace weir::crypto {

inline Prf::Context padded_context(ByteSpan bytes) {
  Prf::Context out{};
  std::copy_n(bytes.begin(), std::min(bytes.size(), out.size()), out.begin());
  return out;
}

inline KeyBytes reset_key(const Prf& signer, std::uint64_t what, const Prf::Context& context) {
  return signer.half(what, context);
}
// Of a path number that the signer gave to the peer at `address`.
inline KeyBytes path_reset_key(const Prf& signer, std::uint32_t path, const Prf::Context& address) {
  return reset_key(signer, std::uint64_t{1} << 32 | path, address);
}
// Of a credential.
inline KeyBytes credential_reset_key(const Prf& signer, std::span<const std::byte, 16> id) {
  return reset_key(signer, std::uint64_t{2} << 32, padded_context(id));
}

// The first 16 bytes of the function of `key`, for which `scratch` loses the key it had.
inline std::array<std::byte, kTagBytes> reset_tag(Prf& scratch, const KeyBytes& key, std::uint64_t sequence,
                                                  ByteSpan context) {
  scratch.rekey(key);
  return scratch.half(sequence, padded_context(context));
}

}  // namespace weir::crypto
