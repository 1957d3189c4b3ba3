// How received bytes are kept beyond their delivery. On the worker, except where it says otherwise.
#pragma once

#include "base/bytes.h"
#include "transfer/block_pool.h"
#include "transfer/incoming_transfer.h"
#include "weir/body.h"
#include "weir/pin.h"

namespace weir::pool {

class Gate;

// Whether a reference on `pin` is the way to keep the bytes; otherwise they are copied.
bool may_stay(ByteSpan bytes, detail::Pin* pin, const Gate& gate);
transfer::Block* copy_to_block(ByteSpan bytes, Gate& gate);
// The bytes, copied into the object if they are few (up to 256), otherwise into a block or kept where they are.
Body keep_bytes(ByteSpan bytes, detail::Pin* pin, Gate& gate);

// The bytes of a request, kept by its transfer until its handler runs: where its answer will be if they are few,
// otherwise in a block or where they are.
void keep_request(transfer::IncomingTransfer& transfer, Gate& gate);
// Any thread that has the transfer: what keep_request() kept, once.
Body take_kept(transfer::IncomingTransfer& transfer);
void drop_kept(transfer::IncomingTransfer& transfer) noexcept;

}  // namespace weir::pool
