// Paths that are closed early, because others need what they keep (docs/protocol.md, rule L-5).
#include "engine/core.h"

namespace weir::engine {

// Use is calls: who keeps a path busy with anything else holds it no longer than who is silent. What is in flight to
// its peer does not matter either, for there is no transfer in it.
template <class IsBetter>
bool Core::evict_idle_path(Instant& last, Instant now, IsBetter&& is_better) {
  if (now - last < kEvictionInterval) return false;
  last = now;
  Path* best = nullptr;
  paths.for_each([&](Path& path) {
    if (path.initiator || path.incoming_live != 0 || path.unused_for(now) <= kIdleBeforeEviction) return;
    if (is_better(path, best)) best = &path;
  });
  if (best == nullptr) return false;
  send_close(*best, wire::CloseReason::idle, now);
  end_path(*best, Code::peer_failed, "the peer closed", true, now, 0);
  return true;
}

// Of the member that has the most paths, the one that has been idle longest.
bool Core::evict_for_path(Member* of, Instant now) {
  const auto paths_of = [](const Path& path) { return path.member() != nullptr ? path.member()->paths : 1; };
  return evict_idle_path(of != nullptr ? of->last_eviction : last_eviction, now, [&](Path& path, const Path* best) {
    if (of != nullptr && path.member() != of) return false;
    if (best == nullptr || paths_of(path) > paths_of(*best)) return true;
    return paths_of(path) == paths_of(*best) && path.unused_for(now) > best->unused_for(now);
  });
}

// What paths that wait for credit of this level hold of it: parts of messages, while they wait for the rest. `of`: null
// for all members.
std::uint64_t Core::parts_in_line(const Path& but, std::uint8_t level, const Member* of) {
  std::uint64_t sum = 0;
  paths.for_each([&](Path& path) {
    if (&path == &but || path.accounts.in_use() <= level || (of != nullptr && path.member() != of)) return;
    sum += path.accounts[level].part_in_line();
  });
  return sum;
}

// A path has said that it is blocked. One whose member has its share gains most if that member gives something back.
void Core::evict_for_credit(Path& blocked, std::uint8_t level, Instant now) {
  Member* const own = blocked.member();
  // A member with one path has nothing else to close. Most members are such, and a search looks at all paths.
  if (ledger.waits_for_own(blocked.accounts[level]) && own->paths > 1 &&
      now - own->last_eviction >= kEvictionInterval) {
    const bool is_clogged = ledger.is_clogged_by_own(level, parts_in_line(blocked, level, own));
    if (evict_holder(own->last_eviction, blocked, level, is_clogged, now,
                     [own](const Path& path) { return path.member() == own; })) {
      return;
    }
  }
  // For all who wait, whoever it is that has said so.
  if (!ledger.starved(level) || now - last_eviction < kEvictionInterval) return;
  const bool is_clogged = ledger.is_clogged(level, parts_in_line(blocked, level, nullptr));
  const std::uint64_t least = ledger.least_to_give_back(level);
  evict_holder(last_eviction, blocked, level, is_clogged, now, [level, least](const Path& path) {
    return path.member() == nullptr || path.member()->held(level) >= least;
  });
}

// One that holds unused promise, of the member that holds most. A path that is in line itself is closed only if those
// in line might otherwise wait for each other.
template <class MayGo>
bool Core::evict_holder(Instant& last, const Path& blocked, std::uint8_t level, bool is_clogged, Instant now,
                        MayGo&& may_go) {
  const auto held_by = [&](const Path& path) { return path.member() != nullptr ? path.member()->held(level) : 0; };
  const auto is_out_of_line = [](const Path& path) { return path.accounts.outermost().holds_unused(); };
  const auto holds_part = [&](Path& path) {
    return path.accounts.in_use() > level && path.accounts[level].part_in_line() != 0;
  };
  return evict_idle_path(last, now, [&](Path& path, const Path* best) {
    if (&path == &blocked || !may_go(path)) return false;
    if (!is_out_of_line(path) && !(is_clogged && holds_part(path))) return false;  // it would give nothing back
    if (best == nullptr) return true;
    if (is_out_of_line(path) != is_out_of_line(*best)) return is_out_of_line(path);
    if (held_by(path) != held_by(*best)) return held_by(path) > held_by(*best);
    return path.unused_for(now) > best->unused_for(now);
  });
}

}  // namespace weir::engine
