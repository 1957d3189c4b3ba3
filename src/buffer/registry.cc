#include "buffer/registry.h"

#include <algorithm>

#include "base/check.h"

namespace weir::buffer {
namespace {

constexpr std::uint64_t kHolderBits = 24;  // more threads than that do not look up at once
constexpr std::uint64_t kHolderMask = (std::uint64_t{1} << kHolderBits) - 1;
constexpr std::uint64_t kGenerationBits = 40;
static_assert(Registry::kMaxSlots <= std::uint32_t{1} << (64 - kGenerationBits));

std::uint32_t slot_of(std::uint64_t id) { return static_cast<std::uint32_t>(id >> kGenerationBits); }
std::uint64_t generation_of(std::uint64_t id) { return id & Registry::kLastGeneration; }

}  // namespace

Registry::Registry(std::uint32_t max_slots, std::uint64_t first_generation)
    : max_slots_(std::min(max_slots, kMaxSlots)), first_generation_(first_generation) {}

Registry::~Registry() {
  WEIR_CHECK(size_ == 0, "a registry ends after its blocks");
  for (auto& segment : segments_) delete segment.load(std::memory_order_relaxed);
}

std::uint64_t Registry::insert(Block& block) {
  std::uint32_t index;
  {
    const std::lock_guard lock{mutex_};
    if (first_free_ != 0) {
      index = first_free_ - 1;
      first_free_ = find(index)->next_free;
    } else {
      if (made_ == max_slots_) return 0;
      index = made_++;
      if (index % kSegmentSlots == 0) {
        auto* segment = new Segment;
        for (Slot& slot : *segment) slot.word.store(first_generation_ << kHolderBits, std::memory_order_relaxed);
        // Release: who finds the segment finds its slots made.
        segments_[index / kSegmentSlots].store(segment, std::memory_order_release);
      }
    }
    ++size_;
  }
  Slot& slot = *find(index);
  const std::uint64_t word = slot.word.load(std::memory_order_relaxed);  // ours alone: nobody holds it
  slot.block.store(&block, std::memory_order_relaxed);
  slot.word.store(word + 1, std::memory_order_release);  // publishes the block
  return (std::uint64_t{index} << kGenerationBits) | (word >> kHolderBits);
}

Block* Registry::hold(std::uint64_t id) {
  Slot* const slot = find(slot_of(id));
  if (slot == nullptr) return nullptr;
  std::uint64_t word = slot->word.load(std::memory_order_relaxed);
  do {
    if (word >> kHolderBits != generation_of(id) || (word & kHolderMask) == 0) return nullptr;
    // Acquire: with insert()'s release, so that the block is seen.
  } while (!slot->word.compare_exchange_weak(word, word + 1, std::memory_order_acquire, std::memory_order_relaxed));
  return slot->block.load(std::memory_order_relaxed);
}

bool Registry::let_go(std::uint64_t id) {
  // Release: what we did with the block comes before its end. Acquire: the last one sees that of all.
  const std::uint64_t before = find(slot_of(id))->word.fetch_sub(1, std::memory_order_acq_rel);
  WEIR_CHECK(before >> kHolderBits == generation_of(id) && (before & kHolderMask) != 0,
             "a block is let go by those who hold it");
  return (before & kHolderMask) == 1;
}

void Registry::recycle(std::uint64_t id) {
  const std::uint32_t index = slot_of(id);
  Slot& slot = *find(index);
  const std::lock_guard lock{mutex_};
  --size_;
  if (generation_of(id) == kLastGeneration) return;  // retired: its ids are used up
  // Relaxed: nobody may hold it before the next insert() publishes it.
  slot.word.store((generation_of(id) + 1) << kHolderBits, std::memory_order_relaxed);
  slot.next_free = first_free_;
  first_free_ = index + 1;
}

std::uint32_t Registry::size() const {
  const std::lock_guard lock{mutex_};
  return size_;
}

Registry::Slot* Registry::find(std::uint32_t index) {
  if (index >= kMaxSlots) return nullptr;
  Segment* const segment = segments_[index / kSegmentSlots].load(std::memory_order_acquire);
  return segment == nullptr ? nullptr : &(*segment)[index % kSegmentSlots];
}

}  // namespace weir::buffer
