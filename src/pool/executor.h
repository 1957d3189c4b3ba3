// Executor: the threads that run handlers registered with serve(), and the queue in front of them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "pool/incoming_record.h"
#include "pool/lane.h"
#include "schedule/priority_queue.h"

namespace weir::pool {

// Starts the handler's coroutine for a request and answers with what it returns. On whichever thread it is called.
void run_request(IncomingRecord* record);

// One per pool that has worker threads. Workers push, its threads run; each of them also drives its lane, so that
// handlers can await.
class Executor {
 public:
  Executor(int threads, std::size_t max_queued);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // ---- workers ----
  // Relaxed: several workers may each see the last free place; the bound may be passed by one per worker.
  bool has_room() const { return queued_.load(std::memory_order_relaxed) < max_queued_; }
  void push(IncomingRecord* record);
  // Takes the newest of the least urgent requests out of the queue, for one of this priority. Null if none is less
  // urgent than that.
  IncomingRecord* push_out(std::uint8_t priority);
  // Wakes threads for what was pushed.
  void flush();

  // Any thread but its own: lets running handlers end; what is queued is dropped and so answered with an error.
  void stop();
  // Whether the caller is one of its threads.
  bool is_mine() const;

 private:
  void run();
  IncomingRecord* pop();

  const std::size_t max_queued_;
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
  std::vector<std::thread> threads_;
};

}  // namespace weir::pool
