// Calls per second through two engines and a wire that is a copy: the protocol's own cost, no kernel in between.
#include <benchmark/benchmark.h>

#include "engine/engine_testing.h"

namespace weir::engine {
namespace {

// A wire without a queue: trains of one side are copied and handed to the other.
void exchange(Engine& from, Engine& to, const Address& sender, std::vector<Train>& trains,
              std::vector<std::byte>& buffer, Instant now) {
  trains.clear();
  from.collect(trains, now);
  std::size_t used = 0;
  for (const Train& train : trains) used += train.bytes.size();
  if (buffer.size() < used) buffer.resize(used);
  used = 0;
  for (const Train& train : trains) {
    std::memcpy(buffer.data() + used, train.bytes.data(), train.bytes.size());
    for (std::size_t at = 0; at < train.bytes.size(); at += train.segment_size) {
      to.on_datagram({buffer.data() + used + at, std::min<std::size_t>(train.segment_size, train.bytes.size() - at)},
                     sender, train.ecn, nullptr, now);
    }
    used += train.bytes.size();
  }
  to.on_timeout(now);
  to.deliver(now);
}

struct BenchCall : transfer::OutgoingCall {
  Engine* engine;
  Instant* now;
  std::uint64_t* done;
};

void Calls(benchmark::State& state) {
  auto client = testing::test_config(false, 1);
  auto server = testing::test_config(true, 2);
  client.rotate_packets = server.rotate_packets = 1u << 22;
  client.datagram_bytes = server.datagram_bytes = static_cast<std::size_t>(state.range(1));
  testing::Pair pair(client, server);
  pair.mtu = static_cast<std::size_t>(state.range(1));
  const auto size = static_cast<std::uint32_t>(state.range(2));
  const Handler echo{
      [](void* context, transfer::IncomingTransfer& request, Instant at) {
        static_cast<Engine*>(context)->reply(request, {}, {request.delivery.request, std::min(request.bytes, 64u)}, at);
      },
      &pair.server()};
  (void)pair.server().serve(7, "bench", echo);
  std::uint64_t done = 0;
  std::vector<BenchCall> calls(static_cast<std::size_t>(state.range(0)));
  const auto submit = [](BenchCall& call) {
    if (call.bytes > transfer::OutgoingCall::kInlineBytes) call.block = call.engine->blocks().acquire(call.bytes);
    call.deadline = *call.now + std::chrono::seconds(10);
    call.engine->submit(call, *call.now);
  };
  for (BenchCall& call : calls) {
    call.engine = &pair.client();
    call.now = &pair.now;
    call.done = &done;
    call.method = 7;
    call.peer = pair.peer;
    call.bytes = size;
    call.complete = [](transfer::OutgoingCall& base, const transfer::Outcome& outcome) {
      if (outcome.failed) std::abort();
      auto& again = static_cast<BenchCall&>(base);
      ++*again.done;
      if (again.bytes > transfer::OutgoingCall::kInlineBytes) again.block = again.engine->blocks().acquire(again.bytes);
      again.deadline = *again.now + std::chrono::seconds(10);
      again.engine->submit(again, *again.now);
    };
    submit(call);
  }
  pair.run_until([&] { return done > 20'000; });
  std::vector<Train> trains;
  std::vector<std::byte> buffer;
  const std::uint64_t before = done;
  for (auto _ : state) {
    pair.now = pair.now + std::chrono::microseconds(5);
    exchange(pair.client(), pair.server(), pair.addresses[0], trains, buffer, pair.now);
    pair.now = pair.now + std::chrono::microseconds(5);
    exchange(pair.server(), pair.client(), pair.addresses[1], trains, buffer, pair.now);
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(done - before));
  state.counters["calls/turn"] =
      benchmark::Counter(static_cast<double>(done - before) / static_cast<double>(state.iterations()));
}
BENCHMARK(Calls)
    ->ArgNames({"window", "mtu", "size"})
    ->Args({1024, 65507, 32})
    ->Args({1024, 1472, 32})
    ->Args({1, 1472, 32})
    ->Args({1024, 65507, 4096});

}  // namespace
}  // namespace weir::engine
