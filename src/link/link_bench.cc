// One thread that sends trains to its own socket and receives them: what a burst costs with nothing else in the way.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "link/link.h"
#include "link/open.h"

namespace weir::link {
namespace {

// Where a datagram's bytes are before the link gets them.
enum class Source {
  contiguous,  // one behind the other, ready to go
  gathered,    // heads here, bodies in a payload
  copied,      // the same, and copied together first: what gathering saves
};

constexpr std::size_t kHeadBytes = 48;  // about what precedes a slice of a payload
constexpr std::size_t kHotPayloadBytes = 64 * 1024;

void send_to_self(benchmark::State& state, Kind kind, Source source, std::size_t payload_bytes) {
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
  const std::size_t body_bytes = segment_size - std::min<std::size_t>(segment_size, kHeadBytes);
  std::vector<std::byte> payload(std::max(payload_bytes, body_bytes * segments), std::byte{0x5b});
  std::vector<Segment> gathered(segments);
  std::size_t position = 0;  // the next train's first body
  std::vector<Datagram> burst;
  burst.reserve(kReceiveBurst);
  std::size_t packets = 0;
  for (auto _ : state) {
    Train train{.to = link.local(), .ecn = Ecn::ect0, .segment_size = segment_size};
    if (position + body_bytes * segments > payload.size()) position = 0;
    for (std::size_t i = 0; source != Source::contiguous && i < segments; ++i) {
      std::byte* const head = bytes.data() + i * segment_size;
      const ByteSpan body{payload.data() + position, body_bytes};
      position += body_bytes;
      gathered[i] = {.head = {head, segment_size - body_bytes}, .body = body};
      if (source == Source::copied) std::ranges::copy(body, head + segment_size - body_bytes);
    }
    if (source == Source::gathered) {
      train.segments = gathered;
    } else {
      train.bytes = bytes;
    }
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

void large_shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"segment", "segments"})->Args({1472, 44})->Args({4096, 15})->Args({8972, 7})->Args({61'500, 1});
}

constexpr std::size_t kColdPayloadBytes = 64 * 1024 * 1024;  // beyond the caches

BENCHMARK_CAPTURE(send_to_self, automatic, Kind::automatic, Source::contiguous, 0)->Apply(shapes);
BENCHMARK_CAPTURE(send_to_self, portable, Kind::portable, Source::contiguous, 0)->Apply(shapes);
BENCHMARK_CAPTURE(send_to_self, large, Kind::automatic, Source::contiguous, 0)->Apply(large_shapes);
BENCHMARK_CAPTURE(send_to_self, gathered, Kind::automatic, Source::gathered, kHotPayloadBytes)->Apply(large_shapes);
BENCHMARK_CAPTURE(send_to_self, copied, Kind::automatic, Source::copied, kHotPayloadBytes)->Apply(large_shapes);
BENCHMARK_CAPTURE(send_to_self, gathered_cold, Kind::automatic, Source::gathered, kColdPayloadBytes)
    ->Apply(large_shapes);
BENCHMARK_CAPTURE(send_to_self, copied_cold, Kind::automatic, Source::copied, kColdPayloadBytes)->Apply(large_shapes);
BENCHMARK_CAPTURE(idle_receive, automatic, Kind::automatic);
BENCHMARK_CAPTURE(idle_receive, portable, Kind::portable);

}  // namespace
}  // namespace weir::link
