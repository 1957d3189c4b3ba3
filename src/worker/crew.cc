#include "worker/crew.h"

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
    if (options_.watchdog > Duration::zero()) {
      watchdog_ = make_shared_unless_forked<Watchdog>(Watchdog::Options{
          .patience = options_.watchdog, .on_hang = options_.on_hang, .subscriber = options_.subscriber});
      for (auto& worker : workers_) watchdog_->add(worker, "worker", "a handler or continuation on it blocks");
      watchdog_->start();
    }
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
  if (watchdog_ != nullptr) {
    watchdog_->add(worker, "the handshake thread, worker", "a function given to Identity::authorise() blocks");
  }
  return handshake_worker_ = worker;
}

Crew::~Crew() { stop(read_clock() + kLastPatience, read_clock() + kLastHandshakes); }

void Crew::close_in_child() noexcept {
  for (auto& worker : workers_) worker->close_in_child();
  if (handshake_worker_ != nullptr) handshake_worker_->close_in_child();
}

Crew::Left Crew::stop(Instant until, Instant handshakes_until) {
  if (std::exchange(has_stopped_, true)) return left_;
  // All of them are asked first, so that one that blocks costs the others none of their time.
  for (auto& worker : workers_) worker->request_stop();
  if (watchdog_ != nullptr) left_.watchdog = !watchdog_->stop_by(until);
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

}  // namespace weir::worker
