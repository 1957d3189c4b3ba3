#include "worker/watchdog.h"

#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "worker/clock.h"
#include "worker/place.h"
#include "worker/waiting.h"

namespace weir::worker {

void Watchdog::start() {
  thread_ = std::thread([self = shared_from_this()] { self->run(); });
}

void Watchdog::add(std::shared_ptr<const Worker> worker, const char* who, const char* why) {
  std::lock_guard lock(mutex_);
  new_.push_back({.worker = std::move(worker), .who = who, .why = why, .since = read_clock()});
}

void Watchdog::request_stop() {
  {
    std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
}

bool Watchdog::stop_by(Instant until) {
  if (!thread_.joinable()) return true;
  request_stop();
  {
    std::unique_lock lock(mutex_);
    const bool is_mine = thread_.get_id() == std::this_thread::get_id();
    while (!is_mine && !has_ended_ && read_clock() < until) changed_.wait_for(lock, wait_until(until));
    if (!has_ended_) {
      thread_.detach();
      return false;
    }
  }
  thread_.join();
  return true;
}

void Watchdog::take_new(std::vector<Watched>& watched) {
  std::lock_guard lock(mutex_);
  watched.insert(watched.end(), std::make_move_iterator(new_.begin()), std::make_move_iterator(new_.end()));
  new_.clear();
}

// False: it is time to end.
bool Watchdog::rest() {
  std::unique_lock lock(mutex_);
  return !changed_.wait_for(lock, options_.patience / 4, [&] { return is_stopping_; });
}

void Watchdog::run() {
  name_this_thread("weir-watchdog");
  std::vector<Watched> watched;
  Instant last_look = read_clock();
  while (rest()) {
    const Instant now = read_clock();
    // A look that comes late says that the whole process stood still (stopped, moved): that time is nobody's hanging.
    const Duration late = now - last_look - options_.patience / 4;
    if (late > options_.patience / 4) {
      for (Watched& each : watched) each.since = each.since + late;
    }
    take_new(watched);
    for (Watched& each : watched) {
      look_at(each, now);
      if (fork_guard_.is_in_child()) return;  // of a fork in the subscriber
    }
    last_look = read_clock();
  }
  watched.clear();
  std::lock_guard lock(mutex_);
  has_ended_ = true;
  changed_.notify_all();
}

void Watchdog::look_at(Watched& watched, Instant now) {
  const Worker& worker = *watched.worker;
  const std::uint64_t turns = worker.turns();
  if (turns != watched.turns || worker.is_resting()) {
    watched.turns = turns;
    watched.since = now;
    watched.is_reported = false;
    return;
  }
  const Duration stuck = now - watched.since;
  if (stuck < options_.patience || watched.is_reported) return;
  watched.is_reported = true;
  {
    std::lock_guard lock(mutex_);
    if (is_stopping_) return;  // nobody expects news any more
  }
  if (options_.subscriber) {
    options_.subscriber->on(event::WorkerStalled{{.time_ns = now.ns, .worker = worker.index()}, stuck});
  }
  if (options_.on_hang == OnHang::abort) {
    // The subscriber may have taken long, and whoever closes the workers meanwhile lets go of those that hang: that is
    // an answer to the hang, and the process goes on. The lock stays held: a stop that comes now comes too late.
    std::lock_guard lock(mutex_);
    if (is_stopping_) return;
    std::fprintf(stderr, "weir: %s %u has made no progress for %lld ms: %s; aborting, as Config::on_hang says\n",
                 watched.who, worker.index(), static_cast<long long>(stuck.count() / 1'000'000), watched.why);
    std::abort();
  }
}

}  // namespace weir::worker
