// How a pool's allocations wait: see weir/allocation.h.
#pragma once

#include <cstddef>
#include <memory>

#include "buffer/buffer_pool.h"
#include "weir/allocation.h"
#include "weir/buffer.h"
#include "worker/worker.h"

namespace weir::pool {

// `loop`: of a pool without worker threads, which get() turns while it waits; otherwise null.
Allocation allocate(const std::shared_ptr<buffer::BufferPool>& buffers, std::shared_ptr<worker::Worker> loop,
                    std::size_t bytes, const AllocateOptions& options);

}  // namespace weir::pool
