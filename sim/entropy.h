// Keys and incarnations from a seed. It lives here and nowhere else: production code cannot reach it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/random.h"
#include "crypto/entropy.h"

namespace weir::sim {

class SeededEntropy final : public crypto::Entropy {
 public:
  explicit SeededEntropy(std::uint64_t seed) : random_(seed) {}

  void fill(MutableByteSpan out) override {
    while (!out.empty()) {
      const std::uint64_t word = random_.next();
      const std::size_t bytes = std::min(sizeof word, out.size());
      std::memcpy(out.data(), &word, bytes);
      out = out.subspan(bytes);
    }
  }

 private:
  Random random_;
};

}  // namespace weir::sim
