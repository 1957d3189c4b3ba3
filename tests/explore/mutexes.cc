// Mutexes, conditions, sleep and yield.
#include "tests/explore/operation.h"

namespace weir::explore {
namespace {

void take_mutex(const void* mutex, Location& location, const Where& where) {
  while (location.owner >= 0) {
    if (location.owner == static_cast<int>(running->current())) running->fail("a thread locks a mutex that it has");
    running->block(mutex, false);
  }
  location.owner = static_cast<int>(running->current());
  running->note_event(location, 0x10c4, true);
  running->me().knows.join(location.passed_on);
  running->trace("lock", &location, std::memory_order_acquire, 0, where);
  advance();
}

void give_mutex(const void* mutex, Location& location, const Where& where) {
  if (location.owner != static_cast<int>(running->current())) {
    running->fail(place(where) + ": a mutex is unlocked by another than its owner");
  }
  location.owner = -1;
  running->note_event(location, 0x0bec, true);
  location.passed_on.join(running->me().knows);
  running->wake_all(mutex);
  running->trace("unlock", &location, std::memory_order_release, 0, where);
  advance();
}

}  // namespace

void lock(const void* mutex, const Where& where) noexcept {
  if (running == nullptr) return;
  const arena::Off off;
  running->point(mutex, Location::Kind::object, true);
  take_mutex(mutex, object_at(mutex, where), where);
}

bool try_lock(const void* mutex, const Where& where) noexcept {
  if (running == nullptr) return true;
  const arena::Off off;
  running->point(mutex, Location::Kind::object, true);
  Location& location = object_at(mutex, where);
  if (location.owner >= 0) {
    running->note_event(location, 0x740, false);
    return false;
  }
  take_mutex(mutex, location, where);
  return true;
}

void unlock(const void* mutex, const Where& where) noexcept {
  if (running == nullptr) return;
  const arena::Off off;
  running->point(mutex, Location::Kind::object, true);
  give_mutex(mutex, object_at(mutex, where), where);
}

bool wait(const void* condition, const void* mutex, bool is_timed, const Where& where) noexcept {
  if (running == nullptr) return true;
  const arena::Off off;
  running->point(condition, Location::Kind::object, true);
  Location& location = object_at(condition, where);
  running->note_event(location, 0x3a17, true);
  running->trace("wait", &location, std::memory_order_relaxed, 0, where);
  give_mutex(mutex, object_at(mutex, where), where);
  const bool was_notified = running->block(condition, is_timed);
  take_mutex(mutex, object_at(mutex, where), where);
  return was_notified;
}

void notify(const void* condition, bool all, const Where& where) noexcept {
  if (running == nullptr) return;
  const arena::Off off;
  running->point(condition, Location::Kind::object, true);
  if (running->fault_at(where, Operation::notify, true, Fault::Kind::skip) != nullptr) return;
  Location& location = object_at(condition, where);
  running->note_event(location, all ? 0xa11 : 0x04e, true);
  running->trace("notify", &location, std::memory_order_relaxed, 0, where);
  if (all) {
    running->wake_all(condition);
  } else {
    running->wake_one(condition);
  }
  advance();
}

bool sleep(const void* at, bool is_timed, const Where& where) noexcept {
  if (running == nullptr) return false;
  const arena::Off off;
  running->point(at, Location::Kind::object, true);
  Location* location = &object_at(at, where);
  running->trace("sleep", location, std::memory_order_relaxed, 0, where);
  while (!location->is_woken) {
    if (!running->block(at, is_timed)) return false;
    location = &object_at(at, where);
  }
  running->note_event(*location, 0x51ee, true);
  running->me().knows.join(location->passed_on);
  running->trace("woken", location, std::memory_order_relaxed, 0, where);
  advance();
  return true;
}

void forget_wakes(const void* at, const Where& where) noexcept {
  if (running == nullptr) return;
  const arena::Off off;
  running->point(at, Location::Kind::object, true);
  Location& location = object_at(at, where);
  location.is_woken = false;
  running->note_event(location, 0xf049, true);
  running->trace("forget", &location, std::memory_order_relaxed, 0, where);
  advance();
}

void wake(const void* at, const Where& where) noexcept {
  if (running == nullptr) return;
  const arena::Off off;
  running->point(at, Location::Kind::object, true);
  if (running->fault_at(where, Operation::wake, true, Fault::Kind::skip) != nullptr) return;
  Location& location = object_at(at, where);
  location.is_woken = true;
  running->note_event(location, 0x3a4e, true);
  location.passed_on.join(running->me().knows);
  running->wake_all(at);
  running->trace("wake", &location, std::memory_order_relaxed, 0, where);
  advance();
}

void yield() noexcept {
  if (running == nullptr) return;
  const arena::Off off;
  running->yield();
}

}  // namespace weir::explore
