// What happens to call records between their submission and their end.
#pragma once

#include "base/time.h"
#include "engine/engine.h"
#include "pool/call_record.h"

namespace weir::pool {

// Completes a record that never reached the engine, because the pool is closed. Runs nothing of the application's: if
// a continuation waits for it, the record is put in front of `refused`, for run_refused().
CallRecord* refuse_call(CallRecord* record, CallRecord* refused) noexcept;
// The same for a record that is done and claimed.
CallRecord* hand_over_refused(CallRecord* record, CallRecord* refused) noexcept;
void run_refused(CallRecord* refused) noexcept;
// Gives up a record that is done.
void drop_result(CallRecord* record) noexcept;
// Gives a record that is done and claimed to its waiter.
void hand_over(CallRecord* record) noexcept;
// On the worker: the handle of a record that no waiter has claimed is gone.
void drop_on_worker(CallRecord* record, engine::Engine& engine, Instant now);

}  // namespace weir::pool
