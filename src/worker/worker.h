// Worker: a loop that turns many seats. A thread is a wrapper around it; an application may turn it instead.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/fork_guard.h"
#include "base/time.h"
#include "weir/config.h"
#include "weir/event.h"
#include "worker/clock.h"
#include "worker/deadline_heap.h"
#include "worker/doorbell.h"
#include "worker/poller.h"
#include "worker/seat.h"
#include "worker/sync.h"
#include "worker/thread_context.h"

namespace weir::worker {

// A seat on a worker, in the host's memory. Everything but `rung` is the loop's.
struct Hosted {
  Pollable* seat = nullptr;
  sync::Atomic<bool>* rung = nullptr;  // another thread left something for this seat
  Instant deadline = Instant::never();
  std::size_t heap_index = DeadlineHeap<Hosted>::kOutside;
  bool is_ready = false;  // in the list of seats to poll
  bool is_watched_for_reading = true;
  bool is_watched_for_writing = false;
};

// Owns its poller, doorbell and thread, not its seats. The loop has one owner: the worker's own thread, or the first
// application thread that turns it. Functions are for the owner unless they say otherwise. In a forked child there is
// no thread and nothing is turned: what is asked of the worker there is refused or forgotten, without waiting for a
// lock.
class Worker {
 public:
  struct Options {
    std::uint32_t index = 0;
    bool has_thread = true;
    Idle idle = Idle::adaptive;
    WorkerPlace place;
    std::shared_ptr<Subscriber> subscriber;
  };

  explicit Worker(Options options);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // False if the process had no descriptors left for it: good for nothing but its destruction then.
  bool is_open() const { return doorbell_->is_open() && poller_.is_open(); }
  // Any thread, once; only with a thread. May throw std::system_error, if there can be no more threads.
  void start();
  // What that thread does until it is to stop, as the owner. Returns what it kept, if it was let go.
  std::shared_ptr<Worker> loop();
  void stop_and_join();  // any thread but its own
  // The same, but a thread that has not ended by then is let go: it ends when it can, keeps `self` until then, and
  // touches nothing but this worker and what is on it. False then. On its own thread it does not wait at all.
  bool stop_by(Instant until, std::shared_ptr<Worker> self);
  void request_stop();  // any thread: the first half of these

  bool has_thread() const { return options_.has_thread; }
  // Any thread: whether the caller owns the loop.
  bool is_mine() const { return owner_.load(std::memory_order_relaxed) == &thread_context; }
  bool has_owner() const { return owner_.load(std::memory_order_relaxed) != nullptr; }

  // ---- ownership of a loop without a thread; any thread ----
  // An owner is an owner until its thread ends: nobody takes the loop from it. A thread that only waits for something
  // borrows the loop and gives it back; one that does a single thing on a loop without an owner stands in. Who comes
  // meanwhile waits for a stand-in, and asks a borrower for the loop.
  enum class Claim : std::uint8_t { mine, new_here, lent, refused };
  Claim try_claim();
  bool try_borrow();
  // The borrower has no further use for the loop, or somebody wants it. False while coroutines of this thread wait for
  // the loop directly: they would be resumed by whoever turns it next.
  bool try_give_back();
  void keep();  // the borrower becomes the owner
  bool is_lent() const { return is_lent_.load(std::memory_order_relaxed); }
  // Somebody asked a borrower for the loop a short while ago: leave it to them.
  bool is_wanted() const {
    const std::int64_t until = wanted_until_ns_.load(std::memory_order_relaxed);
    return until != 0 && read_clock().ns < until;
  }
  // The owner's thread ends.
  void disown();
  // Nothing will be on this loop any more, so it is nobody's.
  void retire();
  std::size_t direct_waiters = 0;  // the loop's: waiters that are resumed where the loop turns

  // One turn of every seat that has something to do. True if anything was done. CHECKs if another thread owns the loop;
  // does nothing if one has borrowed it.
  bool poll();
  // The same; rests up to `at_most` if there was nothing to do. The rest is short at first and becomes a sleep.
  bool poll_for(Duration at_most);

  // After a turn with nothing to do.
  void rest(Duration at_most);

  // The instant of this turn; outside of a turn, the clock.
  Instant now() const { return is_turning_ ? now_ : read_clock(); }

  void add(Hosted& hosted);
  void remove(Hosted& hosted);
  // Something was given to this seat's engine outside of its turn.
  void touch(Hosted& hosted) {
    if (!hosted.is_ready) [[unlikely]]
      make_ready(hosted);
  }

  // Any thread: runs `function` as the owner and returns when it has run; in the owner's stead if there is none. False,
  // and it has not run and will not, if the worker has stopped or, without a thread, its owner did not poll until then.
  bool run_on_loop(const std::function<void()>& function, Instant until = Instant::never());
  // Any thread: the same, but a thread that is busy all the time until then makes it false, too.
  bool try_on_loop(const std::function<void()>& function, Instant until);
  // Any thread: the same, but does not wait.
  void post(std::function<void()> function);

  // Any thread.
  bool is_in_child() const { return fork_guard_.is_in_child(); }
  // There: closes this process's copies of the descriptors.
  void close_in_child() noexcept;

  const std::shared_ptr<Doorbell>& doorbell() const { return doorbell_; }
  Burst& burst() { return burst_; }
  std::uint32_t index() const { return options_.index; }

  // Any thread: for the watchdog.
  std::uint64_t turns() const { return turns_.load(std::memory_order_relaxed); }
  bool is_resting() const { return doorbell_->is_sleeping(); }

 private:
  // Up to this many seats are polled in every turn; with more, only those that are ready.
  static constexpr std::size_t kPollAll = 4;
  static constexpr Duration kSpin = std::chrono::microseconds(4);        // then every idle turn yields
  static constexpr Duration kAwake = std::chrono::microseconds(50);      // then it sleeps
  static constexpr Duration kWanted = std::chrono::milliseconds(10);     // who asked for a loop takes it by then
  static constexpr Duration kOwnerCheck = std::chrono::milliseconds(1);  // whether it has ended meanwhile

  struct Command {
    std::function<void()> run;
    bool is_posted = false;  // nobody waits: deleted when it has run
    bool is_done = false;
  };

  bool turn();
  bool poll_ready();
  bool poll_seat(Hosted& hosted);
  void look_for_rung();
  void take_readiness(std::size_t count);
  void run_commands();
  bool has_commands();
  bool try_own();
  void give_up();
  bool run_in_stead(const std::function<void()>& function);
  void sleep(Duration at_most);
  Instant next_deadline() const;
  void make_ready(Hosted& hosted);
  void watch(Hosted& hosted);

  const Options options_;
  const ForkGuard fork_guard_;
  sync::Atomic<const ThreadContext*> owner_{nullptr};
  std::shared_ptr<Doorbell> doorbell_;
  Poller poller_;
  Burst burst_;
  std::vector<Hosted*> seats_;
  std::vector<Hosted*> ready_;
  std::vector<Hosted*> polling_;  // ready_ of the turn that runs
  DeadlineHeap<Hosted> deadlines_;
  Instant now_{};
  Instant idle_since_ = Instant::never();
  bool is_turning_ = false;
  sync::Atomic<std::uint64_t> turns_{0};

  sync::Mutex loan_mutex_;  // held while somebody stands in, and to begin and end a loan
  sync::Atomic<bool> is_lent_{false};
  sync::Atomic<std::int64_t> wanted_until_ns_{0};

  sync::Mutex commands_mutex_;
  sync::ConditionVariable command_done_;
  std::vector<Command*> commands_;
  bool has_ended_ = false;        // under commands_mutex_: the thread takes no more of them
  std::shared_ptr<Worker> self_;  // the same: of a thread that was let go
  sync::Atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace weir::worker
