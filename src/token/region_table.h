// RegionTable: the regions that a receiver has granted, from the grant to the moment its memory may be used again
// (docs/protocol.md, rules G-4, G-6, G-9 and G-11).
//
// A region is memory that one path may write into. Its name is a slot and a generation that no other grant of that slot
// ever has; a slot at the end of its generations is leaked. Whatever a peer names, only a region that is granted, and
// granted to its path, can be written; anything else changes no byte and is counted.
//
// What is taken back goes granted -> revoked -> quarantined -> fenced -> free. Between revoked and fenced the other
// side, or its network card, may still write: the memory is not used again before the fence. Where there is no fence
// the region is leaked: counted, and neither its slot nor its memory is ever used again.
//
// Two deadlines: a region that a message is bound to must not go without new bytes for `idle_timeout`, and no region
// lives longer than `lifetime` without being renewed. All have the same two, so that each list is in order by itself
// and every operation is O(1).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/slab.h"
#include "base/time.h"
#include "buffer/landing.h"
#include "token/coverage.h"
#include "token/region_id.h"
#include "wire/large_frame.h"

namespace weir::token {

enum class RegionState : std::uint8_t { free, granted, complete, revoked, quarantined, fenced, leaked };
inline constexpr std::size_t kRegionStates = 7;

enum class RegionEvent : std::uint8_t {
  grant,
  complete,  // every byte of its message is there
  take,      // its memory goes to whoever reads the message
  revoke,
  quarantine,      // waits for its fence
  fence,           // nobody can write any more
  lose_hope,       // no fence will come
  give_back,       // its memory
  run_out_of_ids,  // no generation is left
};
inline constexpr std::size_t kRegionEvents = 9;

// The state after the event; `state` itself if the event is impossible in it.
RegionState next_state(RegionState state, RegionEvent event);

// How a receiver knows that nobody writes into a revoked region any more.
struct Fence {
  enum class Kind : std::uint8_t {
    immediate,          // our own engine is the only writer (UDP)
    peer_acknowledged,  // the peer, or the removal of its address, says so: on_fenced()
    none,               // nothing can tell: leaked
  };
  Kind kind = Kind::immediate;
};

enum class WriteRefusal : std::uint8_t {
  none,
  unknown,  // no region was ever granted by that name
  revoked,  // it was granted, and is not any more
  foreign,  // it was granted to somebody else
  outside,  // not within its bytes
};
inline constexpr std::size_t kWriteRefusals = 5;

struct PathRegions;

// The sender of a message is told now and then how much of it is there: after this much of it, each time. Never of one
// that is no larger.
inline constexpr std::uint64_t kSmallestRange = 1u << 20;
inline constexpr std::uint64_t kNeverTold = ~std::uint64_t{0};
inline constexpr std::uint64_t range_step(std::uint64_t bytes) { return std::max(kSmallestRange, bytes / 8); }

struct Region {
  std::uint64_t id = wire::kNoRegion;
  buffer::Landing* landing = nullptr;  // one reference
  std::uint64_t path_serial = 0;
  std::uint32_t path = 0;
  RegionState state = RegionState::free;
  Fence fence;
  wire::Side side = wire::Side::none;  // of its transfer; none: bound to nobody yet
  std::uint64_t transfer = 0;          // packed id
  std::uint64_t bytes = 0;             // of the message it is bound to
  Coverage coverage;
  Instant last_write{};  // that brought new bytes, or when it was bound
  Instant expires{};
  std::uint64_t renewed_bytes = 0;       // that were there when its life was last prolonged
  std::uint64_t range_due = kNeverTold;  // the sender is told when so much is there without a gap
  bool tells_share = false;              // a grant that says its sender's share waits to be sent
  std::uint64_t moved_bytes = 0;         // into it, also those that were there already: counted as work when it ends

  bool is_bound() const { return side != wire::Side::none; }
  // How far it may be written.
  std::uint64_t limit() const { return is_bound() ? bytes : landing->capacity; }
  // Its sender may have freed what it was told is there.
  bool is_told() const { return range_due != kNeverTold && range_due > range_step(bytes); }
  bool is_covered() const { return is_bound() && coverage.covers(bytes); }

  struct Hook {
    Region* next = nullptr;
    Region* previous = nullptr;
    bool linked = false;
  };
  Hook of_path, by_write, by_expiry;
  PathRegions* regions = nullptr;  // the list that `of_path` is in
  Region* next_free = nullptr;
};

// The regions of one path, quarantined ones too. Kept by whoever keeps the path, at one address.
struct PathRegions {
  Region* first = nullptr;
  std::uint32_t count = 0;
};

struct RegionCounters {
  std::uint64_t granted = 0;
  std::uint64_t completed = 0;
  std::uint64_t revoked = 0;  // leaked ones too
  std::uint64_t expired = 0;  // of these, by a deadline
  std::uint64_t leaked = 0;
  std::uint64_t out_of_generations = 0;
  std::array<std::uint64_t, kWriteRefusals> refused{};  // by WriteRefusal
};

// One per engine, single-threaded. Holds a reference on each landing; when it goes, so do those references, all but
// those of leaked regions.
class RegionTable {
 public:
  struct Options {
    std::uint32_t max_regions = 1u << 16;  // quarantined and leaked ones count
    Duration idle_timeout = std::chrono::seconds(2);
    Duration lifetime = std::chrono::seconds(30);
    std::uint64_t last_generation = kLastRegionGeneration;
  };
  enum class Due : std::uint8_t { idle, expired };  // both at once: idle, and then expired

  explicit RegionTable(Options options);
  RegionTable(const RegionTable&) = delete;
  RegionTable& operator=(const RegionTable&) = delete;
  ~RegionTable();

  struct Grant {
    buffer::Landing* landing = nullptr;  // its reference is taken over if there is a region
    std::uint32_t path = 0;
    std::uint64_t path_serial = 0;
    PathRegions* regions = nullptr;  // of that path
    Fence fence;
  };
  // Bound to nobody. Null: there are `max_regions`; the landing is still the caller's.
  [[nodiscard]] Region* grant(const Grant& grant, Instant now);

  struct Binding {
    wire::Side side = wire::Side::none;
    std::uint64_t transfer = 0;
    std::uint64_t bytes = 0;  // of the message
  };
  // False if the message is larger than the region, or the region is another's already: a peer can name any. The
  // deadline for new bytes runs from here.
  [[nodiscard]] bool bind(Region& region, const Binding& binding, Instant now);

  // Whatever a peer names; null unless granted.
  Region* find(std::uint64_t id) {
    Region* const region = slots_.at(RegionId::unpack(id).slot);
    return region != nullptr && region->id == id && region->state == RegionState::granted ? region : nullptr;
  }

  struct Write {
    std::uint64_t region = wire::kNoRegion;
    std::uint64_t path_serial = 0;  // that it came by
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
  };
  struct Verdict {
    Region* region = nullptr;  // null: refused
    WriteRefusal refusal = WriteRefusal::none;
  };
  // May this be written? What is refused is counted.
  [[nodiscard]] Verdict check_write(const Write& write) {
    Region* const region = find(write.region);
    if (region == nullptr || region->path_serial != write.path_serial || write.length == 0 ||
        write.length > region->limit() || write.offset > region->limit() - write.length) [[unlikely]]
      return refuse(write, region);
    return {.region = region};
  }

  struct Range {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };
  // These bytes, which check_write() allowed, are there. False if that would be one hole too many to remember: then
  // they count as not written, and must come again. Nothing new does not count as a sign of life.
  [[nodiscard]] bool cover(Region& region, Range range, Instant now) {
    const Coverage::Added added = region.coverage.add(ranges_, range.begin, range.end);
    if (added == Coverage::Added::grew && region.by_write.linked) touch(region, now);
    return added != Coverage::Added::no_room;
  }

  // Every byte of its message is there: no more writes, no more deadlines.
  void complete(Region& region);
  // Of a complete region: its memory, with the reference. The region is gone.
  [[nodiscard]] buffer::Landing* take_landing(Region& region);

  // A granted or complete one. It may be gone when this returns.
  void revoke(Region& region, Instant now);
  // What a peer acknowledges. False if it has no such region in quarantine.
  struct Acknowledgement {
    std::uint64_t region = wire::kNoRegion;
    std::uint64_t path_serial = 0;
  };
  bool on_fenced(const Acknowledgement& acknowledgement);
  void on_fenced(Region& region);  // quarantined: the engine knows by itself
  // Of a granted one: another lifetime. No sign of life, so that one that is idle stays so.
  void renew(Region& region, Instant now);
  // Its deadline for new bytes runs from now: its sender is busy with others.
  void excuse(Region& region, Instant now) {
    if (region.by_write.linked) touch(region, now);
  }

  // ---- deadlines ----
  Instant next_deadline() const;
  // Calls visit(Region&, Due) for each region that is due. The visitor revokes the region, or excuses one that is idle,
  // or renews one that is expired. A region that is due for both reasons is visited for each of them. What the visitor
  // leaves as it is, the table revokes.
  template <class Visit>
  void expire(Instant now, Visit&& visit) {
    while (Region* region = next_due(now)) {
      const std::uint64_t id = region->id;
      const Due reason = due_reason(*region, now);
      visit(*region, reason);
      if (find(id) != region || !is_due(*region, reason, now)) continue;
      ++counters_.expired;
      revoke(*region, now);
    }
  }

  // ---- paths ----
  // Calls visit(Region&) for each region of the path, whatever its state; the visitor may revoke, fence or take that
  // one, and touches no other.
  template <class Visit>
  void for_each_of_path(PathRegions& regions, Visit&& visit) {
    for (Region* region = regions.first; region != nullptr;) {
      Region* const next = region->of_path.next;
      visit(*region);
      region = next;
    }
  }
  // The path is gone: its regions are revoked, those in quarantine stay there without it, and the list is empty.
  void end_path(PathRegions& regions, Instant now);

  const Options& options() const { return options_; }
  const RegionCounters& counters() const { return counters_; }
  std::uint32_t in_state(RegionState state) const { return in_state_[static_cast<std::size_t>(state)]; }
  std::uint32_t live() const { return in_state(RegionState::granted) + in_state(RegionState::complete); }
  bool is_full() const { return free_ == nullptr && slots_.live() == options_.max_regions; }

 private:
  struct List {
    Region* first = nullptr;
    Region* last = nullptr;
  };

  void move(Region& region, RegionEvent event);
  void free_slot(Region& region);
  void leave_deadlines(Region& region);
  void touch(Region& region, Instant now);
  Instant advance(Instant now);
  Instant idle_at(const Region& region) const { return region.last_write + options_.idle_timeout; }
  bool is_due(const Region& region, Due reason, Instant now) const;
  Due due_reason(const Region& region, Instant now) const;
  Region* next_due(Instant now) const;
  [[gnu::cold, gnu::noinline]] Verdict refuse(const Write& write, const Region* region);

  Options options_;
  Slab<Region> slots_;  // none is ever released: a free one remembers its last generation
  Region* free_ = nullptr;
  List by_write_;   // bound and granted
  List by_expiry_;  // granted
  CoveragePool ranges_;
  Instant latest_{};
  RegionCounters counters_;
  std::array<std::uint32_t, kRegionStates> in_state_{};
};

}  // namespace weir::token
