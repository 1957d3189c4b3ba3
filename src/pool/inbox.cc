#include "pool/inbox.h"

namespace weir::pool {

// Its handle was dropped while it was in its ring.
void Inbox::throw_away(CallRecord* record) noexcept {
  if (record->has_ties) untie(*record, true);
  record->drop_bytes();
  CallRecord::Pool::release(record);
}

void Inbox::cancel(detail::CancellableCall* newest, engine::Engine& engine, Instant now) {
  while (newest != nullptr) {
    if (gate_->is_in_child()) [[unlikely]]
      return;  // the one before it forked, and returned in the child
    detail::CancellableCall* const call = std::exchange(newest, newest->link);
    if (!call->is_over) cancel_on_worker(*call, engine, now);
    call->release();
  }
}

}  // namespace weir::pool
