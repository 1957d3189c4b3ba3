// PathNumbers: the numbers that an engine gives its paths (docs/protocol.md, rules P-6 and P-14). From the high bits
// down: the worker, as many bits as the engines at one port need; a generation; the index in the slab.
#pragma once

#include <cstdint>

#include "base/slab.h"

namespace weir::engine {

// Immutable.
class PathNumbers {
 public:
  static constexpr std::uint32_t kMaxIndexBits = 20;
  static constexpr std::uint32_t kMaxWorkerBits = 10;

  PathNumbers(std::uint32_t max_paths, std::uint32_t workers, std::uint32_t worker);

  std::uint32_t make(SlotId id) const;
  std::uint32_t index_of(std::uint32_t number) const { return number & index_mask_; }
  bool is_own(std::uint32_t number) const { return (number & worker_mask_) == worker_value_; }
  // Any number, as peers may say any; those of workers that there are not are workers() or more.
  std::uint32_t worker_of(std::uint32_t number) const { return worker_bits_ == 0 ? 0 : number >> (32 - worker_bits_); }
  std::uint32_t workers() const { return workers_; }

 private:
  std::uint32_t index_bits_;
  std::uint32_t index_mask_;
  std::uint32_t worker_bits_;
  std::uint32_t workers_;
  std::uint32_t worker_mask_ = 0;
  std::uint32_t worker_value_ = 0;
};

}  // namespace weir::engine
