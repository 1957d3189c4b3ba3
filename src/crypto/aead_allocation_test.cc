// Counts what the packet path takes from the heap: operator new, and OpenSSL's own allocator.
#include <gtest/gtest.h>
#include <openssl/crypto.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#include "crypto/aead.h"
#include "crypto/prf.h"

namespace {

std::atomic<std::uint64_t> allocations = 0;  // relaxed: read on the thread that counts

void* counted_malloc(std::size_t size, const char*, int) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(size);
}
void* counted_realloc(void* block, std::size_t size, const char*, int) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return std::realloc(block, size);
}
void plain_free(void* block, const char*, int) { std::free(block); }

// The newest aligned block, which is how keys are allocated, and what was left in it past its first cache line (which
// holds pointers) when it was given back. One thread only.
struct Watched {
  std::byte* block = nullptr;
  std::size_t size = 0;
  std::size_t bytes_left = 0;
} watched;

void give_back_aligned(void* block) {
  if (block != nullptr && block == watched.block) {
    watched.bytes_left = 0;
    for (std::size_t i = 64; i < watched.size; ++i) watched.bytes_left += watched.block[i] != std::byte{0} ? 1 : 0;
    watched.block = nullptr;
  }
  std::free(block);
}

// OpenSSL takes an allocator only before its first allocation.
const bool installed = CRYPTO_set_mem_functions(counted_malloc, counted_realloc, plain_free) == 1;

}  // namespace

// Not inlined, or the compiler takes a malloc in `new` and a free in `delete` for a mistake.
[[gnu::noinline]] void* operator new(std::size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* block = std::malloc(size)) return block;
  std::abort();
}
[[gnu::noinline]] void* operator new(std::size_t size, std::align_val_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  const auto unit = static_cast<std::size_t>(alignment);
  if (void* block = std::aligned_alloc(unit, (size + unit - 1) / unit * unit)) {
    std::memset(block, 0, size);  // so that what is left in it, padding included, was written by the key
    watched = {static_cast<std::byte*>(block), size, 0};
    return block;
  }
  std::abort();
}
[[gnu::noinline]] void operator delete(void* block) noexcept { std::free(block); }
[[gnu::noinline]] void operator delete(void* block, std::size_t) noexcept { std::free(block); }
[[gnu::noinline]] void operator delete(void* block, std::align_val_t) noexcept { give_back_aligned(block); }
[[gnu::noinline]] void operator delete(void* block, std::size_t, std::align_val_t) noexcept {
  give_back_aligned(block);
}

namespace weir::crypto {
namespace {

TEST(AeadAllocation, KeysAreAllocatedAndTheirUseIsNot) {
  ASSERT_TRUE(installed);
  for (const BackendInfo& info : available_backends()) {
    SCOPED_TRACE(info.name);
    const auto aead = Aead::create(info.backend);
    const std::uint64_t before_key = allocations.load(std::memory_order_relaxed);
    KeyBytes bytes{};
    bytes[0] = static_cast<std::byte>(info.backend);
    const auto key = aead->make_key(bytes);
    const std::uint64_t key_cost = allocations.load(std::memory_order_relaxed) - before_key;
    EXPECT_GE(key_cost, 1u);  // the counters count
    bytes[1] = std::byte{1};
    const Prf prf{*aead, bytes};

    bytes[1] = std::byte{2};
    const auto scratch = aead->make_key(bytes);

    std::byte text[1400] = {};
    std::byte other[1400] = {};
    std::byte tag[kTagBytes];
    bool good = true;
    bool forged = false;
    std::byte mixed{};
    const auto use = [&](std::uint64_t number) {
      const ByteSpan aad = ByteSpan{text}.first(12);
      key->seal(make_nonce(0, number), aad, MutableByteSpan{text}.subspan(12), tag);
      good &= key->open(make_nonce(0, number), aad, MutableByteSpan{text}.subspan(12), tag);
      forged |= key->open(make_nonce(0, ~number), aad, MutableByteSpan{text}.subspan(12), tag);
      key->seal_into(make_nonce(2, number), aad, ByteSpan{text}.subspan(12), other, tag);
      good &= key->open_into(make_nonce(2, number), aad, ByteSpan{other}.first(1388), text + 12, tag);
      key->mac(make_nonce(1, number), text, tag);
      good &= key->verify_mac(make_nonce(1, number), text, tag);
      mixed ^= prf(number, Prf::Context{})[0];
      store<std::uint64_t>(bytes.data() + 2, number);
      scratch->rekey(bytes);
      forged |= scratch->open(make_nonce(0, number), aad, MutableByteSpan{text}.subspan(12), tag);
      // A MAC under each of many keys would fill the ledger of builds that check nonces.
      forged |= scratch->verify_mac(make_nonce(0, number), text, tag);
    };
    use(0);  // lazily made tables of the library and, in builds that check nonces, of the ledger
    const std::uint64_t before = allocations.load(std::memory_order_relaxed);
    for (std::uint64_t number = 1; number <= 1000; ++number) use(number);
    EXPECT_EQ(allocations.load(std::memory_order_relaxed) - before, 0u);
    EXPECT_TRUE(good);
    EXPECT_FALSE(forged);
  }
}

TEST(AeadAllocation, AKeyLeavesNothingBehindInItsMemory) {
  for (const BackendInfo& info : available_backends()) {
    SCOPED_TRACE(info.name);
    const auto aead = Aead::create(info.backend);
    KeyBytes bytes;
    bytes.fill(std::byte{0x5a});
    auto key = aead->make_key(bytes);
    ASSERT_EQ(watched.block, reinterpret_cast<std::byte*>(key.get()));
    watched.bytes_left = 1;
    key.reset();
    ASSERT_EQ(watched.block, nullptr);
    EXPECT_EQ(watched.bytes_left, 0u);
  }
}

}  // namespace
}  // namespace weir::crypto
