// Atomics and fences: what the memory order allows, and what happens before what.
//
// The order of an atomic's modifications is the order in which a run stores them, and the total order of sequentially
// consistent operations is the order in which a run makes them. A load may return any value that is not older than what
// its thread must see. The rules are those of C++20 (atomics.order), less the executions in which a load returns a
// value that is stored later, or in which two threads' stores to two atomics are ordered against the order of the run.
#include <algorithm>
#include <cstring>

#include "tests/explore/operation.h"

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

// A place in the order of sequentially consistent operations is something that all threads share.
void point_at(Cell cell, std::memory_order order, bool is_write) {
  if (is_sequential(order)) return running->point();
  running->point(cell.address, Location::Kind::atomic, is_write);
}

Location& atomic_at(Cell cell, const Where& where) {
  Location& location = running->memory.at(cell.address, Location::Kind::atomic);
  if (location.stores.empty()) {
    Stored first{.value = read_cell(cell)};
    if (location.block != nullptr) first.made = location.block->made;
    location.stores.push_back(first);
    location.bytes = cell.bytes;
  }
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

std::uint64_t load(Cell cell, std::memory_order order, const Where& where) noexcept {
  if (running == nullptr) return read_cell(cell);
  const arena::Off off;
  point_at(cell, order, false);
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
  point_at(cell, order, true);
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
  point_at(cell, order, true);
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
  point_at(cell, success, true);
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

}  // namespace weir::explore
