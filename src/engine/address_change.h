// AddressChange: an initiator's packets come from another address than before (docs/protocol.md, rules P-9 and P-11 to
// P-13).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "base/address.h"
#include "base/time.h"

namespace weir::engine {

// An address that an initiator may have now.
struct AddressCandidate {
  Address at;
  std::uint64_t challenge = 0;       // that only the initiator, if it receives at `at`, can send back from there
  std::uint64_t received_bytes = 0;  // from there, of packets that authenticated
  std::uint64_t sent_bytes = 0;      // to there
  Instant added_at{};
  bool is_answered = false;  // from there
};

// One attempt to validate a new address; the responder's. At most one at a time on a path.
struct AddressChange {
  // Two: whoever sends copies of an initiator's packets is one of them at most.
  static constexpr std::size_t kMaxCandidates = 2;

  std::array<AddressCandidate, kMaxCandidates> candidates;
  std::size_t count = 0;
  std::uint64_t since = 0;       // the number of the packet that began the attempt
  std::uint32_t challenges = 0;  // rounds of them that were sent
  Instant quiet_until{};         // an old address that has sent nothing by then is given up
  Instant next{};                // when there is something to do
  Instant rest_until{};          // no other attempt begins before
  bool is_resting = false;       // it has ended

  void rest() {
    is_resting = true;
    next = rest_until;
  }
  std::span<AddressCandidate> all() { return {candidates.data(), count}; }
  AddressCandidate* find(const Address& at) {
    const auto found = std::ranges::find(all(), at, &AddressCandidate::at);
    return found == all().end() ? nullptr : &*found;
  }
  // For one more: a free place, or that of one which was added before and has not answered. Null: there is none.
  AddressCandidate* place_for_another(Instant before) {
    if (count < kMaxCandidates) return &candidates[count++];
    AddressCandidate* const oldest = &*std::ranges::min_element(all(), [](const auto& one, const auto& other) {
      return std::pair(one.is_answered, one.added_at) < std::pair(other.is_answered, other.added_at);
    });
    return oldest->is_answered || oldest->added_at > before ? nullptr : oldest;
  }
  std::ptrdiff_t answered() { return std::ranges::count(all(), true, &AddressCandidate::is_answered); }
};

}  // namespace weir::engine
