// Explorer: chooses what runs next, and keeps what one search has seen.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/explore/choices.h"
#include "tests/explore/explorer.h"
#include "tests/explore/fiber.h"
#include "tests/explore/model.h"
#include "tests/explore/seen.h"
#include "tests/explore/shared_places.h"
#include "tests/explore/trace.h"

namespace weir::explore {

struct Thread {
  enum class Status : std::uint8_t { unused, ready, blocked, finished };
  Fiber fiber;
  std::function<void()>* body = nullptr;
  Status status = Status::unused;
  bool is_timed = false;      // blocked: its time may be over
  bool is_timed_out = false;  // that is what happened
  bool has_yielded = false;   // nothing has changed since
  const void* blocked_on = nullptr;
  Knowledge knows;
  Knowledge to_acquire;    // what relaxed loads have seen, for a fence to acquire
  Knowledge to_release;    // what the last fence released, for relaxed stores
  std::uint64_t hash = 0;  // of all that it did, and what each of its operations came after
  std::int64_t clock_reads = 0;
  std::vector<std::pair<void (*)(void*), void*>> ends;
};

class Explorer {
 public:
  Explorer(const Options& options, const std::function<void(Scene&)>& scenario);
  Report explore();

  // ---- for the operations of the model ----
  Thread& me() { return threads_[current_]; }
  std::size_t current() const { return current_; }
  // The running thread is about to do something that others may see,
  void point();
  // with this location.
  void point(const void* address, Location::Kind kind, bool is_write);
  void yield();
  // The running thread cannot go on until wake_all(). False: its time was over.
  bool block(const void* on, bool is_timed);
  // Returns how many were blocked there.
  std::size_t wake_all(const void* on);
  bool wake_one(const void* on);
  // One of `count` values; 0 is what a machine would most likely do, anything else counts as a stale read.
  std::size_t choose_value(std::size_t count);
  // The thread did an operation on this location: gives the operation its place in the order of the location.
  void note_event(Location& location, std::uint64_t what, bool is_write);
  const Fault* fault_at(const Where& where, Operation operation, bool only_of_kind, Fault::Kind kind);
  void trace(const char* what, const Location* location, std::memory_order order, std::uint64_t value,
             const Where& where);
  [[noreturn]] void fail(const std::string& sentence);
  std::uint32_t next_sequential() { return ++sequential_; }

  Memory memory;
  Location sequential_order;  // of all sequentially consistent operations
  Clock fences;               // what sequentially consistent fences have made known
  const Options& options() const { return options_; }

 private:
  enum class Outcome : std::uint8_t { running, finished, failed, equivalent };
  void run_once();
  void prepare();
  static void thread_main(void* self);
  static void main_thread(void* self);
  void finish_thread();
  [[noreturn]] void end_run(Outcome outcome);
  // Which thread runs next; the current one cannot, or need not.
  std::size_t pick(bool can_stay, bool is_free);
  void begin_search();
  void leave_if_seen();
  void switch_to(std::size_t next);
  std::uint64_t state_hash() const;

  Options options_;
  const std::function<void(Scene&)>& scenario_;
  Report report_;
  std::array<Thread, kMaxThreads> threads_;
  Fiber controller_;
  std::size_t current_ = 0;
  std::size_t thread_count_ = 0;
  Outcome outcome_ = Outcome::running;
  Choices choices_;
  SharedPlaces shared_;
  Seen seen_;
  int preemptions_ = 0;
  int stale_reads_ = 0;
  std::uint32_t steps_ = 0;
  std::uint32_t sequential_ = 0;
  std::string failure_;
  Trace trace_;
};

// Null outside of a run.
extern Explorer* running;
extern std::uint64_t runs;

}  // namespace weir::explore
