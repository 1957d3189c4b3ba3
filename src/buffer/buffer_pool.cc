#include "buffer/buffer_pool.h"

#include <utility>

#include "base/check.h"
#include "base/fork_guard.h"

namespace weir::buffer {
namespace {

Error used_up() { return {Code::overloaded, "the buffers are used up; drop some, wait, or raise their limit"}; }
Error closed() { return {Code::closed, "this pool is closed"}; }

}  // namespace

std::shared_ptr<BufferPool> BufferPool::create(std::shared_ptr<Memory> memory, const Limits& limits) {
  return std::shared_ptr<BufferPool>(new BufferPool(std::move(memory), limits), DeleteUnlessForked<BufferPool>{});
}

BufferPool::BufferPool(std::shared_ptr<Memory> memory, const Limits& limits)
    : memory_(std::move(memory)), limits_(limits), registry_(limits.buffers) {}

BufferPool::~BufferPool() { WEIR_CHECK(first_ == nullptr, "close() a pool of buffers before dropping it: some wait"); }

std::optional<Error> BufferPool::refusal(const BlockShape& shape) const {
  if (is_possible(shape) && memory_bytes_of(shape) <= limits_.bytes) return std::nullopt;
  return Error(Code::too_large, "this is more than the limit of all buffers together");
}

bool BufferPool::charge(std::uint64_t bytes) {
  if (bytes > limits_.bytes - used_) return false;
  used_ += bytes;
  return true;
}

Buffer BufferPool::make(const BlockShape& shape, int numa_node) {
  Block* const block = make_block(*memory_, shape, numa_node);
  if (block == nullptr) return {};
  // The registry may hand it out by id once it is in, but as not sealed: that field alone is read until then.
  const std::uint64_t id = registry_.insert(*block);
  if (id == 0) {
    destroy(*block);
    return {};
  }
  block->id = id;
  block->owner = shared_from_this();
  block->charged_bytes = memory_bytes_of(shape);
  return Buffer{block};
}

Result<Buffer> BufferPool::try_allocate(std::size_t bytes, const AllocateOptions& options) {
  const BlockShape shape{.bytes = bytes, .piece_bytes = options.piece_bytes};
  if (auto error = refusal(shape)) return std::unexpected(*std::move(error));
  {
    const std::lock_guard lock{mutex_};
    if (closed_) return std::unexpected(closed());
    if (first_ != nullptr || !charge(memory_bytes_of(shape))) return std::unexpected(used_up());
  }
  Buffer made = make(shape, options.numa_node);
  if (made) return made;
  refund(memory_bytes_of(shape));
  return std::unexpected(used_up());
}

std::optional<Result<Buffer>> BufferPool::allocate(std::size_t bytes, const AllocateOptions& options, Waiter& waiter) {
  Result<Buffer> now = try_allocate(bytes, options);
  if (now || !options.wait || now.error().code() != Code::overloaded) return now;
  {
    const std::lock_guard lock{mutex_};
    WEIR_CHECK(waiter.stage_ == Waiter::Stage::idle, "a waiter waits for one allocation at a time");
    if (closed_) return Result<Buffer>(std::unexpected(closed()));
    if (waiting_ >= limits_.waiters) return now;
    waiter.shape_ = {.bytes = bytes, .piece_bytes = options.piece_bytes};
    waiter.numa_node_ = options.numa_node;
    waiter.cancelled_ = false;
    put_last(waiter);
  }
  serve();  // what came back since we asked was not told to us
  return std::nullopt;
}

bool BufferPool::cancel(Waiter& waiter) {
  {
    const std::lock_guard lock{mutex_};
    if (waiter.stage_ != Waiter::Stage::waiting) {
      waiter.cancelled_ = waiter.stage_ == Waiter::Stage::serving;
      return false;
    }
    unlink(waiter);
  }
  serve();  // there may have been room for those behind it all along
  return true;
}

void BufferPool::close() {
  {
    const std::lock_guard lock{mutex_};
    closed_ = true;
  }
  serve();
}

Payload BufferPool::find(std::uint64_t id) {
  Block* const block = registry_.hold(id);
  if (block == nullptr) return {};
  // Acquire: with the release that followed the sealing, so that the ciphertext is seen.
  bool found = block->state.load(std::memory_order_acquire) == Block::State::sealed && pin_if_alive(*block);
  if (found && !revive_handle(*block)) {
    detail::unpin(block);
    found = false;
  }
  if (registry_.let_go(id)) finish(*block);
  return Payload{found ? block : nullptr};
}

std::uint64_t BufferPool::used_bytes() const {
  const std::lock_guard lock{mutex_};
  return used_;
}

std::size_t BufferPool::waiting() const {
  const std::lock_guard lock{mutex_};
  return waiting_;
}

void BufferPool::on_unreferenced(Block& block) noexcept {
  if (registry_.let_go(block.id)) finish(block);
}

void BufferPool::finish(Block& block) noexcept {
  const std::shared_ptr<BlockOwner> self = std::move(block.owner);  // perhaps the last to hold us
  const std::uint64_t id = block.id;
  std::uint64_t bytes = block.charged_bytes;
  // Relaxed: with the reference of whoever freed some of it.
  if (block.holds != nullptr) bytes -= block.holds->freed_bytes.load(std::memory_order_relaxed);
  destroy(block);
  registry_.recycle(id);
  refund(bytes);
}

void BufferPool::refund(std::uint64_t bytes) noexcept {
  {
    const std::lock_guard lock{mutex_};
    used_ -= bytes;
    ++returns_;
    if (first_ == nullptr) return;
  }
  serve();
}

// The first in line if there is room for it, which is then taken. Under mutex_.
BufferPool::Waiter* BufferPool::next_to_serve() {
  if (first_ == nullptr || (!closed_ && !charge(memory_bytes_of(first_->shape_)))) return nullptr;
  Waiter* const waiter = first_;
  unlink(*waiter);
  waiter->stage_ = Waiter::Stage::serving;
  return waiter;
}

// Also on a worker that hears that a peer has some of a payload, and makes the buffers there: only while somebody waits
// for memory, which is as slow as it gets anyway. To have each make its own where it waits would take more than telling
// it so: the memory may have less than our bound, and then it has to go back to the front of the line, which only we
// know, while others behind it may be served or cancelled.
void BufferPool::serve() noexcept {
  std::unique_lock lock{mutex_};
  if (serving_) return;  // that thread looks again before it stops
  serving_ = true;
  const std::shared_ptr<BufferPool> self = shared_from_this();  // whoever is told may drop us
  while (Waiter* const waiter = next_to_serve()) {
    if (closed_) {
      waiter->stage_ = Waiter::Stage::idle;
      lock.unlock();
      waiter->on_allocated(std::unexpected(closed()));
      lock.lock();
      continue;
    }
    const std::uint64_t bytes = memory_bytes_of(waiter->shape_);
    const std::uint64_t returns_before = returns_;
    lock.unlock();
    Buffer buffer = make(waiter->shape_, waiter->numa_node_);
    lock.lock();
    const bool cancelled = waiter->cancelled_;
    if (!buffer || cancelled) {
      if (!buffer) used_ -= bytes;
      // The memory has less than our bound: try again if some came back meanwhile; wait for more if somebody has some.
      if (!buffer && !cancelled && (used_ != 0 || returns_ != returns_before)) {
        put_first(*waiter);
        if (returns_ != returns_before) continue;
        break;
      }
      waiter->stage_ = Waiter::Stage::idle;
      lock.unlock();
      waiter->on_allocated(
          std::unexpected(cancelled ? Error(Code::cancelled, "the allocation was cancelled") : used_up()));
      buffer = {};  // back, if there was one; its room is seen when we look again
      lock.lock();
      continue;
    }
    waiter->stage_ = Waiter::Stage::idle;
    lock.unlock();
    waiter->on_allocated(std::move(buffer));
    lock.lock();
  }
  serving_ = false;
}

void BufferPool::put_first(Waiter& waiter) {
  waiter.stage_ = Waiter::Stage::waiting;
  waiter.previous_ = nullptr;
  waiter.next_ = first_;
  (first_ != nullptr ? first_->previous_ : last_) = &waiter;
  first_ = &waiter;
  ++waiting_;
}

void BufferPool::put_last(Waiter& waiter) {
  waiter.stage_ = Waiter::Stage::waiting;
  waiter.previous_ = last_;
  waiter.next_ = nullptr;
  (last_ != nullptr ? last_->next_ : first_) = &waiter;
  last_ = &waiter;
  ++waiting_;
}

void BufferPool::unlink(Waiter& waiter) {
  (waiter.previous_ != nullptr ? waiter.previous_->next_ : first_) = waiter.next_;
  (waiter.next_ != nullptr ? waiter.next_->previous_ : last_) = waiter.previous_;
  waiter.stage_ = Waiter::Stage::idle;
  --waiting_;
}

}  // namespace weir::buffer
