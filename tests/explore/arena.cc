#include "tests/explore/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <new>
#include <vector>

#include "tests/explore/model.h"

namespace weir::explore::arena {
namespace {

constexpr std::size_t kRegion = 8u << 20;  // of address space, for each thread

struct Region {
  std::uintptr_t base = 0;
  std::size_t used = 0;
  std::deque<Block> blocks;  // in the order of their addresses
};

bool on = false;
std::size_t live_blocks = 0;

std::array<Region, kMaxThreads>& regions() {
  static std::array<Region, kMaxThreads> all = [] {
    std::array<Region, kMaxThreads> made;
    void* base = mmap(nullptr, kRegion * kMaxThreads, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
      std::perror("mmap of the arena");
      std::abort();
    }
    for (std::size_t i = 0; i < made.size(); ++i) made[i].base = reinterpret_cast<std::uintptr_t>(base) + i * kRegion;
    return made;
  }();
  return all;
}

}  // namespace

bool is_on() noexcept { return on; }
void turn(bool to) noexcept { on = to; }

void reset() noexcept {
  for (Region& region : regions()) {
    region.used = 0;
    region.blocks.clear();
  }
  live_blocks = 0;
}

std::size_t live() noexcept { return live_blocks; }

std::size_t bytes_of_first_live() noexcept {
  for (const Region& region : regions()) {
    for (const Block& block : region.blocks) {
      if (!block.is_freed) return block.end - block.begin;
    }
  }
  return 0;
}

Block* find(const void* pointer) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  const std::uintptr_t base = regions()[0].base;
  if (address < base || address >= base + kRegion * kMaxThreads) return nullptr;
  auto& blocks = regions()[(address - base) / kRegion].blocks;
  const auto after = std::upper_bound(blocks.begin(), blocks.end(), address,
                                      [](std::uintptr_t at, const Block& block) { return at < block.begin; });
  if (after == blocks.begin()) return nullptr;
  return &*std::prev(after);
}

void* take(std::size_t bytes, std::size_t alignment) {
  const Off off;
  Region& region = regions()[thread_index()];
  const std::size_t at = (region.used + alignment - 1) / alignment * alignment;
  if (at + bytes > kRegion) fail("the memory of a run is used up");
  region.used = at + std::max<std::size_t>(bytes, 1);
  region.blocks.push_back({.begin = region.base + at, .end = region.base + region.used, .made = now()});
  ++live_blocks;
  return reinterpret_cast<void*>(region.base + at);
}

// False: it is not of the arena.
bool give_back(void* pointer) {
  const Off off;
  Block* const block = find(pointer);
  if (block == nullptr) return false;
  if (!is_running()) return true;  // of a run that was left
  if (block->begin != reinterpret_cast<std::uintptr_t>(pointer)) fail("something is freed that was not allocated");
  if (block->is_freed) fail("memory is freed twice");
  note_freed(*block);
  block->is_freed = true;
  --live_blocks;
  return true;
}

}  // namespace weir::explore::arena

namespace arena = weir::explore::arena;

void* operator new(std::size_t bytes) {
  if (arena::is_on()) return arena::take(bytes, 16);
  if (void* const made = std::malloc(bytes == 0 ? 1 : bytes)) return made;
  throw std::bad_alloc();
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  const auto align = static_cast<std::size_t>(alignment);
  if (arena::is_on()) return arena::take(bytes, align);
  if (void* const made = std::aligned_alloc(align, (bytes + align - 1) / align * align)) return made;
  throw std::bad_alloc();
}
void operator delete(void* pointer) noexcept {
  if (pointer != nullptr && !arena::give_back(pointer)) std::free(pointer);
}
void operator delete(void* pointer, std::size_t) noexcept { operator delete(pointer); }
void operator delete(void* pointer, std::align_val_t) noexcept { operator delete(pointer); }
void operator delete(void* pointer, std::size_t, std::align_val_t) noexcept { operator delete(pointer); }
