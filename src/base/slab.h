// A pool of objects that never move, found by index in O(1).
//
// Memory grows by chunks and is kept until the slab goes, so a steady state allocates nothing. Every slot has a
// generation that changes when its object is acquired and when it is released: a SlotId that outlived its object
// finds nothing, even after the slot was taken again.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "base/check.h"

namespace weir {

struct SlotId {
  std::uint32_t index = 0;
  std::uint64_t generation = 0;  // 64 bits: it never wraps. 0 names no object.

  auto operator<=>(const SlotId&) const = default;
};

// Owns its objects and destroys those still live when it goes. One thread at a time.
template <class T>
class Slab {
 public:
  static constexpr std::uint32_t kChunkSize = 256;

  explicit Slab(std::uint32_t max_objects) : max_objects_(max_objects) {
    chunks_.reserve((std::size_t{max_objects} + kChunkSize - 1) / kChunkSize);
  }
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;
  ~Slab() {
    for_each([this](T& object) { release(&object); });
  }

  // nullptr if max_objects() are live. Allocates only when more are live than ever before.
  template <class... Arguments>
  [[nodiscard]] T* acquire(Arguments&&... arguments) {
    if (free_ == kNone && !grow()) return nullptr;
    Slot& slot = slot_at(free_);
    T* const object = ::new (static_cast<void*>(slot.storage)) T{std::forward<Arguments>(arguments)...};
    free_ = slot.next_free;
    ++slot.generation;
    ++live_;
    return object;
  }

  void release(T* object) {
    Slot& slot = slot_of(object);
    WEIR_CHECK(is_live(slot), "an object was released twice");
    object->~T();
    ++slot.generation;
    slot.next_free = free_;  // last out, first in: its memory is warm
    free_ = slot.index;
    --live_;
  }

  // Allocates for `count` objects now, so that acquiring them later does not.
  void reserve(std::uint32_t count) {
    WEIR_CHECK(count <= max_objects_, "a slab cannot reserve more than its maximum");
    while (capacity_ < count) grow();
  }

  std::uint32_t index_of(const T* object) const { return slot_of(object).index; }
  SlotId id_of(const T* object) const {
    const Slot& slot = slot_of(object);
    return {slot.index, slot.generation};
  }

  // The live object at `index`, or nullptr: the index may come from a peer.
  T* at(std::uint32_t index) {
    if (index >= capacity_) return nullptr;
    Slot& slot = slot_at(index);
    return is_live(slot) ? slot.object() : nullptr;
  }
  const T* at(std::uint32_t index) const { return const_cast<Slab*>(this)->at(index); }

  // The object that `id` was made for, or nullptr if it was released since.
  T* find(SlotId id) {
    T* const object = at(id.index);
    return object != nullptr && slot_of(object).generation == id.generation ? object : nullptr;
  }
  const T* find(SlotId id) const { return const_cast<Slab*>(this)->find(id); }

  // In the order of indices. `visit` may release the object it is given.
  template <class Visit>
  void for_each(Visit&& visit) {
    for (std::uint32_t index = 0; index < capacity_ && live_ > 0; ++index) {
      if (T* object = at(index)) visit(*object);
    }
  }

  std::uint32_t live() const { return live_; }
  std::uint32_t max_objects() const { return max_objects_; }
  std::size_t memory_bytes() const { return chunks_.size() * sizeof(Slot) * kChunkSize; }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  struct Slot {
    alignas(T) std::byte storage[sizeof(T)];
    std::uint64_t generation = 0;  // odd while live
    std::uint32_t index = 0;
    std::uint32_t next_free = kNone;

    T* object() { return std::launder(reinterpret_cast<T*>(storage)); }
  };

  static bool is_live(const Slot& slot) { return (slot.generation & 1) != 0; }

  Slot& slot_at(std::uint32_t index) { return chunks_[index / kChunkSize][index % kChunkSize]; }

  // The storage is the slot's first member, so both have one address.
  static Slot& slot_of(T* object) { return *reinterpret_cast<Slot*>(object); }
  static const Slot& slot_of(const T* object) { return *reinterpret_cast<const Slot*>(object); }

  bool grow() {
    const std::uint32_t count = std::min(kChunkSize, max_objects_ - capacity_);
    if (count == 0) return false;
    auto& chunk = chunks_.emplace_back(new Slot[kChunkSize]);
    for (std::uint32_t i = count; i-- > 0;) {  // backwards, so that low indices are taken first
      chunk[i].index = capacity_ + i;
      chunk[i].next_free = free_;
      free_ = chunk[i].index;
    }
    capacity_ += count;
    return true;
  }

  const std::uint32_t max_objects_;
  std::uint32_t capacity_ = 0;
  std::uint32_t live_ = 0;
  std::uint32_t free_ = kNone;
  std::vector<std::unique_ptr<Slot[]>> chunks_;
};

}  // namespace weir
