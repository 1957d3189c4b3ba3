// Sealing: how a pool's threads make payloads of what they send. On the thread that calls or replies.
#pragma once

#include "base/bytes.h"
#include "buffer/sealed.h"
#include "crypto/secret.h"
#include "weir/buffer.h"
#include "weir/config.h"
#include "weir/error.h"
#include "wire/frame.h"

namespace weir::pool {

class Gate;

// Whoever sends one that was moved away would otherwise be told that it arrived.
inline constexpr const char* kNoPayload =
    "this payload is no payload: it was moved away, or never sealed; keep a handle of what is sent again";

// Made by the parent of this process, a forked child, which may share its memory.
inline bool is_inherited(const Payload& payload) {
  return payload.sealed() != nullptr && !detail::is_process(payload.sealed()->process);
}

// A key for one payload, of the system's entropy. Never the same twice, also not in a process that was forked.
crypto::KeyBytes next_data_key();

// Seals `text` into a buffer of its size, with a key of its own.
[[nodiscard]] Result<Payload> seal_into(Buffer room, ByteSpan text);

// Seals `text` into memory of the pool's buffers; one reference, the caller's. `overloaded` if there is none left.
[[nodiscard]] Result<buffer::Sealed*> seal_text(Gate& gate, ByteSpan text);

// Why a large message of this size cannot be sent at all.
struct LargeSize {
  const char* what = "message";  // or "request", "reply"
  std::uint64_t body_bytes = 0;
  std::size_t header_bytes = 0;
  std::uint32_t max_reply = wire::kAnyReply;  // a reply: what its call accepts
};
[[nodiscard]] Result<void> check_large(const Limits& limits, const LargeSize& size);

}  // namespace weir::pool
