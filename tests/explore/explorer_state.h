// Explorer: chooses what runs next, and keeps what one search has seen.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/explore/explorer.h"
#include "tests/explore/fiber.h"
#include "tests/explore/model.h"

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

// States that were explored before, and with how many preemptions left.
class Seen {
 public:
  Seen() : table_(1 << 16) {}
  // True: at least this much was left when it was seen before.
  bool check_and_add(std::uint64_t key, std::uint8_t left);

 private:
  struct Entry {
    std::uint64_t key = 0;
    std::uint8_t left = 0;
  };
  void grow();
  std::vector<Entry> table_;
  std::size_t used_ = 0;
};

class Explorer {
 public:
  Explorer(const Options& options, const std::function<void(Scene&)>& scenario);
  Report explore();

  // ---- for the operations of the model ----
  Thread& me() { return threads_[current_]; }
  std::size_t current() const { return current_; }
  // The running thread is about to do something that others may see.
  void point();
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
  enum class Mode : std::uint8_t { all, random, replay };
  enum class Outcome : std::uint8_t { running, finished, failed, equivalent };
  struct Choice {
    std::uint8_t chosen = 0;
    std::uint8_t allowed = 1;
  };

  void run_once();
  bool next_path();
  void prepare();
  static void thread_main(void* self);
  static void main_thread(void* self);
  void finish_thread();
  [[noreturn]] void end_run(Outcome outcome);
  // Which thread runs next; the current one cannot, or need not.
  std::size_t pick(bool can_stay, bool is_free);
  std::size_t choose(std::size_t count, std::size_t allowed, bool is_thread);
  void switch_to(std::size_t next);
  std::uint64_t state_hash() const;
  std::string schedule() const;
  void read_schedule(const std::string& text);
  std::uint64_t random_below(std::uint64_t limit);

  Options options_;
  const std::function<void(Scene&)>& scenario_;
  Report report_;
  std::array<Thread, kMaxThreads> threads_;
  Fiber controller_;
  std::size_t current_ = 0;
  std::size_t thread_count_ = 0;
  Mode mode_ = Mode::all;
  Outcome outcome_ = Outcome::running;
  std::vector<Choice> path_;
  std::size_t depth_ = 0;
  std::vector<std::pair<std::size_t, std::uint8_t>> wanted_;  // of a replay: choice and answer
  std::size_t wanted_at_ = 0;
  Seen seen_;
  int preemptions_ = 0;
  int stale_reads_ = 0;
  std::uint32_t steps_ = 0;
  std::uint32_t sequential_ = 0;
  std::uint64_t random_ = 1;
  std::uint64_t switch_chance_ = 4;
  bool is_tracing_ = false;
  std::string failure_;
  std::string trace_;
};

// Null outside of a run.
extern Explorer* running;
extern std::uint64_t runs;

}  // namespace weir::explore
