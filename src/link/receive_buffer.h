// Memory that datagrams are received into, recycled rather than freed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "weir/pin.h"

namespace weir::link {

class ReceiveBufferPool;

// Room for the largest datagram, or for one burst of coalesced datagrams. A link holds one reference while it fills
// the buffer; each received body that stays in it holds another. References may be added and released on any thread.
class ReceiveBuffer : public detail::Pin {
 public:
  static constexpr std::size_t kCapacity = 64 * 1024;
  // Readable and writable bytes behind the capacity, so that wide loads and stores may run over the end.
  static constexpr std::size_t kSlack = 256;

  ReceiveBuffer(const ReceiveBuffer&) = delete;
  ReceiveBuffer& operator=(const ReceiveBuffer&) = delete;

  void add_ref() noexcept { detail::pin(this); }
  void release_ref() noexcept { detail::unpin(this); }

  // True if the caller holds the only reference. Acquire: what others read from the bytes, they have read before.
  bool is_sole_reference() const noexcept { return references.load(std::memory_order_acquire) == 1; }

  MutableByteSpan bytes() noexcept { return {reinterpret_cast<std::byte*>(this) + kHeaderSize, kCapacity}; }

 private:
  friend class ReceiveBufferPool;
  struct Core;

  static constexpr std::size_t kHeaderSize = 128;

  explicit ReceiveBuffer(Core* core) : Pin{.references{0}, .release = &give_back}, core_(core) {}
  ~ReceiveBuffer() = default;

  static ReceiveBuffer* create(Core* core);
  static void destroy(ReceiveBuffer* buffer) noexcept;
  static void give_back(detail::Pin* pin) noexcept;
  static void leave(Core* core) noexcept;

  Core* core_;
  ReceiveBuffer* next_ = nullptr;  // in the pool's stacks
};

// A bounded supply of receive buffers. One per worker: construction, acquire() and destruction belong to its thread,
// while buffers come back from any thread. Buffers may outlive the pool; each is then freed when its last
// reference drops.
class ReceiveBufferPool {
 public:
  struct Options {
    std::size_t max_buffers = 1024;   // in use at once; 64 KiB each
    std::size_t touched_buffers = 0;  // made and touched at once, because a page's first touch is slow
  };

  explicit ReceiveBufferPool(const Options& options);
  ~ReceiveBufferPool();
  ReceiveBufferPool(const ReceiveBufferPool&) = delete;
  ReceiveBufferPool& operator=(const ReceiveBufferPool&) = delete;

  // A buffer with one reference, or null when max_buffers are in use or memory is out.
  ReceiveBuffer* acquire();

  std::size_t max_buffers() const { return max_buffers_; }
  // Buffers in somebody's hands, links' spare ones included. Exact when no other thread is releasing one.
  std::size_t in_use() const;

 private:
  ReceiveBuffer::Core* core_;
  ReceiveBuffer* free_ = nullptr;  // only the owner's thread pops, so taking one needs no atomic operation
  std::size_t max_buffers_;
};

}  // namespace weir::link
