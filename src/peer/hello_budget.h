// How many hellos may still go to addresses that peers say are theirs. A peer that names somebody else's address must
// not be able to have that one flooded by us, however often it shakes hands (docs/protocol.md, rule I-10).
//
// A handshake that succeeds shows that the peer is at its IP: one more hello may go to its address there, whatever went
// before. So callers of a peer that has restarted do not wait because processes before did not answer. Handshakes are
// limited themselves (rules I-9 and R-5).
//
// What has returned a sealed packet has shown that it wants ours, and is not counted for a while. Any other address has
// room for kHellos, which comes back slowly. An IP that nobody has proven to be the peer's is counted as a whole, or
// its ports could be named one after the other; of an IP that is proven, each port.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <list>
#include <span>
#include <unordered_map>

#include "base/address.h"
#include "base/time.h"
#include "peer/credential.h"

namespace weir::peer {

// One per pool; one thread at a time. Costs about 150 bytes per address.
class HelloBudget {
 public:
  static constexpr std::uint32_t kHellos = 3;

  struct Options {
    std::size_t capacity = 4'096;                        // addresses
    Duration proven_refill = std::chrono::seconds{1};    // one hello more, at a port of an IP that is proven
    Duration claimed_refill = std::chrono::seconds{30};  // and at an IP that is not
    Duration answer_lasts = std::chrono::hours{2};       // then an address may have changed hands
  };

  HelloBudget() : HelloBudget(Options{}) {}
  explicit HelloBudget(const Options& options);

  // Counts one hello. False: it must not be sent; there were too many, or there is no room to count it.
  // `is_proven`: the peer has shown by other means that it receives at this IP.
  [[nodiscard]] bool spend(const Address& to, bool is_proven, Instant now);
  // A handshake has made this credential, whose hellos go to that address. Said again, it changes nothing.
  void on_credential(const CredentialId& id, const DataAddress& data);
  // A sealed packet came back from there.
  void on_answer(const Address& from, Instant now);
  // The address to say hello to, of what one peer offers (one at least). Proven ones that have hellos left come first,
  // then others that do; of equals, `turn` counts from the first that was offered.
  const DataAddress& choose(std::span<const DataAddress> offered, std::size_t turn, Instant now) const;

  std::size_t known() const { return entries_.size(); }

 private:
  static constexpr std::size_t kLongestLook = 16;  // for one that can be forgotten
  static constexpr Instant kNever{std::numeric_limits<std::int64_t>::min() / 2};

  struct Entry {
    std::uint32_t left = kHellos;
    Instant refilled_at{};
    Instant answered_at = kNever;
    CredentialId credential{};  // the last one that hellos went under
    std::list<Address>::iterator recency;
  };
  using Entries = std::unordered_map<Address, Entry, AddressHash>;

  static Address ip_of(const Address& address) { return {.ip = address.ip, .port = 0, .scope = address.scope}; }
  const Entry* find(const Address& key) const;
  bool is_answered(const Address& key, Instant now) const;
  bool is_answered(const Entry& entry, Instant now) const;
  bool is_proven(const DataAddress& offered, Instant now) const;
  std::uint32_t left(const Address& key, const Entry& entry, Instant now) const;
  Duration refill_of(const Address& key) const {
    return key.port == 0 ? options_.claimed_refill : options_.proven_refill;
  }
  Entry* use(const Address& key, Instant now);
  bool make_room(Instant now);

  const Options options_;
  Entries entries_;             // by address; a whole IP has port 0
  std::list<Address> recency_;  // longest unused first
};

}  // namespace weir::peer
