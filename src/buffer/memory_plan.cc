#include "buffer/memory_plan.h"

#include <algorithm>
#include <utility>

#include "buffer/balanced_memory.h"
#include "buffer/cached_memory.h"
#include "buffer/extent_memory.h"
#include "buffer/file_source.h"
#include "buffer/heap_memory.h"
#include "buffer/numa.h"
#include "buffer/page_source.h"

namespace weir::buffer {
namespace {

// Errors now are better than none of the memory later.
Result<std::unique_ptr<ExtentSource>> probed_files(const MemoryPlan& plan) {
  if (plan.directory.empty()) {
    return std::unexpected(Error(Code::invalid_argument, "buffers in files need a directory"));
  }
  auto source = std::make_unique<FileSource>(plan.directory);
  const Result<Extent> probe = source->map(source->unit(), -1);
  if (!probe) return std::unexpected(probe.error());
  source->unmap(*probe);
  return source;
}

}  // namespace

Result<std::shared_ptr<Memory>> build_memory(const MemoryPlan& plan) {
  if (plan.kind != BufferMemory::heap && plan.bytes < PageSource::kHugePageBytes) {
    return std::unexpected(Error(Code::invalid_argument, "buffers in pages or files need at least 2 MiB"));
  }
  std::shared_ptr<Memory> memory;
  const ExtentMemory::Limits limits{.bytes = plan.bytes};
  switch (plan.kind) {
    case BufferMemory::heap:
      memory = std::make_shared<HeapMemory>(plan.bytes);
      break;
    case BufferMemory::pages:
    case BufferMemory::huge_pages: {
      auto source = std::make_unique<PageSource>(PageSource::Options{
          .huge = plan.kind == BufferMemory::huge_pages, .touch = plan.touch, .on_degraded = plan.on_degraded});
      memory = std::make_shared<ExtentMemory>(std::move(source), limits);
      break;
    }
    case BufferMemory::files: {
      auto source = probed_files(plan);
      if (!source) return std::unexpected(std::move(source).error());
      memory = std::make_shared<ExtentMemory>(*std::move(source), limits);
      break;
    }
  }
  if (plan.touch && plan.kind != BufferMemory::heap) {
    if (const Piece first = memory->take(1)) memory->give_back(first);  // maps an extent, which stays
  }
  if (plan.keep_bytes != 0) {
    memory = std::make_shared<CachedMemory>(std::move(memory), std::min(plan.keep_bytes, plan.bytes));
  }
  if (auto nodes = numa_nodes(); nodes.size() > 1) {
    memory = std::make_shared<BalancedMemory>(std::move(memory), std::move(nodes));
  }
  return memory;
}

}  // namespace weir::buffer
