// Awaited: something else than a call that a handle waits for, such as memory, and its way to the waiter's lane.
//
// Held by its handle, and by whoever has yet to tell it something: where it waits, then the lane. The stage decides
// between the handle's side and the thread that has the result:
//
//   pending --(result)--> done                                  the handle finds it
//   pending --(handle waits)--> claimed --(result)--> done      it is delivered to the waiter's lane
#pragma once

#include <atomic>
#include <coroutine>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/fork_guard.h"
#include "pool/lane.h"
#include "weir/error.h"
#include "worker/thread_context.h"

namespace weir::pool {

// Deletes itself when neither side needs it any more. The handle's side is one thread.
template <class T>
class Awaited : public Lane::Guest {
 public:
  // `loop`: of a pool without worker threads, which wait() turns; otherwise null.
  explicit Awaited(std::shared_ptr<worker::Worker> loop) : loop_(std::move(loop)) {}
  Awaited(const Awaited&) = delete;
  Awaited& operator=(const Awaited&) = delete;
  virtual ~Awaited() = default;

  // ---- where it waits: once ----
  void tell(Result<T> result) noexcept {
    result_ = std::move(result);
    // Acquire-release: the handle sees the result, we see its waiter.
    if (stage_.exchange(Stage::done, std::memory_order_acq_rel) == Stage::claimed) {
      return Lane::deliver(lane_, this);  // our reference goes with it
    }
    release();
  }

  // ---- the lane ----
  void arrive() override {
    has_arrived_ = true;
    const bool is_wanted = !is_abandoned_ && coroutine_;
    const std::coroutine_handle<> waiter = coroutine_;
    const worker::DepthScope scope(depth_);
    release();
    if (is_wanted) waiter.resume();
  }

  // ---- the handle ----
  bool is_ready() const noexcept {
    // Acquire: the result is there if the stage says so.
    return stage_.load(std::memory_order_acquire) == Stage::done || fork_guard_.is_in_child();
  }
  // False if there is a result meanwhile.
  bool suspend(std::coroutine_handle<> waiter) noexcept {
    coroutine_ = waiter;
    return claim();
  }
  // The result, once. It may be gone afterwards.
  Result<T> take() {
    if (fork_guard_.is_in_child()) return std::unexpected(Error(Code::closed, kForked));
    Result<T> result = std::move(result_);
    release();
    return result;
  }
  // Blocks this thread, then the same. `misuse`: what is said of doing so inside a loop.
  Result<T> wait(const char* misuse) {
    if (fork_guard_.is_in_child()) return std::unexpected(Error(Code::closed, kForked));
    WEIR_CHECK(worker::thread_context.loops_entered == 0, misuse);
    Lane& lane = Lane::mine();
    if (loop_ != nullptr) lane.borrow(loop_);
    is_for_thread = true;
    if (claim()) {
      const auto others = lane.is_inside_a_coroutine() ? Lane::Others::stay : Lane::Others::are_resumed;
      lane.wait_until([this] { return has_arrived_; }, Duration::max(), others);
    } else {
      lane.give_back_if_idle();
    }
    return take();
  }
  // Nobody wants it any more.
  void drop() noexcept {
    if (fork_guard_.is_in_child()) return;
    const bool is_awaited = lane_ != nullptr && !has_arrived_ && !is_abandoned_;
    const bool was_claimed = is_awaited && coroutine_;
    is_abandoned_ = true;  // the waiter's thread is this one, if there is a waiter
    if (!is_ready() && stop_waiting()) {
      if (was_claimed) --lane_->awaited;
      release();  // nobody tells it any more
    }
    release();
  }

 protected:
  // True: it waits no more, and is not told.
  virtual bool stop_waiting() noexcept = 0;

 private:
  enum class Stage : std::uint8_t { pending, claimed, done };

  void release() noexcept {
    // Acquire-release: the last one sees what the others did.
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  // True: the waiter is told, on its lane.
  bool claim() noexcept {
    Lane& mine = Lane::mine();
    lane_ = mine.shared_from_this();
    depth_ = worker::thread_context.depth;
    if (worker::thread_context.turning != nullptr) mine.listen_at(worker::thread_context.turning->doorbell());
    ++mine.awaited;
    Stage expected = Stage::pending;
    // Release: who has the result sees the waiter. Acquire on failure: we see the result.
    if (stage_.compare_exchange_strong(expected, Stage::claimed, std::memory_order_release,
                                       std::memory_order_acquire)) {
      if (loop_ != nullptr) mine.watch(loop_);
      return true;
    }
    --mine.awaited;
    return false;
  }

  const ForkGuard fork_guard_;
  std::atomic<std::uint32_t> references_{2};
  std::atomic<Stage> stage_{Stage::pending};
  const std::shared_ptr<worker::Worker> loop_;
  Result<T> result_ = std::unexpected(Error(Code::cancelled, "the wait was given up"));

  // ---- the waiter's; set before the claim ----
  std::shared_ptr<Lane> lane_;
  std::coroutine_handle<> coroutine_;
  std::uint8_t depth_ = 0;
  bool has_arrived_ = false;
  bool is_abandoned_ = false;
};

}  // namespace weir::pool
