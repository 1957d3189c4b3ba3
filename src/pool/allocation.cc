#include "pool/allocation.h"

#include <atomic>
#include <coroutine>
#include <utility>

#include "base/check.h"
#include "base/fork_guard.h"
#include "pool/lane.h"
#include "worker/thread_context.h"

namespace weir::detail {

// Held by its handle, and by whoever has yet to tell it something: the pool of buffers, then the lane. The stage
// decides between the handle's side and the thread that has the result:
//
//   pending --(result)--> done                      the handle finds it
//   pending --(handle waits)--> claimed --(result)--> done      it is delivered to the waiter's lane
struct AllocationRecord final : buffer::BufferPool::Waiter, pool::Lane::Guest {
  enum class Stage : std::uint8_t { pending, claimed, done };

  const ForkGuard fork_guard;
  std::atomic<std::uint32_t> references{2};
  std::atomic<Stage> stage{Stage::pending};
  std::shared_ptr<buffer::BufferPool> buffers;
  std::shared_ptr<worker::Worker> loop;
  Result<Buffer> result = std::unexpected(Error(Code::cancelled, "the allocation was given up"));

  // ---- the waiter's; set before the claim ----
  std::shared_ptr<pool::Lane> lane;
  std::coroutine_handle<> coroutine;
  std::uint8_t depth = 0;
  bool has_arrived = false;
  bool is_abandoned = false;

  void drop() noexcept {
    // Acquire-release: the last one sees what the others did.
    if (references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  void on_allocated(Result<Buffer> given) noexcept override {
    result = std::move(given);
    // Acquire-release: the handle sees the result, we see its waiter.
    if (stage.exchange(Stage::done, std::memory_order_acq_rel) == Stage::claimed) {
      return pool::Lane::deliver(lane, this);  // our reference goes with it
    }
    drop();
  }

  void arrive() override {
    has_arrived = true;
    const bool is_wanted = !is_abandoned && coroutine;
    const std::coroutine_handle<> waiter = coroutine;
    const worker::DepthScope scope(depth);
    drop();
    if (is_wanted) waiter.resume();
  }

  // True: the waiter is told, on its lane.
  bool claim() noexcept {
    pool::Lane& mine = pool::Lane::mine();
    lane = mine.shared_from_this();
    depth = worker::thread_context.depth;
    if (worker::thread_context.turning != nullptr) mine.listen_at(worker::thread_context.turning->doorbell());
    ++mine.awaited;
    Stage expected = Stage::pending;
    // Release: who has the result sees the waiter. Acquire on failure: we see the result.
    if (stage.compare_exchange_strong(expected, Stage::claimed, std::memory_order_release, std::memory_order_acquire)) {
      if (loop != nullptr) mine.watch(loop);
      return true;
    }
    --mine.awaited;
    return false;
  }
};

bool allocation_ready(const AllocationRecord* record) noexcept {
  // Acquire: the result is there if the stage says so.
  return record->stage.load(std::memory_order_acquire) == AllocationRecord::Stage::done ||
         record->fork_guard.is_in_child();
}

bool allocation_suspend(AllocationRecord* record, std::coroutine_handle<> waiter) noexcept {
  record->coroutine = waiter;
  return record->claim();
}

Result<Buffer> allocation_take(AllocationRecord* record) {
  if (record->fork_guard.is_in_child()) return std::unexpected(Error(Code::closed, kForked));
  Result<Buffer> result = std::move(record->result);
  record->drop();
  return result;
}

Result<Buffer> allocation_wait(AllocationRecord* record) {
  if (record->fork_guard.is_in_child()) return std::unexpected(Error(Code::closed, kForked));
  WEIR_CHECK(worker::thread_context.loops_entered == 0,
             "get() was called inside a handler or continuation on the thread that turns the loop, which may be what "
             "the memory waits for: await the allocation");
  pool::Lane& lane = pool::Lane::mine();
  if (record->loop != nullptr) lane.borrow(record->loop);
  record->is_for_thread = true;
  if (record->claim()) {
    const auto others = lane.is_inside_a_coroutine() ? pool::Lane::Others::stay : pool::Lane::Others::are_resumed;
    lane.wait_until([record] { return record->has_arrived; }, Duration::max(), others);
  } else {
    lane.give_back_if_idle();
  }
  return allocation_take(record);
}

void allocation_drop(AllocationRecord* record) noexcept {
  if (record->fork_guard.is_in_child()) return;
  const bool is_awaited = record->lane != nullptr && !record->has_arrived && !record->is_abandoned;
  const bool was_claimed = is_awaited && record->coroutine;
  record->is_abandoned = true;  // the waiter's thread is this one, if there is a waiter
  if (!allocation_ready(record) && record->buffers->cancel(*record)) {
    if (was_claimed) --record->lane->awaited;
    record->drop();  // nobody tells it any more
  }
  record->drop();
}

}  // namespace weir::detail

namespace weir::pool {

Allocation allocate(const std::shared_ptr<buffer::BufferPool>& buffers, std::shared_ptr<worker::Worker> loop,
                    std::size_t bytes, const AllocateOptions& options) {
  Result<Buffer> now = buffers->try_allocate(bytes, options);
  if (now || !options.wait || now.error().code() != Code::overloaded) return Allocation(std::move(now));
  auto* record = new detail::AllocationRecord;
  record->buffers = buffers;
  record->loop = std::move(loop);
  if (std::optional<Result<Buffer>> late = buffers->allocate(bytes, options, *record)) {
    delete record;
    return Allocation(*std::move(late));
  }
  return Allocation(record);
}

}  // namespace weir::pool
