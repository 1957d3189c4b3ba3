// What happens to call records between their submission and their end.
#pragma once

#include <vector>

#include "base/time.h"
#include "engine/engine.h"
#include "pool/call_record.h"
#include "pool/ties.h"

namespace weir::pool {

// What is left to do for calls that were refused, once no lock is held: it may run anything of the application's.
struct Refused {
  CallRecord* records = nullptr;  // whose continuations wait
  std::vector<Ties> ties;         // whom to tell that they failed
};
// Completes a record that never reached the engine, because the pool is closed.
void refuse_call(CallRecord* record, Refused& refused) noexcept;
// The same for a record that is done and claimed.
void hand_over_refused(CallRecord* record, Refused& refused) noexcept;
void finish_refused(Refused& refused) noexcept;
// On the worker: somebody waits for this call.
bool is_awaited(const transfer::OutgoingCall& call);
// Gives up a record that is done.
void drop_result(CallRecord* record) noexcept;
// Gives a record that is done and claimed to its waiter.
void hand_over(CallRecord* record) noexcept;
// On the worker: nobody wants the result of a record any more, and no continuation of it is run.
void drop_on_worker(CallRecord* record, engine::Engine& engine, Instant now);
// On the worker: somebody cancels a call that is not over. The gate has no wishes of its record. Runs its continuation.
void cancel_on_worker(detail::CancellableCall& call, engine::Engine& engine, Instant now);

}  // namespace weir::pool
