#include "token/grant_ledger.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace weir::token {
namespace {

constexpr std::uint8_t bit(unsigned at) { return static_cast<std::uint8_t>(1u << at); }

// Virtual times wrap around after years of service.
bool before(std::uint64_t a, std::uint64_t b) { return static_cast<std::int64_t>(a - b) < 0; }

// Bytes as the weights see them: the weight of a level is 128 >> level.
std::uint64_t weighted(const Ask& ask) { return ask.bytes << ask.priority; }

}  // namespace

GrantLedger::GrantLedger(const Options& options) : by_member_(options.by_member) {
  for (std::size_t i = 0; i < kPurses; ++i) {
    Bound& bound = purses_[i].bound;
    bound = i == kAwaitedPurse ? options.awaited
            : i == kReplyPurse ? options.replies
            : i == 0           ? options.requests
                               : options.nested;
    bound.total = std::min(bound.total, kLargestTotal);
    bound.per_sender = std::min(bound.per_sender, bound.total);
  }
}

void GrantLedger::open(SenderAccount& account) {
  WEIR_CHECK(!account.open && account.lines == nullptr, "an account is opened once");
  account = {};
  for (SenderTurn& turn : account.turns) turn.account = &account;
  account.open = true;
  ++accounts_;
}

void GrantLedger::close(SenderAccount& account) {
  WEIR_CHECK(account.open, "an account is closed once");
  // Lines go from their ends, so that nobody steps forward in between.
  while (account.lines != nullptr) withdraw(*account.lines->last);
  for (std::size_t i = 0; i < kPurses; ++i) {
    purses_[i].reserved -= account.bytes[i];
    purses_[i].closed += account.bytes[i];
  }
  account = {};
  --accounts_;
}

// ---- lines and rings ----

Ask* GrantLedger::line_of(const SenderAccount& account, std::uint8_t purse, std::uint8_t priority) {
  for (Ask* line = account.lines; line != nullptr; line = line->next_line) {
    if (line->purse == purse && line->priority == priority) return line;
  }
  return nullptr;
}

Ask* GrantLedger::leader_of(const SenderAccount& account, std::uint8_t purse) {
  if ((account.led & bit(purse)) == 0) return nullptr;
  for (Ask* line = account.lines; line != nullptr; line = line->next_line) {
    if (line->purse == purse && line->leads) return line;
  }
  WEIR_CHECK(false, "an account that is led has a leader");
  return nullptr;
}

void GrantLedger::enter_ring(Purse& purse, Ask& first) {
  Ring& ring = purse.rings[first.priority];
  if (ring.first == nullptr) {
    purse.occupied |= 1u << first.priority;
    std::uint64_t& time = purse.time[first.priority];
    if (before(time, purse.service_time)) time = purse.service_time;
  }
  first.place = Ask::Place::in_ring;
  SenderTurn& turn = first.account->turns[first.purse];
  if (turn.lines++ == 0) purse.turns.push(turn);
  first.ring_next = nullptr;
  first.ring_previous = ring.last;
  (ring.last != nullptr ? ring.last->ring_next : ring.first) = &first;
  ring.last = &first;
}

void GrantLedger::leave_ring(Purse& purse, Ask& first) {
  Ring& ring = purse.rings[first.priority];
  (first.ring_previous != nullptr ? first.ring_previous->ring_next : ring.first) = first.ring_next;
  (first.ring_next != nullptr ? first.ring_next->ring_previous : ring.last) = first.ring_previous;
  first.ring_next = first.ring_previous = nullptr;
  if (ring.first == nullptr) purse.occupied &= ~(1u << first.priority);
  if (purse.turn == &first) purse.turn = nullptr;
  SenderTurn& turn = first.account->turns[first.purse];
  if (--turn.lines == 0) purse.turns.remove(turn);
}

// The second of a line stands for it from now on, in the same places.
void GrantLedger::replace_first(Purse& purse, Ask& first, Ask& second) {
  second.previous = nullptr;
  second.last = first.last;
  second.place = first.place;
  second.next_line = first.next_line;
  second.previous_line = first.previous_line;
  (second.previous_line != nullptr ? second.previous_line->next_line : first.account->lines) = &second;
  if (second.next_line != nullptr) second.next_line->previous_line = &second;
  if (first.place != Ask::Place::in_ring) return;
  Ring& ring = purse.rings[first.priority];
  second.ring_next = first.ring_next;
  second.ring_previous = first.ring_previous;
  (second.ring_previous != nullptr ? second.ring_previous->ring_next : ring.first) = &second;
  (second.ring_next != nullptr ? second.ring_next->ring_previous : ring.last) = &second;
  if (purse.turn == &first) purse.turn = nullptr;
}

void GrantLedger::unlink_line(Ask& first) {
  (first.previous_line != nullptr ? first.previous_line->next_line : first.account->lines) = first.next_line;
  if (first.next_line != nullptr) first.next_line->previous_line = first.previous_line;
}

// Takes an ask out of wherever it waits. The caller settles its account.
void GrantLedger::remove(Purse& purse, Ask& ask) {
  if (ask.place == Ask::Place::in_line) {
    ask.previous->next = ask.next;
    if (ask.next != nullptr) {
      ask.next->previous = ask.previous;
    } else {
      line_of(*ask.account, ask.purse, ask.priority)->last = ask.previous;
    }
  } else if (ask.next != nullptr) {
    replace_first(purse, ask, *ask.next);
  } else {
    if (ask.place == Ask::Place::in_ring) leave_ring(purse, ask);
    unlink_line(ask);
  }
  if (ask.leads) ask.account->led &= static_cast<std::uint8_t>(~bit(ask.purse));
  ask.leads = false;
  ask.place = Ask::Place::nowhere;
  ask.next = ask.previous = ask.last = ask.next_line = ask.previous_line = ask.ring_next = ask.ring_previous = nullptr;
  --purse.waiting;
  purse.waiting_bytes -= ask.bytes;
}

// ---- asking ----

void GrantLedger::ask(Ask& ask) {
  WEIR_CHECK(ask.account != nullptr && ask.account->open && !ask.is_waiting(), "an ask of an open account waits once");
  WEIR_CHECK(ask.purse < kPurses && ask.priority < kGrantPriorities && can_ever(ask.purse, ask.bytes),
             "an ask that can never be granted must be refused: see can_ever()");
  Purse& purse = purse_of(ask);
  ask.ticket = next_ticket_++;
  ask.overtaken = 0;
  ++purse.waiting;
  purse.waiting_bytes += ask.bytes;
  if (Ask* const first = line_of(*ask.account, ask.purse, ask.priority)) {
    ask.place = Ask::Place::in_line;
    ask.previous = first->last;
    first->last->next = &ask;
    first->last = &ask;
    return;  // nothing can be granted that could not be before
  }
  ask.last = &ask;
  ask.next_line = ask.account->lines;
  if (ask.next_line != nullptr) ask.next_line->previous_line = &ask;
  ask.account->lines = &ask;
  enter_ring(purse, ask);
  ready_ |= bit(ask.purse);
}

void GrantLedger::withdraw(Ask& ask) {
  if (!ask.is_waiting()) return;
  Purse& purse = purse_of(ask);
  const bool was_first = ask.place != Ask::Place::in_line;
  remove(purse, ask);
  if (!was_first) return;
  settle(*ask.account, ask.purse);
  ready_ |= bit(ask.purse);
}

// ---- a sender's own bound ----

bool GrantLedger::sender_has_room(const Ask& ask) const {
  return ask.bytes <= purses_[ask.purse].bound.per_sender - ask.account->bytes[ask.purse];
}

bool GrantLedger::sender_allows(const Ask& ask) const {
  if (!sender_has_room(ask)) return false;
  const Ask* const leader = leader_of(*ask.account, ask.purse);
  return leader == nullptr || leader == &ask ||
         (ask.priority < leader->priority && leader->overtaken < weighted(*leader));
}

void GrantLedger::set_aside(Purse& purse, Ask& first) {
  leave_ring(purse, first);
  first.place = Ask::Place::set_aside;
  if ((first.account->led & bit(first.purse)) != 0) return;
  first.account->led |= bit(first.purse);
  first.leads = true;
  first.overtaken = 0;
}

// Something has changed for a sender: whoever has waited longest leads, if nobody does and it has no room, and lines
// that may go on do. Bounded by the number of lines that a sender can have.
void GrantLedger::settle(SenderAccount& account, std::uint8_t index) {
  Purse& purse = purses_[index];
  if ((account.led & bit(index)) == 0) {
    Ask* oldest = nullptr;
    for (Ask* line = account.lines; line != nullptr; line = line->next_line) {
      if (line->purse != index || line->place != Ask::Place::set_aside) continue;
      if (oldest == nullptr || line->ticket < oldest->ticket) oldest = line;
    }
    if (oldest == nullptr) return;
    if (!sender_has_room(*oldest)) {
      account.led |= bit(index);
      oldest->leads = true;
      oldest->overtaken = 0;
    }
  }
  for (Ask* line = account.lines; line != nullptr; line = line->next_line) {
    if (line->purse != index || line->place != Ask::Place::set_aside || !sender_allows(*line)) continue;
    enter_ring(purse, *line);
    ready_ |= bit(index);
  }
}

// ---- granting ----

Ask* GrantLedger::furthest_behind(const Purse& purse, std::uint32_t levels) {
  if (levels == 0) return nullptr;
  auto best = static_cast<unsigned>(std::countr_zero(levels));
  for (levels &= levels - 1; levels != 0; levels &= levels - 1) {
    const auto level = static_cast<unsigned>(std::countr_zero(levels));
    if (before(purse.time[level], purse.time[best])) best = level;
  }
  return purse.rings[best].first;
}

// The first of a level whose sender may have more. Those before it are set aside: each has come in once for that.
Ask* GrantLedger::first_allowed(Purse& purse, unsigned priority) {
  Ask* first = purse.rings[priority].first;
  while (first != nullptr && !sender_allows(*first)) {
    set_aside(purse, *first);
    first = purse.rings[priority].first;
  }
  return first;
}

Ask* GrantLedger::pick(Purse& purse) {
  if (purse.turn != nullptr) {
    // What it waited for, others of its sender may have had meanwhile.
    if (!sender_allows(*purse.turn)) {
      set_aside(purse, *purse.turn);
    } else if (purse.fits(*purse.turn)) {
      return purse.turn;
    }
  }
  std::uint32_t levels = purse.occupied;
  if (purse.turn != nullptr) levels &= (1u << purse.turn->priority) - 1;
  while (Ask* ask = furthest_behind(purse, levels)) {
    const unsigned level = ask->priority;
    if (purse.turn != nullptr && !before(purse.time[level], purse.turn_finish)) return nullptr;
    ask = first_allowed(purse, level);
    if (ask == nullptr) {
      levels &= ~(1u << level);
      continue;
    }
    if (purse.fits(*ask)) return ask;
    if (purse.turn == nullptr) {
      purse.turn = ask;
      purse.turn_finish = purse.time[level] + weighted(*ask);
    }
    levels &= (1u << level) - 1;
  }
  return nullptr;
}

// The sender that was given least, with the most urgent of what it asks for. Nobody goes ahead of it.
Ask* GrantLedger::pick_by_turn(Purse& purse) {
  while (const SenderTurn* const turn = purse.turns.front()) {
    Ask* urgent = nullptr;
    for (Ask* line = turn->account->lines; line != nullptr; line = line->next_line) {
      if (line->place != Ask::Place::in_ring || &purse_of(*line) != &purse) continue;
      if (urgent == nullptr || line->priority < urgent->priority) urgent = line;
    }
    if (sender_allows(*urgent)) return purse.fits(*urgent) ? urgent : nullptr;
    set_aside(purse, *urgent);
  }
  return nullptr;
}

void GrantLedger::reserve(Purse& purse, SenderAccount& account, std::uint8_t index, std::uint64_t bytes) {
  account.bytes[index] += bytes;
  purse.reserved += bytes;
  WEIR_CHECK(purse.used() <= purse.bound.total && account.bytes[index] <= purse.bound.per_sender,
             "the ledger reserves no more than its bounds");
}

void GrantLedger::grant(Purse& purse, Ask& ask, bool by_turn) {
  SenderAccount& account = *ask.account;
  if (!by_turn) {
    std::uint64_t& time = purse.time[ask.priority];
    if (before(purse.service_time, time)) purse.service_time = time;
    time += weighted(ask);
  }
  purse.halves.charge(by_turn, ask.bytes);
  reserve(purse, account, ask.purse, ask.bytes);

  Ask* const leader = leader_of(account, ask.purse);
  if (leader != nullptr && leader != &ask) leader->overtaken += weighted(ask);
  Ask* const second = ask.next;
  remove(purse, ask);
  if (second != nullptr && second->ring_next != nullptr) {  // the next sender's turn
    leave_ring(purse, *second);
    enter_ring(purse, *second);
  }
  if (by_turn) {
    SenderTurn& turn = account.turns[ask.purse];
    if (turn.lines != 0) purse.turns.remove(turn);
    purse.turns.charge(turn, ask.bytes);
    if (turn.lines != 0) purse.turns.push(turn);
  }
  if (leader == &ask) settle(account, ask.purse);
}

Ask* GrantLedger::next() {
  while (ready_ != 0) {
    while ((ready_ & bit(next_purse_)) == 0) next_purse_ = static_cast<std::uint8_t>((next_purse_ + 1) % kPurses);
    Purse& purse = purses_[next_purse_];
    const bool by_turn = by_member_ && purse.halves.is_turn();
    Ask* const ask = by_turn ? pick_by_turn(purse) : pick(purse);
    if (ask == nullptr) {
      ready_ &= static_cast<std::uint8_t>(~bit(next_purse_));
      continue;
    }
    grant(purse, *ask, by_turn);
    next_purse_ = static_cast<std::uint8_t>((next_purse_ + 1) % kPurses);
    return ask;
  }
  return nullptr;
}

void GrantLedger::release(SenderAccount& account, std::uint8_t index, std::uint64_t bytes) {
  Purse& purse = purses_[index];
  WEIR_CHECK(account.open && account.bytes[index] >= bytes && purse.reserved >= bytes,
             "more was released than the sender has; after close() it is release_closed()");
  account.bytes[index] -= bytes;
  purse.reserved -= bytes;
  settle(account, index);
  ready_ |= bit(index);
}

void GrantLedger::release_closed(std::uint8_t index, std::uint64_t bytes) {
  Purse& purse = purses_[index];
  WEIR_CHECK(purse.closed >= bytes, "more was released than senders left behind");
  purse.closed -= bytes;
  ready_ |= bit(index);
}

// ---- ahead of need ----

bool GrantLedger::may_speculate(const SenderAccount& account, std::uint8_t index, std::uint64_t bytes) const {
  const Purse& purse = purses_[index];
  return account.open && purse.waiting == 0 && account.speculative < kMaxSpeculative && can_ever(index, bytes) &&
         purse.used() + bytes <= purse.bound.total / kSpeculativePartOfPurse &&
         account.bytes[index] + bytes <= purse.bound.per_sender / kSpeculativePartOfSender;
}

void GrantLedger::speculate(SenderAccount& account, std::uint8_t index, std::uint64_t bytes) {
  WEIR_CHECK(may_speculate(account, index, bytes),
             "memory is given ahead of need only where may_speculate() allows it");
  reserve(purses_[index], account, index, bytes);
  ++account.speculative;
}

void GrantLedger::end_speculation(SenderAccount& account) {
  WEIR_CHECK(account.speculative > 0, "no region of this sender was granted ahead of need");
  --account.speculative;
}

Duration GrantLedger::hint(const Ask& ask) const {
  const Purse& purse = purses_[ask.purse];
  const std::uint64_t free_bytes = purse.bound.total - purse.used();
  const std::uint64_t wanted = purse.waiting_bytes + (ask.is_waiting() ? 0 : ask.bytes);
  const std::uint64_t missing = wanted > free_bytes ? wanted - free_bytes : 0;
  // Clamped before it is made a Duration: many large asks are more than that can hold.
  const std::uint64_t longest = static_cast<std::uint64_t>(kLongestHint / std::chrono::microseconds(1));
  const std::uint64_t us = std::min(missing / kHintBytesPerMicrosecond, longest);
  return std::clamp<Duration>(std::chrono::microseconds(us), kShortestHint, kLongestHint);
}

void GrantLedger::verify(const SenderAccount* const* accounts, std::size_t count) const {
  std::array<std::uint64_t, kPurses> reserved{}, waiting{}, waiting_bytes{};
  for (std::size_t i = 0; i < count; ++i) {
    const SenderAccount& account = *accounts[i];
    std::array<unsigned, kPurses> leaders{};
    for (std::size_t at = 0; at < kPurses; ++at) reserved[at] += account.bytes[at];
    for (const Ask* line = account.lines; line != nullptr; line = line->next_line) {
      WEIR_CHECK(line->place == Ask::Place::in_ring || line->place == Ask::Place::set_aside, "a line stands somewhere");
      leaders[line->purse] += line->leads ? 1 : 0;
      const Ask* last = nullptr;
      for (const Ask* ask = line; ask != nullptr; last = ask, ask = ask->next) {
        WEIR_CHECK(ask->account == &account && ask->purse == line->purse && ask->priority == line->priority &&
                       ask->previous == last && (ask == line || ask->place == Ask::Place::in_line),
                   "a line is of one sender, purse and priority");
        ++waiting[ask->purse];
        waiting_bytes[ask->purse] += ask->bytes;
      }
      WEIR_CHECK(line->last == last, "a line knows its last");
    }
    for (std::size_t at = 0; at < kPurses; ++at) {
      const bool led = (account.led & bit(static_cast<unsigned>(at))) != 0;
      WEIR_CHECK(leaders[at] == (led ? 1u : 0u), "a sender has one leader in a purse, or none");
    }
  }
  for (std::size_t at = 0; at < kPurses; ++at) {
    const Purse& purse = purses_[at];
    WEIR_CHECK(reserved[at] == purse.reserved && waiting[at] == purse.waiting &&
                   waiting_bytes[at] == purse.waiting_bytes && purse.used() <= purse.bound.total,
               "the sums of the accounts are those of the purse");
    WEIR_CHECK(purse.turn == nullptr || purse.rings[purse.turn->priority].first == purse.turn,
               "who has the turn is the first of its ring");
  }
}

}  // namespace weir::token
