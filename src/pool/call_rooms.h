// CallRooms: room for calls through one gate, and those who wait for some.
//
// Who asks is served by priority, the most urgent first, and first come, first served at one priority. The least urgent
// wait first: the less urgent a priority is, the sooner there is no more room for it, so that more urgent calls find
// some when many less urgent ones are made.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/fork_guard.h"
#include "schedule/priority_queue.h"
#include "weir/error.h"
#include "weir/room.h"
#include "worker/sync.h"

namespace weir::pool {

// Shared: rooms keep it for as long as they are out. Any thread.
class CallRooms : public std::enable_shared_from_this<CallRooms> {
 public:
  static constexpr std::size_t kMostWaiting = 65'536;  // more are refused

  // Embedded by whoever waits.
  class Waiter {
   public:
    // Once, without a lock held, by the thread that made room (or closed the pool). It may do anything, also destroy
    // the waiter.
    virtual void on_room(Result<CallRoom> room) noexcept = 0;

   protected:
    Waiter() = default;
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;
    virtual ~Waiter() = default;

   private:
    friend class CallRooms;
    Waiter* next_ = nullptr;
    Waiter* previous_ = nullptr;
    std::uint8_t priority_ = 0;
    bool waits_ = false;
  };

  explicit CallRooms(std::size_t capacity) : capacity_(capacity) {}

  // How many calls of all priorities may be outstanding for one of this priority to be let in: all for the most urgent,
  // a sixteenth less for each level below.
  std::size_t share_of(unsigned priority) const {
    const std::size_t kept = capacity_ / kShareParts * priority;
    return capacity_ - kept;
  }

  // Empty: there is none now, or others have been waiting for it.
  [[nodiscard]] std::optional<CallRoom> try_enter(unsigned priority);
  // Empty: it waits, and `waiter` is told, perhaps before this returns. Otherwise the result, and `waiter` is not used.
  [[nodiscard]] std::optional<Result<CallRoom>> enter(unsigned priority, Waiter& waiter);
  // True: it waits no more and is not told. False: it was told, or is just being told.
  bool cancel(Waiter& waiter);
  void give_back() noexcept;
  // Tells all who wait, and refuses who comes.
  void close() noexcept;

  std::size_t out() const;
  std::size_t waiting() const;

 private:
  static constexpr std::size_t kShareParts = 16;
  struct List {
    Waiter* first = nullptr;
    Waiter* last = nullptr;
  };
  // Under mutex_.
  bool take(unsigned priority);
  Waiter* take_next();  // its room is taken
  void unlink(Waiter& waiter);
  static Error closed() { return {Code::closed, "the pool is closed"}; }

  const ForkGuard fork_guard_;  // a forked child gives nothing back
  const std::size_t capacity_;
  mutable sync::Mutex mutex_;  // of what follows
  std::size_t out_ = 0;
  std::size_t waiting_ = 0;
  bool is_closed_ = false;
  std::array<List, schedule::kPriorityLevels> lists_;
};

}  // namespace weir::pool
