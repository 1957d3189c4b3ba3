// CallScene: one pool of one worker for scenarios of calls. Lanes, gate, calls, inbox, outbox, worker and doorbell are
// the real ones; engine and post are stand-ins (stand_in/).
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "pool/lane.h"
#include "pool/peer_entry.h"
#include "pool/post.h"
#include "pool/way.h"
#include "tests/explore/explorer.h"
#include "weir/call.h"
#include "worker/sync.h"
#include "worker/worker.h"

namespace weir::explore {

struct CallSceneOptions {
  std::uint32_t turns_to_answer = 0;  // of the worker, from the submission to the reply
  std::uint32_t ring = 2;             // submissions that a thread can have on their way
  bool has_thread = true;             // one of the scenario's calls work(); otherwise whoever waits turns the loop
};

// Shared by the threads of a scenario. Made by the thread that prepares the run.
class CallScene {
 public:
  explicit CallScene(const CallSceneOptions& options = {});

  // The worker's thread. Ends when the pool was closed.
  void work();

  // ---- any other thread ----
  // The reply will have this number.
  Call call(std::uint32_t number);
  // As PoolState::close(): the first one closes, and others wait for it.
  void close();
  // Has the worker end if it has nothing to do any more, whether or not the pool was closed.
  void stop() { worker_->request_stop(); }

  // When all threads have ended.
  void judge();

  pool::Post& post() { return *post_; }
  pool::Gate& gate() { return *peer_->gate; }

 private:
  std::shared_ptr<worker::Worker> worker_;
  std::shared_ptr<pool::Post> post_;
  std::string shown_ = "a peer";
  std::shared_ptr<detail::PeerState> peer_;
  sync::Mutex close_mutex_;
  bool is_closed_ = false;
};

// Ends of one call: exactly one, and what it was.
class Ending {
 public:
  void operator()(const Result<Reply>& result);
  void expect_reply(std::uint32_t number) const;
  // The reply, or this failure.
  void expect_reply_or(std::uint32_t number, Code code) const;
  void expect(Code code) const;
  std::uint32_t count() const { return count_.load(); }

 private:
  sync::Atomic<std::uint32_t> count_{0};
  bool failed_ = false;
  Code code_{};
  std::uint32_t number_ = 0;
};

// Waits for something that another thread does.
template <class Predicate>
void await(const Predicate& predicate) {
  while (!predicate()) sync::yield();
}

}  // namespace weir::explore
