#include <benchmark/benchmark.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "buffer/buffer_pool.h"
#include "buffer/cached_memory.h"
#include "buffer/heap_memory.h"
#include "buffer/landing.h"
#include "buffer/open.h"
#include "buffer/seal.h"

namespace weir::buffer {
namespace {

constexpr std::uint64_t kBound = std::uint64_t{1} << 30;

std::shared_ptr<Memory> cached() {
  return std::make_shared<CachedMemory>(std::make_shared<HeapMemory>(kBound), kBound / 2);
}

void take_and_give_back(benchmark::State& state) {
  const auto memory = cached();
  const auto bytes = static_cast<std::size_t>(state.range(0));
  for (auto _ : state) {
    const Piece piece = memory->take(bytes);
    benchmark::DoNotOptimize(piece.data);
    memory->give_back(piece);
  }
}
BENCHMARK(take_and_give_back)->Arg(64 << 10)->Arg(1 << 20)->Arg(64 << 20);

void make_landing_and_drop(benchmark::State& state) {
  const auto memory = cached();
  for (auto _ : state) detail::unpin(make_landing(*memory, static_cast<std::uint64_t>(state.range(0))));
}
BENCHMARK(make_landing_and_drop)->Arg(1 << 20);

void allocate_and_drop(benchmark::State& state) {
  const auto pool = BufferPool::create(cached(), {.bytes = kBound});
  for (auto _ : state) benchmark::DoNotOptimize(pool->try_allocate(static_cast<std::size_t>(state.range(0))));
}
BENCHMARK(allocate_and_drop)->Arg(1 << 20);

void find_by_id(benchmark::State& state) {
  const auto pool = BufferPool::create(cached(), {.bytes = kBound});
  Buffer buffer = *pool->try_allocate(1 << 20);
  buffer.span()[0] = std::byte{1};
  const Payload payload = *adopt(std::move(buffer), {});
  for (auto _ : state) benchmark::DoNotOptimize(pool->find(payload.id()));
}
BENCHMARK(find_by_id);

// A key is used once in earnest; here it is the same one, which only builds that check nonces would mind.
void seal_out_of_place(benchmark::State& state) {
  const auto memory = cached();
  const std::vector<std::byte> text(static_cast<std::size_t>(state.range(0)));
  for (auto _ : state) detail::unpin(seal(*memory, text, crypto::KeyBytes{}, thread_key()));
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(seal_out_of_place)->Arg(64 << 10)->Arg(1 << 20)->Arg(16 << 20);

void open_in_place(benchmark::State& state) {
  const auto memory = cached();
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const std::vector<std::byte> text(bytes);
  Sealed* const sealed = seal(*memory, text, crypto::KeyBytes{}, thread_key());
  Landing* const landing = make_landing(*memory, bytes);
  landing->bytes = landing->payload_bytes = bytes;
  std::copy_n(sealed->tags, sealed->records() * crypto::kTagBytes, landing->tags);
  for (auto _ : state) {
    state.PauseTiming();
    std::copy_n(sealed->parts.front().bytes.data(), bytes, landing->body);
    landing->opened_records = 0;
    state.ResumeTiming();
    if (!open_all(*landing)) state.SkipWithError("tag");
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
  detail::unpin(landing);
  detail::unpin(sealed);
}
BENCHMARK(open_in_place)->Arg(1 << 20)->Arg(16 << 20);

}  // namespace
}  // namespace weir::buffer
