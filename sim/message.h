// Requests that say what is to be done with them, and replies that prove which request they answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/bytes.h"
#include "buffer/landing.h"

namespace weir::sim {

enum class Answer : std::uint8_t {
  now,     // inside the handler
  later,   // after `delay_us`, when the handler has returned
  error,   // an error of the application
  nested,  // after a call of its own to `nested_host`
};

// Travels at the front of every request. The rest of the message is made from the id.
struct Instruction {
  static constexpr std::size_t kBytes = 40;

  std::uint64_t id = 0;
  Answer answer = Answer::now;
  bool keeps_request = false;  // looks at the request again when it answers, through its pin
  std::uint8_t depth = 0;
  std::uint8_t priority = 3;
  std::uint32_t nested_host = 0;
  std::uint32_t delay_us = 0;
  std::uint32_t bytes = kBytes;  // of the whole request
  std::uint32_t header_bytes = 0;
  std::uint32_t reply_bytes = 0;  // at least kReplyBytes
};

inline constexpr std::size_t kReplyBytes = 16;

// Is in every message of more than a few bytes, again and again. On the wire it means that something was not sealed.
inline constexpr std::string_view kPlaintextMarker = "NotForYou";

// How the simulated application seals what it seals itself, and opens it again.
void disguise(MutableByteSpan body);
// Verified, and as it was written; false: it does not verify.
[[nodiscard]] bool open_body(buffer::Landing& landing);

// `out` has instruction.bytes bytes.
void write_request(MutableByteSpan out, const Instruction& instruction);
// Nothing if any byte differs from what was written.
std::optional<Instruction> read_request(ByteSpan request);

// A reply to this request, of `out.size()` bytes. Part of it is the header; see reply_header_bytes().
void write_reply(MutableByteSpan out, const Instruction& instruction);
std::size_t reply_header_bytes(const Instruction& instruction);
bool is_reply_to(ByteSpan reply, std::size_t header_bytes, const Instruction& instruction);

}  // namespace weir::sim
