// The operations of the model: what the memory order allows, and what happens before what.
//
// The order of an atomic's modifications is the order in which a run stores them, and the total order of sequentially
// consistent operations is the order in which a run makes them. A load may return any value that is not older than what
// its thread must see. The rules are those of C++20 (atomics.order), less the executions in which a load returns a
// value that is stored later, or in which two threads' stores to two atomics are ordered against the order of the run.
#include "tests/explore/runtime.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

#include "tests/explore/explorer_state.h"

namespace weir::explore {
namespace {

constexpr bool acquires(std::memory_order order) {
  return order != std::memory_order_relaxed && order != std::memory_order_release;
}
constexpr bool releases(std::memory_order order) {
  return order == std::memory_order_release || order == std::memory_order_acq_rel || order == std::memory_order_seq_cst;
}
constexpr bool is_sequential(std::memory_order order) { return order == std::memory_order_seq_cst; }

std::uint64_t read_cell(Cell cell) {
  std::uint64_t value = 0;
  std::memcpy(&value, cell.address, cell.bytes);
  return value;
}
void write_cell(Cell cell, std::uint64_t value) { std::memcpy(cell.address, &value, cell.bytes); }

Moment my_moment() {
  const std::size_t index = running->current();
  return {static_cast<std::uint8_t>(index), running->me().knows.happened.times[index]};
}

// The next operation of this thread is a later one.
void advance() {
  Thread& me = running->me();
  const std::size_t index = running->current();
  ++me.knows.happened.times[index];
  me.knows.seen.times[index] = me.knows.happened.times[index];
}

std::string place(const Where& where) {
  const char* const file = std::strrchr(where.file_name(), '/');
  return std::string(file == nullptr ? where.file_name() : file + 1) + ":" + std::to_string(where.line());
}

void check_life(Location& location, const Where& where) {
  if (location.is_dead || (location.block != nullptr && location.block->is_freed)) {
    running->fail(place(where) + ": an object is used after its end");
  }
  if (location.block != nullptr && !running->me().knows.happened.knows(location.block->made)) {
    running->fail(place(where) + ": an object is used by a thread that has not synchronised with its making");
  }
  location.accessed[running->current()] = my_moment().time;
}

Location& atomic_at(Cell cell, const Where& where) {
  Location& location = running->memory.at(cell.address, Location::Kind::atomic);
  if (location.stores.empty()) {
    Stored first{.value = read_cell(cell)};
    if (location.block != nullptr) first.made = location.block->made;
    location.stores.push_back(first);
  }
  check_life(location, where);
  return location;
}

Location& object_at(const void* address, const Where& where) {
  Location& location = running->memory.at(address, Location::Kind::object);
  check_life(location, where);
  return location;
}

std::memory_order with_faults(std::memory_order order, Operation operation, const Where& where) {
  if (order == std::memory_order_relaxed) return order;
  return running->fault_at(where, operation, true, Fault::Kind::relax) == nullptr ? order : std::memory_order_relaxed;
}

// The oldest value that this thread may read.
std::size_t floor_of(const Location& location, bool sequential) {
  const Thread& me = running->me();
  Clock seen = me.knows.seen;
  if (sequential) seen.join(running->fences);
  const auto is_seen = [&](Moment moment, std::uint32_t when) {
    return seen.knows(moment) || (when != 0 && when <= seen.times[Clock::kSequential]);
  };
  std::size_t floor = sequential ? location.sequential_floor : 0;
  for (std::size_t i = location.stores.size(); i-- > floor + 1;) {
    if (!is_seen(location.stores[i].made, location.stores[i].sequential)) continue;
    floor = i;
    break;
  }
  for (const Observation& each : location.observations) {
    if (each.index > floor && is_seen(each.moment, each.sequential)) floor = each.index;
  }
  return floor;
}

void observe(Location& location, std::size_t index, std::uint32_t sequential) {
  const Moment moment = my_moment();
  if (sequential != 0) {
    location.sequential_floor = std::max(location.sequential_floor, static_cast<std::uint32_t>(index));
  }
  for (const Observation& each : location.observations) {
    if (each.moment.thread == moment.thread && each.index >= index && sequential == 0) return;
  }
  location.observations.push_back({moment, sequential, static_cast<std::uint32_t>(index)});
}

void learn(const Knowledge& released, std::memory_order order) {
  Thread& me = running->me();
  (acquires(order) ? me.knows : me.to_acquire).join(released);
}

std::uint32_t take_place_in_order(std::memory_order order, bool is_write) {
  if (!is_sequential(order)) return 0;
  running->note_event(running->sequential_order, 0x5c, is_write);
  return running->next_sequential();
}

void append(Location& location, Cell cell, std::uint64_t value, std::memory_order order, std::uint32_t sequential,
            const Knowledge* continued) {
  const Thread& me = running->me();
  Stored stored{.value = value, .made = my_moment(), .sequential = sequential};
  stored.released = releases(order) ? me.knows : me.to_release;
  if (continued != nullptr) stored.released.join(*continued);
  location.stores.push_back(stored);
  if (sequential != 0) location.sequential_floor = static_cast<std::uint32_t>(location.stores.size() - 1);
  write_cell(cell, value);
}

std::uint64_t masked(Cell cell, std::uint64_t value) {
  return cell.bytes == 8 ? value : value & ((std::uint64_t{1} << (8 * cell.bytes)) - 1);
}

}  // namespace

bool is_running() noexcept { return running != nullptr; }
std::uint64_t run_number() noexcept { return running == nullptr ? 0 : runs; }
std::size_t thread_index() noexcept { return running == nullptr ? 0 : running->current(); }
Moment now() noexcept { return running == nullptr ? Moment{} : my_moment(); }

// ---- atomics -------------------------------------------------------------------------------------------------------

std::uint64_t load(Cell cell, std::memory_order order, const Where& where) noexcept {
  if (running == nullptr) return read_cell(cell);
  const arena::Off off;
  running->point();
  if (const Fault* fault = running->fault_at(where, Operation::load, true, Fault::Kind::answer)) return fault->value;
  order = with_faults(order, Operation::load, where);
  Location& location = atomic_at(cell, where);
  const std::size_t newest = location.stores.size() - 1;
  const std::size_t floor = floor_of(location, is_sequential(order));
  const std::size_t candidates = std::min<std::size_t>(newest - floor + 1, running->options().history);
  const std::size_t back = running->choose_value(candidates);
  const std::size_t index = newest - back;
  running->note_event(location, mix(0x10ad, back), false);
  const std::uint32_t sequential = take_place_in_order(order, false);
  observe(location, index, sequential);
  const std::uint64_t value = location.stores[index].value;
  learn(location.stores[index].released, order);
  running->trace(back == 0 ? "load" : "LOAD OLD", &location, order, value, where);
  advance();
  return value;
}

void store(Cell cell, std::uint64_t value, std::memory_order order, const Where& where) noexcept {
  if (running == nullptr) return write_cell(cell, value);
  const arena::Off off;
  running->point();
  if (running->fault_at(where, Operation::store, true, Fault::Kind::skip) != nullptr) return;
  order = with_faults(order, Operation::store, where);
  Location& location = atomic_at(cell, where);
  running->note_event(location, 0x5703e, true);
  const std::uint32_t sequential = take_place_in_order(order, true);
  append(location, cell, value, order, sequential, nullptr);
  running->trace("store", &location, order, value, where);
  advance();
}

std::uint64_t modify(Cell cell, Modify function, std::uint64_t operand, std::memory_order order,
                     const Where& where) noexcept {
  if (running == nullptr) {
    const std::uint64_t before = read_cell(cell);
    write_cell(cell, function(before, operand));
    return before;
  }
  const arena::Off off;
  running->point();
  order = with_faults(order, Operation::exchange, where);
  Location& location = atomic_at(cell, where);
  running->note_event(location, 0x403d, true);
  const std::uint32_t sequential = take_place_in_order(order, true);
  const Stored before = location.stores.back();
  learn(before.released, order);
  append(location, cell, masked(cell, function(before.value, operand)), order, sequential, &before.released);
  running->trace("modify", &location, order, location.stores.back().value, where);
  advance();
  return before.value;
}

bool compare_exchange(Cell cell, std::uint64_t& expected, std::uint64_t desired, std::memory_order success,
                      std::memory_order failure, bool is_weak, const Where& where) noexcept {
  if (running == nullptr) {
    const std::uint64_t before = read_cell(cell);
    if (before == expected) write_cell(cell, desired);
    return std::exchange(expected, before) == before;
  }
  const arena::Off off;
  running->point();
  success = with_faults(success, Operation::compare, where);
  failure = with_faults(failure, Operation::compare, where);
  Location& location = atomic_at(cell, where);
  const Stored before = location.stores.back();
  // A weak one may fail though the value is the expected one.
  const bool is_equal = before.value == expected && (!is_weak || running->choose_value(2) == 0);
  const std::memory_order order = is_equal ? success : failure;
  running->note_event(location, is_equal ? 0xca5 : before.value == expected ? 0xca6 : 0xca7, is_equal);
  const std::uint32_t sequential = take_place_in_order(order, is_equal);
  learn(before.released, order);
  if (is_equal) {
    append(location, cell, desired, order, sequential, &before.released);
  } else {
    observe(location, location.stores.size() - 1, sequential);
    expected = before.value;
  }
  running->trace(is_equal ? "exchange" : "exchange-", &location, order, location.stores.back().value, where);
  advance();
  return is_equal;
}

void fence(std::memory_order order, const Where& where) noexcept {
  if (running == nullptr) return;
  const arena::Off off;
  running->point();
  if (running->fault_at(where, Operation::fence, false, Fault::Kind::skip) != nullptr) return;
  Thread& me = running->me();
  if (acquires(order)) me.knows.join(me.to_acquire);
  if (is_sequential(order)) {
    take_place_in_order(order, true);
    me.knows.seen.join(running->fences);
    me.knows.seen.times[Clock::kSequential] = running->next_sequential();
    running->fences.join(me.knows.seen);
  }
  if (releases(order)) me.to_release = me.knows;
  me.hash = mix(me.hash, mix(0xfe4ce, static_cast<std::uint64_t>(order)));
  running->trace("fence", nullptr, order, 0, where);
  advance();
}

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

void note_freed(const Block& block) noexcept {
  const Clock& happened = running->me().knows.happened;
  if (!happened.knows(block.made)) running->fail("memory is freed by a thread that does not know of its making");
  for (std::size_t i = 0; i < running->memory.size(); ++i) {
    const Location& location = running->memory[i];
    if (location.address < block.begin || location.address >= block.end) continue;
    for (std::uint8_t thread = 0; thread < kMaxThreads; ++thread) {
      if (!happened.knows({thread, location.accessed[thread]})) {
        running->fail("memory is freed while the use by another thread is not known to be over");
      }
    }
  }
}

// ---- mutexes and sleep ---------------------------------------------------------------------------------------------

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
  running->point();
  take_mutex(mutex, object_at(mutex, where), where);
}

bool try_lock(const void* mutex, const Where& where) noexcept {
  if (running == nullptr) return true;
  const arena::Off off;
  running->point();
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
  running->point();
  give_mutex(mutex, object_at(mutex, where), where);
}

bool wait(const void* condition, const void* mutex, bool is_timed, const Where& where) noexcept {
  if (running == nullptr) return true;
  const arena::Off off;
  running->point();
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
  running->point();
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
  running->point();
  Location* location = &object_at(at, where);
  running->trace("sleep", location, std::memory_order_relaxed, 0, where);
  while (!location->is_woken) {
    if (!running->block(at, is_timed)) return false;
    location = &object_at(at, where);
  }
  location->is_woken = false;
  running->note_event(*location, 0x51ee, true);
  running->me().knows.join(location->passed_on);
  running->trace("woken", location, std::memory_order_relaxed, 0, where);
  advance();
  return true;
}

void wake(const void* at, const Where& where) noexcept {
  if (running == nullptr) return;
  const arena::Off off;
  running->point();
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

// ---- plain memory --------------------------------------------------------------------------------------------------

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

// ---- threads -------------------------------------------------------------------------------------------------------

void at_thread_end(void (*function)(void*), void* argument) noexcept {
  if (running == nullptr) return;
  const arena::Off off;
  running->me().ends.emplace_back(function, argument);
}

std::int64_t read_clock_ns() noexcept {
  return running == nullptr ? 1'000'000'000 : 1'000'000'000 + 100'000 * ++running->me().clock_reads;
}

void fail(const char* sentence) noexcept {
  if (running == nullptr) {
    std::fprintf(stderr, "%s\n", sentence);
    std::abort();
  }
  const arena::Off off;
  running->fail(sentence);
}

void check_failed(const char* file, int line, const char* condition, const char* sentence) noexcept {
  arena::turn(false);
  const std::string text =
      std::string(file) + ":" + std::to_string(line) + ": CHECK(" + condition + ") failed: " + sentence;
  fail(text.c_str());
}

}  // namespace weir::explore
