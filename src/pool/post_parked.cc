// Requests on their way to the executor, and those that find no place there.
#include <bit>

#include "pool/executor.h"
#include "pool/post.h"

namespace weir::pool {
namespace {

bool is_unwanted(const IncomingRecord& record, Instant now) {
  return has_caller_gone(record) || record.transfer->deadline <= now;
}

}  // namespace

void Post::queue_request(IncomingRecord* record) {
  const std::uint64_t member = record->transfer->caller->member();
  if (!parked_.empty()) [[unlikely]] {
    // Behind those of its member and priority that wait already.
    const ParkedRequests::Lines* lines = parked_.find(member);
    if (lines != nullptr && (lines->occupied & 1u << record->priority) != 0) return parked_.push_back(*record, member);
  }
  if (!executor_->try_push(record, member)) [[unlikely]]
    parked_.push_back(*record, member);
}

// True if there may be more to do at once.
bool Post::serve_parked(Instant now) {
  if (gate_->places.were_freed()) executor_->take_freed(*gate_, unparking_);
  std::size_t cut = 0;
  for (const std::uint64_t member : unparking_) {
    ParkedRequests::Lines* const lines = parked_.find(member);
    if (lines == nullptr) continue;
    if (unpark(*lines, now)) unparking_[cut++] = member;
    parked_.forget_if_empty(*lines);
  }
  unparking_.resize(cut);
  for (int i = 0; i < kSweptPerTurn && !parked_.empty(); ++i) {
    ParkedRequests::Lines& lines = parked_.next();
    refuse_unwanted_ahead(lines, now);
    parked_.forget_if_empty(lines);
  }
  return cut != 0;
}

// True if there may be places for more of them.
bool Post::unpark(ParkedRequests::Lines& lines, Instant now) {
  bool is_cut = false;
  for (std::uint32_t left = lines.occupied; left != 0; left &= left - 1) {
    const auto level = static_cast<unsigned>(std::countr_zero(left));
    std::size_t step = 0;
    for (; step < kUnparkedPerTurn && lines.first[level] != nullptr; ++step) {
      IncomingRecord* const record = lines.first[level];
      IncomingRecord* const next = record->waiting.next;
      if (is_unwanted(*record, now)) {
        ParkedRequests::pop_front(lines, level);
        refuse_unwanted(record);
        continue;
      }
      const Instant deadline = record->transfer->deadline;
      record->time_left = deadline.is_never() ? Duration::max() : deadline - now;
      if (!executor_->try_push(record, lines.member)) break;
      ParkedRequests::replace_front(lines, level, next);  // the record is the executor's
    }
    is_cut |= step == kUnparkedPerTurn;
  }
  return is_cut;
}

void Post::refuse_unwanted_ahead(ParkedRequests::Lines& lines, Instant now) {
  for (std::uint32_t left = lines.occupied; left != 0; left &= left - 1) {
    const auto level = static_cast<unsigned>(std::countr_zero(left));
    for (std::size_t step = 0; step < kUnparkedPerTurn && lines.first[level] != nullptr; ++step) {
      IncomingRecord* const record = lines.first[level];
      if (!is_unwanted(*record, now)) break;
      ParkedRequests::pop_front(lines, level);
      refuse_unwanted(record);
    }
  }
}

}  // namespace weir::pool
