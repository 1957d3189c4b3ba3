// IncomingTransfer: the callee's half of one transfer, from the first byte of the request to the acknowledgement of
// the reply.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/time.h"
#include "buffer/landing.h"
#include "schedule/priority_queue.h"
#include "transfer/block_pool.h"
#include "transfer/cargo.h"
#include "weir/error.h"

namespace weir::transfer {

class Reassembly;
struct Arrival;

// Lives in a slab of one engine. Handlers hold it between dispatch and reply.
struct IncomingTransfer {
  static constexpr std::size_t kInlineBytes = 64;

  enum class State : std::uint8_t {
    receiving,  // fragments are missing
    waiting,    // complete, but there is no room for its answer yet
    queued,     // complete, waiting in the delivery list
    running,    // a handler has it
    replying,   // answered; kept until the reply is acknowledged or retired
    orphaned,   // the caller has gone, a handler still has it: freed when that answers
  };

  State state = State::receiving;
  std::atomic<bool> cancelled{false};  // the caller has gone; any thread may look while it owes the answer
  std::uint8_t priority = 3;
  std::uint8_t depth = 0;
  std::uint16_t header_bytes = 0;  // of the request; of the reply once answered
  bool reply_failed = false;       // the reply is an error: code and sentence
  bool is_large = false;           // a large request; once all of it is there, `pin` is its Landing, held by us
  bool has_arrival = false;        // receiving: `arrival` is set
  Code refusal{};                  // of a large request that was refused before its data; none: success
  bool opening_acked = false;      // of a large reply
  bool reply_is_large = false;     // `block` holds a Cargo and the opening of a large reply
  std::uint32_t path = 0;
  std::uint64_t path_serial = 0;
  std::uint32_t slot = 0;
  std::uint64_t generation = 0;
  std::uint64_t method = 0;
  Instant deadline{};
  std::uint32_t cost = 0;              // credit to give back when the handler is done
  std::uint32_t answer_room = 0;       // what it holds of the room for answers
  std::uint32_t bytes = 0;             // of the request while it is delivered; of the reply afterwards
  const std::byte* request = nullptr;  // header and body; valid until the delivery returns, unless `pin`
  detail::Pin* pin = nullptr;          // what keeps `request` alive, to be shared by whoever keeps it longer
  Block* block = nullptr;  // the request's bytes if it had to wait; then the reply's if they do not fit inline
  Reassembly* reassembly = nullptr;  // the request's fragments, then which parts of a cut reply were acknowledged
  union {
    IncomingTransfer* next = nullptr;  // in the delivery list
    Arrival* arrival;                  // a large request that is being written
  };
  schedule::QueueHook<IncomingTransfer> hook;  // in its path's reply queue
  std::uint32_t sent_bytes = 0;
  void* owner = nullptr;  // for the host: what it needs to find its own state
  alignas(8) std::byte inline_bytes[kInlineBytes];

  IncomingTransfer() {}  // NOLINT: inline_bytes stay uninitialised on purpose

  const std::byte* reply_data() const {
    if (block == nullptr) return inline_bytes;
    return reply_is_large ? Cargo::opening(block) : block->bytes();
  }
  buffer::Landing* landing() const { return is_large ? static_cast<buffer::Landing*>(pin) : nullptr; }
};

}  // namespace weir::transfer
