#include <benchmark/benchmark.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "crypto/aead.h"
#include "crypto/derive.h"

namespace weir::crypto {
namespace {

struct Fixture {
  explicit Fixture(Backend backend) : aead(Aead::create(backend)), key(aead->make_key(KeyBytes{})) {}
  std::unique_ptr<Aead> aead;
  std::unique_ptr<AeadKey> key;
  std::byte tag[kTagBytes] = {};
  std::byte aad[12] = {};
  std::uint64_t number = 0;
};

void seal(benchmark::State& state, Backend backend) {
  Fixture fixture{backend};
  std::vector<std::byte> text(static_cast<std::size_t>(state.range(0)));
  for (auto _ : state) fixture.key->seal(make_nonce(0, ++fixture.number), fixture.aad, text, fixture.tag);
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

// Opening in place destroys the text, so each turn opens another copy of one sealed packet.
void open(benchmark::State& state, Backend backend) {
  Fixture fixture{backend};
  const auto size = static_cast<std::size_t>(state.range(0));
  std::vector<std::byte> sealed(size);
  fixture.key->seal(make_nonce(0, 1), fixture.aad, sealed, fixture.tag);
  const std::size_t copies = std::max<std::size_t>(1, (std::size_t{128} << 10) / std::max<std::size_t>(size, 1));
  std::vector<std::byte> arena(size * copies);
  const auto refill = [&] {
    for (std::size_t i = 0; i < copies; ++i) std::copy(sealed.begin(), sealed.end(), arena.begin() + i * size);
  };
  refill();
  std::size_t next = 0;
  for (auto _ : state) {
    const MutableByteSpan text{arena.data() + next * size, size};
    if (!fixture.key->open(make_nonce(0, 1), fixture.aad, text, fixture.tag)) state.SkipWithError("tag");
    if (++next == copies) {
      next = 0;
      state.PauseTiming();
      refill();
      state.ResumeTiming();
    }
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

// From one place to another, each of `range(0)` bytes, in one block of memory of 256 MiB when `range(1)` is set: what
// sealing a buffer costs when neither side is in the cache.
struct Places {
  explicit Places(const benchmark::State& state)
      : size(static_cast<std::size_t>(state.range(0))),
        count(state.range(1) != 0 ? (std::size_t{128} << 20) / size : 1),
        from(size * count),
        to(size * count) {}
  std::size_t advance() { return (next = next + 1 == count ? 0 : next + 1) * size; }
  std::size_t size, count, next = 0;
  std::vector<std::byte> from, to;
};

void seal_into(benchmark::State& state, Backend backend) {
  Fixture fixture{backend};
  Places places{state};
  for (auto _ : state) {
    const std::size_t at = places.advance();
    fixture.key->seal_into(make_nonce(0, ++fixture.number), fixture.aad, {places.from.data() + at, places.size},
                           places.to.data() + at, fixture.tag);
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

void open_into(benchmark::State& state, Backend backend) {
  Fixture fixture{backend};
  Places places{state};
  fixture.key->seal(make_nonce(0, 1), fixture.aad, {places.from.data(), places.size}, fixture.tag);
  for (std::size_t i = 1; i < places.count; ++i)
    std::copy_n(places.from.begin(), places.size, places.from.begin() + i * places.size);
  for (auto _ : state) {
    const std::size_t at = places.advance();
    if (!fixture.key->open_into(make_nonce(0, 1), fixture.aad, {places.from.data() + at, places.size},
                                places.to.data() + at, fixture.tag)) {
      state.SkipWithError("tag");
    }
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

void mac(benchmark::State& state, Backend backend) {
  Fixture fixture{backend};
  std::vector<std::byte> message(static_cast<std::size_t>(state.range(0)));
  for (auto _ : state) fixture.key->mac(make_nonce(0, ++fixture.number), message, fixture.tag);
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

void make_key(benchmark::State& state, Backend backend) {
  const auto aead = Aead::create(backend);
  KeyBytes bytes{};
  for (auto _ : state) {
    bytes[0] ^= std::byte{1};
    benchmark::DoNotOptimize(aead->make_key(bytes));
  }
}

void derive_control_key(benchmark::State& state) {
  const Secret path;
  KeyNames names{.from_initiator = true};
  for (auto _ : state) {
    ++names.key_id;
    benchmark::DoNotOptimize(crypto::derive_control_key(path, names));
  }
}
BENCHMARK(derive_control_key);

const bool registered = [] {
  for (const BackendInfo& info : available_backends()) {
    benchmark::AddCustomContext(info.name, info.detail);
    const std::string name = info.name;
    const Backend backend = info.backend;
    for (const auto& [what, function] : {std::pair{"seal/", &seal}, {"open/", &open}, {"mac/", &mac}}) {
      benchmark::RegisterBenchmark((what + name).c_str(),
                                   [function, backend](benchmark::State& s) { function(s, backend); })
          ->Arg(64)
          ->Arg(1400)
          ->Arg(64 << 10);
    }
    for (const auto& [what, function] : {std::pair{"seal_into/", &seal_into}, {"open_into/", &open_into}}) {
      benchmark::RegisterBenchmark((what + name).c_str(),
                                   [function, backend](benchmark::State& s) { function(s, backend); })
          ->ArgNames({"bytes", "cold"})
          ->Args({60 << 10, 0})
          ->Args({60 << 10, 1});
    }
    benchmark::RegisterBenchmark(("make_key/" + name).c_str(),
                                 [backend](benchmark::State& s) { make_key(s, backend); });
  }
  return true;
}();

}  // namespace
}  // namespace weir::crypto
