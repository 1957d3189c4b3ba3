#include "pool/call.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/fork_guard.h"
#include "base/sync.h"
#include "pool/call_result.h"
#include "pool/gate.h"
#include "pool/lane.h"
#include "pool/post.h"
#include "pool/ties.h"
#include "worker/thread_context.h"

namespace weir::pool {
namespace {

using detail::CallStage;
using detail::WaiterKind;
using worker::DepthScope;
using worker::thread_context;

void release(CallRecord* record) noexcept { CallRecord::Pool::release(record); }

// Of a call that nobody wants any more; who was to come after it does not.
void release_dropped(CallRecord* record) noexcept {
  if (record->has_ties) [[unlikely]]
    untie(*record, true);
  release(record);
}

Gate& gate_of(CallRecord* record) { return *record->core->shared; }

// Of a record that is claimed.
bool has_continuation(const CallRecord* record) {
  sync::reads(&record->waiter);
  return record->waiter_kind == WaiterKind::continuation;
}

// Makes a result that lies where it arrived one that stays.
void settle(CallRecord* record, const transfer::Outcome& outcome) {
  store_result(record, outcome);
  // Release: a handle that wandered to another thread may look.
  record->stage.store(CallStage::done, std::memory_order_release);
}

void run_continuation(CallRecord* record, Result<Reply>&& result) {
  if (gate_of(record).is_in_child()) [[unlikely]]
    return;  // the one before it forked, and returned in the child
  const DepthScope depth(record->resume_depth);
  record->run(record->continuation, std::move(result));
  release(record);
}

// The same on the worker, of a call that may have failed: its handle has gone for the continuation, and the peer's name
// with it.
void run_named(CallRecord* record, Result<Reply>&& result, bool is_ours) {
  if (!result) [[unlikely]] {
    const Post* const post = gate_of(record).post;
    const std::string* const peer = post == nullptr ? nullptr : post->shown_name(record->peer);
    if (peer != nullptr) result = std::unexpected(with_names(record, *peer, std::move(result).error(), is_ours));
  }
  run_continuation(record, std::move(result));
}

// The waiter is on this thread and the call was direct: no lane in between.
void resume_here(CallRecord* record, const transfer::Outcome& outcome) {
  switch (record->waiter_kind) {
    case WaiterKind::continuation: {
      run_named(record, make_result(outcome, gate_of(record)), has_own_words(outcome));
      return;
    }
    case WaiterKind::coroutine: {
      --gate_of(record).worker().direct_waiters;
      InPlace place{&outcome};
      record->kept.place = &place;
      record->waiter.has_arrived = true;
      record->stage.store(CallStage::in_place, std::memory_order_relaxed);
      {
        const DepthScope depth(record->resume_depth);
        record->waiter.coroutine.resume();
      }
      if (!place.is_taken) settle(record, outcome);
      return;
    }
    case WaiterKind::group:
    case WaiterKind::thread:
    case WaiterKind::none:
      --gate_of(record).worker().direct_waiters;
      settle(record, outcome);
      resume_waiter(record);
      return;
  }
}

// To the waiter's lane. The waiter's thread may have the record and end before the lane was woken, so the lane is owned
// here. Until the thread has the record, its claim keeps the lane.
void deliver(CallRecord* record) noexcept {
  const std::shared_ptr<Lane> lane = record->waiter.lane->shared_from_this();
  Lane::deliver(lane, record, record);
}

enum class Claim : std::uint8_t { waiting, done };

constexpr const char* kOwnerDoesNotPoll =
    "this pool has no worker threads, and the thread that owns its loop lives but does not poll";
constexpr Duration kOwnerPatience = std::chrono::milliseconds(200);  // that a loop's owner may be late

// Acquire: the result is there if the stage says so.
bool is_done(const CallRecord* record) { return record->stage.load(std::memory_order_acquire) >= CallStage::done; }
// A call of the parent's, in a forked child. It fails there, whatever becomes of it in the parent; its record is left
// as it is.
bool is_in_child(const CallRecord* record) { return record->core->shared->is_in_child(); }
Error forked() { return {Code::closed, kForked, true}; }

bool is_in_place(const CallRecord* record) {
  return record->stage.load(std::memory_order_acquire) == CallStage::in_place;
}

// The waiter is filled in. `waiting`: it will be handed the record.
Claim claim(CallRecord* record) noexcept {
  sync::writes(&record->waiter);
  record->resume_depth = thread_context.depth;
  const bool has_lane = record->waiter_kind != WaiterKind::continuation;
  if (is_done(record)) {
    record->waiter_kind = WaiterKind::none;
    return Claim::done;
  }
  Gate& gate = *record->core->shared;
  if (record->is_direct() && gate.is_mine()) {
    if (has_lane) {
      record->waiter.lane = nullptr;
      ++gate.worker().direct_waiters;
    }
    record->stage.store(CallStage::claimed, std::memory_order_relaxed);
    gate.tell_of_waiter();
    return Claim::waiting;
  }
  Lane* lane = nullptr;
  if (has_lane) {
    lane = &Lane::mine();
    if (thread_context.turning != nullptr) lane->listen_at(thread_context.turning->doorbell());
    record->waiter.lane = lane;
    ++lane->awaited;
    if (!gate.worker().has_thread()) lane->watch(gate.shared_worker());
  }
  if (record->is_direct()) {
    gate.wish(record, CallRecord::kClaim);
    return Claim::waiting;
  }
  // A continuation may run, and its record go, as soon as the record is claimed; a record with a lane stays until this
  // thread has it back.
  const std::shared_ptr<Gate> kept = lane == nullptr && !gate.is_mine() ? gate.shared_from_this() : nullptr;
  CallStage expected = CallStage::pending;
  // Release: the worker that completes it sees the waiter. Sequentially consistent, which is more: see
  // Gate::tell_of_waiter(). Acquire on failure: we see the result.
  if (record->stage.compare_exchange_strong(expected, CallStage::claimed, std::memory_order_seq_cst,
                                            std::memory_order_acquire)) {
    gate.tell_of_waiter();
    return Claim::waiting;
  }
  if (lane != nullptr) --lane->awaited;
  record->waiter_kind = WaiterKind::none;
  return Claim::done;
}

// The waiter, whose lane is ours, gives up: the record is cancelled and dropped. If it is on its way to the lane
// already, that gives it up when it comes.
void abandon(CallRecord* record) noexcept {
  Gate& gate = gate_of(record);
  Lane* lane = record->waiter.lane;
  CallStage expected = CallStage::claimed;
  if (lane == nullptr) {
    record->waiter.is_abandoned = true;
  } else if (record->is_direct() &&
             (record->wishes.fetch_or(CallRecord::kDrop, std::memory_order_acq_rel) & CallRecord::kClaim) != 0) {
    --lane->awaited;  // the worker finds both wishes and heeds this one
  } else if (record->stage.compare_exchange_strong(expected, CallStage::pending, std::memory_order_acq_rel)) {
    --lane->awaited;
    record->is_direct() ? gate.queue_wishes(record) : gate.wish(record, CallRecord::kDrop);
  } else {
    if (record->is_direct()) record->wishes.store(0, std::memory_order_relaxed);  // it was not queued
    record->waiter.is_abandoned = true;
  }
}

}  // namespace

void complete_direct(transfer::OutgoingCall& call, const transfer::Outcome& outcome) noexcept {
  auto* record = static_cast<CallRecord*>(&call);
  if (record->is_dropped) [[unlikely]]
    return release_dropped(record);
  if (outcome.landing != nullptr && open_first(record, outcome.landing)) [[unlikely]]
    return;
  if (record->has_ties) [[unlikely]]
    untie(*record, outcome.failed);
  if (record->stage.load(std::memory_order_relaxed) == CallStage::claimed) [[likely]] {
    if (record->waiter_kind == WaiterKind::continuation || record->waiter.lane == nullptr) [[likely]]
      return resume_here(record, outcome);
  }
  if (record->stage.load(std::memory_order_relaxed) != CallStage::claimed) return settle(record, outcome);
  store_result(record, outcome);
  // Acquire-release: its thread may be giving up just now; then it drops what is done.
  if (record->stage.exchange(CallStage::done, std::memory_order_acq_rel) == CallStage::claimed) hand_over(record);
}

void complete_for_lane(transfer::OutgoingCall& call, const transfer::Outcome& outcome) noexcept {
  auto* record = static_cast<CallRecord*>(&call);
  if (record->is_dropped) [[unlikely]]
    return release_dropped(record);
  if (outcome.landing != nullptr && open_first(record, outcome.landing)) [[unlikely]]
    return;
  if (record->has_ties) [[unlikely]]
    untie(*record, outcome.failed);
  // Acquire: pairs with the claim, so the waiter is seen.
  if (record->stage.load(std::memory_order_acquire) == CallStage::claimed && has_continuation(record)) {
    return run_named(record, make_result(outcome, gate_of(record)), has_own_words(outcome));
  }
  store_result(record, outcome);
  // Acquire-release: the handle sees the result, we see its waiter.
  if (record->stage.exchange(CallStage::done, std::memory_order_acq_rel) == CallStage::claimed) hand_over(record);
}

bool is_awaited(const transfer::OutgoingCall& call) {
  // Sequentially consistent: see Post::tell_of_waiting_replies().
  return static_cast<const CallRecord&>(call).stage.load(std::memory_order_seq_cst) == CallStage::claimed;
}

void hand_over(CallRecord* record) noexcept {
  if (has_continuation(record)) {
    if (open_kept_first(record)) return;
    const bool is_ours = has_own_words(*record);
    return run_named(record, take_stored(record), is_ours);
  }
  Gate& gate = *record->core->shared;
  if (gate.is_mine() && gate.post != nullptr) {
    gate.post->hand_to_lane(record);
  } else {
    deliver(record);
  }
}

void resume_waiter(CallRecord* record) {
  sync::writes(&record->waiter);
  const bool is_on_lane = record->waiter_kind != WaiterKind::none;
  if (is_on_lane) {
    record->waiter.has_arrived = true;
    if (record->waiter.is_abandoned) return drop_result(record);
  }
  const DepthScope depth(record->resume_depth);
  if (record->waiter_kind == WaiterKind::coroutine) {
    record->waiter.coroutine.resume();
  } else if (record->waiter_kind == WaiterKind::group) {
    detail::CallGroup& group = *record->waiter.group;
    if (--group.remaining == 0) group.waiter.resume();
  }
}

void refuse_call(CallRecord* record, Refused& refused) noexcept {
  record->drop_bytes();
  if (record->has_ties) refused.ties.push_back(take_ties(*record));
  if (record->is_dropped) return release(record);
  store_result(record, {.failed = true, .code = Code::closed, .sentence = "the pool is closed"});
  // Acquire-release: as in complete_for_lane().
  if (record->stage.exchange(CallStage::done, std::memory_order_acq_rel) != CallStage::claimed) return;
  hand_over_refused(record, refused);
}

void hand_over_refused(CallRecord* record, Refused& refused) noexcept {
  if (has_continuation(record)) {
    record->link = std::exchange(refused.records, record);
    return;
  }
  deliver(record);
}

void finish_refused(Refused& refused) noexcept {
  for (const Ties& ties : refused.ties) end(ties, true);
  refused.ties.clear();
  while (refused.records != nullptr) {
    CallRecord* record = std::exchange(refused.records, refused.records->link);
    run_continuation(record, take_stored(record));
  }
}

void drop_result(CallRecord* record) noexcept {
  sync::writes(&record->kept);
  if (record->kept.pin != nullptr) detail::unpin(std::exchange(record->kept.pin, nullptr));
  release(record);
}

void cancel_on_worker(detail::CancellableCall& call, engine::Engine& engine, Instant now) {
  CallRecord* const record = call.record;
  const std::uint8_t depth_then = record->resume_depth;
  const CallRecord::State state = record->state;
  const bool was_sent =
      state != CallRecord::State::idle && state != CallRecord::State::held && state != CallRecord::State::queued;
  drop_on_worker(record, engine, now);
  const DepthScope depth(depth_then);
  call.complete(std::unexpected(Error(Code::cancelled, "the caller cancelled it", was_sent)));
}

void drop_on_worker(CallRecord* record, engine::Engine& engine, Instant now) {
  if (is_done(record)) return drop_result(record);
  record->is_dropped = true;
  // Still in its ring: it is thrown away when it comes out.
  if (record->state != CallRecord::State::idle) engine.cancel(*record, now);
}

}  // namespace weir::pool

namespace weir::detail {

using pool::Claim;

void make_cancellable(CallRecord* record, CancellableCall& call) {
  call.gate = record->core->shared;
  call.record = record;
}

// The record may be another call's by now, so nobody but the worker looks at it.
void CancellableCall::cancel() noexcept {
  // Relaxed: of several who ask, one goes on; what it does orders the rest.
  if (is_asked_.exchange(true, std::memory_order_relaxed)) return;
  const std::shared_ptr<pool::Gate> to = gate.lock();
  if (to == nullptr) return;
  hold();
  to->cancel(this);
}

void* continuation_storage(CallRecord* record) noexcept { return record->continuation; }

void attach_continuation(CallRecord* record, RunContinuation run) {
  if (pool::is_in_child(record)) [[unlikely]]
    return run(record->continuation, std::unexpected(pool::forked()));
  const std::string* const peer = record->peer_shown;
  record->waiter_kind = WaiterKind::continuation;
  record->run = run;
  if (pool::claim(record) == Claim::waiting) return;
  if (pool::is_in_place(record)) {
    record->in_place()->is_taken = true;
    pool::settle(record, *record->in_place()->outcome);
  }
  pool::run_continuation(record, pool::take_named(record, *peer));
}

bool call_ready(CallRecord* record) noexcept { return pool::is_done(record) || pool::is_in_child(record); }

bool call_suspend(CallRecord* record, std::coroutine_handle<> waiter) noexcept {
  record->waiter_kind = WaiterKind::coroutine;
  record->waiter = {.coroutine = waiter};
  return pool::claim(record) == Claim::waiting;
}

bool call_join(CallRecord* record, CallGroup& group) noexcept {
  if (pool::is_in_child(record)) [[unlikely]]
    return false;
  record->waiter_kind = WaiterKind::group;
  record->waiter = {.group = &group};
  return pool::claim(record) == Claim::waiting;
}

Result<Reply> call_take(CallRecord* record) {
  if (pool::is_in_child(record)) [[unlikely]]
    return std::unexpected(pool::forked());
  if (pool::is_in_place(record)) {
    record->in_place()->is_taken = true;
    const transfer::Outcome& outcome = *record->in_place()->outcome;
    Result<Reply> result = pool::make_result(outcome, pool::gate_of(record));
    if (!result) [[unlikely]]
      result =
          std::unexpected(pool::with_names(record, *record->peer_shown, result.error(), pool::has_own_words(outcome)));
    pool::release(record);
    return result;
  }
  Result<Reply> result = pool::take_named(record, *record->peer_shown);
  pool::release(record);
  return result;
}

Result<Bytes> call_header(CallRecord* record) {
  if (pool::is_in_child(record)) return std::unexpected(pool::forked());
  if (pool::is_in_place(record)) {
    record->in_place()->is_taken = true;
    pool::settle(record, *record->in_place()->outcome);
  }
  const Bytes bytes{record->kept.data, record->kept.bytes};
  if (record->kept.failed) {
    const char* literal = bytes.empty() ? reinterpret_cast<const char*>(record->kept.data) : "";
    Error error = pool::make_error(record->kept.code, literal, bytes, record->kept.may_have_run);
    return std::unexpected(pool::with_names(record, *record->peer_shown, std::move(error), bytes.empty()));
  }
  return bytes.first(record->kept.header_bytes);
}

Result<Reply> call_wait(CallRecord* record) {
  if (pool::is_in_child(record)) [[unlikely]]
    return std::unexpected(pool::forked());
  WEIR_CHECK(worker::thread_context.loops_entered == 0,
             "get() was called inside a handler or continuation on the thread that turns the loop, which would never "
             "complete the call: await it or use then()");
  const std::shared_ptr<pool::Gate>& gate = record->core->shared;
  pool::Lane& lane = pool::Lane::mine();
  const bool has_thread = gate->worker().has_thread();
  if (!has_thread && !gate->is_closed()) lane.borrow(gate->shared_worker());
  record->waiter_kind = WaiterKind::thread;
  record->waiter = {};
  if (pool::claim(record) == Claim::waiting) {
    const auto others = lane.is_inside_a_coroutine() ? pool::Lane::Others::stay : pool::Lane::Others::are_resumed;
    const auto has_arrived = [record] { return record->waiter.has_arrived; };
    // The deadline is the loop's to watch; but if its owner lives and does not poll, nobody else does.
    const bool is_on_its_own = !has_thread && record->waiter.lane != nullptr && !record->deadline.is_never();
    const Duration patience =
        is_on_its_own ? std::max(Duration::zero(), record->deadline - worker::read_clock()) + pool::kOwnerPatience
                      : Duration::max();
    lane.wait_until(has_arrived, patience, others);
    if (!has_arrived()) {
      pool::abandon(record);
      return std::unexpected(Error(Code::timeout, pool::kOwnerDoesNotPoll, true));
    }
  } else {
    lane.give_back_if_idle();
  }
  return call_take(record);
}

void call_drop(CallRecord* record) noexcept {
  if (pool::is_in_child(record)) [[unlikely]]
    return;
  if (pool::is_in_place(record)) {
    record->in_place()->is_taken = true;
    return pool::release(record);
  }
  pool::Gate& gate = *record->core->shared;
  const CallStage stage = record->stage.load(std::memory_order_acquire);
  if (record->is_direct() && gate.is_mine()) {
    if (stage == CallStage::done || gate.post == nullptr) return pool::drop_result(record);
    if (stage == CallStage::claimed && record->waiter.lane == nullptr) --gate.worker().direct_waiters;
    record->stage.store(CallStage::pending, std::memory_order_relaxed);
    return gate.post->drop(record);
  }
  // A coroutine that was destroyed while it waited: this is its own thread, so its lane is ours.
  const bool is_awaited = record->waiter_kind != WaiterKind::none && record->waiter_kind != WaiterKind::continuation &&
                          !record->waiter.has_arrived;
  if (is_awaited) return pool::abandon(record);
  if (stage == CallStage::done) return pool::drop_result(record);
  gate.wish(record, CallRecord::kDrop);
}

}  // namespace weir::detail
