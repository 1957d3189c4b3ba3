// Arena: the memory of one run. While a thread of the model runs, operator new takes from here.
//
// Each thread has a region of its own, so that addresses follow from what the thread did, whatever the others do
// meanwhile. What is freed is not given out again before the next run.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tests/explore/clock.h"

namespace weir::explore {

struct Block {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  Moment made{};
  bool is_freed = false;
};

namespace arena {

// Whether operator new takes from the arena now. The explorer's own memory does not come from there.
bool is_on() noexcept;
void turn(bool on) noexcept;

void reset() noexcept;                      // a run begins
std::size_t live() noexcept;                // blocks that were made and not freed
Block* find(const void* address) noexcept;  // null: not of the arena
std::size_t bytes_of_first_live() noexcept;

class Off {
 public:
  Off() : was_on_(is_on()) { turn(false); }
  Off(const Off&) = delete;
  Off& operator=(const Off&) = delete;
  ~Off() { turn(was_on_); }

 private:
  bool was_on_;
};

}  // namespace arena
}  // namespace weir::explore
