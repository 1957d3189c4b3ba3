// Map: which tracked transfers are how far, and who waits for them. Any thread; a lock only where it grows, which it
// does a segment at a time.
//
// A transfer that others come after has a slot until it ends, and a token: slot and generation. Per slot there are two
// moments, `sent` and `responded`, each a word: the generation, and either the first of a list of waiters or how the
// moment came. A waiter is put into the list by exchanging the word, so it waits for that very generation or finds that
// the moment has come; who brings the moment takes the whole list. Since every word has its generation, and single
// waiters are never taken out of a list, nothing can be mistaken for something older.
//
// Slots are used again in the order in which they came free, after a rest, and each remembers how its last generations
// ended: a token tells the truth long after its transfer has gone.
//
// Waiters that have left stay in their list until it becomes long, no room is left, or the moment comes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/mpmc_ring.h"
#include "base/sync.h"
#include "causality/waiter.h"

namespace weir::causality {

// Generation (40 bits, from 1) and slot (24 bits). 0 names nothing.
using Token = std::uint64_t;

enum class Moment : std::uint8_t {
  sent,       // the peer has the request
  responded,  // the reply is here
};

struct Condition {
  Token token = 0;
  Moment moment = Moment::responded;
  bool or_failed = false;  // its failure will do as well
};

enum class Registration : std::uint8_t {
  waits,
  met,
  failed,
  forgotten,  // it ended so long ago that nobody knows how
  full,       // as many wait as can
};

class Map {
 public:
  static constexpr std::uint32_t kMaxTracked = 1u << 18;
  static constexpr std::uint32_t kMaxWaiting = 1u << 20;
  static constexpr std::uint32_t kResting = 4'096;   // slots that wait to be used again, while more can be made
  static constexpr std::uint64_t kRemembered = 22;   // ends of one slot
  static constexpr std::uint32_t kLongList = 1'024;  // is looked through for who has left; and at twice that, and so on

  // `long_list` is for tests.
  explicit Map(std::uint32_t max_tracked = kMaxTracked, std::uint32_t max_waiting = kMaxWaiting,
               std::uint32_t long_list = kLongList);
  Map(const Map&) = delete;
  Map& operator=(const Map&) = delete;
  // Whoever still waits is let go of, untold.
  ~Map();

  // A transfer begins that others may come after. 0: there are as many as there may be. end() follows, once.
  [[nodiscard]] Token begin();
  void note_sent(Token token);  // at most once, before end()
  void end(Token token, bool has_failed);

  // `waits`: takes a reference, and meets or fails the waiter later; those first who came first, as long as the list is
  // not long.
  [[nodiscard]] Registration add(Waiter& waiter, const Condition& condition);

  // For tests and for who watches. Not exact while others are busy.
  std::size_t tracked() const { return tracked_.load(std::memory_order_relaxed); }
  std::size_t waiting() const { return waiting_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::uint32_t kSegment = 1'024;
  static constexpr std::uint32_t kFullsPerSweep = 1'024;
  static constexpr std::uint64_t kNobody = (1u << 24) - 1;  // in the place of a list's first node: it is empty

  struct Slot {
    sync::Atomic<std::uint64_t> sent{kNobody}, responded{kNobody};  // of no generation yet
    sync::Atomic<std::uint64_t> history{0};  // 20 bits: of which generation it is; then two bits per end, newest first
  };
  struct Node {
    Waiter* waiter = nullptr;
    sync::Atomic<std::uint32_t> next{0};
    sync::Atomic<std::uint32_t> length{0};  // of the list that begins here
    bool or_failed = false;
  };
  // Of T, made when they are first needed, and never moved.
  template <class T>
  struct Table {
    explicit Table(std::uint32_t max_)
        : max(max_), segments(new sync::Atomic<T*>[(max_ + kSegment - 1) / kSegment]()) {}
    ~Table() {
      for (std::uint32_t i = 0; i < (max + kSegment - 1) / kSegment; ++i) delete[] segments[i].load();
    }
    T& operator[](std::uint32_t index) {
      return segments[index / kSegment].load(std::memory_order_acquire)[index % kSegment];
    }
    const std::uint32_t max;
    const std::unique_ptr<sync::Atomic<T*>[]> segments;
  };

  bool make_slots();
  void rest(std::uint32_t slot);
  bool take_node(std::uint32_t& index);
  bool make_nodes();
  void give_nodes(std::uint32_t first, std::uint32_t last);
  Slot* find(Token token);
  static sync::Atomic<std::uint64_t>& moment_of(Slot& slot, Moment moment) {
    return moment == Moment::sent ? slot.sent : slot.responded;
  }
  Registration look(const Slot& slot, std::uint64_t word, const Condition& condition) const;
  Registration look_back(const Slot& slot, const Condition& condition) const;
  // Puts a node that has a waiter into the list of its condition, and says how long that is: as if it were `length` at
  // least. Anything but `waits`: it is not there.
  Registration link(Slot& slot, std::uint32_t index, const Condition& condition, std::uint32_t& length);
  std::uint32_t reverse(std::uint32_t first);
  void settle(std::uint64_t list, bool has_failed);
  void sweep(Slot& slot, Moment which);
  void sweep_all();

  const std::uint32_t long_list_;
  Table<Slot> slots_;
  Table<Node> nodes_;
  MpmcRing resting_;
  sync::Atomic<std::uint64_t> free_nodes_;  // a count of changes (40 bits), and the first (24 bits)
  sync::Mutex growing_;
  sync::Atomic<std::uint32_t> made_slots_{0};
  std::uint32_t made_nodes_ = 0;  // under growing_
  sync::Atomic<std::size_t> tracked_{0}, waiting_{0};
  sync::Atomic<std::uint32_t> fulls_{0};  // how often no node was left
};

}  // namespace weir::causality
