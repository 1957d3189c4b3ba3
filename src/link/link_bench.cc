// One thread that sends trains to its own socket and receives them: what a burst costs with nothing else in the way.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "link/link.h"
#include "link/open.h"

namespace weir::link {
namespace {

void send_to_self(benchmark::State& state, Kind kind) {
  const auto segment_size = static_cast<std::uint32_t>(state.range(0));
  const auto segments = static_cast<std::size_t>(state.range(1));
  ReceiveBufferPool pool{{.max_buffers = 64, .touched_buffers = 16}};
  Result<std::unique_ptr<Link>> opened = open_udp({.bind = Address::v4(0x7f000001, 0), .kind = kind}, pool);
  if (!opened) {
    state.SkipWithError(opened.error().to_string().c_str());
    return;
  }
  Link& link = **opened;
  std::vector<std::byte> bytes(segment_size * segments, std::byte{0x5a});
  std::vector<Datagram> burst;
  burst.reserve(kReceiveBurst);
  std::size_t packets = 0;
  for (auto _ : state) {
    Train train{.to = link.local(), .ecn = Ecn::ect0, .bytes = bytes, .segment_size = segment_size};
    SendStatus status;
    if (link.send({&train, 1}, {&status, 1}) != 1 || status != SendStatus::sent) {
      state.SkipWithError("a train was not sent");
      break;
    }
    // Loopback delivers before the send returns.
    std::size_t received = 0;
    while (received < segments) {
      burst.clear();
      const std::size_t taken = link.receive(burst);
      if (taken == 0) {
        state.SkipWithError("datagrams were lost");
        return;
      }
      received += taken;
      benchmark::DoNotOptimize(burst.data());
      link.recycle();
    }
    packets += received;
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(packets));
  state.SetBytesProcessed(static_cast<std::int64_t>(packets * segment_size));
}

void idle_receive(benchmark::State& state, Kind kind) {
  ReceiveBufferPool pool{{.max_buffers = 64}};
  Result<std::unique_ptr<Link>> opened = open_udp({.bind = Address::v4(0x7f000001, 0), .kind = kind}, pool);
  if (!opened) {
    state.SkipWithError(opened.error().to_string().c_str());
    return;
  }
  std::vector<Datagram> burst;
  burst.reserve(kReceiveBurst);
  for (auto _ : state) {
    benchmark::DoNotOptimize((*opened)->receive(burst));
    (*opened)->recycle();
  }
}

void shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"segment", "segments"})
      ->Args({64, 1})
      ->Args({64, 64})
      ->Args({1472, 8})
      ->Args({1472, 44})
      ->Args({8972, 7})
      ->Args({65'507, 1});
}

BENCHMARK_CAPTURE(send_to_self, automatic, Kind::automatic)->Apply(shapes);
BENCHMARK_CAPTURE(send_to_self, portable, Kind::portable)->Apply(shapes);
BENCHMARK_CAPTURE(idle_receive, automatic, Kind::automatic);
BENCHMARK_CAPTURE(idle_receive, portable, Kind::portable);

}  // namespace
}  // namespace weir::link
