// What ties cost: a transfer that is tracked, and one that another waits for.
#include <benchmark/benchmark.h>

#include "causality/map.h"

namespace weir::causality {
namespace {

class Quiet final : public Waiter {
 public:
  explicit Quiet(std::uint32_t conditions) : Waiter(conditions) {}

 private:
  void tell(Answer) override {}
  void destroy() override { delete this; }
};

void track(benchmark::State& state) {
  Map map;
  for (auto _ : state) {
    const Token token = map.begin();
    map.note_sent(token);
    map.end(token, false);
  }
}
BENCHMARK(track);

void track_and_wait(benchmark::State& state) {
  Map map;
  for (auto _ : state) {
    const Token token = map.begin();
    auto* const waiter = new Quiet(1);
    benchmark::DoNotOptimize(map.add(*waiter, {.token = token}));
    benchmark::DoNotOptimize(waiter->arrive());
    map.end(token, false);
    waiter->release();
  }
}
BENCHMARK(track_and_wait);

}  // namespace
}  // namespace weir::causality
