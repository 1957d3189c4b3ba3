// What one call pays for its deadline.
#include <benchmark/benchmark.h>

#include <vector>

#include "base/random.h"
#include "schedule/timing_wheel.h"

namespace weir::schedule {
namespace {

// A window of calls outstanding, each with a deadline a second ahead; time moves 100 ns per call.
void arm_and_cancel(benchmark::State& state) {
  const auto window = static_cast<std::size_t>(state.range(0));
  TimingWheel wheel;
  std::vector<Timer> timers(window);
  Instant now{};
  std::size_t next = 0;
  for (auto _ : state) {
    Timer& timer = timers[next];
    next = next + 1 == window ? 0 : next + 1;
    wheel.cancel(timer);
    wheel.arm(timer, now + std::chrono::seconds{1});
    now = now + Duration{100};
    if ((next & 31) == 0) wheel.advance(now, [](Timer&) {});
  }
  for (auto& timer : timers) wheel.cancel(timer);
}
BENCHMARK(arm_and_cancel)->Arg(1)->Arg(1'024)->Arg(65'536);

void next_deadline(benchmark::State& state) {
  TimingWheel wheel;
  std::vector<Timer> timers(1'024);
  Random random{1};
  for (auto& timer : timers) wheel.arm(timer, Instant{static_cast<std::int64_t>(random.below(1'000'000'000))});
  for (auto _ : state) benchmark::DoNotOptimize(wheel.next_deadline());
  for (auto& timer : timers) wheel.cancel(timer);
}
BENCHMARK(next_deadline);

void advance_with_nothing_due(benchmark::State& state) {
  TimingWheel wheel;
  Timer timer;
  wheel.arm(timer, Instant{1LL << 60});
  Instant now{};
  for (auto _ : state) {
    now = now + Duration{1'000};
    wheel.advance(now, [](Timer&) {});
  }
  wheel.cancel(timer);
}
BENCHMARK(advance_with_nothing_due);

}  // namespace
}  // namespace weir::schedule
