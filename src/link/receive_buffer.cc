#include "link/receive_buffer.h"

#include <cstdlib>
#include <cstring>
#include <new>

#include "base/check.h"

namespace weir::link {
namespace {

constexpr std::size_t kPageSize = 4096;

}  // namespace

// What outlives the pool: one reference by the pool, one by each buffer in use.
struct ReceiveBuffer::Core {
  std::atomic<std::size_t> references{1};
  std::atomic<bool> is_closed{false};
  // Any thread pushes. The owner takes the whole stack at once, so a popped buffer cannot come back halfway through a
  // pop and no tag is needed.
  std::atomic<ReceiveBuffer*> returned{nullptr};
};

ReceiveBuffer* ReceiveBuffer::create(Core* core) {
  constexpr std::size_t kWanted = kHeaderSize + kCapacity + kSlack;
  constexpr std::size_t kSize = (kWanted + kPageSize - 1) / kPageSize * kPageSize;
  static_assert(sizeof(ReceiveBuffer) <= kHeaderSize);
  void* memory = std::aligned_alloc(kPageSize, kSize);
  return memory == nullptr ? nullptr : new (memory) ReceiveBuffer(core);
}

void ReceiveBuffer::destroy(ReceiveBuffer* buffer) noexcept {
  buffer->~ReceiveBuffer();
  std::free(buffer);
}

void ReceiveBuffer::give_back(detail::Pin* pin) noexcept {
  auto* buffer = static_cast<ReceiveBuffer*>(pin);
  Core* core = buffer->core_;
  // Relaxed: if this misses the closing, the buffer waits in the stack until the last one leaves.
  if (core->is_closed.load(std::memory_order_relaxed)) {
    destroy(buffer);
  } else {
    // Release: the owner that takes the stack sees next_ and whatever was done to the bytes.
    ReceiveBuffer* top = core->returned.load(std::memory_order_relaxed);
    do {
      buffer->next_ = top;
    } while (!core->returned.compare_exchange_weak(top, buffer, std::memory_order_release, std::memory_order_relaxed));
  }
  leave(core);
}

void ReceiveBuffer::leave(Core* core) noexcept {
  // Acquire-release: the last to leave sees every push.
  if (core->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  ReceiveBuffer* buffer = core->returned.load(std::memory_order_relaxed);
  while (buffer != nullptr) {
    ReceiveBuffer* next = buffer->next_;
    destroy(buffer);
    buffer = next;
  }
  delete core;
}

ReceiveBufferPool::ReceiveBufferPool(const Options& options)
    : core_(new ReceiveBuffer::Core), max_buffers_(options.max_buffers) {
  WEIR_CHECK(options.touched_buffers <= options.max_buffers, "touch no more receive buffers than may be in use");
  for (std::size_t i = 0; i < options.touched_buffers; ++i) {
    ReceiveBuffer* buffer = ReceiveBuffer::create(core_);
    if (buffer == nullptr) break;
    std::memset(buffer->bytes().data(), 0, ReceiveBuffer::kCapacity);
    buffer->next_ = free_;
    free_ = buffer;
  }
}

ReceiveBufferPool::~ReceiveBufferPool() {
  core_->is_closed.store(true, std::memory_order_relaxed);
  while (free_ != nullptr) {
    ReceiveBuffer* next = free_->next_;
    ReceiveBuffer::destroy(free_);
    free_ = next;
  }
  ReceiveBuffer::leave(core_);
}

ReceiveBuffer* ReceiveBufferPool::acquire() {
  if (in_use() >= max_buffers_) return nullptr;
  // Acquire: pairs with the push.
  if (free_ == nullptr) free_ = core_->returned.exchange(nullptr, std::memory_order_acquire);
  ReceiveBuffer* buffer = free_;
  if (buffer != nullptr) {
    free_ = buffer->next_;
  } else {
    buffer = ReceiveBuffer::create(core_);
    if (buffer == nullptr) return nullptr;
  }
  core_->references.fetch_add(1, std::memory_order_relaxed);  // the pool's own reference keeps the core
  buffer->references.store(1, std::memory_order_relaxed);     // nobody else knows the buffer yet
  return buffer;
}

// Relaxed: a bound may be noticed late by one buffer that is just coming back.
std::size_t ReceiveBufferPool::in_use() const { return core_->references.load(std::memory_order_relaxed) - 1; }

}  // namespace weir::link
