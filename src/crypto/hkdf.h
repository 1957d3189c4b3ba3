// HKDF with SHA-256 (RFC 5869). Pure functions, callable from any thread; they allocate, so not for the packet path.
#pragma once

#include "base/bytes.h"
#include "crypto/secret.h"

namespace weir::crypto {

inline constexpr std::size_t kMaxExpandBytes = 255 * 32;

Secret hkdf_extract(ByteSpan salt, ByteSpan input_key_material);

// `out` holds at most kMaxExpandBytes (a CHECK).
void hkdf_expand(const Secret& pseudorandom_key, ByteSpan info, MutableByteSpan out);

}  // namespace weir::crypto
