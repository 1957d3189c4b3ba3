// Memory for large messages: a Buffer is filled once, sealed once, and as a Payload sent to as many as you like.
//
//   weir::Buffer page = (co_await pool.allocate(1 << 20)).value();
//   fill(page.span());
//   weir::Payload payload = pool.seal(std::move(page));
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "weir/pin.h"

namespace weir {

namespace buffer {
struct Block;   // a buffer inside the library, and a payload from when it is sealed
struct Sealed;  // what the library reads of a payload
}  // namespace buffer

struct AllocateOptions {
  int worker = -1;     // on the NUMA node of this worker's core or node in Config::places; -1: whichever
  int numa_node = -1;  // a wish, of no effect on BufferMemory::heap; -1: the nodes take turns
  bool wait = true;    // for memory, when the pool is used up; false: `overloaded` at once
  // Not 0: several pieces of this many bytes, rounded up to whole records, so that no large run of memory has to be
  // found. 0: one piece.
  std::size_t piece_bytes = 0;
};

// Which bytes of a buffer that the application sealed itself say what it is: its own header, say. A digest of them
// travels ahead of the data, authenticated between the two peers, and the receiver hands over nothing else.
struct Binding {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

// Memory to fill. Allocated, then written, then filled, then sealed: each step once, in this order. One thread at a
// time. A buffer that was moved from (sealing moves it) is empty; asking it for anything but operator bool is a CHECK.
class [[nodiscard]] Buffer {
 public:
  enum class State : std::uint8_t { allocated, writing, filled };

  Buffer() = default;
  Buffer(Buffer&& other) noexcept : block_(std::exchange(other.block_, nullptr)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(block_, other.block_);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  explicit operator bool() const { return block_ != nullptr; }
  State state() const;
  std::size_t size() const;
  // Unique in its pool for as long as that lives; the payload that it becomes has the same one.
  std::uint64_t id() const;

  // To write into, as often as you like until it is filled. What it holds at first is unspecified. span() is for a
  // buffer of one piece, which is all that AllocateOptions::piece_bytes left alone gives.
  std::span<std::byte> span();
  std::span<const std::span<std::byte>> spans();

  // The first `bytes` are what is to be sent; no more is written. Sealing alone says the same of all of it.
  void filled(std::size_t bytes);

  // For the library.
  explicit Buffer(buffer::Block* block) noexcept : block_(block) {}
  buffer::Block* block() const { return block_; }
  buffer::Block* release() noexcept { return std::exchange(block_, nullptr); }

 private:
  buffer::Block& held() const;
  buffer::Block* block_ = nullptr;
};

// A sealed buffer: immutable, shared by reference count; copies are cheap, any thread may hold them. Its memory goes
// back to the pool when the last one, and the last transfer that sends it, let go. That of a payload of several pieces
// (AllocateOptions::piece_bytes) does so piece by piece, all but the first, once you hold none: then each goes as soon
// as all peers that it is on its way to have it. Move a payload into its last call to hold none.
class Payload {
 public:
  Payload() = default;
  Payload(const Payload& other) noexcept;
  Payload(Payload&& other) noexcept : sealed_(std::exchange(other.sealed_, nullptr)) {}
  Payload& operator=(Payload other) noexcept {
    std::swap(sealed_, other.sealed_);
    return *this;
  }
  ~Payload();

  explicit operator bool() const { return sealed_ != nullptr; }
  std::uint64_t size() const;     // in bytes; 0 for an empty handle
  std::uint64_t id() const;       // 0 for an empty handle
  std::uint64_t records() const;  // how many seals cover it

  // For the library: takes over one reference, and that it is a handle.
  explicit Payload(buffer::Sealed* sealed) noexcept : sealed_(sealed) {}
  buffer::Sealed* sealed() const { return sealed_; }

 private:
  buffer::Sealed* sealed_ = nullptr;
};

}  // namespace weir
