// RecordPool: records that one thread takes and any thread gives back, in memory that outlives the pool until the last
// one is back.
//
// The taker's thread gives back without an atomic operation. Others push onto a stack that the taker empties as a
// whole when its own list is used up, so there is no ABA. The count of those others doubles as the count-down after
// the pool has gone: while there is a pool it is kept far above zero; whoever brings it to zero frees the memory. What
// the taker's thread counted by itself it adds when it lets go of the pool, so nobody else ever touches that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/sync.h"
#include "worker/thread_context.h"

namespace weir::pool {

// `Record` has `Record* link` and `RecordPool<Record, Shared>::Core* core`. `Shared` is what records need for as long
// as they live. Records are constructed once, with their memory.
template <class Record, class Shared>
class RecordPool {
 public:
  static constexpr std::size_t kChunk = 32;  // more would show in the price of one, while there are few

  static constexpr std::int64_t kPoolItself = std::int64_t{1} << 62;

  struct Core {
    explicit Core(Shared shared_) : shared(std::move(shared_)) {}
    sync::Atomic<const worker::ThreadContext*> owner{nullptr};
    Record* free = nullptr;  // the owner's
    std::int64_t live = 0;   // the owner's: taken and not given back on the owner's own thread
    alignas(64) sync::Atomic<Record*> returned{nullptr};
    sync::Atomic<std::int64_t> balance{kPoolItself};
    std::vector<std::unique_ptr<Record[]>> chunks;
    Shared shared;
  };

  RecordPool(Shared shared, std::size_t max_records) : core_(new Core(std::move(shared))), max_records_(max_records) {}
  RecordPool(const RecordPool&) = delete;
  RecordPool& operator=(const RecordPool&) = delete;
  // On the owner's thread, or after disown().
  ~RecordPool() {
    disown();
    // Acquire-release: see every push if we free, be seen if somebody else does.
    if (core_->balance.fetch_sub(kPoolItself, std::memory_order_acq_rel) == kPoolItself) delete core_;
  }

  // On the owner's thread: it takes no more, and what it gives back from here on it gives back like any other thread.
  // Another thread may take from the pool afterwards, if it knows that this has happened.
  void disown() {
    core_->balance.fetch_add(std::exchange(core_->live, 0), std::memory_order_relaxed);
    core_->owner.store(nullptr, std::memory_order_relaxed);
  }

  // For one thread at a time, which becomes the owner. Null if max_records are out.
  Record* acquire() {
    Core& core = *core_;
    core.owner.store(&worker::thread_context, std::memory_order_relaxed);
    Record* record = core.free;
    if (record == nullptr) [[unlikely]] {
      record = refill();
      if (record == nullptr) return nullptr;
    }
    sync::reads(&record->link);
    core.free = record->link;
    ++core.live;
    return record;
  }

  // Any thread.
  [[gnu::always_inline]] static void release(Record* record) noexcept {
    Core& core = *record->core;
    // Relaxed: equal only if this thread stored it.
    if (core.owner.load(std::memory_order_relaxed) == &worker::thread_context) [[likely]] {
      sync::writes(&record->link);
      record->link = core.free;
      core.free = record;
      --core.live;
      return;
    }
    release_elsewhere(core, record);
  }

  std::size_t memory_bytes() const { return core_->chunks.size() * kChunk * sizeof(Record); }
  Shared& shared() { return core_->shared; }

 private:
  // On a thread that is not the owner's.
  [[gnu::noinline]] static void release_elsewhere(Core& core, Record* record) noexcept {
    Record* top = core.returned.load(std::memory_order_relaxed);
    do {
      sync::writes(&record->link);
      record->link = top;
      // Release: whoever takes the stack sees the record as we left it.
    } while (!core.returned.compare_exchange_weak(top, record, std::memory_order_release, std::memory_order_relaxed));
    // Acquire-release: the last one sees what all others did to the core.
    if (core.balance.fetch_sub(1, std::memory_order_acq_rel) == 1) delete &core;
  }

  Record* refill() {
    Core& core = *core_;
    // Acquire: pairs with release().
    if (Record* returned = core.returned.exchange(nullptr, std::memory_order_acquire)) return returned;
    if (core.chunks.size() * kChunk >= max_records_) return nullptr;
    auto& chunk = core.chunks.emplace_back(new Record[kChunk]);
    for (std::size_t i = 0; i < kChunk; ++i) {
      chunk[i].core = &core;
      chunk[i].link = i + 1 < kChunk ? &chunk[i + 1] : nullptr;
    }
    return &chunk[0];
  }

  Core* core_;
  const std::size_t max_records_;
};

}  // namespace weir::pool
