#include "crypto/nonce_ledger.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/fork_guard.h"

namespace weir::crypto {

KeyFingerprint fingerprint_of(std::span<const std::byte, kKeyBytes> key) {
  std::array<unsigned char, 32> digest;
  unsigned int length = 0;
  const int done = EVP_Digest(key.data(), key.size(), digest.data(), &length, EVP_sha256(), nullptr);
  WEIR_CHECK(done == 1 && length == digest.size(), "OpenSSL failed to compute SHA-256");
  KeyFingerprint fingerprint;
  std::memcpy(fingerprint.data(), digest.data(), sizeof fingerprint);
  return fingerprint;
}

bool NumberSet::insert(std::uint64_t number) {
  // Common case: the next number of a space that is used in order. `last + 1` may wrap to 0 only for the largest
  // number, and 0 then is below the interval, so the general case must decide.
  if (!intervals_.empty() && number != 0 && intervals_.back().last + 1 == number) {
    intervals_.back().last = number;
    return true;
  }
  const auto above = std::upper_bound(intervals_.begin(), intervals_.end(), number,
                                      [](std::uint64_t n, const Interval& interval) { return n < interval.first; });
  const bool has_below = above != intervals_.begin();
  const auto below = has_below ? above - 1 : above;
  if (has_below && number <= below->last) return false;

  const bool joins_below = has_below && below->last + 1 == number;
  const bool joins_above = above != intervals_.end() && number + 1 == above->first;
  if (joins_below && joins_above) {
    below->last = above->last;
    intervals_.erase(above);
  } else if (joins_below) {
    below->last = number;
  } else if (joins_above) {
    above->first = number;
  } else {
    intervals_.insert(above, Interval{number, number});
  }
  return true;
}

NonceLedger::NonceLedger(std::size_t max_spaces)
    : max_spaces_per_shard_(std::max<std::size_t>(1, max_spaces / kShards)) {}

std::size_t NonceLedger::SpaceHash::operator()(const Space& space) const {
  // The fingerprint is a hash already; the domain only has to move it.
  return static_cast<std::size_t>(space.key[0] ^ (space.domain * 0x9e3779b97f4a7c15ULL));
}

bool NonceLedger::record(const KeyFingerprint& key, const Nonce& nonce) {
  const Space space{key, load<std::uint32_t>(nonce.data())};
  const std::uint64_t number = load<std::uint64_t>(nonce.data() + 4);
  Shard& shard = shards_[key[1] % kShards];

  const std::lock_guard lock{shard.mutex};
  const auto [entry, is_new] = shard.used.try_emplace(space);
  if (is_new) {
    shard.oldest_first.push_back(space);
    if (shard.oldest_first.size() > max_spaces_per_shard_) {
      shard.used.erase(shard.oldest_first.front());
      shard.oldest_first.pop_front();
      ++shard.forgotten;
    }
  }
  NumberSet& numbers = entry->second;
  const bool fresh = numbers.insert(number);
  WEIR_CHECK(numbers.interval_count() <= kMaxIntervals, "the nonces of one key are scattered; number them in order");
  return fresh;
}

void NonceLedger::clear() {
  for (Shard& shard : shards_) {
    const std::lock_guard lock{shard.mutex};
    shard.used.clear();
    shard.oldest_first.clear();
    shard.forgotten = 0;
  }
}

std::size_t NonceLedger::space_count() const {
  std::size_t count = 0;
  for (const Shard& shard : shards_) {
    const std::lock_guard lock{shard.mutex};
    count += shard.used.size();
  }
  return count;
}

std::size_t NonceLedger::interval_count() const {
  std::size_t count = 0;
  for (const Shard& shard : shards_) {
    const std::lock_guard lock{shard.mutex};
    for (const auto& [space, numbers] : shard.used) count += numbers.interval_count();
  }
  return count;
}

std::uint64_t NonceLedger::forgotten_spaces() const {
  std::uint64_t count = 0;
  for (const Shard& shard : shards_) {
    const std::lock_guard lock{shard.mutex};
    count += shard.forgotten;
  }
  return count;
}

#ifdef WEIR_CHECK_NONCES

bool nonces_are_checked() { return true; }

NonceLedger& process_nonce_ledger() {
  // Never destroyed: keys in other statics may still seal while the process ends. A forked child seals under keys of
  // its own only, and must not wait for a lock that a thread of its parent held.
  static constinit OnePerProcess<NonceLedger> ledger;
  return ledger.get();
}

void forget_recorded_nonces() { process_nonce_ledger().clear(); }

#else

bool nonces_are_checked() { return false; }
void forget_recorded_nonces() {}

#endif

}  // namespace weir::crypto
