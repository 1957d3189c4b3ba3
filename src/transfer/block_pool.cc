#include "transfer/block_pool.h"

namespace weir::transfer {

BlockPool::~BlockPool() {
  for (Block* list : free_) {
    while (list != nullptr) {
      Block* next = list->next;
      std::free(list);
      list = next;
    }
  }
  leave(core_);
}

Block* BlockPool::acquire(std::size_t bytes) {
  WEIR_CHECK(bytes <= kMaxBlockBytes, "a message block is larger than any class");
  int size_class = 0;
  while (kClassBytes[size_class] < bytes) ++size_class;
  Block*& list = free_[size_class];
  if (list == nullptr) {
    // Acquire: whoever gave a block back has finished reading it.
    list = core_->returned[size_class].exchange(nullptr, std::memory_order_acquire);
  }
  Block* block = list;
  if (block != nullptr) {
    list = block->next;
  } else {
    void* memory = std::malloc(Block::kHeaderBytes + kClassBytes[size_class]);
    if (memory == nullptr) throw std::bad_alloc();
    block = ::new (memory) Block{{.references{0}, .release = &give_back},
                                 core_,
                                 nullptr,
                                 static_cast<std::uint32_t>(kClassBytes[size_class]),
                                 static_cast<std::uint32_t>(size_class)};
  }
  block->references.store(1, std::memory_order_relaxed);
  // Relaxed: only leave() decides on the count, and it synchronises there.
  core_->references.fetch_add(1, std::memory_order_relaxed);
  return block;
}

void BlockPool::give_back(detail::Pin* pin) noexcept {
  auto* block = static_cast<Block*>(pin);
  Block::Core* core = block->core;
  auto& stack = core->returned[block->size_class];
  Block* head = stack.load(std::memory_order_relaxed);
  do {
    block->next = head;
    // Release: the taker sees `next` and everything done with the bytes. Only whole-list takes, so no ABA.
  } while (!stack.compare_exchange_weak(head, block, std::memory_order_release, std::memory_order_relaxed));
  leave(core);
}

void BlockPool::leave(Block::Core* core) noexcept {
  // Release our work on the core, and acquire everybody's before it is destroyed.
  if (core->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  for (auto& stack : core->returned) {
    Block* list = stack.load(std::memory_order_relaxed);
    while (list != nullptr) {
      Block* next = list->next;
      std::free(list);
      list = next;
    }
  }
  delete core;
}

}  // namespace weir::transfer
