// Trace: the operations of one run, a line each.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "tests/explore/model.h"
#include "tests/explore/runtime.h"

namespace weir::explore {

class Trace {
 public:
  // A trace that is off takes no lines.
  void begin(bool is_on) {
    is_on_ = is_on;
    text_.clear();
  }
  bool is_on() const { return is_on_; }
  const std::string& text() const { return text_; }

  struct Step {
    std::uint32_t number = 0;
    std::size_t thread = 0;
    const char* what = "";
    const Location* location = nullptr;
    std::memory_order order = std::memory_order_relaxed;
    std::uint64_t value = 0;
  };
  void add(const Step& step, const Where& where);

 private:
  bool is_on_ = false;
  std::string text_;
};

}  // namespace weir::explore
