// The watchdog, with workers that never turn.
#include "worker/watchdog.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

namespace weir::worker {
namespace {

using namespace std::chrono_literals;

// Counts the reports about each worker, and does more if it was told to.
struct Listener : Subscriber {
  void on(const event::WorkerStalled& e) override {
    if (on_report) on_report();
    ++reports[e.meta.worker];
  }
  std::function<void()> on_report;
  std::array<std::atomic<int>, 2> reports{};
};

std::shared_ptr<Worker> hanging(std::uint32_t index) {
  return std::make_shared<Worker>(Worker::Options{.index = index, .has_thread = false});
}

void await_report(const Listener& listener, std::size_t worker) {
  while (listener.reports[worker] == 0) std::this_thread::sleep_for(200us);
}

TEST(Watchdog, ReportsAHangOnce) {
  const auto listener = std::make_shared<Listener>();
  const auto watchdog = std::make_shared<Watchdog>(Watchdog::Options{.patience = 4ms, .subscriber = listener});
  watchdog->add(hanging(0), "worker", "it never turns");
  watchdog->start();
  await_report(*listener, 0);
  // Until the second one is reported, the watchdog has looked at the first several times more.
  watchdog->add(hanging(1), "worker", "it never turns");
  await_report(*listener, 1);
  EXPECT_TRUE(watchdog->stop_by(Instant::never()));
  EXPECT_EQ(listener->reports[0], 1);
  EXPECT_EQ(listener->reports[1], 1);
}

// A worker that hangs is let go when its pool closes: the process is to go on. Without that, this test aborts.
TEST(Watchdog, DoesNotAbortOnceItIsAskedToStop) {
  const auto listener = std::make_shared<Listener>();
  const auto watchdog =
      std::make_shared<Watchdog>(Watchdog::Options{.patience = 4ms, .on_hang = OnHang::abort, .subscriber = listener});
  listener->on_report = [stopped = watchdog.get()] { stopped->request_stop(); };
  watchdog->add(hanging(0), "worker", "it never turns");
  watchdog->start();
  await_report(*listener, 0);
  EXPECT_TRUE(watchdog->stop_by(Instant::never()));
  EXPECT_EQ(listener->reports[0], 1);
}

}  // namespace
}  // namespace weir::worker
