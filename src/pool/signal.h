// Signal: raised once, by any thread, for one coroutine, which is resumed on its own lane.
#pragma once

#include <coroutine>
#include <cstdint>
#include <memory>

#include "base/sync.h"
#include "pool/lane.h"
#include "worker/thread_context.h"

namespace weir::pool {

// Part of something that is shared by reference count. Who raises it has a reference and gives it away with raise():
// release() is called for it once the signal is of no use to anybody any more.
//
//   pending --(raise)--> raised                           the coroutine does not wait
//   pending --(wait)--> awaited --(raise)--> raised       it is delivered to the waiter's lane
class Signal : public Lane::Guest {
 public:
  Signal() = default;
  Signal(const Signal&) = delete;
  Signal& operator=(const Signal&) = delete;

  // Acquire: what was done before it was raised is seen.
  bool is_raised() const { return stage_.load(std::memory_order_acquire) == Stage::raised; }

  void raise() noexcept {
    // Acquire-release: the waiter sees what we did, we see the waiter.
    if (stage_.exchange(Stage::raised, std::memory_order_acq_rel) != Stage::awaited) return release();
    Lane::deliver(lane_, this);
  }

  // ---- the waiter's thread ----
  // False: it is raised already. `loop`: what turns the loop that it comes from, if that has no thread.
  bool wait(std::coroutine_handle<> waiter, const std::shared_ptr<worker::Worker>& loop) {
    Lane& mine = Lane::mine();
    lane_ = mine.shared_from_this();
    waiter_ = waiter;
    depth_ = worker::thread_context.depth;
    if (worker::thread_context.turning != nullptr) mine.listen_at(worker::thread_context.turning->doorbell());
    ++mine.awaited;
    Stage expected = Stage::pending;
    // Release: who raises it sees the waiter. Acquire on failure: we see what was done before.
    if (stage_.compare_exchange_strong(expected, Stage::awaited, std::memory_order_release,
                                       std::memory_order_acquire)) {
      if (loop != nullptr) mine.watch(loop);
      return true;
    }
    --mine.awaited;
    waiter_ = nullptr;
    return false;
  }
  // The coroutine goes while it waits.
  void abandon() { waiter_ = nullptr; }

  void arrive() final {
    const std::coroutine_handle<> waiter = std::exchange(waiter_, nullptr);
    const worker::DepthScope scope(depth_);
    release();
    if (waiter) waiter.resume();
  }

 protected:
  ~Signal() = default;
  virtual void release() noexcept = 0;

 private:
  enum class Stage : std::uint8_t { pending, awaited, raised };

  sync::Atomic<Stage> stage_{Stage::pending};
  std::shared_ptr<Lane> lane_;
  std::coroutine_handle<> waiter_;
  std::uint8_t depth_ = 0;
};

}  // namespace weir::pool
