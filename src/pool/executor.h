// Executor: the threads that run handlers registered with serve(), and the queue in front of them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/fork_guard.h"
#include "base/time.h"
#include "pool/incoming_record.h"
#include "pool/lane.h"
#include "pool/member_turns.h"

namespace weir::pool {

struct TaskHandler;

// Starts the handler's coroutine for a request and answers with what it returns. On whichever thread it is called.
void run_request(IncomingRecord* record, std::shared_ptr<TaskHandler> handler);

// One per pool that has worker threads. Workers push, its threads run; each of them also drives its lane, so that
// handlers can await. Shared by the pool, its posts, and its threads.
class Executor : public std::enable_shared_from_this<Executor> {
 public:
  // `places`: requests of one member and priority that may be in the queue.
  static std::shared_ptr<Executor> start(int threads, std::size_t places);
  explicit Executor(const MemberTurns::Options& options) : turns_(options) {}  // for start()
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // How many of so many threads run handlers of one member with a certificate.
  static constexpr int most_of_one_member(int threads) { return threads <= 1 ? 1 : (threads + 1) / 2; }

  // ---- workers ----
  // Before a post pushes.
  void add(const std::shared_ptr<Gate>& gate);
  // A request of that member. False if there is no place for it: its gate's Places are told when there are some again.
  [[nodiscard]] bool try_push(IncomingRecord* record, std::uint64_t member);
  void take_freed(Gate& gate, std::vector<std::uint64_t>& members);
  // A large reply that is to be opened; the limits of large messages bound these.
  void push_reply(IncomingRecord* record);
  // Wakes threads for what was pushed.
  void flush();

  // Any thread but its own, when the posts have left: lets running handlers end; what is queued is dropped. The methods
  // of handlers that had not returned by then, one for each: they go on by themselves, and their threads end with them.
  std::vector<std::string> stop(Instant until);
  // Whether the caller is one of its threads.
  bool is_mine() const;

 private:
  // One of the threads.
  struct Thread {
    std::thread thread;
    // Under the mutex, which the thread itself needs only to write.
    std::shared_ptr<TaskHandler> handler;  // of what it runs; the post and its methods may go meanwhile
    MemberTurns::Turn turn;                // no member: it runs nothing
    bool has_ended = false;
    Instant began{};  // the thread's own: never if nobody wants to know
  };

  struct Sleeper {
    Lane* lane;
    std::atomic<bool> is_woken{false};
  };

  void run(Thread& self);
  void run_record(Thread& self, IncomingRecord* record);
  void drop_queued();
  // Ends what the thread ran, and finds it something else.
  IncomingRecord* pop(Thread& self);
  void end_turn(Thread& self);
  void end_turn_locked(Thread& self, std::int64_t ran_ns);
  void tell_freed(const MemberTurns::Freed& freed);
  void publish_ready() { ready_.store(turns_.ready(), std::memory_order_relaxed); }
  void wake_idle(std::size_t most);

  const ForkGuard fork_guard_;
  std::atomic<std::size_t> ready_{0};  // requests that a thread would find, or found a moment ago
  std::mutex mutex_;
  MemberTurns turns_;
  std::vector<std::shared_ptr<Gate>> gates_;

  std::vector<Sleeper*> idle_;  // at most one per thread
  std::atomic<bool> is_stopping_{false};
  std::condition_variable has_ended_;
  std::vector<std::unique_ptr<Thread>> threads_;
};

}  // namespace weir::pool
