// Blocks: memory for message bytes that do not fit into their record, in seven size classes. One thread takes them;
// any thread may give them back, because a block can end its life as the body of a Reply or Request in the
// application's hands.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

#include "base/bytes.h"
#include "base/check.h"
#include "weir/pin.h"

namespace weir::transfer {

class BlockPool;

struct Block : detail::Pin {
  struct Core;
  Core* core;
  Block* next;
  std::uint32_t capacity;
  std::uint32_t size_class;

  std::byte* bytes() { return reinterpret_cast<std::byte*>(this) + kHeaderBytes; }
  static constexpr std::size_t kHeaderBytes = 64;
};
static_assert(sizeof(Block) <= Block::kHeaderBytes);

// What the pool and its blocks share: outlives the pool until the last block is back.
struct Block::Core {
  static constexpr int kClasses = 7;
  std::atomic<Block*> returned[kClasses] = {};  // given back by any thread
  std::atomic<std::size_t> references{1};       // the pool and every block that is out
};

// Owned by one engine or lane; acquire() is for its thread only.
class BlockPool {
 public:
  static constexpr std::size_t kMaxBlockBytes = 65'536;
  static constexpr std::size_t kClassBytes[Block::Core::kClasses] = {256,   512,    2'048,         4'608,
                                                                     8'192, 20'480, kMaxBlockBytes};

  BlockPool() : core_(new Block::Core) {}
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;
  ~BlockPool();

  // One reference, held by the caller. Bytes are uninitialised.
  Block* acquire(std::size_t bytes);
  // Blocks in somebody's hands; for leak checks at the end of a run.
  std::size_t outstanding() const { return core_->references.load(std::memory_order_relaxed) - 1; }

 private:
  static void give_back(detail::Pin* pin) noexcept;
  static void leave(Block::Core* core) noexcept;

  Block::Core* core_;
  Block* free_[Block::Core::kClasses] = {};
};

}  // namespace weir::transfer
