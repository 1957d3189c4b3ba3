// Which thread of a run goes on, and what is known of its past.
#include "tests/explore/explorer.h"

#include <algorithm>
#include <cstring>

#include "tests/explore/explorer_state.h"

namespace weir::explore {

// A state from which everything was run, with at least as many preemptions left.
void Explorer::leave_if_seen() {
  if (!choices_.is_new()) return;
  const auto left = static_cast<std::uint8_t>(options_.preemptions - preemptions_);
  if (seen_.check_and_add(state_hash(), left)) end_run(Outcome::equivalent);
}

std::uint64_t Explorer::state_hash() const {
  std::uint64_t hash = current_;
  for (std::size_t i = 0; i < thread_count_; ++i) {
    const Thread& thread = threads_[i];
    hash = mix(hash, thread.hash);
    hash = mix(hash, static_cast<std::uint64_t>(thread.status) * 2 + (thread.has_yielded ? 1 : 0));
  }
  return hash;
}

std::size_t Explorer::choose_value(std::size_t count) {
  if (count < 2) {
    choices_.pass();
    return 0;
  }
  const bool may = stale_reads_ < options_.stale_reads;
  const std::size_t chosen = choices_.choose(count, may ? count : 1, false);
  if (chosen != 0) ++stale_reads_;
  return chosen;
}

std::size_t Explorer::pick(bool can_stay, bool is_free) {
  std::array<std::uint8_t, kMaxThreads> options{};
  std::size_t count = 0;
  for (int round = 0; round < 2 && count == 0; ++round) {
    if (can_stay) options[count++] = static_cast<std::uint8_t>(current_);
    for (std::size_t i = 0; i < thread_count_; ++i) {
      if (i == current_ || threads_[i].status != Thread::Status::ready || threads_[i].has_yielded) continue;
      options[count++] = static_cast<std::uint8_t>(i);
    }
    if (count != 0) break;
    // Everybody who could go on has yielded: once more, the current one last.
    for (Thread& thread : threads_) thread.has_yielded = false;
    if (round == 1 && me().status == Thread::Status::ready) options[count++] = static_cast<std::uint8_t>(current_);
  }
  bool is_over_time = false;
  if (count == 0) {
    for (std::size_t i = 0; i < thread_count_; ++i) {
      if (threads_[i].status == Thread::Status::blocked && threads_[i].is_timed) {
        options[count++] = static_cast<std::uint8_t>(i);
      }
    }
    is_over_time = count != 0;
    is_free = true;
  }
  if (count == 0) {
    std::string who;
    for (std::size_t i = 1; i < thread_count_; ++i) {
      if (threads_[i].status == Thread::Status::blocked) who += " T" + std::to_string(i);
    }
    fail("every thread that is left sleeps for ever:" + who);
  }
  std::size_t next = options[0];
  if (count == 1) {
    choices_.pass();
  } else {
    const bool costs = can_stay && !is_free;
    const bool is_bound = choices_.mode() == Choices::Mode::all && preemptions_ >= options_.preemptions;
    leave_if_seen();
    const std::size_t chosen = choices_.choose(count, costs && is_bound ? 1 : count, true);
    if (costs && chosen != 0) ++preemptions_;
    next = options[chosen];
  }
  if (is_over_time) {
    threads_[next].status = Thread::Status::ready;
    threads_[next].is_timed_out = true;
    threads_[next].hash = mix(threads_[next].hash, 0x71e);
  }
  return next;
}

void Explorer::switch_to(std::size_t next) {
  if (next == current_) return;
  Thread& from = me();
  current_ = next;
  threads_[next].fiber.resume(&from.fiber);
}

void Explorer::point() {
  if (++steps_ > options_.max_steps) fail("the run does not end: threads wait for each other without sleeping");
  if (thread_count_ == 1 || current_ == 0) return;
  switch_to(pick(true, false));
  me().has_yielded = false;
}

void Explorer::point(const void* address, Location::Kind kind, bool is_write) {
  if (current_ == 0 || shared_.use(address, kind, current_, is_write)) return point();
  if (choices_.mode() == Choices::Mode::replay) return point();
  if (++steps_ > options_.max_steps) fail("the run does not end: threads wait for each other without sleeping");
  choices_.pass();
  me().has_yielded = false;
}

void Explorer::yield() {
  if (++steps_ > options_.max_steps) fail("the run does not end: threads wait for each other without sleeping");
  if (thread_count_ == 1 || current_ == 0) return;
  me().hash = mix(me().hash, 0x41e1d);
  me().has_yielded = true;
  switch_to(pick(false, true));
}

bool Explorer::block(const void* on, bool is_timed) {
  Thread& thread = me();
  thread.status = Thread::Status::blocked;
  thread.blocked_on = on;
  thread.is_timed = is_timed;
  thread.is_timed_out = false;
  switch_to(pick(false, true));
  thread.blocked_on = nullptr;
  return !thread.is_timed_out;
}

std::size_t Explorer::wake_all(const void* on) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < thread_count_; ++i) {
    if (threads_[i].status != Thread::Status::blocked || threads_[i].blocked_on != on) continue;
    threads_[i].status = Thread::Status::ready;
    ++count;
  }
  return count;
}

bool Explorer::wake_one(const void* on) {
  std::array<std::size_t, kMaxThreads> waiting{};
  std::size_t count = 0;
  for (std::size_t i = 0; i < thread_count_; ++i) {
    if (threads_[i].status == Thread::Status::blocked && threads_[i].blocked_on == on) waiting[count++] = i;
  }
  if (count == 0) return false;
  const std::size_t chosen = count == 1 ? 0 : choices_.choose(count, count, false);
  threads_[waiting[chosen]].status = Thread::Status::ready;
  return true;
}

void Explorer::note_event(Location& location, std::uint64_t what, bool is_write) {
  Thread& thread = me();
  thread.hash = mix(mix(thread.hash, what), mix(location.address, location.last_write));
  if (is_write) {
    thread.hash = mix(thread.hash, location.reads);
    location.last_write = thread.hash;
    location.reads = 0;
    // Who has yielded waits for something to change, and something has.
    if (&location == &sequential_order) return;
    for (std::size_t i = 0; i < thread_count_; ++i) threads_[i].has_yielded = false;
  } else {
    location.reads += mix(thread.hash, 0x4ead);
  }
}

const Fault* Explorer::fault_at(const Where& where, Operation operation, bool only_of_kind, Fault::Kind kind) {
  if (options_.faults.empty()) return nullptr;
  const std::size_t length = std::strlen(where.file_name());
  for (const Fault& fault : options_.faults) {
    if (fault.operation != operation || (only_of_kind && fault.kind != kind)) continue;
    const std::size_t end = std::strlen(fault.file);
    if (end > length || std::strcmp(where.file_name() + length - end, fault.file) != 0) continue;
    if (std::strstr(where.function_name(), fault.function) == nullptr) continue;
    ++report_.faults_hit;
    me().hash = mix(me().hash, 0xfa017);  // an operation that is left out is a step, too
    return &fault;
  }
  return nullptr;
}

void Explorer::trace(const char* what, const Location* location, std::memory_order order, std::uint64_t value,
                     const Where& where) {
  if (!trace_.is_on()) return;
  trace_.add({.number = steps_, .thread = current_, .what = what, .location = location, .order = order, .value = value},
             where);
}

}  // namespace weir::explore
