// GrantLedger: whose large message is given memory next (docs/protocol.md, rule G-3; ahead of need: G-7).
//
// Memory is kept in purses: one for requests of each level of nesting, one for replies, and one for a reply that is
// awaited while the one for replies is full. No wait for one holds another.
// An ask names a purse and the bytes of one whole message; when its turn comes all of them are reserved at once, so
// that nobody holds a part and waits for the rest. Each purse has a bound for all senders together and one for each
// sender.
//
// Order within a purse: weighted fair over the priorities, by bytes, weights 128 (level 0) ... 1 (level 7); round robin
// over the senders of one priority; first come, first served within a sender and priority.
//
// The rule of the turn. An ask whose turn it is and for which the purse has too little left keeps the turn. Others of
// the purse wait, even if they would fit, except for those that are more urgent and fit: these go ahead until their
// level has had what its weight gives it for the bytes of the one that waits. So small asks never starve a large one.
//
// The same rule holds among the asks of one sender and purse for that sender's own bound. The senders beside it do not
// notice: what waits for its own sender's bound is out of the line until the sender gives something back.
//
// Where senders are members (rule C-11), only half of the bytes are given in this order. The other half goes to the
// sender that was given least, whatever the priorities: whoever always names the most urgent one leaves each of N
// others 1/(2(N+1)).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/time.h"
#include "schedule/turn_queue.h"
#include "token/answer_room.h"

namespace weir::token {

// Requests by their level of nesting, then replies, then awaited replies.
inline constexpr std::size_t kPurses = kLevels + 2;
inline constexpr std::uint8_t kReplyPurse = kLevels;
inline constexpr std::uint8_t kAwaitedPurse = kLevels + 1;
constexpr std::uint8_t request_purse(std::uint8_t level) { return level; }

inline constexpr unsigned kGrantPriorities = 8;  // 0: the most urgent

struct SenderAccount;

// A message that wants memory; a part of what its owner keeps of that message, so that there are no more than those.
struct Ask {
  // ---- set by its owner, and left alone while it waits ----
  SenderAccount* account = nullptr;
  std::uint64_t bytes = 0;
  std::uint8_t purse = 0;
  std::uint8_t priority = 0;

  bool is_waiting() const { return place != Place::nowhere; }

  // ---- the ledger's, and Ahead's ----
  // Asks of one sender, purse and priority are a line; the first of it stands for it.
  enum class Place : std::uint8_t {
    nowhere,
    in_line,    // behind the first
    in_ring,    // first, and the line takes part in its purse
    set_aside,  // first, and the line waits for its sender's bound
    held,       // not here yet: see Ahead
  };
  Place place = Place::nowhere;
  bool is_ahead = false;        // counted by Ahead
  bool leads = false;           // has the turn among the asks of its sender and purse
  std::uint64_t ticket = 0;     // the order of arrival
  std::uint64_t overtaken = 0;  // while it leads: by how many bytes, weighted
  Ask* next = nullptr;          // in the line
  Ask* previous = nullptr;
  // Of the first of a line:
  Ask* last = nullptr;
  Ask* next_line = nullptr;  // of the same sender
  Ask* previous_line = nullptr;
  Ask* ring_next = nullptr;  // of the same purse and priority
  Ask* ring_previous = nullptr;
};

// A sender's place among those of a purse, by what it was given.
struct SenderTurn {
  SenderAccount* account = nullptr;
  unsigned lines = 0;  // of this sender that take part in the purse
  schedule::HeapHook hook;
};

// What one sender has; one per member or, without members, per path, kept with it at one address.
struct SenderAccount {
  std::array<std::uint64_t, kPurses> bytes{};  // reserved
  Ask* lines = nullptr;                        // at most one for each purse and priority
  std::uint32_t speculative = 0;               // regions granted ahead of need and not used yet
  std::uint8_t led = 0;                        // bit per purse in which an ask of this sender leads
  bool open = false;
  std::array<SenderTurn, kPurses> turns{};
};

// One per engine, single-threaded. Links asks and accounts, owns none.
class GrantLedger {
 public:
  struct Bound {
    std::uint64_t total = 0;
    std::uint64_t per_sender = 0;  // no more than `total`
  };
  struct Options {
    Bound requests{.total = 256u << 20, .per_sender = 64u << 20};  // of level 0
    Bound nested{.total = 64u << 20, .per_sender = 16u << 20};     // each level
    Bound replies{.total = 256u << 20, .per_sender = 64u << 20};
    Bound awaited{.total = 64u << 20, .per_sender = 64u << 20};
    bool by_member = false;  // half of the bytes go to the sender that was given least
  };
  static constexpr std::uint64_t kLargestTotal = std::uint64_t{1} << 48;  // weighted bytes must not overflow

  // Regions ahead of need: only while nobody waits, and after them at most this part of the purse and this part of the
  // sender's bound are in use.
  static constexpr std::uint64_t kSpeculativePartOfPurse = 2;
  static constexpr std::uint64_t kSpeculativePartOfSender = 4;
  static constexpr std::uint32_t kMaxSpeculative = 64;  // per sender

  // What retry hints are made of: memory is thought to come back at this rate.
  static constexpr std::uint64_t kHintBytesPerMicrosecond = 1'000;
  static constexpr Duration kShortestHint = std::chrono::microseconds(100);
  static constexpr Duration kLongestHint = std::chrono::milliseconds(100);

  explicit GrantLedger(const Options& options);
  GrantLedger(const GrantLedger&) = delete;
  GrantLedger& operator=(const GrantLedger&) = delete;

  void open(SenderAccount& account);
  // Its asks are withdrawn. What it has reserved stays so until release_closed() is called for it: the application may
  // hold it for long.
  void close(SenderAccount& account);

  // An ask of this size can be granted some day. Ask only then: the size is a peer's word.
  bool can_ever(std::uint8_t purse, std::uint64_t bytes) const {
    return bytes != 0 && bytes <= purses_[purse].bound.per_sender;
  }
  void ask(Ask& ask);
  // Whether next() has anything to look at.
  bool is_ready() const { return ready_ != 0; }
  // The next ask that is granted: it waits no more, its bytes are reserved. Null: nobody can be granted anything now.
  [[nodiscard]] Ask* next();
  // It is not wanted any more. Of one that does not wait: nothing happens.
  void withdraw(Ask& ask);

  void release(SenderAccount& account, std::uint8_t purse, std::uint64_t bytes);
  void release_closed(std::uint8_t purse, std::uint64_t bytes);

  // ---- regions ahead of need ----
  bool may_speculate(const SenderAccount& account, std::uint8_t purse, std::uint64_t bytes) const;
  // Reserves, as may_speculate() allowed.
  void speculate(SenderAccount& account, std::uint8_t purse, std::uint64_t bytes);
  // One of them is used now, or was revoked: its bytes stay reserved until release().
  void end_speculation(SenderAccount& account);

  // When a sender that is told that there is nothing for it should ask again.
  Duration hint(const Ask& ask) const;

  const Bound& bound(std::uint8_t purse) const { return purses_[purse].bound; }
  std::uint64_t used(std::uint8_t purse) const { return purses_[purse].used(); }
  std::uint64_t waiting(std::uint8_t purse) const { return purses_[purse].waiting; }
  std::uint64_t waiting_bytes(std::uint8_t purse) const { return purses_[purse].waiting_bytes; }
  std::uint64_t accounts() const { return accounts_; }
  // Walks everything: for tests. CHECKs that the sums match.
  void verify(const SenderAccount* const* accounts, std::size_t count) const;

 private:
  struct Ring {
    Ask* first = nullptr;
    Ask* last = nullptr;
  };
  struct Purse {
    Bound bound;
    std::uint64_t reserved = 0;  // by senders that are there
    std::uint64_t closed = 0;    // by senders that are gone
    std::uint64_t waiting = 0;
    std::uint64_t waiting_bytes = 0;
    std::uint32_t occupied = 0;  // bit per priority with a ring
    std::uint64_t service_time = 0;
    std::array<std::uint64_t, kGrantPriorities> time{};  // virtual: bytes / weight
    std::array<Ring, kGrantPriorities> rings{};
    Ask* turn = nullptr;                                       // has the turn and does not fit: first of its ring
    std::uint64_t turn_finish = 0;                             // until where more urgent levels go ahead of it
    schedule::TurnQueue<SenderTurn, &SenderTurn::hook> turns;  // senders that take part
    schedule::HalfAndHalf halves;

    std::uint64_t used() const { return reserved + closed; }
    bool fits(const Ask& ask) const { return ask.bytes <= bound.total - used(); }
  };

  Purse& purse_of(const Ask& ask) { return purses_[ask.purse]; }
  Ask* pick(Purse& purse);
  Ask* pick_by_turn(Purse& purse);
  static Ask* furthest_behind(const Purse& purse, std::uint32_t levels);
  Ask* first_allowed(Purse& purse, unsigned priority);
  bool sender_has_room(const Ask& ask) const;
  bool sender_allows(const Ask& ask) const;
  void grant(Purse& purse, Ask& ask, bool by_turn);
  void reserve(Purse& purse, SenderAccount& account, std::uint8_t index, std::uint64_t bytes);
  void settle(SenderAccount& account, std::uint8_t purse);
  void set_aside(Purse& purse, Ask& first);
  void remove(Purse& purse, Ask& ask);
  static Ask* line_of(const SenderAccount& account, std::uint8_t purse, std::uint8_t priority);
  static Ask* leader_of(const SenderAccount& account, std::uint8_t purse);
  static void enter_ring(Purse& purse, Ask& first);
  static void leave_ring(Purse& purse, Ask& first);
  static void replace_first(Purse& purse, Ask& first, Ask& second);
  static void unlink_line(Ask& first);

  std::array<Purse, kPurses> purses_;
  bool by_member_;
  std::uint8_t ready_ = 0;       // bit per purse in which something may have become possible
  std::uint8_t next_purse_ = 0;  // purses take turns
  std::uint64_t next_ticket_ = 1;
  std::uint64_t accounts_ = 0;
};

}  // namespace weir::token
