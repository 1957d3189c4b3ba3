// How received bytes are kept beyond their delivery. On the worker only.
#pragma once

#include "base/bytes.h"
#include "transfer/block_pool.h"
#include "weir/body.h"
#include "weir/pin.h"

namespace weir::pool {

class Gate;

// Whether a reference on `pin` is the way to keep the bytes; otherwise they are copied.
bool may_stay(ByteSpan bytes, detail::Pin* pin, const Gate& gate);
transfer::Block* copy_to_block(ByteSpan bytes, Gate& gate);
// The bytes, copied into the object if they are few (up to 256), otherwise into a block or kept where they are.
Body keep_bytes(ByteSpan bytes, detail::Pin* pin, Gate& gate);

}  // namespace weir::pool
