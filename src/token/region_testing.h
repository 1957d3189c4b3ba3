// Landings for tests: no memory behind them, and they say when they came back.
#pragma once

#include <atomic>
#include <cstdint>

#include "buffer/landing.h"

namespace weir::token {

// Lives longer than the table that it is given to.
struct TestLanding : buffer::Landing {
  explicit TestLanding(std::uint64_t of_bytes = 1'000'000) : buffer::Landing{{.references{1}, .release = &come_back}} {
    capacity = of_bytes;
  }
  bool came_back = false;

 private:
  static void come_back(detail::Pin* pin) noexcept { static_cast<TestLanding*>(pin)->came_back = true; }
};

}  // namespace weir::token
