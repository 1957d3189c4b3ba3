// Gate: the way from other threads to one pool's post on one worker, and what stays of it when the post has gone.
#pragma once

#include <cstdint>
#include <forward_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/fork_guard.h"
#include "base/spsc_ring.h"
#include "base/sync.h"
#include "buffer/buffer_pool.h"
#include "buffer/landing.h"
#include "buffer/memory.h"
#include "engine/engine.h"
#include "link/receive_buffer.h"
#include "pool/call_record.h"
#include "pool/places.h"
#include "weir/canceller.h"
#include "weir/config.h"
#include "weir/event.h"
#include "worker/worker.h"

namespace weir::detail {
struct IncomingRecord;
}

namespace weir::pool {

using detail::IncomingRecord;
class CallRooms;
class Post;
class Waiting;
struct Refused;

// One thread's way through one gate: a ring per priority, made on first use, and the records of its calls. The thread
// pushes, the worker pops. When the thread has ended, another one may take the port over.
class Port : public std::enable_shared_from_this<Port> {
 public:
  static constexpr std::size_t kPriorities = 8;

  explicit Port(const std::shared_ptr<Gate>& gate);
  ~Port();

  // ---- the thread ----
  CallRecord* acquire() { return records_.acquire(); }
  // False if the ring is full. Not visible before publish().
  bool push(CallRecord* record);
  void publish();
  bool has_unpublished() const { return unpublished_ != 0; }
  std::size_t unpublished() const { return unpublished_; }
  // The thread ends, or has no further use for the port.
  void disown() { records_.disown(); }
  std::uint64_t gate_id() const { return gate_id_; }
  Gate& gate() { return *records_.shared(); }

  // ---- the worker ----
  template <class Take>
  std::size_t pop(std::size_t priority, std::size_t limit, Take&& take) {
    // Acquire: the ring was made by the other thread.
    SpscRing<CallRecord*>* ring = rings_[priority].load(std::memory_order_acquire);
    return ring == nullptr ? 0 : ring->pop_batch(limit, take);
  }

  sync::Atomic<bool> is_orphaned{false};  // its thread has ended

 private:
  SpscRing<CallRecord*>& ring(std::size_t priority);

  const std::uint64_t gate_id_;
  CallRecord::Pool records_;
  std::size_t unpublished_ = 0;
  std::uint32_t dirty_priorities_ = 0;
  sync::Atomic<SpscRing<CallRecord*>*> rings_[kPriorities] = {};
};

// One per post. Any thread may call it, except where it says otherwise.
class Gate : public std::enable_shared_from_this<Gate> {
 public:
  Gate(std::shared_ptr<worker::Worker> worker, const Limits& limits, std::shared_ptr<Subscriber> subscriber);

  std::uint64_t id() const { return id_; }
  worker::Worker& worker() { return *worker_; }
  const std::shared_ptr<worker::Worker>& shared_worker() const { return worker_; }
  const Limits& limits() const { return limits_; }
  bool is_mine() const { return worker_->is_mine(); }
  // This process is a fork of the one that opened the pool: nothing gets through, and no lock is waited for.
  bool is_in_child() const { return fork_guard_.is_in_child(); }
  // A record of a large message did not open.
  void tell_forged(const buffer::Landing& landing);
  // An exception left a handler: the subscriber is told. Returns what the caller is told, which lives as long as
  // `text`.
  std::string_view tell_thrown(std::string_view method, std::string_view text);
  // Relaxed: counts that publish nothing.
  std::uint64_t handlers_threw() const { return thrown_.load(std::memory_order_relaxed); }
  std::uint64_t forged() const { return forged_.load(std::memory_order_relaxed); }
  bool is_closed() const { return is_closed_.load(std::memory_order_acquire); }

  // The calling thread's port; null if the gate is closed.
  std::shared_ptr<Port> open_port(const std::shared_ptr<Gate>& self);
  // Work was put in place (in `port`, if not null). Also finds out that the post has gone meanwhile, and then refuses
  // that work here.
  void ring(Port* port) noexcept;

  // Asks the worker to do something with a record that the caller may not touch. Never blocks.
  void wish(CallRecord* record, std::uint8_t bit) noexcept;
  // For a record whose bits are set and which is not queued.
  void queue_wishes(CallRecord* record) noexcept;
  // Somebody waits for a call from now on: its stage says so, sequentially consistent.
  void tell_of_waiter() noexcept;
  // An answer from another thread, or a message that was opened there: the record carries it.
  void answer(IncomingRecord* record) noexcept;

  // A call that waited for others need not any more. Takes over one reference.
  void go_on(Waiting* waiting) noexcept;
  // A call whose continuation is attached is to be cancelled. Takes over one reference.
  void cancel(detail::CancellableCall* call) noexcept;

  // ---- the worker ----
  CallRecord* take_wishes() noexcept;
  Waiting* take_waiting() noexcept;
  detail::CancellableCall* take_cancelled() noexcept;
  IncomingRecord* take_answers() noexcept;
  bool have_ports_changed(std::uint32_t& seen) const {
    const std::uint32_t version = ports_version_.load(std::memory_order_acquire);
    if (version == seen) return false;
    seen = version;
    return true;
  }
  void copy_ports(std::vector<std::shared_ptr<Port>>& out);
  // From here on nothing gets through: what is on its way is refused, by the worker or by whoever pushed it.
  void close();

  // A peer's name for errors, for as long as there is the gate. As many as there are peers.
  const std::string* keep_name(std::string_view name);

  // Valid on the worker while the gate is open.
  Post* post = nullptr;
  const link::ReceiveBufferPool* buffers = nullptr;  // the same
  std::shared_ptr<buffer::BufferPool> payloads;      // where messages that are sent are sealed into; the pool's
  std::shared_ptr<buffer::Memory> arrivals;          // where large messages arrive; outlives the engine
  sync::Atomic<bool> rung{false};
  // Answers may be pending in other threads' hands when the post goes; they look at their transfers.
  std::shared_ptr<engine::Engine> engine;
  bool sends_exception_text = false;      // Config::send_exception_text
  Places places;                          // in the executor's queue
  std::shared_ptr<CallRooms> rooms;       // for calls of who asks before
  sync::Atomic<bool> is_draining{false};  // no new calls, except from handlers that still run
  // Large replies wait for memory, and those go first whose calls are awaited: who begins to wait for a call says so.
  sync::Atomic<bool> replies_wait{false};
  sync::Atomic<bool> has_new_waiter{false};

 private:
  // Under the mutex. What is left to do once it is free may be anything, also come back here.
  void refuse(Port& port, Refused& refused) noexcept;
  void refuse_wishes_and_answers(Refused& refused) noexcept;

  const std::uint64_t id_;
  const ForkGuard fork_guard_;
  const std::shared_ptr<worker::Worker> worker_;
  const Limits limits_;
  sync::Atomic<bool> is_closed_{false};
  const std::shared_ptr<Subscriber> subscriber_;
  sync::Atomic<std::uint64_t> forged_{0};
  sync::Atomic<std::uint64_t> thrown_{0};
  sync::Atomic<CallRecord*> wishes_{nullptr};
  sync::Atomic<IncomingRecord*> answers_{nullptr};
  sync::Atomic<Waiting*> waiting_{nullptr};
  sync::Atomic<detail::CancellableCall*> cancelled_{nullptr};
  sync::Mutex mutex_;
  bool worker_has_gone_ = false;
  std::vector<std::shared_ptr<Port>> ports_;
  std::forward_list<std::string> names_;
  sync::Atomic<std::uint32_t> ports_version_{0};
};

}  // namespace weir::pool
