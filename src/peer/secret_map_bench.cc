// Look-ups per second from one and from two threads, while a writer installs 1,000 credentials a second.
#include <benchmark/benchmark.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "peer/secret_map.h"
#include "peer/secret_map_testing.h"

namespace weir::peer {
namespace {

constexpr std::uint64_t kEntries = 10'000;

// The map at its capacity, so that each installation evicts.
class Shared {
 public:
  Shared() {
    for (std::uint64_t i = 1; i <= kEntries; ++i) add(i);
    writer_ = std::thread([this] {
      auto next = std::chrono::steady_clock::now();
      for (std::uint64_t i = kEntries + 1; !stop_.load(std::memory_order_relaxed); ++i) {
        add(i);
        next += std::chrono::milliseconds{1};
        std::this_thread::sleep_until(next);
      }
    });
  }
  ~Shared() {
    stop_ = true;
    writer_.join();
  }
  const SecretMap& map() const { return map_; }
  std::uint64_t newest() const { return newest_.load(std::memory_order_relaxed); }

 private:
  void add(std::uint64_t number) {
    const Instant now{static_cast<std::int64_t>(number)};
    map_.install(testing::numbered(number, number % kEntries + 1), now);
    map_.confirm(testing::numbered_id(number), now);
    newest_.store(number, std::memory_order_relaxed);
  }

  SecretMap map_{{.capacity = kEntries + 1'000}};
  std::atomic<std::uint64_t> newest_{0};
  std::atomic<bool> stop_{false};
  std::thread writer_;
};

std::unique_ptr<Shared> shared;

void set_up(const benchmark::State&) { shared = std::make_unique<Shared>(); }
void tear_down(const benchmark::State&) { shared.reset(); }

void find_by_id(benchmark::State& state) {
  Random random{static_cast<std::uint64_t>(state.thread_index()) + 1};
  Credential out;
  std::uint64_t found = 0;
  for (auto _ : state)
    found += shared->map().find(testing::numbered_id(shared->newest() - random.below(kEntries)), Instant{}, out);
  state.SetItemsProcessed(state.iterations());
  state.counters["found"] = benchmark::Counter(static_cast<double>(found) / static_cast<double>(state.iterations()),
                                               benchmark::Counter::kAvgThreads);
}
BENCHMARK(find_by_id)->Setup(set_up)->Teardown(tear_down)->Threads(1)->Threads(2)->UseRealTime();

void find_by_address(benchmark::State& state) {
  Random random{static_cast<std::uint64_t>(state.thread_index()) + 1};
  Credential out;
  std::uint64_t found = 0;
  for (auto _ : state) {
    found += shared->map().find_by_address(testing::numbered_address(1 + random.below(kEntries)), Instant{}, out);
  }
  state.SetItemsProcessed(state.iterations());
  state.counters["found"] = benchmark::Counter(static_cast<double>(found) / static_cast<double>(state.iterations()),
                                               benchmark::Counter::kAvgThreads);
}
BENCHMARK(find_by_address)->Setup(set_up)->Teardown(tear_down)->Threads(1)->Threads(2)->UseRealTime();

void miss(benchmark::State& state) {
  Credential out;
  std::uint64_t number = std::uint64_t{1} << 40;
  for (auto _ : state) benchmark::DoNotOptimize(shared->map().find(testing::numbered_id(++number), Instant{}, out));
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(miss)->Setup(set_up)->Teardown(tear_down)->Threads(1)->Threads(2)->UseRealTime();

}  // namespace
}  // namespace weir::peer
