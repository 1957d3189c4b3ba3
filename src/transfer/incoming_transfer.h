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
#include "transfer/known_caller.h"
#include "weir/error.h"
#include "wire/frame.h"

namespace weir::transfer {

class Reassembly;
struct Arrival;

// Lives in a slab of one engine. Handlers hold it between dispatch and reply, and a server holds many of them then:
// what is needed before does not take room from what is needed afterwards.
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

  // The request for its handler.
  struct Delivery {
    const std::byte* request = nullptr;  // header and body; valid until the delivery returns, unless `pin`
    detail::Pin* pin = nullptr;          // what keeps `request` alive, to be shared by whoever keeps it longer
    std::uint64_t method = 0;
  };

  State state = State::receiving;
  std::atomic<bool> cancelled{false};  // the caller has gone; any thread may look while it owes the answer
  std::uint8_t priority = 3;
  std::uint8_t depth = 0;
  std::uint16_t header_bytes = 0;  // of the request; of the reply once answered
  bool reply_failed = false;       // the reply is an error: code and sentence
  bool is_large = false;           // a large request; once all of it is there, `delivery.pin` is its Landing, ours
  bool has_arrival = false;        // receiving: `arrival` is set
  Code refusal{};                  // of a large request that was refused before its data; none: success
  bool is_final : 1 = false;       // that refusal: the application's, it will not pass by itself
  bool opening_acked : 1 = false;  // of a large reply
  bool reply_is_large = false;     // `block` holds a Cargo and the opening of a large reply
  std::uint32_t path = 0;
  CallerReference caller;  // whose path it is; the number alone may come again
  union {
    std::uint64_t packed_id = 0;  // as wire::TransferId::packed()
    __extension__ struct {
      std::uint32_t slot : 24;
      std::uint64_t generation : 40;
    };
  };
  std::uint32_t max_reply = wire::kAnyReply;  // bytes of the largest reply that its caller accepts, header and body
  union {
    std::uint32_t cost = 0;    // until it is answered: the credit to give back then
    std::uint32_t sent_bytes;  // of the reply
  };
  std::uint32_t answer_room = 0;  // what it holds of the room for answers
  std::uint32_t bytes = 0;        // of the request while it is delivered; of the reply afterwards
  Instant deadline{};
  Block* block = nullptr;  // the request's bytes if it had to wait; then the reply's if they do not fit inline
  Reassembly* reassembly = nullptr;  // the request's fragments, then which parts of a cut reply were acknowledged
  union {
    schedule::QueueHook<IncomingTransfer> hook{};  // waiting, or in its path's reply queue
    IncomingTransfer* next;                        // in the delivery list
    Arrival* arrival;                              // a large request that is being written
  };
  union {
    Delivery delivery{};                   // until it is answered, or its host has kept the request in `inline_bytes`
    std::byte inline_bytes[kInlineBytes];  // the reply, if it is small
  };

  IncomingTransfer() {}  // NOLINT: inline_bytes stay uninitialised on purpose

  const std::byte* reply_data() const {
    if (block == nullptr) return inline_bytes;
    return reply_is_large ? Cargo::opening(block) : block->bytes();
  }
  buffer::Landing* landing() const { return is_large ? static_cast<buffer::Landing*>(delivery.pin) : nullptr; }
};

// With the slab's share, the slot of its path and the host's record it stays within 256 bytes.
static_assert(sizeof(IncomingTransfer) <= 160);

}  // namespace weir::transfer
