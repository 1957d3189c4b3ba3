// What a pool that has placements serves: the built-in methods that peers put and get with.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "buffer/buffer_pool.h"
#include "pool/placement.h"
#include "pool/post.h"
#include "weir/method.h"

namespace weir::pool {

struct BulkServerParts {
  std::shared_ptr<Placements> placements;
  std::shared_ptr<buffer::BufferPool> buffers;  // that parts of a get are sealed in
  std::shared_ptr<worker::Worker> loop;         // if it has no thread
  std::uint64_t largest_put_bytes = 0;          // of one part
  std::uint64_t largest_get_bytes = 0;  // of one part: what is sealed at once, also by a loop if there is no executor
};

// Registers the methods with `serve`.
Result<void> serve_bulk(const BulkServerParts& parts,
                        const std::function<Result<void>(Method, const MethodEntry&)>& serve);

}  // namespace weir::pool
