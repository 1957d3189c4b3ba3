#include "worker/worker.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "worker/place.h"
#include "worker/waiting.h"

namespace weir::worker {

Worker::Worker(Options options) : options_(std::move(options)), doorbell_(std::make_shared<Doorbell>()) {
  if (is_open()) poller_.add(doorbell_->descriptor(), nullptr);
}

Worker::~Worker() {
  stop_and_join();
  WEIR_CHECK(seats_.empty(), "a worker was destroyed with seats on it");
}

void Worker::start() {
  WEIR_CHECK(options_.has_thread && !thread_.joinable(), "a worker is started once, and only if it has a thread");
  std::atomic<bool> is_running{false};
  thread_ = std::thread([this, &is_running] {
    owner_.store(&thread_context, std::memory_order_relaxed);
    is_running.store(true, std::memory_order_release);
    is_running.notify_one();
    const std::shared_ptr<Worker> kept = loop();  // the last one of a worker that was let go: nothing may follow
  });
  // The owner is known before anybody submits, so that is_mine() never changes under a caller.
  is_running.wait(false, std::memory_order_acquire);
}

void Worker::close_in_child() noexcept {
  poller_.close_in_child();
  doorbell_->close_in_child();
}

void Worker::stop_and_join() {
  if (!thread_.joinable() || is_in_child()) return;
  WEIR_CHECK(thread_.get_id() != std::this_thread::get_id(),
             "the last handle of a pool was dropped on its own worker thread; keep one outside of handlers and "
             "continuations and close the pool from there");
  request_stop();
  thread_.join();
}

void Worker::request_stop() {
  stopping_.store(true, std::memory_order_relaxed);
  doorbell_->ring();
}

bool Worker::stop_by(Instant until, std::shared_ptr<Worker> self) {
  if (!thread_.joinable() || is_in_child()) return true;
  request_stop();
  {
    const bool is_this_thread = thread_.get_id() == std::this_thread::get_id();
    std::unique_lock lock(commands_mutex_);
    while (!is_this_thread && !has_ended_ && read_clock() < until) command_done_.wait_for(lock, wait_until(until));
    if (!has_ended_) {
      self_ = std::move(self);
      thread_.detach();
      return false;
    }
  }
  thread_.join();
  return true;
}

std::shared_ptr<Worker> Worker::loop() {
  name_this_thread(("weir-worker-" + std::to_string(options_.index)).substr(0, 15).c_str());
  if (Result<void> pinned = pin_this_thread(options_.place); !pinned && options_.subscriber) {
    options_.subscriber->on(event::Degraded{
        {.time_ns = read_clock().ns, .worker = options_.index}, "worker pinning", pinned.error().message()});
  }
  active_threads.fetch_add(1, std::memory_order_relaxed);
  while (!stopping_.load(std::memory_order_relaxed)) {
    if (is_in_child()) [[unlikely]]
      return {};  // of a fork in a handler, which has returned: this thread is all there is
    if (turn()) {
      idle_since_ = Instant::never();
    } else {
      rest(Duration::max());
    }
  }
  active_threads.fetch_sub(1, std::memory_order_relaxed);
  for (;;) {
    run_commands();
    std::lock_guard lock(commands_mutex_);
    if (!commands_.empty()) continue;
    has_ended_ = true;
    command_done_.notify_all();
    return std::move(self_);
  }
}

bool Worker::try_own() {
  const ThreadContext* nobody = nullptr;
  // Acquire: whatever the previous holder did to the loop happened before we run it.
  return owner_.compare_exchange_strong(nobody, &thread_context, std::memory_order_acquire);
}

Worker::Claim Worker::try_claim() {
  WEIR_CHECK(!is_in_child(), kForked);
  if (is_mine()) return Claim::mine;
  std::lock_guard lock(loan_mutex_);
  if (try_own()) {
    wanted_until_ns_.store(0, std::memory_order_relaxed);
    return Claim::new_here;
  }
  if (!is_lent()) return Claim::refused;
  wanted_until_ns_.store((read_clock() + kWanted).ns, std::memory_order_relaxed);
  doorbell_->ring();
  return Claim::lent;
}

bool Worker::try_borrow() {
  if (is_in_child()) return false;
  std::lock_guard lock(loan_mutex_);
  if (!try_own()) return false;
  is_lent_.store(true, std::memory_order_relaxed);
  return true;
}

bool Worker::try_give_back() {
  if (direct_waiters != 0) return false;
  disown();
  return true;
}

void Worker::keep() {
  if (is_in_child()) return;
  std::lock_guard lock(loan_mutex_);
  is_lent_.store(false, std::memory_order_relaxed);
}

void Worker::give_up() {
  for (Hosted* hosted : seats_) hosted->seat->let_go();
  is_lent_.store(false, std::memory_order_relaxed);
  // Release: pairs with the next owner's acquire.
  owner_.store(nullptr, std::memory_order_release);
}

void Worker::disown() {
  if (!is_mine() || is_in_child()) return;
  run_commands();
  {
    std::lock_guard lock(loan_mutex_);
    give_up();
  }
  // Who posts looks for an owner after its command is in place, and we look for commands after there is no owner: one
  // of us sees the other.
  while (has_commands() && run_in_stead({})) {
  }
}

void Worker::retire() {
  // With commands there is a seat that has yet to leave, and the owner is the one to see to it.
  if (!is_in_child() && !has_commands()) owner_.store(nullptr, std::memory_order_release);
}

bool Worker::poll() {
  if (!is_mine()) [[unlikely]] {
    const Claim claim = try_claim();
    WEIR_CHECK(claim != Claim::refused,
               "this pool has no worker threads and another thread turns its loop: call poll() on one thread only, the "
               "first that did, or open the pool with worker threads");
    if (claim == Claim::lent) return false;
  }
  if (!turn()) return false;
  idle_since_ = Instant::never();
  return true;
}

bool Worker::poll_for(Duration at_most) {
  if (poll()) return true;
  const Instant until = at_most == Duration::max() ? Instant::never() : read_clock() + at_most;
  while (read_clock() < until) {
    if (is_mine()) {
      rest(until.is_never() ? Duration::max() : until - now_);
    } else {
      std::this_thread::sleep_for(std::min(kOwnerCheck, at_most));
    }
    if (poll()) return true;
    if (until.is_never() && is_mine()) return false;  // woken for something else: the caller looks
  }
  return false;
}

bool Worker::turn() {
  WEIR_CHECK(thread_context.loops_entered == 0,
             "poll(), get() or run() was called inside a handler or continuation on the thread that turns the loop: "
             "await the call or use then() there");
  thread_context.loops_entered = 1;
  thread_context.turning = this;
  is_turning_ = true;
  now_ = read_clock();
  turns_.store(turns_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);

  bool is_busy = false;
  if (doorbell_->answer()) {
    run_commands();
    if (seats_.size() > kPollAll) look_for_rung();
    is_busy = true;
  }
  if (seats_.size() <= kPollAll) {
    for (std::size_t i = 0; i < seats_.size(); ++i) is_busy |= poll_seat(*seats_[i]);
  } else {
    is_busy |= poll_ready();
  }
  if (thread_context.after_turn != nullptr) is_busy |= thread_context.after_turn();

  is_turning_ = false;
  thread_context.turning = nullptr;
  thread_context.loops_entered = 0;  // not one less: a child that was forked in here may have begun anew
  return is_busy;
}

bool Worker::poll_seat(Hosted& hosted) {
  const bool is_busy = hosted.seat->poll_once(now_);
  if (hosted.seat->is_blocked() != hosted.is_watched_for_writing ||
      hosted.seat->is_starved() == hosted.is_watched_for_reading) [[unlikely]] {
    watch(hosted);
  }
  return is_busy;
}

bool Worker::poll_ready() {
  take_readiness(poller_.wait(Duration::zero()));
  while (Hosted* due = deadlines_.top()) {
    if (due->deadline > now_) break;
    deadlines_.remove(*due);
    touch(*due);
  }
  polling_.swap(ready_);
  // By index: a command that a handler causes may take a seat out of the list.
  for (std::size_t i = 0; i < polling_.size(); ++i) {
    Hosted* hosted = polling_[i];
    if (hosted == nullptr) continue;
    hosted->is_ready = false;
    if (poll_seat(*hosted)) {
      touch(*hosted);
    } else {
      deadlines_.update(*hosted, hosted->seat->next_deadline());
    }
  }
  polling_.clear();
  return !ready_.empty();
}

void Worker::look_for_rung() {
  for (Hosted* hosted : seats_) {
    // Exchange with acquire: of several rings the last one's work is seen too.
    if (hosted->rung != nullptr && hosted->rung->exchange(false, std::memory_order_acquire)) touch(*hosted);
  }
}

void Worker::take_readiness(std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const Poller::Ready& ready = poller_.ready(i);
    if (ready.tag == nullptr) {
      doorbell_->clear_descriptor();
      continue;
    }
    auto& hosted = *static_cast<Hosted*>(ready.tag);
    if (ready.error) hosted.seat->note_error();
    touch(hosted);
  }
}

void Worker::make_ready(Hosted& hosted) {
  hosted.is_ready = true;
  ready_.push_back(&hosted);
}

void Worker::watch(Hosted& hosted) {
  hosted.is_watched_for_writing = hosted.seat->is_blocked();
  hosted.is_watched_for_reading = !hosted.seat->is_starved();
  const int descriptor = hosted.seat->descriptor();
  if (descriptor < 0) return;
  poller_.want(descriptor, &hosted, {.read = hosted.is_watched_for_reading, .write = hosted.is_watched_for_writing});
}

void Worker::rest(Duration at_most) {
  if (idle_since_.is_never()) idle_since_ = now_;
  const Duration idle_for = now_ - idle_since_;
  if (options_.idle == Idle::spin || (idle_for < kSpin && !is_crowded())) {
    relax_cpu();
  } else if (idle_for < kAwake) {
    sync::yield();
  } else {
    sleep(at_most);
  }
}

void Worker::sleep(Duration at_most) {
  if (doorbell_->lie_down()) {
    const Instant deadline = next_deadline();
    const Duration until_deadline = deadline.is_never() ? Duration::max() : deadline - now_;
    const Duration limit = std::min(at_most, until_deadline);
    if (limit > Duration::zero() && !stopping_.load(std::memory_order_relaxed)) {
      const int counted = options_.has_thread ? 1 : 0;
      active_threads.fetch_sub(counted, std::memory_order_relaxed);
      const std::size_t count = poller_.wait(limit);
      active_threads.fetch_add(counted, std::memory_order_relaxed);
      take_readiness(count);
      if (count != 0) idle_since_ = Instant::never();
    }
  }
  doorbell_->get_up();
}

Instant Worker::next_deadline() const {
  Instant next = Instant::never();
  if (seats_.size() <= kPollAll) {
    for (const Hosted* hosted : seats_) next = earliest(next, hosted->seat->next_deadline());
  } else if (!ready_.empty()) {
    next = Instant{};
  } else if (const Hosted* first = deadlines_.top()) {
    next = first->deadline;
  }
  return next;
}

void Worker::add(Hosted& hosted) {
  seats_.push_back(&hosted);
  ready_.reserve(seats_.size());
  polling_.reserve(seats_.size());
  const int descriptor = hosted.seat->descriptor();
  if (descriptor >= 0) poller_.add(descriptor, &hosted);
  for (Hosted* each : seats_) touch(*each);  // whichever way of polling holds from here on, it begins with all
}

void Worker::remove(Hosted& hosted) {
  const int descriptor = hosted.seat->descriptor();
  if (descriptor >= 0) poller_.remove(descriptor);
  std::erase(seats_, &hosted);
  std::erase(ready_, &hosted);
  std::replace(polling_.begin(), polling_.end(), &hosted, static_cast<Hosted*>(nullptr));
  deadlines_.remove(hosted);
  hosted.is_ready = false;
}

}  // namespace weir::worker
