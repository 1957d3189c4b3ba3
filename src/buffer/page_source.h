// PageSource: extents of anonymous memory, in huge pages where the system has some.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <string_view>
#include <vector>

#include "buffer/extent_memory.h"

namespace weir::buffer {

class PageSource final : public ExtentSource {
 public:
  static constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

  struct Options {
    bool huge = true;
    bool touch = false;  // all of the first extent at once: slow now, no surprises later
    // Told once, by whoever took memory then, when an extent had to be made of ordinary pages although huge ones were
    // asked for.
    std::function<void(std::string_view sentence)> on_degraded;
  };

  explicit PageSource(Options options);

  std::size_t unit() const override { return kHugePageBytes; }
  Result<Extent> map(std::size_t bytes, int numa_node) override;
  void unmap(const Extent& extent) noexcept override;
  int node_for(int wish) const override;
  void tell() override;

  bool degraded() const { return degraded_; }

 private:
  Options options_;
  const std::vector<int> nodes_;
  std::atomic<bool> degraded_ = false, was_told_ = false;
};

}  // namespace weir::buffer
