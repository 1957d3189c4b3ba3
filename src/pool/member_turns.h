// MemberTurns: whose request the executor runs next (docs/decisions/0028-handler-places.md).
//
// Requests wait in lines, one for each member and priority. Half of the handlers' time is given out by priority: the
// level is chosen by weight, as in schedule::WeightedQueue, and within the level members take turns. The other half is
// given out by member: the one that has had the least of this half goes next, whatever priorities others name. A member
// that was absent starts at the time of those who are served, so it neither owes nor has saved up anything. What a
// handler takes is known only when it has returned; until then the typical time counts.
//
// A member with a certificate runs at most `most_running` handlers at once: a place whose handler blocks cannot be
// taken back. What waits beyond that is not ready, and waits until one of them returns.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>

#include "base/time.h"
#include "pool/incoming_record.h"
#include "schedule/priority_queue.h"
#include "worker/deadline_heap.h"

namespace weir::pool {

using detail::IncomingRecord;

// Links records and owns none. Under the executor's mutex. Allocates only for more members at once than ever before.
class MemberTurns {
 public:
  static constexpr std::size_t kKeptIdle = 1'024;  // members without requests that are remembered

  struct Options {
    std::size_t places = 1;          // requests of one member and priority that may wait
    std::uint32_t most_running = 1;  // handlers of one member with a certificate at the same time
  };
  struct Member;

  // Which handler runs, from pop() to end().
  struct Turn {
    enum class Kind : std::uint8_t { alone, by_member, by_priority };
    Member* member = nullptr;
    std::int64_t expected_ns = 0;
    Kind kind = Kind::alone;
  };
  // Who waits for places that have become free.
  struct Freed {
    std::uint64_t member = 0;
    std::uint64_t gates = 0;  // a bit for each; none: nobody waits
  };

  explicit MemberTurns(Options options) : options_(options) {}
  MemberTurns(const MemberTurns&) = delete;
  MemberTurns& operator=(const MemberTurns&) = delete;

  // False: its member has no place left at this level. `gates`, not 0: who is to be told when there is one again.
  [[nodiscard]] bool push(IncomingRecord& record, std::uint64_t member, std::uint64_t gates);
  void push_unbounded(IncomingRecord& record, std::uint64_t member) { enqueue(record, find(member)); }
  // Null: nobody is ready.
  IncomingRecord* pop(Turn& turn, Freed& freed);
  // Each popped one once. `ran_ns`: how long its handler kept the thread; negative: not measured.
  void end(const Turn& turn, std::int64_t ran_ns);
  // Any that waits, whether its member is ready or not; for the end.
  IncomingRecord* take_any();

  std::size_t ready() const { return ready_; }  // requests of members that may run another handler
  // Whether it matters how long handlers take.
  bool is_measuring() const { return members_.size() > 1; }

 private:
  static constexpr unsigned kLevels = schedule::kPriorityLevels;
  static constexpr std::uint64_t kMostAhead = 16;  // turns by which a level may be ahead of the others
  static constexpr std::int64_t kShortest = 100, kLongest = 1'000'000'000;  // of a typical time, and of a debt

  struct Line {  // one member's of one level
    IncomingRecord* first = nullptr;
    IncomingRecord* last = nullptr;
    std::size_t size = 0;
    Member* next = nullptr;  // in the ring of the level, while the member is ready
    Member* previous = nullptr;
  };

  Member& find(std::uint64_t number);
  Member& add(std::uint64_t number);
  void enqueue(IncomingRecord& record, Member& member);
  IncomingRecord* dequeue(Member& member, unsigned level);
  bool may_run(const Member& member) const;
  void enter(Member& member);
  void leave(Member& member);
  void enter_ring(Member& member, unsigned level);
  void leave_ring(Member& member, unsigned level);
  void settle(Member& member);
  void charge(Turn::Kind kind, std::int64_t ns);
  unsigned furthest_behind(std::uint32_t levels) const;

  const Options options_;
  std::unordered_map<std::uint64_t, Member> members_;
  Member* last_found_ = nullptr;
  Member* oldest_idle_ = nullptr;
  Member* newest_idle_ = nullptr;
  std::size_t idle_ = 0;
  std::size_t ready_ = 0;

  // By priority.
  std::array<Member*, kLevels> rings_{};  // the next one to be served
  std::uint32_t ready_levels_ = 0;        // a bit for each ring that is not empty
  std::array<std::uint64_t, kLevels> level_time_{};
  std::uint64_t service_level_time_ = 0;

  // By member.
  worker::DeadlineHeap<Member> by_used_;  // of those that are ready
  Instant service_used_{};
  std::int64_t lead_ns_ = 0;  // what was given out by member, less what was given out by priority
  std::int64_t typical_ns_ = 1'000;
};

struct MemberTurns::Member {
  std::uint64_t number = 0;
  Instant deadline{};  // the heap's name for it: what its handlers have used, as an instant of a clock of its own
  std::size_t heap_index = worker::DeadlineHeap<Member>::kOutside;
  std::uint32_t running = 0;
  std::uint32_t occupied = 0;       // a bit for each line that is not empty
  std::uint32_t wanted_levels = 0;  // where a request found no place
  std::uint64_t wanted_gates = 0;   // and whose
  std::size_t queued = 0;
  bool is_idle = false;
  Member* newer_idle = nullptr;
  Member* older_idle = nullptr;
  std::array<Line, kLevels> lines{};

  bool is_ready() const { return heap_index != worker::DeadlineHeap<Member>::kOutside; }
};

}  // namespace weir::pool
