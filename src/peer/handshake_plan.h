// Who shakes hands when: at most one handshake per address at a time, so many in all, backoff with jitter after a
// failure, and renewal of what is in use before its period ends (docs/protocol.md, rules I-9 and R-5).
//
// The renewal of an address comes at its own point in the last quarter of the period, or of half of what is left of the
// credential's life, if that is shorter. The point follows from the address and a random of this host, so that neither
// all peers of a host nor all hosts of a peer come at once. While certificates are not replaced, renewals bring
// credentials with the same end, and come more and more often towards it; Options::shortest_renewal bounds that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <list>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/address.h"
#include "base/random.h"
#include "base/time.h"

namespace weir::peer {

// One per pool; one thread. Costs about 300 bytes per address.
class HandshakePlan {
 public:
  static constexpr Duration kShortestPeriod = std::chrono::milliseconds{100};

  struct Options {
    std::size_t max_running = 64;
    std::size_t max_queued = 4'096;
    std::size_t max_addresses = 16'384;  // at least max_running + max_queued
    Duration first_backoff = std::chrono::milliseconds{100};
    Duration longest_backoff = std::chrono::seconds{10};
    Duration period = std::chrono::hours{1};                     // a credential is renewed within it
    Duration idle = std::chrono::minutes{30};                    // not used for so long: neither renewed nor remembered
    Duration shortest_renewal = std::chrono::milliseconds{500};  // between two handshakes, however soon the end is
    // A word that a credential is forgotten leads to a handshake so often at once, and then once in each interval.
    std::uint32_t suspicion_burst = 4;
    Duration suspicion_interval = std::chrono::seconds{1};
    std::uint64_t host_random = 0;  // differs per host and start
  };

  enum class Answer : std::uint8_t {
    queued,       // next() will come to it
    running,      // under way, or queued already
    backing_off,  // failed lately; queued by itself when its time has come
    overloaded,   // as many are queued or known as may be
  };

  struct Stats {
    std::uint64_t started = 0;
    std::uint64_t succeeded = 0;
    std::uint64_t failed = 0;
    std::uint64_t renewals = 0;  // queued because the period ended
    std::uint64_t overloaded = 0;
    std::uint64_t suspicions_followed = 0;
    std::uint64_t suspicions_dropped = 0;
    std::uint64_t forgotten = 0;
  };

  explicit HandshakePlan(const Options& options);

  // Somebody needs a credential for this address.
  Answer want(const Address& address, Instant now);
  // Somebody uses the credential of this address: it will be renewed. Unknown addresses are ignored.
  void touch(const Address& address, Instant now);
  // The peer says that it no longer knows our credential. True: a handshake is queued. False: one is coming anyway, or
  // such words have come more often than the options allow.
  bool suspect(const Address& address, Instant now);

  // When to ask again for what suspect() did not queue: after an interval, and by chance up to half of one more.
  // Callers that push each other's credentials out of a full map at their peer would otherwise come back together every
  // time.
  Duration suspicion_delay();

  // The peer, which could not be reached lately, has shown that it is there: it need not wait. False: it was reached.
  bool hurry(const Address& address, Instant now);

  // The next one to start; call it until it is empty, then again at next_deadline() and after each outcome.
  std::optional<Address> next(Instant now);
  // The outcome of what next() gave out: exactly one each. Ignored for anything else. `end`: of the credential.
  void on_success(const Address& address, Instant end, Instant now);
  void on_failure(const Address& address, Instant now);
  // A handshake that the peer began has given us a credential for this address: ours has time again.
  void on_renewed(const Address& address, Instant end, Instant now);

  // In the past if there is something to start now.
  Instant next_deadline() const;

  std::size_t running() const { return running_; }
  std::size_t queued() const { return queue_.size(); }
  std::size_t known() const { return entries_.size(); }
  const Stats& stats() const { return stats_; }

 private:
  enum class State : std::uint8_t { idle, queued, running };
  struct Entry {
    State state = State::idle;
    bool wanted = false;  // start when the backoff ends
    bool live = false;    // has a credential: renew
    std::uint32_t failures = 0;
    Instant touched;
    Instant queued_at;
    Instant again_at = kLongAgo;  // no earlier start
    Instant renew_at = Instant::never();
    Instant suspicions_paid = kLongAgo;   // each one that is followed moves this on by an interval
    Instant deadline = Instant::never();  // its place in deadlines_
    std::list<Address>::iterator recency;
  };
  using Entries = std::unordered_map<Address, Entry, AddressHash>;

  static constexpr Instant kLongAgo{std::numeric_limits<std::int64_t>::min() / 2};

  Entry* find(const Address& address);
  // Null: there is no room. A known one counts as used.
  Entry* use(const Address& address, Instant now);
  bool make_room();
  bool enqueue(const Address& address, Entry& entry, Instant now);
  void leave_queue(const Address& address, Entry& entry);
  void renew(const Address& address, Entry& entry, Instant end, Instant now);
  void reschedule(const Address& address, Entry& entry);
  void drop(Entries::iterator at);
  void on_deadline(const Address& address, Instant now);
  Duration jittered(Duration backoff);
  Duration renewal_delay(const Address& address, Duration life) const;

  const Options options_;
  Random random_;
  Entries entries_;
  std::list<Address> recency_;  // longest unused first
  std::deque<Address> queue_;
  std::set<std::pair<Instant, Address>> deadlines_;
  std::size_t running_ = 0;
  Stats stats_;
};

}  // namespace weir::peer
