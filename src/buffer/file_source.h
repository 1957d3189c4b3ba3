// FileSource: extents that are files, for more buffers than there is memory. Each extent is a file of its own, which
// has its blocks before it is mapped (a full disk is an error value, not a signal in the middle of a write) and no name
// (so that nothing stays behind, however the process ends).
#pragma once

#include <cstddef>
#include <string>

#include "buffer/extent_memory.h"

namespace weir::buffer {

class FileSource final : public ExtentSource {
 public:
  explicit FileSource(std::string directory);

  std::size_t unit() const override { return std::size_t{64} << 10; }
  Result<Extent> map(std::size_t bytes, int numa_node) override;
  void unmap(const Extent& extent) noexcept override;

 private:
  std::string directory_;
};

}  // namespace weir::buffer
