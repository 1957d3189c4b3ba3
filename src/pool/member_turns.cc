#include "pool/member_turns.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "engine/members.h"

namespace weir::pool {
namespace {

// Virtual times of levels wrap around after years of service.
bool is_before(std::uint64_t a, std::uint64_t b) { return static_cast<std::int64_t>(a - b) < 0; }

}  // namespace

// ---- members -------------------------------------------------------------------------------------------------------

MemberTurns::Member& MemberTurns::find(std::uint64_t number) {
  if (last_found_ != nullptr && last_found_->number == number) [[likely]]
    return *last_found_;
  const auto found = members_.find(number);
  last_found_ = found != members_.end() ? &found->second : &add(number);
  return *last_found_;
}

MemberTurns::Member& MemberTurns::add(std::uint64_t number) {
  Member* added = nullptr;
  if (idle_ < kKeptIdle) {
    added = &members_.try_emplace(number).first->second;
  } else {
    auto node = members_.extract(oldest_idle_->number);
    Member& forgotten = node.mapped();
    oldest_idle_ = forgotten.newer_idle;
    (oldest_idle_ != nullptr ? oldest_idle_->older_idle : newest_idle_) = nullptr;
    --idle_;
    node.key() = number;
    added = &members_.insert(std::move(node)).position->second;
    *added = Member{};
  }
  added->number = number;
  settle(*added);
  return *added;
}

// After its requests or handlers have become fewer, or more: whether it is one of the idle ones.
void MemberTurns::settle(Member& member) {
  const bool is_idle = member.queued == 0 && member.running == 0;
  if (is_idle == member.is_idle) return;
  member.is_idle = is_idle;
  if (is_idle) {
    member.newer_idle = nullptr;
    member.older_idle = newest_idle_;
    (newest_idle_ != nullptr ? newest_idle_->newer_idle : oldest_idle_) = &member;
    newest_idle_ = &member;
    ++idle_;
  } else {
    (member.newer_idle != nullptr ? member.newer_idle->older_idle : newest_idle_) = member.older_idle;
    (member.older_idle != nullptr ? member.older_idle->newer_idle : oldest_idle_) = member.newer_idle;
    --idle_;
  }
}

bool MemberTurns::may_run(const Member& member) const {
  return member.running < options_.most_running || (member.number & engine::kCertificateBit) == 0;
}

// ---- who is ready --------------------------------------------------------------------------------------------------

void MemberTurns::enter(Member& member) {
  for (std::uint32_t left = member.occupied; left != 0; left &= left - 1) {
    enter_ring(member, static_cast<unsigned>(std::countr_zero(left)));
  }
  by_used_.update(member, std::max(member.deadline, service_used_ - Duration(1)));  // before its equals
  ready_ += member.queued;
}

void MemberTurns::leave(Member& member) {
  for (std::uint32_t left = member.occupied; left != 0; left &= left - 1) {
    leave_ring(member, static_cast<unsigned>(std::countr_zero(left)));
  }
  by_used_.remove(member);
  ready_ -= member.queued;
}

// As the last one of the ring.
void MemberTurns::enter_ring(Member& member, unsigned level) {
  Line& line = member.lines[level];
  Member*& first = rings_[level];
  if (first == nullptr) {
    first = line.next = line.previous = &member;
    ready_levels_ |= 1u << level;
    if (is_before(level_time_[level], service_level_time_)) level_time_[level] = service_level_time_;
    return;
  }
  line.next = first;
  line.previous = first->lines[level].previous;
  line.previous->lines[level].next = &member;
  first->lines[level].previous = &member;
}

void MemberTurns::leave_ring(Member& member, unsigned level) {
  Line& line = member.lines[level];
  if (line.next == &member) {
    rings_[level] = nullptr;
    ready_levels_ &= ~(1u << level);
  } else {
    line.previous->lines[level].next = line.next;
    line.next->lines[level].previous = line.previous;
    if (rings_[level] == &member) rings_[level] = line.next;
  }
  line.next = line.previous = nullptr;
}

// ---- requests ------------------------------------------------------------------------------------------------------

bool MemberTurns::push(IncomingRecord& record, std::uint64_t number, std::uint64_t gates) {
  Member& member = find(number);
  if (member.lines[record.priority].size >= options_.places) [[unlikely]] {
    member.wanted_levels |= 1u << record.priority;
    member.wanted_gates |= gates;
    return false;
  }
  enqueue(record, member);
  return true;
}

void MemberTurns::enqueue(IncomingRecord& record, Member& member) {
  const unsigned level = record.priority;
  WEIR_CHECK(level < kLevels, "priorities are from 0 to 7");
  record.waiting = {};
  record.waiting.level = static_cast<std::uint8_t>(level);
  Line& line = member.lines[level];
  (line.last != nullptr ? line.last->waiting.next : line.first) = &record;
  line.last = &record;
  ++line.size;
  ++member.queued;
  const bool is_new = (member.occupied & 1u << level) == 0;
  member.occupied |= 1u << level;
  settle(member);
  if (member.is_ready()) {
    ++ready_;
    if (is_new) enter_ring(member, level);
  } else if (may_run(member)) {
    enter(member);
  }
}

// Of a member that is ready.
IncomingRecord* MemberTurns::dequeue(Member& member, unsigned level) {
  Line& line = member.lines[level];
  IncomingRecord* const record = line.first;
  line.first = record->waiting.next;
  if (line.first == nullptr) line.last = nullptr;
  --line.size;
  --member.queued;
  --ready_;
  if (line.first == nullptr) {
    leave_ring(member, level);
    member.occupied &= ~(1u << level);
  } else if (rings_[level] == &member) {
    rings_[level] = line.next;  // the others first
  }
  return record;
}

IncomingRecord* MemberTurns::pop(Turn& turn, Freed& freed) {
  if (ready_ == 0) return nullptr;
  Member* member = by_used_.top();
  turn.kind = by_used_.size() == 1 ? Turn::Kind::alone
              : lead_ns_ <= 0      ? Turn::Kind::by_member
                                   : Turn::Kind::by_priority;
  service_used_ = std::max(service_used_, member->deadline);
  unsigned level = 0;
  if (turn.kind == Turn::Kind::by_priority) {
    level = furthest_behind(ready_levels_);
    member = rings_[level];
  } else {
    level = furthest_behind(member->occupied);
  }
  // Levels that come back start where the one that is furthest behind is: turns by member take others far ahead.
  const std::uint64_t behind = level_time_[furthest_behind(ready_levels_)];
  if (is_before(service_level_time_, behind)) service_level_time_ = behind;
  IncomingRecord* const record = dequeue(*member, level);
  const std::uint64_t cost = std::uint64_t{1} << level;
  level_time_[level] += cost;
  if (is_before(behind + kMostAhead * cost, level_time_[level])) level_time_[level] = behind + kMostAhead * cost;
  turn.member = member;
  turn.expected_ns = typical_ns_;
  charge(turn.kind, turn.expected_ns);
  ++member->running;
  const bool stays = member->queued != 0 && may_run(*member);
  if (!stays) leave(*member);
  if (turn.kind == Turn::Kind::by_member) {
    member->deadline = member->deadline + Duration(turn.expected_ns);
    if (stays) by_used_.update(*member, member->deadline);
  } else if (turn.kind == Turn::Kind::alone) {
    member->deadline = member->deadline + Duration(turn.expected_ns);  // nobody else is in the heap
  }
  if ((member->wanted_levels & 1u << level) != 0 && member->lines[level].size <= options_.places / 2) [[unlikely]] {
    member->wanted_levels = 0;
    freed = {.member = member->number, .gates = std::exchange(member->wanted_gates, 0)};
  }
  return record;
}

void MemberTurns::end(const Turn& turn, std::int64_t ran_ns) {
  Member& member = *turn.member;
  --member.running;
  if (ran_ns >= 0) {
    const std::int64_t more = ran_ns - turn.expected_ns;
    // A handler that blocked for an hour is no reason to serve its member last for hours.
    if (turn.kind != Turn::Kind::by_priority) {
      member.deadline = earliest(member.deadline + Duration(more), service_used_ + Duration(kLongest));
    }
    charge(turn.kind, more);
    typical_ns_ = std::clamp(typical_ns_ + (std::min(ran_ns, kLongest) - typical_ns_) / 8, kShortest, kLongest);
  }
  if (member.is_ready()) {
    if (turn.kind != Turn::Kind::by_priority) by_used_.update(member, member.deadline);
  } else if (member.queued != 0 && may_run(member)) {
    enter(member);
  }
  settle(member);
}

// What was given out by member beyond its half is soon forgotten: the half is a lower bound.
void MemberTurns::charge(Turn::Kind kind, std::int64_t ns) {
  if (kind == Turn::Kind::alone) return;
  lead_ns_ += kind == Turn::Kind::by_member ? ns : -ns;
  lead_ns_ = std::clamp(lead_ns_, -kLongest, typical_ns_);
}

unsigned MemberTurns::furthest_behind(std::uint32_t levels) const {
  auto best = static_cast<unsigned>(std::countr_zero(levels));
  for (levels &= levels - 1; levels != 0; levels &= levels - 1) {
    const auto level = static_cast<unsigned>(std::countr_zero(levels));
    if (is_before(level_time_[level], level_time_[best])) best = level;
  }
  return best;
}

IncomingRecord* MemberTurns::take_any() {
  for (auto& [number, member] : members_) {
    if (member.queued == 0) continue;
    if (!member.is_ready()) enter(member);
    IncomingRecord* const record = dequeue(member, static_cast<unsigned>(std::countr_zero(member.occupied)));
    if (member.queued == 0) leave(member);
    settle(member);
    return record;
  }
  return nullptr;
}

}  // namespace weir::pool
