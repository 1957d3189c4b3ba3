#include "pool/lane.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "worker/clock.h"
#include "worker/place.h"

namespace weir::pool {
namespace {

constexpr Duration kSpin = std::chrono::microseconds(4);    // then every idle round yields
constexpr Duration kAwake = std::chrono::microseconds(50);  // then it sleeps
// A thread that turns several loops can sleep in one of them only, and one that waits for another thread's loop has to
// see whether that thread has ended: their sleep is cut into pieces.
constexpr Duration kMixedSleep = std::chrono::milliseconds(1);

#if defined(WEIR_EXPLORE)
sync::PerThread<Lane*> current_lane;
#else
constinit thread_local Lane* current_lane = nullptr;
#endif

}  // namespace

struct LaneHolder {
  std::shared_ptr<Lane> lane = std::make_shared<Lane>();
  LaneHolder() {
    current_lane = lane.get();
    worker::thread_context.after_turn = [] { return current_lane->drive_in_turn(); };
    const worker::Worker* const turning = worker::thread_context.turning;
    if (turning != nullptr && turning->is_in_child()) leave_loop();
  }
  ~LaneHolder() {
    if (lane->fork_guard_.is_in_child()) begin_anew();
    lane->leave();
    worker::thread_context.after_turn = nullptr;
    current_lane = nullptr;
  }
  // In a forked child.
  void begin_anew() {
    keep_for_ever(new std::shared_ptr<Lane>(std::move(lane)));
    lane = std::make_shared<Lane>();
    current_lane = lane.get();
    leave_loop();
  }
  // There: the loop that this thread is inside of, if it is inside of a handler, is its parent's.
  static void leave_loop() {
    worker::thread_context.loops_entered = 0;
    worker::thread_context.turning = nullptr;
    worker::thread_context.depth = 0;
  }
};

Lane* Lane::mine_if_any() {
  if (current_lane == nullptr || current_lane->fork_guard_.is_in_child()) return nullptr;
  return current_lane;
}

Lane& Lane::mine() {
  if (current_lane != nullptr && !current_lane->fork_guard_.is_in_child()) [[likely]]
    return *current_lane;
#if defined(WEIR_EXPLORE)
  sync::make_for_thread<LaneHolder>();
#else
  static thread_local LaneHolder holder;
  if (current_lane != nullptr && current_lane->fork_guard_.is_in_child()) holder.begin_anew();
#endif
  WEIR_CHECK(current_lane != nullptr, "a thread used a pool after its own thread-local objects had gone");
  return *current_lane;
}

void Lane::leave() {
  // First: a pool that waits for its last turn has it now, and its continuations may still submit.
  for (auto& loop : loops_) loop->disown();
  loops_.clear();
  publish();
  is_orphaned.store(true, std::memory_order_release);
  // Release: who takes a port over sees everything this thread did with it.
  for (auto& port : ports_) {
    port->disown();
    port->is_orphaned.store(true, std::memory_order_release);
  }
  ports_.clear();
  if (awaited != 0) self_ = shared_from_this();
}

void Lane::deliver(const std::shared_ptr<Lane>& to, CallRecord* newest, CallRecord* oldest) noexcept {
  CallRecord* top = to->arrived_.load(std::memory_order_relaxed);
  do {
    sync::writes(&oldest->link);
    oldest->link = top;
    // Release: the results are complete before the thread sees the records.
  } while (!to->arrived_.compare_exchange_weak(top, newest, std::memory_order_release, std::memory_order_relaxed));
  to->wake();
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): the guest may be destroyed, with its own reference
void Lane::deliver(std::shared_ptr<Lane> to, Guest* guest) noexcept {
  Guest* top = to->guests_.load(std::memory_order_relaxed);
  do {
    guest->link = top;
    // Release: as above.
  } while (!to->guests_.compare_exchange_weak(top, guest, std::memory_order_release, std::memory_order_relaxed));
  to->wake();
}

void Lane::wake() noexcept {
  // The thread announces its sleep, fences and looks; we put in place, fence and look: one of us sees the other.
  sync::fence(std::memory_order_seq_cst);
  if (is_sleeping_.load(std::memory_order_relaxed)) return nudge();
  ring_bell();
}

void Lane::ring_bell() noexcept {
  if (!has_bell_.load(std::memory_order_relaxed)) return;
  std::unique_lock lock(mutex_);
  const std::shared_ptr<worker::Doorbell> bell = bell_;
  lock.unlock();
  if (bell != nullptr) bell->ring();
}

void Lane::listen_at(const std::shared_ptr<worker::Doorbell>& bell) {
  if (bell_ == bell) return;  // only this thread changes it
  {
    std::lock_guard lock(mutex_);
    bell_ = bell;
  }
  has_bell_.store(bell != nullptr, std::memory_order_relaxed);
  // Who has not seen the new bell has put its records in place before we look for them next: as in deliver().
  sync::fence(std::memory_order_seq_cst);
}

void Lane::nudge() noexcept {
  {
    std::lock_guard lock(mutex_);
    is_nudged_ = true;
  }
  woken_.notify_one();
  // As in deliver(): what the thread is nudged for is in place before we look where it sleeps.
  sync::fence(std::memory_order_seq_cst);
  ring_bell();
}

Port* Lane::port_to(const std::shared_ptr<Gate>& gate) {
  const std::uint64_t id = gate->id();
  for (auto& port : ports_) {
    if (port->gate_id() == id) [[likely]]
      return gate->is_closed() ? nullptr : port.get();
  }
  std::erase_if(ports_, [](const auto& port) {
    if (!port->gate().is_closed() || port->has_unpublished()) return false;
    port->disown();  // the gate may be the last to hold it, on another thread
    return true;
  });
  std::shared_ptr<Port> port = gate->open_port(gate);
  if (port == nullptr) return nullptr;
  ports_.push_back(port);
  return port.get();
}

void Lane::submit(Port& port, CallRecord* record) {
  if (!port.push(record)) [[unlikely]] {
    Gate& gate = port.gate();
    // A loop must not wait for another loop, which may be waiting for it; and a loop that nobody turns yet would never
    // make room.
    if (worker::thread_context.loops_entered != 0 || gate.is_mine() || !gate.worker().has_owner()) {
      gate.wish(record, CallRecord::kSubmit);
      return;
    }
    // Ringing may find the gate closed and run continuations, which may make this lane forget the port.
    const std::shared_ptr<Port> kept = port.shared_from_this();
    port.publish();
    const Instant since = worker::read_clock();
    while (!port.push(record)) {
      gate.ring(&port);
      if (worker::read_clock() - since < kAwake) {
        sync::yield();
      } else {
        sync::sleep_for(kAwake);
      }
    }
    port.publish();
    return;
  }
  if (port.unpublished() == 1) dirty_.push_back(&port);
  if (batches_ == 0 || port.unpublished() >= kPublishBatch) publish();
}

void Lane::publish() {
  // One by one: publishing may find a gate closed and run continuations, which submit and publish in their turn.
  while (!dirty_.empty()) {
    Port* port = dirty_.back();
    dirty_.pop_back();
    port->publish();
  }
}

bool Lane::collect() {
  bool is_busy = guests_.load(std::memory_order_relaxed) != nullptr && collect_guests();
  if (arrived_.load(std::memory_order_relaxed) == nullptr) return is_busy;
  // Acquire: pairs with deliver().
  CallRecord* newest = arrived_.exchange(nullptr, std::memory_order_acquire);
  // A stack: the newest is on top. Oldest first is fairer.
  CallRecord* oldest = nullptr;
  for (CallRecord* record = newest; record != nullptr;) {
    sync::writes(&record->link);
    CallRecord* next = record->link;
    record->link = oldest;
    oldest = record;
    record = next;
  }
  while (CallRecord* record = oldest) {
    oldest = record->link;
    if (record->waiter_kind == detail::WaiterKind::thread) {
      // Its thread is this one and looks for itself.
      --awaited;
      is_busy = true;
      resume_waiter(record);
      continue;
    }
    record->link = nullptr;
    (backlog_ == nullptr ? backlog_ : backlog_last_->link) = record;
    backlog_last_ = record;
  }
  return is_busy;
}

bool Lane::collect_guests() {
  // Acquire: pairs with deliver().
  Guest* newest = guests_.exchange(nullptr, std::memory_order_acquire);
  Guest* oldest = nullptr;
  while (newest != nullptr) {
    Guest* guest = std::exchange(newest, newest->link);
    guest->link = std::exchange(oldest, guest);
  }
  bool is_busy = false;
  while (oldest != nullptr) {
    Guest* guest = std::exchange(oldest, oldest->link);
    if (guest->is_for_thread) {
      --awaited;
      is_busy = true;
      guest->arrive();
      continue;
    }
    guest->link = nullptr;
    (guest_backlog_ == nullptr ? guest_backlog_ : guest_backlog_last_->link) = guest;
    guest_backlog_last_ = guest;
  }
  return is_busy;
}

bool Lane::drive_guests() {
  Batch batch(*this);
  while (guest_backlog_ != nullptr && !fork_guard_.is_in_child()) {
    Guest* guest = std::exchange(guest_backlog_, guest_backlog_->link);
    --awaited;
    guest->arrive();
  }
  return true;
}

bool Lane::drive() {
  bool is_busy = collect();
  if (guest_backlog_ != nullptr) [[unlikely]]
    is_busy = drive_guests();
  if (backlog_ == nullptr) return is_busy;
  Batch batch(*this);
  while (CallRecord* record = backlog_) {
    if (fork_guard_.is_in_child()) [[unlikely]]
      return false;  // a coroutine forked, and suspended in the child
    backlog_ = record->link;
    if (backlog_ != nullptr) __builtin_prefetch(backlog_->inline_bytes);
    --awaited;
    is_busy = true;
    resume_waiter(record);
  }
  return is_busy;
}

void Lane::adopt(const std::shared_ptr<worker::Worker>& loop) {
  if (std::find(loops_.begin(), loops_.end(), loop) != loops_.end()) return;
  loops_.push_back(loop);
  listen_at(loop->doorbell());
}

bool Lane::borrow(const std::shared_ptr<worker::Worker>& loop) {
  if (!loop->is_mine() && !loop->try_borrow()) return false;
  adopt(loop);
  return true;
}

void Lane::watch(const std::shared_ptr<worker::Worker>& loop) {
  if (std::find(watched_.begin(), watched_.end(), loop) == watched_.end()) watched_.push_back(loop);
}

void Lane::mind_loops() {
  if (awaited == 0) watched_.clear();
  for (auto& loop : watched_) {
    if (!loop->has_owner() && !loop->is_wanted()) borrow(loop);
  }
  for (auto& loop : loops_) {
    if (loop->is_mine() && loop->is_lent() && loop->is_wanted() && loop->try_give_back() && awaited != 0) watch(loop);
  }
}

void Lane::give_back_loops() {
  if (fork_guard_.is_in_child()) return;
  for (auto& loop : loops_) {
    if (loop->is_mine() && loop->is_lent() && !loop->try_give_back()) loop->keep();
  }
  forget_lost_loops();
}

void Lane::forget_lost_loops() {
  // A loop that ended, or that another thread turns now, is not ours to sleep in either.
  const auto is_lost = [](const auto& loop) { return !loop->is_mine(); };
  if (std::erase_if(loops_, is_lost) != 0) listen_at(loops_.empty() ? nullptr : loops_.back()->doorbell());
}

bool Lane::turn_loops() {
  mind_loops();
  forget_lost_loops();
  bool is_busy = false;
  for (std::size_t i = 0; i < loops_.size(); ++i) {
    if (loops_[i]->poll()) is_busy = true;
  }
  return is_busy;
}

void Lane::wait_until(const std::function<bool()>& is_done, Duration at_most, Others others) {
  publish();
  ++waits_;
  worker::active_threads.fetch_add(1, std::memory_order_relaxed);
  Instant idle_since = Instant::never();
  Instant until = Instant::never();
  while (!is_done()) {
    // What is left to wait for in a child, which a coroutine forked, comes to its own lane.
    if (fork_guard_.is_in_child()) [[unlikely]]
      return mine().wait_until(is_done, at_most, others);
    bool is_busy = turn_loops();
    if (others == Others::stay ? collect() : drive()) is_busy = true;
    if (is_busy) {
      idle_since = Instant::never();
      if (at_most == Duration::max()) continue;
    }
    if (is_done()) break;
    const Instant now = worker::read_clock();
    if (at_most != Duration::max()) {
      if (until.is_never()) until = now + at_most;
      if (now >= until) break;
    }
    if (is_busy) continue;
    if (idle_since.is_never()) idle_since = now;
    const Duration time_left = until.is_never() ? Duration::max() : until - now;
    rest(idle_since, watched_.empty() ? time_left : std::min(time_left, kMixedSleep));
  }
  if (awaited == 0) watched_.clear();  // or this thread's next sleep would be cut into pieces for nothing
  if (--waits_ == 0) give_back_loops();
  worker::active_threads.fetch_sub(1, std::memory_order_relaxed);
}

void Lane::rest(Instant idle_since, Duration at_most) {
  if (!loops_.empty()) {
    const bool is_mixed = loops_.size() > 1;
    loops_.back()->rest(is_mixed ? std::min(at_most, kMixedSleep) : at_most);
    return;
  }
  const Duration idle_for = worker::read_clock() - idle_since;
  if (idle_for < kSpin && !worker::is_crowded()) {
    worker::relax_cpu();
  } else if (idle_for < kAwake) {
    sync::yield();
  } else {
    sleep(at_most);
  }
}

void Lane::sleep(Duration at_most) {
  is_sleeping_.store(true, std::memory_order_relaxed);
  sync::fence(std::memory_order_seq_cst);  // pairs with deliver()
  if (arrived_.load(std::memory_order_relaxed) == nullptr && guests_.load(std::memory_order_relaxed) == nullptr) {
    worker::active_threads.fetch_sub(1, std::memory_order_relaxed);
    std::unique_lock lock(mutex_);
    if (at_most == Duration::max()) {
      woken_.wait(lock, [this] { return is_nudged_; });
    } else {
      woken_.wait_for(lock, at_most, [this] { return is_nudged_; });
    }
    is_nudged_ = false;
    lock.unlock();
    worker::active_threads.fetch_add(1, std::memory_order_relaxed);
  }
  is_sleeping_.store(false, std::memory_order_relaxed);
}

}  // namespace weir::pool
