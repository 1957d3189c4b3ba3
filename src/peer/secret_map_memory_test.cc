// What a credential costs in memory. Replaces the allocator of its process, hence alone.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>

#include "peer/secret_map.h"
#include "peer/secret_map_testing.h"

namespace {

std::atomic<std::size_t> taken_bytes{0};
std::atomic<std::size_t> allocations{0};

}  // namespace

// Not inlined, or the compiler takes a malloc in `new` and a free in `delete` for a mistake.
[[gnu::noinline]] void* operator new(std::size_t size) {
  taken_bytes += size;
  ++allocations;
  if (void* block = std::malloc(size)) return block;
  std::abort();
}
[[gnu::noinline]] void operator delete(void* block) noexcept { std::free(block); }
[[gnu::noinline]] void operator delete(void* block, std::size_t) noexcept { std::free(block); }
// The sanitizers' own forms of these would not come by the above.
[[gnu::noinline]] void* operator new[](std::size_t size) { return operator new(size); }
[[gnu::noinline]] void operator delete[](void* block) noexcept { std::free(block); }
[[gnu::noinline]] void operator delete[](void* block, std::size_t) noexcept { std::free(block); }

namespace weir::peer {
namespace {

std::size_t bytes_of_full_map(std::uint32_t capacity) {
  const std::size_t start = taken_bytes;
  SecretMap map({.capacity = capacity});
  std::size_t bytes = taken_bytes - start;
  for (std::uint64_t i = 1; i <= capacity; ++i) {
    const Credential credential = testing::numbered(i, i);
    const std::size_t before = taken_bytes;
    EXPECT_TRUE(map.install(credential, Instant{}));
    EXPECT_EQ(map.confirm(credential.id, Instant{}), SecretMap::Confirmation::current);
    bytes += taken_bytes - before;
  }
  EXPECT_EQ(map.size(), capacity);
  return bytes;
}

TEST(SecretMapMemory, AnEntryWithAllIndexesTakesAtMost512Bytes) {
  // 8,193 is the worst: nearly twice as many heads of chains as entries.
  for (const std::uint32_t capacity : {8'192u, 8'193u, 10'000u}) {
    const double each = static_cast<double>(bytes_of_full_map(capacity)) / capacity;
    EXPECT_LE(each, 512) << capacity;
    EXPECT_GT(each, sizeof(Credential)) << "is everything counted?";
    RecordProperty("bytes_per_entry_of_" + std::to_string(capacity), std::to_string(each));
    std::printf("capacity %u: %.1f bytes per entry\n", capacity, each);
  }
}

TEST(SecretMapMemory, AFullMapTakesNothingMore) {
  SecretMap map({.capacity = 100});
  const auto install = [&map](std::uint64_t number) {
    const Credential credential = testing::numbered(number, number % 70 + 1);
    const std::size_t before = taken_bytes;
    EXPECT_TRUE(map.install(credential, Instant{static_cast<std::int64_t>(number)}));
    return taken_bytes - before;
  };
  std::uint64_t number = 0;
  while (number < 100) install(++number);
  for (; number < 5'000; ++number) EXPECT_EQ(install(number + 1), 0u);
  EXPECT_EQ(map.size(), 100u);
}

TEST(SecretMapMemory, ReadersAllocateNothing) {
  SecretMap map({});
  Credential credential = testing::numbered(1, 1);
  credential.may_call = true;
  ASSERT_TRUE(map.install(credential, Instant{}));
  map.confirm(credential.id, Instant{});
  const std::size_t before = allocations;
  Credential out;
  bool found = map.find(credential.id, Instant{}, out);
  KnownCredential known;
  found &= map.find_caller(credential.id, Instant{}, known);
  found &= map.find_by_address(credential.handshake_address, Instant{}, out);
  found &= map.mark_used(credential.id, SecretMap::Side::both);
  const std::size_t after = allocations;
  EXPECT_TRUE(found);
  EXPECT_EQ(after, before);
}

}  // namespace
}  // namespace weir::peer
