// Counts what a test program takes from the heap. Include it in exactly one file of the program: it replaces the
// allocator. With glibc and no sanitizer that is malloc itself, under everything; elsewhere it is operator new alone.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define WEIR_SANITIZED_HEAP 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WEIR_SANITIZED_HEAP 1
#endif
#if defined(__GLIBC__) && !defined(WEIR_SANITIZED_HEAP)
#define WEIR_COUNTS_MALLOC 1
#include <malloc.h>
#endif

namespace weir::testing {

// Relaxed everywhere: read on the thread that counts.
struct Heap {
  static inline std::atomic<std::uint64_t> allocations{0};
  static inline std::atomic<std::int64_t> live_bytes{0};  // as the allocator rounds them
  // Of these, in large blocks that begin with a page: buffers that a link receives into.
  static inline std::atomic<std::int64_t> live_page_bytes{0};
#ifdef WEIR_COUNTS_MALLOC
  static constexpr bool counts_bytes = true;
#else
  static constexpr bool counts_bytes = false;
#endif
};

}  // namespace weir::testing

#ifdef WEIR_COUNTS_MALLOC

extern "C" {
void* __libc_malloc(std::size_t size);                           // NOLINT: glibc's names
void* __libc_calloc(std::size_t count, std::size_t size);        // NOLINT
void* __libc_realloc(void* block, std::size_t size);             // NOLINT
void* __libc_memalign(std::size_t alignment, std::size_t size);  // NOLINT
void __libc_free(void* block);                                   // NOLINT
}

namespace weir::testing {
inline void count_live(void* block, int sign) {
  const auto bytes = static_cast<std::int64_t>(malloc_usable_size(block));
  Heap::live_bytes.fetch_add(sign * bytes, std::memory_order_relaxed);
  if (bytes >= 64 * 1024 && reinterpret_cast<std::uintptr_t>(block) % 4096 == 0) {
    Heap::live_page_bytes.fetch_add(sign * bytes, std::memory_order_relaxed);
  }
}
inline void* taken(void* block) {
  if (block != nullptr) {
    Heap::allocations.fetch_add(1, std::memory_order_relaxed);
    count_live(block, 1);
  }
  return block;
}
inline void given(void* block) {
  if (block != nullptr) count_live(block, -1);
}
}  // namespace weir::testing

extern "C" {
void* malloc(std::size_t size) { return weir::testing::taken(__libc_malloc(size)); }
void* calloc(std::size_t count, std::size_t size) { return weir::testing::taken(__libc_calloc(count, size)); }
void* realloc(void* block, std::size_t size) {
  weir::testing::given(block);
  return weir::testing::taken(__libc_realloc(block, size));
}
void* memalign(std::size_t alignment, std::size_t size) {
  return weir::testing::taken(__libc_memalign(alignment, size));
}
void* aligned_alloc(std::size_t alignment, std::size_t size) {
  return weir::testing::taken(__libc_memalign(alignment, size));
}
int posix_memalign(void** out, std::size_t alignment, std::size_t size) {
  *out = weir::testing::taken(__libc_memalign(alignment, size));
  return *out == nullptr ? ENOMEM : 0;
}
void free(void* block) {
  weir::testing::given(block);
  __libc_free(block);
}
}

#else

// Not inlined, or the compiler takes a malloc in `new` and a free in `delete` for a mistake.
[[gnu::noinline]] void* operator new(std::size_t size) {
  weir::testing::Heap::allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* block = std::malloc(size)) return block;
  std::abort();
}
[[gnu::noinline]] void* operator new(std::size_t size, std::align_val_t alignment) {
  weir::testing::Heap::allocations.fetch_add(1, std::memory_order_relaxed);
  const auto unit = static_cast<std::size_t>(alignment);
  if (void* block = std::aligned_alloc(unit, (size + unit - 1) / unit * unit)) return block;
  std::abort();
}
[[gnu::noinline]] void operator delete(void* block) noexcept { std::free(block); }
[[gnu::noinline]] void operator delete(void* block, std::size_t) noexcept { std::free(block); }
[[gnu::noinline]] void operator delete(void* block, std::align_val_t) noexcept { std::free(block); }
[[gnu::noinline]] void operator delete(void* block, std::size_t, std::align_val_t) noexcept { std::free(block); }

#endif
