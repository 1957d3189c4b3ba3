// What happens to call records between their submission and their end.
#pragma once

#include "base/time.h"
#include "engine/engine.h"
#include "pool/call_record.h"
#include "transfer/block_pool.h"
#include "weir/body.h"

namespace weir::pool {

// Completes a record that never reached the engine, because the pool is closed.
void refuse_call(CallRecord* record) noexcept;
// Gives up a record that is done.
void drop_result(CallRecord* record) noexcept;
// Gives a record that is done and claimed to its waiter.
void hand_over(CallRecord* record) noexcept;
// On the worker: the handle of a record that no waiter has claimed is gone.
void drop_on_worker(CallRecord* record, engine::Engine& engine, Instant now);

// The bytes, copied if they are few (decision: up to 256), otherwise kept by a reference.
Body keep_bytes(ByteSpan bytes, detail::Pin* pin, transfer::BlockPool& blocks);

}  // namespace weir::pool
