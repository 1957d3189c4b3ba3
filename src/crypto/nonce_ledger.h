// Remembers which nonces were used under which key, and says when one comes again. Test builds only (CMake option
// WEIR_CHECK_NONCES): there every seal and mac in the process passes through one ledger.
//
// Idea: a nonce is a 4-byte domain and a 64-bit number, and the numbers of a domain are handed out almost in order.
// So the ledger keeps, per (key, domain), the used numbers as sorted intervals: a conversation that never skips costs
// one interval, and appending to the last one is the whole common case.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "crypto/nonce.h"
#include "crypto/secret.h"

namespace weir::crypto {

// Half a SHA-256 of the key's bytes: two keys with the same bytes are one key, and the ledger holds no key.
using KeyFingerprint = std::array<std::uint64_t, 2>;
KeyFingerprint fingerprint_of(std::span<const std::byte, kKeyBytes> key);

// A set of 64-bit numbers as sorted, disjoint, non-adjacent closed intervals.
class NumberSet {
 public:
  // False if the number was there already.
  bool insert(std::uint64_t number);
  std::size_t interval_count() const { return intervals_.size(); }

 private:
  struct Interval {
    std::uint64_t first;
    std::uint64_t last;
  };
  std::vector<Interval> intervals_;
};

// Any thread may call it. Memory is bounded: at most kMaxSpaces (key, domain) pairs, of which a full shard forgets its
// oldest, each with at most kMaxIntervals intervals; more than that is no number space, and a CHECK.
class NonceLedger {
 public:
  static constexpr std::size_t kShards = 64;
  static constexpr std::size_t kMaxSpaces = std::size_t{1} << 20;
  static constexpr std::size_t kMaxIntervals = std::size_t{1} << 20;

  explicit NonceLedger(std::size_t max_spaces = kMaxSpaces);

  // False if this nonce was recorded before under this key.
  [[nodiscard]] bool record(const KeyFingerprint& key, const Nonce& nonce);

  void clear();
  std::size_t space_count() const;
  std::size_t interval_count() const;
  std::uint64_t forgotten_spaces() const;

 private:
  struct Space {
    KeyFingerprint key;
    std::uint32_t domain;
    bool operator==(const Space&) const = default;
  };
  struct SpaceHash {
    std::size_t operator()(const Space& space) const;
  };
  struct Shard {
    mutable std::mutex mutex;
    std::unordered_map<Space, NumberSet, SpaceHash> used;
    std::deque<Space> oldest_first;
    std::uint64_t forgotten = 0;
  };

  std::size_t max_spaces_per_shard_;
  std::array<Shard, kShards> shards_;
};

// Whether this build watches every seal.
bool nonces_are_checked();

// Starts a new universe: a run that replays an earlier one with the same seed in the same process makes the same keys
// again, rightly. Only tests and simulations call it, between runs. Does nothing in builds that do not check.
void forget_recorded_nonces();

#ifdef WEIR_CHECK_NONCES
// The one ledger that all keys of the process report to. Global because a repeat between two pools counts as well.
NonceLedger& process_nonce_ledger();
#endif

}  // namespace weir::crypto
