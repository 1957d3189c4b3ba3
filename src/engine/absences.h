// Absences: when this engine did not run although its timers were due. Its process was stopped, its thread had no
// processor, or nobody polled (docs/protocol.md, rule L-1). Peers are not to blame for what they could not say
// meanwhile.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/time.h"

namespace weir::engine {

// One per engine; single-threaded.
class Absences {
 public:
  // One absence counts as at most so much of a limit. (With an eighth, peers were given up that lived and were only
  // starved: docs/decisions/0039-needless-repetition.md.)
  static constexpr std::int64_t kPart = 32;
  static constexpr std::size_t kRemembered = 40;
  static_assert(kRemembered > kPart);

  // Nothing ran from `from` until `to`, which is now.
  void note(Instant from, Instant to) {
    absences_[next_] = {from, to};
    next_ = (next_ + 1) % kRemembered;
    last_end_ = to;
  }

  // From when on to count towards the limit a silence that began at `heard`: later by what absences are longer than the
  // part that counts. A quarter of the limit is left after an absence in any case, unless there were very many.
  Instant silent_since(Instant heard, Duration limit) const {
    if (heard >= last_end_) [[likely]]
      return heard;
    return since_with_absences(heard, limit);
  }

 private:
  struct Absence {
    Instant from{}, to{};
  };

  [[gnu::noinline]] Instant since_with_absences(Instant heard, Duration limit) const {
    Duration excess{0};
    std::int64_t count = 0;
    for (const Absence& absence : absences_) {
      if (absence.to <= heard) continue;
      ++count;
      excess += std::max<Duration>(absence.to - std::max(absence.from, heard) - limit / kPart, Duration{0});
    }
    const Instant since = heard + excess;
    return count <= kPart ? std::max(since, last_end_ - limit / 4 * 3) : since;
  }

  std::array<Absence, kRemembered> absences_{};
  std::size_t next_ = 0;
  Instant last_end_{};
};

}  // namespace weir::engine
