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
#include "schedule/priority_queue.h"

namespace weir::pool {

// Starts the handler's coroutine for a request and answers with what it returns. On whichever thread it is called.
void run_request(IncomingRecord* record);

// One per pool that has worker threads. Workers push, its threads run; each of them also drives its lane, so that
// handlers can await. Shared by the pool, its posts, and its threads.
class Executor : public std::enable_shared_from_this<Executor> {
 public:
  // `places`: requests of one priority that one post may have in the queue.
  static std::shared_ptr<Executor> start(int threads, std::size_t places);
  explicit Executor(std::size_t places) : places_(places) {}  // for start()
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // ---- workers ----
  // A request. False if there is no place for it: its gate is rung when there are some again.
  [[nodiscard]] bool try_push(IncomingRecord* record);
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
    std::atomic<const MethodEntry*> running{nullptr};  // its post is there until all threads have ended, or are let go
    bool has_ended = false;                            // under the mutex
  };

  void run(Thread& self);
  void drop_queued();
  void push(IncomingRecord* record);
  IncomingRecord* pop();

  const ForkGuard fork_guard_;
  const std::size_t places_;
  std::atomic<std::size_t> queued_{0};
  std::mutex mutex_;
  // Weighted by priority, each request counted as one: nobody knows how long a handler takes.
  schedule::WeightedQueue<IncomingRecord, &IncomingRecord::waiting> queue_;
  struct Sleeper {
    Lane* lane;
    std::atomic<bool> is_woken{false};
  };

  std::vector<Sleeper*> idle_;  // at most one per thread
  std::atomic<bool> is_stopping_{false};
  std::condition_variable has_ended_;
  std::vector<std::unique_ptr<Thread>> threads_;
};

}  // namespace weir::pool
