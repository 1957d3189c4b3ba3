// What the operations of the model have in common. For a run only.
#pragma once

#include <string>

#include "tests/explore/explorer_state.h"
#include "tests/explore/model.h"
#include "tests/explore/runtime.h"

namespace weir::explore {

inline Moment my_moment() {
  const std::size_t index = running->current();
  return {static_cast<std::uint8_t>(index), running->me().knows.happened.times[index]};
}

// The next operation of this thread is a later one.
inline void advance() {
  Thread& me = running->me();
  const std::size_t index = running->current();
  ++me.knows.happened.times[index];
  me.knows.seen.times[index] = me.knows.happened.times[index];
}

std::string place(const Where& where);
void check_life(Location& location, const Where& where);
Location& object_at(const void* address, const Where& where);

}  // namespace weir::explore
