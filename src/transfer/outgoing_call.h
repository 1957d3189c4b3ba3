// OutgoingCall: the caller's half of one transfer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/bytes.h"
#include "base/time.h"
#include "buffer/landing.h"
#include "schedule/priority_queue.h"
#include "schedule/timing_wheel.h"
#include "transfer/block_pool.h"
#include "transfer/cargo.h"
#include "weir/error.h"
#include "wire/frame.h"

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
  buffer::Landing* landing = nullptr;  // a large reply, to be opened: `bytes` is its header only, and `pin` this
};

class Reassembly;
struct Arrival;

// Made by the pool (or a test), lent to one engine from submit() until complete(). It stays where it is meanwhile.
// There is one for each outstanding call, so its fields share memory where their times do not overlap: `state` says
// which of a union's members is there.
struct OutgoingCall {
  static constexpr std::size_t kInlineBytes = 64;

  enum class State : std::uint8_t { idle, held, queued, sent, delayed, done };

  // What an owner may keep of an outcome in the call itself. The engine does not look at it.
  struct Kept {
    detail::Pin* pin;
    union {
      const std::byte* data;
      void* place;
    };
    std::uint32_t bytes;
    std::uint16_t header_bytes;
    Code code;
    bool failed : 1;
    bool may_have_run : 1;
    bool is_landing : 1;  // `pin` is one: a large reply, of which `data` and `bytes` are the header
  };

  // ---- set by the owner before submit() ----
  // Called exactly once, inside Engine::deliver(). The engine has let go of the call by then.
  void (*complete)(OutgoingCall& call, const Outcome& outcome) = nullptr;
  std::uint64_t method = 0;
  Instant deadline = Instant::never();
  Block* block = nullptr;  // holds the bytes if they are more than kInlineBytes; the engine drops it
  union {
    std::uint32_t peer = 0;  // from Engine::connect(); until it is sent
    std::uint32_t path;      // that carries it; once it is sent
  };
  std::uint32_t bytes = 0;  // header and body together
  union {
    void* owners = nullptr;                  // idle: the owner's
    schedule::QueueHook<OutgoingCall> hook;  // queued: in its peer's send queue; held: among all that are
    __extension__ struct {                   // sent
      union {
        Reassembly* reassembly;  // a reply, or the opening of a large one, that arrives in fragments
        Arrival* arrival;        // a large reply that is being written, if has_arrival
      };
      std::uint32_t slot : 24;
      std::uint64_t generation : 40;
      std::uint16_t sent_bytes;   // next byte to send for the first time
      std::uint16_t reply_units;  // what it has in the window of replies (engine/reply_window.h)
      std::uint32_t reply_stamp;  // and since when
    };
    Kept kept;  // done: the owner's
  };
  [[no_unique_address]] schedule::Timer timer;  // the deadline; the next fields are in its padding
  State state = State::idle;                    // the engine's
  bool slot_held = false;  // the engine's: its slot outlives it, until the peer has acknowledged the cancellation
  std::uint8_t priority = 3;
  std::uint8_t depth = 0;  // 0 outside handlers; a handler's own depth + 1 inside
  alignas(8) std::byte inline_bytes[kInlineBytes];
  std::uint32_t max_reply = wire::kAnyReply;  // bytes of the largest reply that it accepts, header and body
  std::uint16_t header_bytes = 0;
  bool is_patient : 1 = false;    // a peer or method that is not up is tried again until the deadline
  bool connect_only : 1 = false;  // completes with an empty reply once the peer is connected; nothing is sent
  bool is_large : 1 = false;      // `block` holds a Cargo and the opening of a large request
  bool has_arrival : 1 = false;   // the engine's
  bool is_held : 1 = false;       // waits for Engine::release() before anything is sent
  bool tells_sent : 1 = false;    // EngineConfig::on_sent is to be told of it; the engine's from then on

  OutgoingCall() {}  // NOLINT: inline_bytes stay uninitialised on purpose

  const std::byte* data() const {
    if (block == nullptr) return inline_bytes;
    return is_large ? Cargo::opening(block) : block->bytes();
  }
  void drop_bytes() {
    if (block != nullptr) drop_block(std::exchange(block, nullptr), is_large);
  }
};
static_assert(sizeof(OutgoingCall) == 168, "what is added here is paid by every outstanding call");

}  // namespace weir::transfer
