// Memory of coroutine frames: a bounded free list per thread and size, so that a steady state allocates nothing.
#include <cstddef>
#include <new>

#include "base/check.h"
#include "weir/task.h"

#if defined(__SANITIZE_ADDRESS__)
#define WEIR_KEEP_FRAMES 0  // a recycled frame would hide its use after the end
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WEIR_KEEP_FRAMES 0
#endif
#endif
#if !defined(WEIR_KEEP_FRAMES)
#define WEIR_KEEP_FRAMES 1
#endif

namespace weir::detail {

void misused_task() {
  WEIR_CHECK(false, "a task, put, get or broadcast is awaited once, and not after it was moved from");
  __builtin_unreachable();
}

namespace {

constexpr std::size_t kStep = 64;
constexpr std::size_t kSizes = 32;       // frames up to 2 KiB are kept
constexpr std::size_t kMaxKept = 4'096;  // per size

struct FreeFrame {
  FreeFrame* next;
};

struct FrameCache {
  FreeFrame* first[kSizes] = {};
  std::size_t kept[kSizes] = {};
  bool is_registered = false;
  bool is_gone = false;
};

constinit thread_local FrameCache cache;

struct FrameCacheEnd {
  ~FrameCacheEnd() {
    cache.is_gone = true;
    for (FreeFrame*& list : cache.first) {
      while (list != nullptr) {
        FreeFrame* next = list->next;
        ::operator delete(list);
        list = next;
      }
    }
  }
};

std::size_t size_index(std::size_t bytes) { return (bytes + kStep - 1) / kStep - 1; }

}  // namespace

void* frame_allocate(std::size_t bytes) {
  const std::size_t index = size_index(bytes);
  if (!WEIR_KEEP_FRAMES || index >= kSizes) return ::operator new(bytes);
  if (FreeFrame* frame = cache.first[index]) {
    cache.first[index] = frame->next;
    --cache.kept[index];
    return frame;
  }
  return ::operator new((index + 1) * kStep);
}

void frame_free(void* frame, std::size_t bytes) noexcept {
  const std::size_t index = size_index(bytes);
  if (!WEIR_KEEP_FRAMES || index >= kSizes || cache.is_gone || cache.kept[index] >= kMaxKept) {
    ::operator delete(frame);
    return;
  }
  if (!cache.is_registered) {
    static thread_local FrameCacheEnd end;
    cache.is_registered = true;
    static_cast<void>(end);
  }
  cache.first[index] = ::new (frame) FreeFrame{cache.first[index]};
  ++cache.kept[index];
}

}  // namespace weir::detail
