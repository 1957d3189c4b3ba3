#include "worker/crew.h"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <system_error>
#include <utility>

#include "worker/clock.h"
#include "worker/place.h"

namespace weir::worker {

Result<std::shared_ptr<Crew>> Crew::open(Options options) {
  if (options.threads < 0 || options.threads > kMaxWorkers) {
    return std::unexpected(Error(Code::invalid_argument, "the number of workers must be between 0 and " +
                                                             std::to_string(kMaxWorkers) + ", not " +
                                                             std::to_string(options.threads)));
  }
  if (!options.places.empty() && options.places.size() != static_cast<std::size_t>(options.threads)) {
    return std::unexpected(
        Error(Code::invalid_argument, "places must be empty or name one place per worker: there are " +
                                          std::to_string(options.places.size()) + " places and " +
                                          std::to_string(options.threads) + " workers"));
  }
  for (const WorkerPlace& place : options.places) {
    if (Result<void> valid = validate(place); !valid) return std::unexpected(valid.error());
  }
  if (options.watchdog < Duration::zero()) {
    return std::unexpected(Error(Code::invalid_argument, "watchdog must not be negative; 0 turns it off"));
  }
  auto crew = make_shared_unless_forked<Crew>(std::move(options));
  if (Result<void> started = crew->start(); !started) return std::unexpected(started.error());
  return crew;
}

Crew::Crew(Options options) : options_(std::move(options)) {}

Result<void> Crew::start() {
  const int count = options_.threads == 0 ? 1 : options_.threads;
  for (int i = 0; i < count; ++i) {
    workers_.push_back(make_shared_unless_forked<Worker>(Worker::Options{
        .index = static_cast<std::uint32_t>(i),
        .has_thread = options_.threads > 0,
        .idle = options_.idle,
        .place = options_.places.empty() ? WorkerPlace{} : options_.places[static_cast<std::size_t>(i)],
        .subscriber = options_.subscriber,
    }));
    if (!workers_.back()->is_open()) {
      return std::unexpected(
          Error(Code::overloaded, "the process has used up its descriptors: raise `ulimit -n` or share Workers"));
    }
  }
  if (options_.threads == 0) return {};
  try {
    for (auto& worker : workers_) worker->start();
    if (options_.watchdog > Duration::zero()) watchdog_ = std::thread([this] { watch(); });
  } catch (const std::system_error& thrown) {
    return std::unexpected(Error(Code::overloaded, std::string("a thread could not be started: ") + thrown.what()));
  }
  return {};
}

Result<std::shared_ptr<Worker>> Crew::handshake_worker() {
  if (!has_threads()) return workers_.front();
  std::lock_guard lock(mutex_);
  if (handshake_worker_ != nullptr) return handshake_worker_;
  auto worker = make_shared_unless_forked<Worker>(Worker::Options{.index = static_cast<std::uint32_t>(workers_.size()),
                                                                  .has_thread = true,
                                                                  .idle = Idle::adaptive,
                                                                  .subscriber = options_.subscriber});
  if (!worker->is_open()) {
    return std::unexpected(
        Error(Code::overloaded, "the process has used up its descriptors: raise `ulimit -n` or share Workers"));
  }
  try {
    worker->start();
  } catch (const std::system_error& thrown) {
    return std::unexpected(Error(Code::overloaded, std::string("a thread could not be started: ") + thrown.what()));
  }
  return handshake_worker_ = worker;
}

Crew::~Crew() { stop(read_clock() + kLastPatience, read_clock() + kLastHandshakes); }

void Crew::close_in_child() noexcept {
  for (auto& worker : workers_) worker->close_in_child();
  if (handshake_worker_ != nullptr) handshake_worker_->close_in_child();
}

Crew::Left Crew::stop(Instant until, Instant handshakes_until) {
  {
    std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  stop_requested_.notify_all();
  if (watchdog_.joinable()) watchdog_.join();
  if (!left_.workers.empty() || left_.handshakes) return left_;  // these threads have their workers
  for (auto& worker : workers_) worker->request_stop();
  for (auto& worker : workers_) {
    if (worker->stop_by(until, worker)) {
      worker->retire();
    } else {
      left_.workers.push_back(worker->index());
    }
  }
  if (handshake_worker_ == nullptr) return left_;
  left_.handshakes = !handshake_worker_->stop_by(handshakes_until, handshake_worker_);
  if (!left_.handshakes) handshake_worker_->retire();
  return left_;
}

void Crew::watch() {
  name_this_thread("weir-watchdog");
  std::vector<Watched> seen(workers_.size(), Watched{.since = read_clock()});
  Watched handshakes{.since = read_clock()};
  Instant last_look = read_clock();
  std::unique_lock lock(mutex_);
  while (!stop_requested_.wait_for(lock, options_.watchdog / 4, [&] { return is_stopping_; })) {
    const Instant now = read_clock();
    // A look that comes late says that the whole process stood still (stopped, moved): that time is nobody's hanging.
    const Duration late = now - last_look - options_.watchdog / 4;
    if (late > options_.watchdog / 4) {
      for (Watched& each : seen) each.since = each.since + late;
      handshakes.since = handshakes.since + late;
    }
    for (std::size_t i = 0; i < workers_.size(); ++i) {
      look_at(*workers_[i], seen[i], now, "worker", "a handler or continuation on it blocks");
    }
    if (handshake_worker_ != nullptr) {
      look_at(*handshake_worker_, handshakes, now, "the handshake thread, worker",
              "a function given to Identity::authorise() blocks");
    }
    if (is_in_child()) return;  // of a fork in the subscriber
    last_look = read_clock();
  }
}

void Crew::look_at(const Worker& worker, Watched& seen, Instant now, const char* who, const char* why) const {
  const std::uint64_t turns = worker.turns();
  if (turns != seen.turns || worker.is_resting()) {
    seen = {.turns = turns, .since = now};
    return;
  }
  const Duration stuck = now - seen.since;
  if (stuck < options_.watchdog || seen.is_reported) return;
  seen.is_reported = true;
  if (options_.subscriber) {
    options_.subscriber->on(event::WorkerStalled{{.time_ns = now.ns, .worker = worker.index()}, stuck});
  }
  if (options_.on_hang == OnHang::abort) {
    std::fprintf(stderr, "weir: %s %u has made no progress for %lld ms: %s; aborting, as Config::on_hang says\n", who,
                 worker.index(), static_cast<long long>(stuck.count() / 1'000'000), why);
    std::abort();
  }
}

}  // namespace weir::worker
