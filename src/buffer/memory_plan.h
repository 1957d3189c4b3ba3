// MemoryPlan: which memory buffers and large messages are to live in, and how to put it together.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "buffer/memory.h"
#include "weir/config.h"
#include "weir/error.h"

namespace weir::buffer {

struct MemoryPlan {
  BufferMemory kind = BufferMemory::heap;
  std::uint64_t bytes = 0;                              // in use and kept, all together
  std::uint64_t keep_bytes = std::uint64_t{256} << 20;  // for reuse, of those; 0: nothing is kept
  bool touch = false;                                   // pages: the first extent, now
  std::string directory;                                // files: where
  std::function<void(std::string_view sentence)> on_degraded;
};

// An error if the directory cannot hold a file, or the plan makes no sense.
[[nodiscard]] Result<std::shared_ptr<Memory>> build_memory(const MemoryPlan& plan);

}  // namespace weir::buffer
