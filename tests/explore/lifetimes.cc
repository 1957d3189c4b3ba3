// The lives of objects, and plain memory that threads hand to each other.
#include <utility>

#include "tests/explore/operation.h"

namespace weir::explore {

void begin_life(const void* address) noexcept {
  if (running == nullptr) return;
  const arena::Off off;
  Location* const location = running->memory.find(address, Location::Kind::atomic);
  if (location == nullptr) return;
  location->stores.clear();
  location->observations.clear();
  location->sequential_floor = 0;
  location->is_dead = false;
  location->block = arena::find(address);
}

void end_life(const void* address) noexcept {
  if (running == nullptr) return;
  const arena::Off off;
  const Clock& happened = running->me().knows.happened;
  for (const auto kind : {Location::Kind::atomic, Location::Kind::object}) {
    Location* const location = running->memory.find(address, kind);
    if (location == nullptr) continue;
    for (std::uint8_t i = 0; i < kMaxThreads; ++i) {
      if (!happened.knows({i, location->accessed[i]})) {
        running->fail("an object is destroyed while the use by another thread is not known to be over");
      }
    }
    if (location->owner >= 0) running->fail("a locked mutex is destroyed");
    location->is_dead = kind == Location::Kind::atomic;
    if (kind == Location::Kind::object) location->passed_on = {};
  }
}

int count_reference(int* count, int change) noexcept {
  if (running == nullptr) return std::exchange(*count, *count + change);
  const arena::Off off;
  const Where where = Where::current();
  if (change < 0) running->point(count, Location::Kind::object, true);
  Location& location = object_at(count, where);
  if (change < 0) {
    // Each one who lets go tells what it did to whoever lets go after it, so the last one knows all.
    running->note_event(location, 0x4ef, true);
    location.passed_on.join(running->me().knows);
    running->me().knows.join(location.passed_on);
    running->trace("let go", &location, std::memory_order_acq_rel, static_cast<std::uint64_t>(*count - 1), where);
    advance();
  }
  return std::exchange(*count, *count + change);
}

void note_freed(const Block& block) noexcept {
  const Clock& happened = running->me().knows.happened;
  if (!happened.knows(block.made)) running->fail("memory is freed by a thread that does not know of its making");
  running->memory.for_each_in(block.begin, block.end, [&](const Location& location) {
    for (std::uint8_t thread = 0; thread < kMaxThreads; ++thread) {
      if (!happened.knows({thread, location.accessed[thread]})) {
        running->fail("memory is freed while the use by another thread is not known to be over");
      }
    }
  });
}

void note_read(const void* address, const Where& where) noexcept {
  if (running == nullptr) return;
  const arena::Off off;
  Location& location = running->memory.at(address, Location::Kind::plain);
  check_life(location, where);
  if (!running->me().knows.happened.knows(location.written)) {
    running->fail(place(where) + ": plain memory is read, and the write of another thread does not happen before");
  }
  location.read[running->current()] = my_moment().time;
}

void note_write(const void* address, const Where& where) noexcept {
  if (running == nullptr) return;
  const arena::Off off;
  Location& location = running->memory.at(address, Location::Kind::plain);
  check_life(location, where);
  const Clock& happened = running->me().knows.happened;
  bool is_ordered = happened.knows(location.written);
  for (std::uint8_t i = 0; i < kMaxThreads; ++i) is_ordered &= happened.knows({i, location.read[i]});
  if (!is_ordered) {
    running->fail(place(where) + ": plain memory is written, and the access of another thread does not happen before");
  }
  location.written = my_moment();
}

}  // namespace weir::explore
