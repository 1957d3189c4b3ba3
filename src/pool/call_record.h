// CallRecord: a call as the pool sees it, around the half that the engine sees.
//
// Who may touch it when. A direct record was made on the thread that turns its loop; everything happens there, without
// atomics, and a handle that wandered to another thread sends its wishes through the gate. A lane record was made on
// another thread; its stage decides between that side and the worker:
//
//   pending --(worker completes)--> done                     the handle finds it done
//   pending --(handle claims)----> claimed --(completes)--> done   the worker hands it to the waiter
//
// The side that made the second transition owns the record from there on. Dropping the handle gives the record to the
// worker, through the gate, unless it is done.
//
// From then on the result is in OutgoingCall::kept: the pin keeps the data, unless that is inline or a literal.
#pragma once

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/sync.h"
#include "pool/record_pool.h"
#include "transfer/outgoing_call.h"
#include "weir/call.h"

namespace weir::pool {
class Gate;
class Lane;
struct InPlace;
struct PeerEntry;
}  // namespace weir::pool

namespace weir::detail {

enum class CallStage : std::uint8_t {
  pending,
  claimed,
  done,
  in_place,  // done, but the result is still where it arrived: only within the delivery of a direct record
};
enum class WaiterKind : std::uint8_t {
  none,
  continuation,  // run it where the call completes
  coroutine,     // resume it on its lane
  group,         // count it; the last one resumes
  thread,        // a thread blocks in get()
};

struct CallRecord : transfer::OutgoingCall {
  using Pool = pool::RecordPool<CallRecord, std::shared_ptr<pool::Gate>>;

  // Bits of `wishes`: what a thread that may not touch the record asks of the worker.
  static constexpr std::uint8_t kSubmit = 1, kClaim = 2, kDrop = 4;

  struct Waiter {
    std::coroutine_handle<> coroutine;
    pool::Lane* lane;
    CallGroup* group;
    bool has_arrived;   // the lane has it in its hands
    bool is_abandoned;  // its coroutine was destroyed while the record was on its way to the lane
  };

  CallRecord() noexcept {}  // NOLINT: the unions are filled before they are read

  // ---- in the padding of the engine's half; a byte each, because two threads write them ----
  sync::Atomic<CallStage> stage{CallStage::pending};
  sync::Atomic<std::uint8_t> wishes{0};
  WaiterKind waiter_kind = WaiterKind::none;
  bool is_dropped : 1 = false;    // nobody wants the result; the worker's
  bool opens_itself : 1 = false;  // whoever takes a large reply opens it; set before it is submitted
  bool has_ties : 1 = false;      // to other calls: see Ties
  std::uint8_t resume_depth = 0;

  Pool::Core* core = nullptr;
  CallRecord* link = nullptr;  // in the free list, at the gate with a wish, or on the way to a lane: one at a time
  union {
    const std::string* peer_shown;  // until there is a continuation; as long-lived as the gate
    RunContinuation run;            // what is in `continuation`
  };
  union {
    Waiter waiter;
    alignas(std::max_align_t) std::byte continuation[kContinuationBytes];
  };

  inline bool is_direct() const;
  // Until it is submitted.
  pool::PeerEntry* peer_entry() const { return static_cast<pool::PeerEntry*>(owners); }
  // Where its result lies, in that stage.
  pool::InPlace* in_place() const { return static_cast<pool::InPlace*>(kept.place); }
};
static_assert(sizeof(CallRecord) == 256, "192 bytes and 64 of payload");

}  // namespace weir::detail

namespace weir::pool {

using detail::CallRecord;

// A result on its way to a coroutine or continuation that runs inside the delivery. It lives on the worker's stack,
// because the record may be released and taken again before the coroutine returns.
struct InPlace {
  const transfer::Outcome* outcome;
  bool is_taken = false;
};

// The two ways in which calls complete; OutgoingCall::complete is one of them.
void complete_direct(transfer::OutgoingCall& call, const transfer::Outcome& outcome) noexcept;
void complete_for_lane(transfer::OutgoingCall& call, const transfer::Outcome& outcome) noexcept;

// Resumes whoever waits for a record that is done. On the waiter's own thread.
void resume_waiter(CallRecord* record);

}  // namespace weir::pool

inline bool weir::detail::CallRecord::is_direct() const { return complete == &pool::complete_direct; }
