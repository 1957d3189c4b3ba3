// OutgoingCall: the caller's half of one transfer.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/time.h"
#include "schedule/priority_queue.h"
#include "schedule/timing_wheel.h"
#include "transfer/block_pool.h"
#include "weir/error.h"

namespace weir::transfer {

// How a call ended. `bytes` are valid during OutgoingCall::complete only, unless `pin` is there: then whoever takes a
// reference on it may keep them.
struct Outcome {
  bool failed = false;
  Code code{};
  bool may_have_run = false;
  const char* sentence = "";  // of a failure that this side found
  ByteSpan bytes;             // the reply, header first; or the sentence of a failure that the peer reported
  std::uint32_t header_bytes = 0;
  detail::Pin* pin = nullptr;
};

class Reassembly;

// Made by the pool (or a test), lent to one engine from submit() until complete(). It stays where it is meanwhile.
// All fields above the line are set by the owner before submit(); those below belong to the engine.
struct OutgoingCall {
  static constexpr std::size_t kInlineBytes = 64;

  enum class State : std::uint8_t { idle, queued, sent, done };

  // Called exactly once, inside Engine::deliver(). The engine has let go of the call by then.
  void (*complete)(OutgoingCall& call, const Outcome& outcome) = nullptr;
  std::uint64_t method = 0;
  Instant deadline = Instant::never();
  Block* block = nullptr;   // holds the bytes if they are more than kInlineBytes; the engine drops it
  std::uint32_t peer = 0;   // from Engine::connect()
  std::uint32_t bytes = 0;  // header and body together
  std::uint16_t header_bytes = 0;
  std::uint8_t priority = 3;
  std::uint8_t depth = 0;     // 0 outside handlers; a handler's own depth + 1 inside
  bool connect_only = false;  // completes with an empty reply once the peer is connected; nothing is sent
  // ---- the engine's ----
  State state = State::idle;
  bool slot_held = false;  // its slot outlives it, until the peer has acknowledged the cancellation
  std::uint32_t slot = 0;
  std::uint64_t generation = 0;
  schedule::QueueHook<OutgoingCall> hook;  // in its peer's send queue
  schedule::Timer timer;                   // the deadline
  std::uint32_t sent_bytes = 0;            // next byte to send for the first time
  Reassembly* reassembly = nullptr;        // a reply that arrives in fragments
  alignas(8) std::byte inline_bytes[kInlineBytes];

  OutgoingCall() {}  // NOLINT: inline_bytes stay uninitialised on purpose

  const std::byte* data() const { return block != nullptr ? block->bytes() : inline_bytes; }
};

}  // namespace weir::transfer
