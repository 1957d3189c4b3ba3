// Choices for models: by a seed in tests, by the input's bytes in fuzz targets.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/random.h"

namespace weir::token {

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : random_(seed) {}
  Dice(const std::uint8_t* bytes, std::size_t size) : random_(0), at_(bytes), end_(bytes + size), scripted_(true) {}

  // Below `bound`, which is not 0.
  std::uint64_t below(std::uint64_t bound) {
    if (!scripted_) return random_.below(bound);
    std::uint64_t value = 0;
    for (std::uint64_t reach = 1; reach < bound && at_ != end_; reach = reach > (bound >> 8) ? bound : reach << 8) {
      value = (value << 8) | *at_++;
    }
    return value % bound;
  }
  bool one_in(std::uint64_t times) { return below(times) == 0; }
  bool used_up() const { return scripted_ && at_ == end_; }

 private:
  Random random_;
  const std::uint8_t* at_ = nullptr;
  const std::uint8_t* end_ = nullptr;
  bool scripted_ = false;
};

}  // namespace weir::token
