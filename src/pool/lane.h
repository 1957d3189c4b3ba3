// Lane: what one thread awaits, and how it is woken for it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/fork_guard.h"
#include "base/time.h"
#include "pool/call_record.h"
#include "pool/gate.h"
#include "transfer/block_pool.h"
#include "worker/sync.h"
#include "worker/worker.h"

namespace weir::pool {

// One per thread, made when it first needs one, serving all pools. deliver() and nudge() are for workers, everything
// else for the thread. The thread that goes on in a forked child gets another one there: nothing that the old one
// awaits will come.
class Lane : public std::enable_shared_from_this<Lane> {
 public:
  static constexpr std::size_t kPublishBatch = 16;  // submissions of one drive() that may wait for each other

  // Something else than a call that the lane's thread waits for.
  struct Guest {
    Guest* link = nullptr;
    bool is_for_thread = false;  // it blocks, and looks for itself; otherwise a coroutine is resumed
    // On the lane's thread. The guest may go in there.
    virtual void arrive() = 0;

   protected:
    ~Guest() = default;
  };

  Lane() = default;
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // This thread's lane.
  static Lane& mine();
  static Lane* mine_if_any();

  // ---- workers ----
  // Hands over a chain of completed records, newest to oldest, and wakes the thread if it sleeps. The caller owns a
  // reference to the lane: the thread may take the records and end before deliver() returns.
  static void deliver(const std::shared_ptr<Lane>& to, CallRecord* newest, CallRecord* oldest) noexcept;
  // The same for a guest; any thread. By value: the guest may be destroyed, with its own reference, before deliver()
  // returns.
  static void deliver(std::shared_ptr<Lane> to, Guest* guest) noexcept;
  // Wakes the thread out of its sleep, in whichever loop that is.
  void nudge() noexcept;

  // ---- the thread ----
  // This thread's port through a gate; null if the gate is closed.
  Port* port_to(const std::shared_ptr<Gate>& gate);
  // Puts a record into its port. Waits while the ring is full, where waiting can help.
  void submit(Port& port, CallRecord* record);
  // Whether drive() would find anybody. Relaxed: who delivers wakes the thread.
  bool has_arrivals() const {
    return arrived_.load(std::memory_order_relaxed) != nullptr || guests_.load(std::memory_order_relaxed) != nullptr ||
           backlog_ != nullptr || guest_backlog_ != nullptr;
  }
  // Resumes whoever waits for what has arrived. True if there was anybody.
  bool drive();
  // The same inside of a loop's turn, unless this thread is in wait_until(), which drives outside of the turn: what it
  // resumes there may block.
  bool drive_in_turn() { return waits_ == 0 && drive(); }
  // Publishes what was submitted.
  void publish();
  // Drives this lane, and the loops without a thread that this thread turns, until `is_done` returns true or at most
  // for `at_most`.
  // With `Others::stay`, nobody is resumed but threads in get(): what a coroutine that blocks would otherwise pile up
  // on its own stack stays where it is.
  enum class Others : std::uint8_t { are_resumed, stay };
  void wait_until(const std::function<bool()>& is_done, Duration at_most = Duration::max(),
                  Others others = Others::are_resumed);
  // Whether a coroutine, started or resumed by this lane, is running on this thread.
  bool is_inside_a_coroutine() const { return batches_ != 0; }
  // This thread turns that loop: its wait_until() does.
  void adopt(const std::shared_ptr<worker::Worker>& loop);
  // The same until wait_until() ends. False if another thread has the loop.
  bool borrow(const std::shared_ptr<worker::Worker>& loop);
  void give_back_if_idle() {
    if (waits_ == 0) give_back_loops();
  }
  // Something that this thread awaits comes from a loop without a thread: if its owner ends, wait_until() borrows it.
  void watch(const std::shared_ptr<worker::Worker>& loop);

  // Submissions made while one of these lives are published together at its end, or kPublishBatch at a time.
  class Batch {
   public:
    explicit Batch(Lane& lane) : lane_(lane) { ++lane_.batches_; }
    Batch(const Batch&) = delete;
    Batch& operator=(const Batch&) = delete;
    ~Batch() {
      if (--lane_.batches_ == 0) lane_.publish();
    }

   private:
    Lane& lane_;
  };

  // This thread sleeps in a loop: what arrives rings there. Null: it sleeps by itself.
  void listen_at(const std::shared_ptr<worker::Doorbell>& bell);

  transfer::BlockPool& blocks() { return blocks_; }
  std::size_t awaited = 0;  // records claimed for this lane and not arrived yet
  sync::Atomic<bool> is_orphaned{false};

 private:
  friend struct LaneHolder;
  bool collect();
  void wake() noexcept;
  void ring_bell() noexcept;
  bool collect_guests();
  bool drive_guests();
  void mind_loops();
  void give_back_loops();
  void forget_lost_loops();
  bool turn_loops();
  void rest(Instant idle_since, Duration at_most);
  void sleep(Duration at_most);
  void leave();

  const ForkGuard fork_guard_;
  sync::Atomic<CallRecord*> arrived_{nullptr};
  sync::Atomic<Guest*> guests_{nullptr};
  sync::Atomic<bool> is_sleeping_{false};
  sync::Mutex mutex_;
  sync::ConditionVariable woken_;
  bool is_nudged_ = false;

  CallRecord* backlog_ = nullptr;  // arrived, not yet resumed; a member so that a nested drive() goes on with it
  CallRecord* backlog_last_ = nullptr;
  Guest* guest_backlog_ = nullptr;
  Guest* guest_backlog_last_ = nullptr;
  std::uint32_t batches_ = 0;
  std::uint32_t waits_ = 0;  // wait_until()s that this thread is inside of
  std::vector<std::shared_ptr<Port>> ports_;
  std::vector<Port*> dirty_;
  std::vector<std::shared_ptr<worker::Worker>> loops_;
  std::vector<std::shared_ptr<worker::Worker>> watched_;  // loops of other threads that something awaited comes from
  sync::Atomic<bool> has_bell_{false};
  std::shared_ptr<worker::Doorbell> bell_;  // under mutex_: a worker may be about to ring it
  transfer::BlockPool blocks_;
  std::shared_ptr<Lane> self_;  // set if the thread ends while something is on its way to it
};

}  // namespace weir::pool
