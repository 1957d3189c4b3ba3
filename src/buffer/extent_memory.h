// ExtentMemory: pieces cut from large mappings (extents). It grows by whole new extents, each twice the last up to a
// largest size; one that is mapped is never extended, moved or unmapped before the end, so that addresses stay good and
// a network card can be shown each once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "buffer/memory.h"
#include "buffer/range_allocator.h"
#include "weir/error.h"

namespace weir::buffer {

struct Extent {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  int numa_node = -1;
};

// Where extents come from. One thread at a time.
class ExtentSource {
 public:
  ExtentSource() = default;
  ExtentSource(const ExtentSource&) = delete;
  ExtentSource& operator=(const ExtentSource&) = delete;
  virtual ~ExtentSource() = default;

  // Extents are multiples of it; a power of two, at least RangeAllocator::kUnit.
  virtual std::size_t unit() const = 0;
  // Memory that can be written to without a surprise later on: what the system cannot give is an error now.
  [[nodiscard]] virtual Result<Extent> map(std::size_t bytes, int numa_node) = 0;
  virtual void unmap(const Extent& extent) noexcept = 0;
  // Without a lock held, after somebody took memory: says what it has to say. Any thread.
  virtual void tell() {}
  // As Memory::node_for(). Any thread.
  virtual int node_for(int /*wish*/) const { return -1; }
};

class ExtentMemory final : public Memory {
 public:
  static constexpr std::size_t kMaxExtents = 4'096;

  struct Limits {
    std::uint64_t bytes = 0;  // of all extents
    std::size_t first_extent_bytes = std::size_t{64} << 20;
    std::size_t largest_extent_bytes = std::size_t{32} << 30;
  };

  ExtentMemory(std::unique_ptr<ExtentSource> source, const Limits& limits);
  ~ExtentMemory() override;

  Piece take(std::size_t bytes, int numa_node = -1) override;
  void give_back(const Piece& piece) noexcept override;
  int node_for(int wish) const override { return source_->node_for(wish); }

  std::vector<Extent> extents() const;
  std::uint64_t taken_bytes() const;
  // Why it could not grow when it last tried.
  std::optional<Error> last_error() const;

 private:
  struct Held {
    Extent extent;
    RangeAllocator ranges;
  };

  Piece take_locked(std::size_t bytes, int numa_node);
  Piece cut(std::size_t index, std::size_t bytes);
  bool grow(std::size_t bytes, int numa_node);

  const std::unique_ptr<ExtentSource> source_;
  const Limits limits_;
  mutable std::mutex mutex_;  // of what follows; also while the system is asked for an extent
  std::vector<Held> held_;
  std::size_t next_extent_bytes_;
  std::uint64_t mapped_bytes_ = 0;
  std::uint64_t taken_bytes_ = 0;
  std::optional<Error> last_error_;
};

}  // namespace weir::buffer
