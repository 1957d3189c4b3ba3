// Watchdog: the thread that looks whether workers make progress, and tells the subscriber of those that do not.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/fork_guard.h"
#include "base/time.h"
#include "weir/config.h"
#include "weir/event.h"
#include "worker/worker.h"

namespace weir::worker {

// At most one per crew. Shared by the crew and the thread: a subscriber that blocks in an event keeps the thread, and
// the thread keeps what it looks at. No lock is held while the subscriber runs.
class Watchdog : public std::enable_shared_from_this<Watchdog> {
 public:
  struct Options {
    Duration patience{};
    OnHang on_hang = OnHang::report;
    std::shared_ptr<Subscriber> subscriber;
  };
  // Whom to look at. The texts are for the sentence before abort().
  struct Watched {
    std::shared_ptr<const Worker> worker;
    const char* who = "";
    const char* why = "";
    std::uint64_t turns = 0;
    Instant since{};
    bool is_reported = false;
  };

  explicit Watchdog(Options options) : options_(std::move(options)) {}
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void start();  // may throw std::system_error
  // Any thread.
  void add(std::shared_ptr<const Worker> worker, const char* who, const char* why);
  void request_stop();
  // Any thread, once. False: the subscriber did not return by then, or runs on this very thread. The thread then ends
  // by itself when the subscriber returns.
  bool stop_by(Instant until);

 private:
  void run();
  void look_at(Watched& watched, Instant now);
  void take_new(std::vector<Watched>& watched);
  bool rest();

  const Options options_;
  const ForkGuard fork_guard_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Watched> new_;
  bool is_stopping_ = false;
  bool has_ended_ = false;
  std::thread thread_;
};

}  // namespace weir::worker
