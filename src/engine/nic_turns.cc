#include "engine/nic_turns.h"

#include <bit>

#include "engine/core.h"

namespace weir::engine {

void NicTurns::wait(std::uint32_t path, std::uint32_t index, unsigned level) {
  if (places_.size() <= index) places_.resize(index + 1, kNotWaiting);
  Waiter* waiter = nullptr;
  if (places_[index] == kNotWaiting) {
    waiter = waiters_.acquire();
    waiter->path = path;
    waiter->index = index;
    places_[index] = waiters_.index_of(waiter);
  } else {
    waiter = waiters_.at(places_[index]);
    waiter->bytes = refused_bytes_;
    if (waiter->hook.level <= level) return;
    line_.remove(*waiter);
  }
  waiter->bytes = refused_bytes_;
  line_.push_back(*waiter, level);
}

void NicTurns::stop_waiting(std::uint32_t index) {
  if (!is_waiting(index)) return;
  Waiter* const waiter = waiters_.at(places_[index]);
  line_.remove(*waiter);
  waiters_.release(waiter);
  places_[index] = kNotWaiting;
}

bool NicTurns::give_turn(Instant now) {
  settle(0, now_);  // of a path that has ended itself
  const Waiter& first = *line_.front();
  if (!sender_.claim(sender_.nic().train(first.bytes + header_bytes(false), kLongestTrain), now)) return false;
  now_ = now;
  path_ = may_go_ = first.path;
  level_ = first.hook.level;
  stop_waiting(first.index);
  return true;
}

// ---- what the core does with it ----

void Core::end_nic_turn(Path& path, Instant now) {
  nic->end(events.counters, now);
  if (!nic->is_held()) return;
  const unsigned levels = waiting_levels(path) | slice_levels(path);
  // Probes and control frames go first: they are small, and others wait for them. A search for the MTU can wait.
  unsigned level = 0;
  if (levels != 0 && path.probes_owed == 0) {
    level = static_cast<unsigned>(std::countr_zero(levels));
  } else if (!has_something(path) && !has_slices(path)) {
    level = schedule::kPriorityLevels - 1;
  }
  nic->wait(path.id, path_numbers.index_of(path.id), level);
}

// Turns for the paths that wait, as long as the NIC has room: a train for each.
void Core::serve_nic_line(std::vector<Train>& out, Instant now) {
  nic->is_due = false;
  bool has_room = true;
  for (std::size_t i = nic->size(); i != 0 && nic->size() != 0 && has_arena(); --i) {
    Path& path = *find_path(nic->front());
    has_room = nic->give_turn(now);
    if (!has_room) break;
    if (has_ended(path, now)) [[unlikely]]
      continue;
    // It had its turn on the link that it shares with others before it waited here.
    const SharedLink& link = links.of(path.link);
    if (link.may_send(now)) begin_turn(path, !link.line.empty());
    if (link.may_ask(now)) asks_now = path.id;
    send_from(path, out, now);
    turn_of = asks_now = kNoPath;
  }
  nic->finish();
  nic->count_wait(events.counters, now);
  if (nic->size() == 0) return wheel.cancel(nic->timer);
  wheel.arm(nic->timer, has_room ? now : nic->retry_at());
}

}  // namespace weir::engine
