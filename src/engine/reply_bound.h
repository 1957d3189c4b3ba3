// How long a reply may be whose call names a bound, and what is set aside for it on either side (docs/protocol.md,
// rule C-12).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/waiting_requests.h"
#include "weir/error.h"
#include "wire/frame.h"
#include "wire/large_frame.h"

namespace weir::engine {

// Of the message in a reply frame, beyond the bytes of the reply: what opens a large one. An error has so much at
// least, whatever the bound is, so that its sentence can be read.
inline constexpr std::uint32_t kReplyExtraBytes = 64;
inline constexpr std::uint32_t kShortestReplyBytes = 256;
static_assert(kReplyExtraBytes >= wire::kCargoBytes);

// The longest message of a reply frame. Without a bound an error may be longer than an inline message by its code.
inline std::uint32_t longest_reply_message(std::uint32_t max_reply, std::size_t inline_bytes) {
  if (max_reply == wire::kAnyReply) [[likely]]
    return static_cast<std::uint32_t>(inline_bytes + 2);
  const std::uint64_t longest =
      std::max<std::uint64_t>(std::uint64_t{max_reply} + kReplyExtraBytes, kShortestReplyBytes);
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(longest, inline_bytes));
}

// What the caller reserves (C-8): as much as a block for such a message takes, at most what a call without a bound
// reserves.
inline std::size_t reply_room_of(std::uint32_t max_reply, std::size_t inline_bytes) {
  if (max_reply == wire::kAnyReply) [[likely]]
    return inline_bytes;
  return std::min<std::size_t>(answer_bytes_of(longest_reply_message(max_reply, inline_bytes)), inline_bytes);
}

// What a handler's caller is told instead of its reply.
inline Error reply_too_long(std::uint64_t bytes, std::uint32_t max_reply) {
  return {Code::too_large,
          "the reply has " + std::to_string(bytes) + " bytes and the call accepts " + std::to_string(max_reply) +
              ": raise CallOptions::max_reply, or let the peer send less",
          true};
}

}  // namespace weir::engine
