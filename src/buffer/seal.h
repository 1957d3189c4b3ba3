// Sealing: a payload's text becomes ciphertext, once. On threads of the application, never on a dedicated worker.
//
// Record i of a payload is sealed under the payload's own key with the nonce (kRecordDomain, i) and the payload's
// length as additional data: nobody can swap records, drop some of them or cut the last one short.
//
// Keys come from the caller, fresh for each payload, from the system's entropy (in simulation: from the seed).
// `scratch` is a key object to work with; thread_key() is one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "buffer/memory.h"
#include "buffer/sealed.h"
#include "crypto/aead.h"
#include "crypto/secret.h"
#include "weir/buffer.h"
#include "weir/error.h"

namespace weir::buffer {

// This thread's own key object, of the fastest backend. Rekeying costs less than sealing a packet. What was its last
// key stays in it until the next one.
crypto::AeadKey& thread_key();

inline std::array<std::byte, 8> record_aad(std::uint64_t payload_bytes) {
  std::array<std::byte, 8> aad;
  store<std::uint64_t>(aad.data(), payload_bytes);
  return aad;
}

// From `text` into memory of its own, which is the only time that the bytes are touched. Lent to the caller, nobody has
// a handle; null: there is no memory. `piece_bytes` as in BlockShape.
[[nodiscard]] Sealed* seal(Memory& memory, ByteSpan text, const crypto::KeyBytes& key, crypto::AeadKey& scratch,
                           std::uint32_t record_bytes = kRecordBytes, std::uint64_t piece_bytes = 0);

// The same into an allocated buffer of exactly the text's size.
[[nodiscard]] Result<Payload> seal_into(Buffer buffer, ByteSpan text, const crypto::KeyBytes& key,
                                        crypto::AeadKey& scratch);

// Where the text lies. A buffer into which nothing was written is refused: what it holds was somebody else's.
[[nodiscard]] Result<Payload> seal_in_place(Buffer buffer, const crypto::KeyBytes& key, crypto::AeadKey& scratch);

// What binds a message to the bytes of an adopted payload that its binding names.
crypto::KeyBytes binding_digest(ByteSpan bytes);

// The application sealed it itself: sent as it is, opened by the application. The binding lies in one piece of it.
[[nodiscard]] Result<Payload> adopt(Buffer buffer, const Binding& binding);

}  // namespace weir::buffer
