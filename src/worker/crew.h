// Crew: the workers of one process or pool, and the watchdog that watches their turns.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/fork_guard.h"
#include "weir/config.h"
#include "weir/error.h"
#include "worker/watchdog.h"
#include "worker/worker.h"

namespace weir::worker {

// Owns workers and watchdog. Shared by the pools that run on it; any thread may call it.
class Crew {
 public:
  static constexpr int kMaxWorkers = 1024;

  struct Options {
    int threads = 1;  // 0: one worker without a thread
    std::vector<WorkerPlace> places;
    Idle idle = Idle::adaptive;
    Duration watchdog{};
    OnHang on_hang = OnHang::report;
    std::shared_ptr<Subscriber> subscriber;
  };
  static Result<std::shared_ptr<Crew>> open(Options options);

  explicit Crew(Options options);  // for open()
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  std::size_t size() const { return workers_.size(); }
  const std::shared_ptr<Worker>& worker(std::size_t index) const { return workers_[index]; }
  bool has_threads() const { return options_.threads > 0; }
  // Where handshakes are made: a thread of their own, started on first use and shared by all pools, because one takes
  // milliseconds. Without threads, the only loop there is.
  Result<std::shared_ptr<Worker>> handshake_worker();
  // Which threads had not ended by then. Each may be inside of an application's function: it goes on by itself until
  // that function returns, and keeps its worker until then.
  struct Left {
    std::vector<std::uint32_t> workers;  // by index
    bool handshakes = false;
    bool watchdog = false;  // its subscriber blocks
  };
  // On a thread of the crew's own, that thread is left, too: it ends when the function that runs on it returns.
  Left stop(Instant until, Instant handshakes_until);

  bool is_in_child() const { return fork_guard_.is_in_child(); }
  // In a forked child, which never destroys a crew of its parent: closes this process's copies of the descriptors.
  void close_in_child() noexcept;

 private:
  // Of the destructor: with handlers, and with a function given to Identity::authorise().
  static constexpr Duration kLastPatience = std::chrono::seconds(5);
  static constexpr Duration kLastHandshakes = std::chrono::milliseconds(200);

  Result<void> start();

  const Options options_;
  const ForkGuard fork_guard_;
  std::vector<std::shared_ptr<Worker>> workers_;
  std::shared_ptr<Worker> handshake_worker_;
  std::shared_ptr<Watchdog> watchdog_;  // null: there is none
  std::mutex mutex_;                    // of the handshake worker
  bool has_stopped_ = false;
  Left left_;  // threads that did not end in time
};

}  // namespace weir::worker
