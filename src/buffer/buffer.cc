// What applications hold of buffers.
#include "weir/buffer.h"

#include "base/check.h"
#include "base/fork_guard.h"
#include "buffer/block.h"

namespace weir {

Buffer::~Buffer() {
  if (block_ != nullptr) detail::unpin(block_);
}

buffer::Block& Buffer::held() const {
  WEIR_CHECK(block_ != nullptr, "this buffer is empty: it was moved from, sealed or never allocated");
  return *block_;
}

Buffer::State Buffer::state() const {
  switch (held().state.load(std::memory_order_relaxed)) {  // ours alone until it is sealed
    case buffer::Block::State::allocated:
      return State::allocated;
    case buffer::Block::State::writing:
      return State::writing;
    default:
      return State::filled;
  }
}

std::size_t Buffer::size() const { return held().bytes; }

std::uint64_t Buffer::id() const { return held().id; }

std::span<std::byte> Buffer::span() {
  WEIR_CHECK(held().many.empty(), "this buffer has several pieces: write through spans()");
  return spans().front();
}

std::span<const std::span<std::byte>> Buffer::spans() {
  buffer::Block& block = held();
  WEIR_CHECK(detail::is_process(block.process), kForked);  // the memory may be a file that both processes write
  WEIR_CHECK(state() != State::filled, "a filled buffer is not written any more: fill it before filled()");
  block.state.store(buffer::Block::State::writing, std::memory_order_relaxed);
  return block.spans();
}

void Buffer::filled(std::size_t bytes) {
  buffer::Block& block = held();
  WEIR_CHECK(state() == State::writing, "a buffer is filled once, after something was written into its span()");
  buffer::shorten(block, bytes);
  block.state.store(buffer::Block::State::filled, std::memory_order_relaxed);
}

Payload::Payload(const Payload& other) noexcept : sealed_(other.sealed_) {
  if (sealed_ != nullptr) buffer::copy_handle(*sealed_);
}

Payload::~Payload() {
  if (sealed_ != nullptr) buffer::drop_handle(sealed_);
}

std::uint64_t Payload::size() const { return sealed_ == nullptr ? 0 : sealed_->bytes; }
std::uint64_t Payload::id() const { return sealed_ == nullptr ? 0 : sealed_->id; }
std::uint64_t Payload::records() const { return sealed_ == nullptr ? 0 : sealed_->records(); }

}  // namespace weir
