#include "pool/call_rooms.h"

#include <mutex>
#include <optional>
#include <utility>

namespace weir::pool {

// Nobody overtakes those of its own priority, or of a more urgent one.
bool CallRooms::take(unsigned priority) {
  if (is_closed_ || out_ >= share_of(priority)) return false;
  for (unsigned level = 0; level <= priority; ++level) {
    if (lists_[level].first != nullptr) return false;
  }
  ++out_;
  return true;
}

std::optional<CallRoom> CallRooms::try_enter(unsigned priority) {
  std::lock_guard lock(mutex_);
  if (!take(priority)) return std::nullopt;
  return CallRoom(shared_from_this());
}

std::optional<Result<CallRoom>> CallRooms::enter(unsigned priority, Waiter& waiter) {
  std::lock_guard lock(mutex_);
  if (is_closed_) return std::unexpected(closed());
  if (take(priority)) return CallRoom(shared_from_this());
  if (waiting_ == kMostWaiting) {
    return std::unexpected(Error(Code::overloaded, "too many wait for room for their calls already"));
  }
  ++waiting_;
  List& list = lists_[priority];
  waiter.priority_ = static_cast<std::uint8_t>(priority);
  waiter.waits_ = true;
  waiter.next_ = nullptr;
  waiter.previous_ = list.last;
  (list.last != nullptr ? list.last->next_ : list.first) = &waiter;
  list.last = &waiter;
  return std::nullopt;
}

void CallRooms::unlink(Waiter& waiter) {
  List& list = lists_[waiter.priority_];
  (waiter.previous_ != nullptr ? waiter.previous_->next_ : list.first) = waiter.next_;
  (waiter.next_ != nullptr ? waiter.next_->previous_ : list.last) = waiter.previous_;
  waiter.waits_ = false;
  --waiting_;
}

bool CallRooms::cancel(Waiter& waiter) {
  std::lock_guard lock(mutex_);
  if (!waiter.waits_) return false;
  unlink(waiter);
  return true;
}

// Only the most urgent of those who wait may be let in: there is room for none below if there is none for that one.
CallRooms::Waiter* CallRooms::take_next() {
  for (unsigned level = 0; level < lists_.size(); ++level) {
    Waiter* const first = lists_[level].first;
    if (first == nullptr) continue;
    if (out_ >= share_of(level)) return nullptr;
    unlink(*first);
    ++out_;
    return first;
  }
  return nullptr;
}

void CallRooms::give_back() noexcept {
  if (fork_guard_.is_in_child()) return;
  Waiter* next = nullptr;
  {
    std::lock_guard lock(mutex_);
    --out_;
    next = take_next();
  }
  if (next != nullptr) next->on_room(CallRoom(shared_from_this()));
}

void CallRooms::close() noexcept {
  for (;;) {
    Waiter* told = nullptr;
    {
      std::lock_guard lock(mutex_);
      is_closed_ = true;
      for (List& list : lists_) {
        if ((told = list.first) != nullptr) break;
      }
      if (told == nullptr) return;
      unlink(*told);
    }
    told->on_room(std::unexpected(closed()));
  }
}

std::size_t CallRooms::out() const {
  std::lock_guard lock(mutex_);
  return out_;
}

std::size_t CallRooms::waiting() const {
  std::lock_guard lock(mutex_);
  return waiting_;
}

}  // namespace weir::pool
