// BufferPool: the application's buffers, up to a bound of bytes, and those who wait for some to come back.
//
// Waiting is first come, first served: nobody overtakes, so that a large allocation is not starved by small ones. When
// memory comes back exactly as many are woken as it is enough for. One thread at a time wakes; another that gives
// memory back meanwhile leaves its part to that one.
//
// Any thread. Shared, because buffers and payloads keep it (and it keeps its memory) for as long as they live.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "buffer/block.h"
#include "buffer/memory.h"
#include "buffer/registry.h"
#include "weir/buffer.h"
#include "weir/error.h"

namespace weir::buffer {

class BufferPool final : public BlockOwner, public std::enable_shared_from_this<BufferPool> {
 public:
  struct Limits {
    std::uint64_t bytes = 0;                      // of all buffers and payloads, with what they need for themselves
    std::uint32_t buffers = Registry::kMaxSlots;  // at a time
    std::uint32_t waiters = 65'536;               // more are refused
  };

  // An allocation that waits. Embedded by whoever waits.
  class Waiter {
   public:
    // Once, without a lock held, by the thread whose giving back made room (or that closed the pool). It may do
    // anything, also destroy the waiter.
    virtual void on_allocated(Result<Buffer> result) noexcept = 0;

   protected:
    Waiter() = default;
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;
    virtual ~Waiter() = default;

   private:
    friend class BufferPool;
    enum class Stage : std::uint8_t { idle, waiting, serving };
    BlockShape shape_;
    int numa_node_ = -1;
    Stage stage_ = Stage::idle;
    bool cancelled_ = false;
    Waiter* previous_ = nullptr;
    Waiter* next_ = nullptr;
  };

  static std::shared_ptr<BufferPool> create(std::shared_ptr<Memory> memory, const Limits& limits);
  ~BufferPool() override;

  // `too_large`: never possible. `overloaded`: not now, or others have been waiting longer. `closed`.
  [[nodiscard]] Result<Buffer> try_allocate(std::size_t bytes, const AllocateOptions& options = {});

  // Empty: it waits, and `waiter` is told, perhaps before this returns. Otherwise the result, and `waiter` is not used.
  // options.wait false: as try_allocate().
  [[nodiscard]] std::optional<Result<Buffer>> allocate(std::size_t bytes, const AllocateOptions& options,
                                                       Waiter& waiter);

  // True: it waits no more and is not told. False: it was told or is just being told, perhaps of the cancellation.
  // Either way the waiter must still be there: whoever is told on another thread agrees on that with who cancels.
  bool cancel(Waiter& waiter);

  // Refuses what comes and tells all who wait. What is allocated stays good.
  void close();

  // The payload with this id; empty if there is none (any more). One of several pieces also if there is no handle of
  // it: some of it may be free. One of one piece is whole as long as any message holds it, and found. Any thread, any
  // number, no lock.
  [[nodiscard]] Payload find(std::uint64_t id);

  std::uint64_t used_bytes() const;
  std::uint64_t bound_bytes() const { return limits_.bytes; }
  std::size_t waiting() const;
  std::uint32_t buffers() const { return registry_.size(); }

  void on_unreferenced(Block& block) noexcept override;
  void on_freed(std::uint64_t bytes) noexcept override { refund(bytes); }

 private:
  BufferPool(std::shared_ptr<Memory> memory, const Limits& limits);

  std::optional<Error> refusal(const BlockShape& shape) const;
  // Whether there is room, which is then taken. Under mutex_.
  bool charge(std::uint64_t bytes);
  // With room taken. Null: there is no memory, or no id; the room is still taken.
  Buffer make(const BlockShape& shape, int numa_node);
  void finish(Block& block) noexcept;
  void refund(std::uint64_t bytes) noexcept;
  void serve() noexcept;
  Waiter* next_to_serve();
  void put_first(Waiter& waiter);
  void put_last(Waiter& waiter);
  void unlink(Waiter& waiter);

  const std::shared_ptr<Memory> memory_;
  const Limits limits_;
  Registry registry_;

  mutable std::mutex mutex_;  // of what follows
  std::uint64_t used_ = 0;
  std::uint64_t returns_ = 0;  // how often memory came back
  Waiter* first_ = nullptr;
  Waiter* last_ = nullptr;
  std::size_t waiting_ = 0;
  bool serving_ = false;
  bool closed_ = false;
};

}  // namespace weir::buffer
