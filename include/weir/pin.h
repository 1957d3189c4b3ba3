// A count that keeps received bytes alive. Whoever holds a Pin may hold it on any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "weir/process.h"

namespace weir::detail {

struct Pin {
  std::atomic<std::uint32_t> references;
  std::uint32_t process = process_number();  // that made it
  void (*release)(Pin*) noexcept;            // called once, by the thread that dropped the last reference
};

// Only somebody who already holds a reference may take another one, so the increment orders nothing.
inline void pin(Pin* held) noexcept { held->references.fetch_add(1, std::memory_order_relaxed); }

// Release: our reads of the bytes happen before their memory is used again. Acquire: the last one sees that of all.
inline void unpin(Pin* held) noexcept {
  // A forked child gives nothing back: the memory may be shared with its parent, and a thread that is not there may
  // have held the lock of what it would go back to.
  if (!is_process(held->process)) [[unlikely]]
    return;
  if (held->references.fetch_sub(1, std::memory_order_acq_rel) == 1) held->release(held);
}

}  // namespace weir::detail
