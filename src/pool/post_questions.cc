// What other threads ask a post: its counters, and whether anything is outstanding. Answered by the worker in a turn.
#include <algorithm>
#include <cstdint>
#include <mutex>

#include "pool/post.h"

namespace weir::pool {
namespace {

constexpr Duration kAnswerPatience = std::chrono::milliseconds(200);

}  // namespace

Counters Post::read_counters() {
  Counters counters = engine_->events().counters;
  counters.records_forged += gate_->forged();
  counters.handlers_threw += gate_->handlers_threw();
  return counters;
}

void Post::answer_questions() {
  std::lock_guard lock(answer_mutex_);
  is_asked_.store(false, std::memory_order_relaxed);
  counters_copy_ = read_counters();
  quiet_copy_ = is_quiet();
  answers_ = questions_;
  answered_.notify_all();
}

std::uint64_t Post::ask(std::unique_lock<std::mutex>& lock) {
  const std::uint64_t mine = ++questions_;
  is_asked_.store(true, std::memory_order_relaxed);
  // Without the lock: the gate may turn out to be closed, and then continuations run in here.
  lock.unlock();
  gate_->ring(nullptr);
  lock.lock();
  return mine;
}

Counters Post::counters() {
  if (gate_->is_mine()) return read_counters();
  // Nobody turns this loop, so nobody would answer: the asking thread does, in an owner's stead.
  const bool is_free = !worker_->has_thread() && !worker_->has_owner();
  const bool is_answered = is_free && worker_->run_on_loop([this] { answer_questions(); }, Instant{});
  std::unique_lock lock(answer_mutex_);
  if (has_left_ || is_answered) return counters_copy_;
  const std::uint64_t mine = ask(lock);
  // A loop that nobody turns does not answer; then the last answer has to do.
  answered_.wait_for(lock, worker_->has_thread() ? kAnswerPatience * 25 : kAnswerPatience,
                     [&] { return has_left_ || answers_ >= mine; });
  return counters_copy_;
}

bool Post::is_quiet(Duration at_most) {
  if (gate_->is_mine()) return engine_->is_quiet() && !openings_.has_calls();
  std::unique_lock lock(answer_mutex_);
  const std::uint64_t mine = ask(lock);
  answered_.wait_for(lock, std::min(kAnswerPatience, at_most), [&] { return has_left_ || answers_ >= mine; });
  return answers_ >= mine && quiet_copy_;
}

}  // namespace weir::pool
