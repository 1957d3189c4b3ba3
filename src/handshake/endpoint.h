// Endpoint: all handshakes of one pool, over datagrams that somebody else carries.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/address.h"
#include "base/bytes.h"
#include "base/time.h"
#include "crypto/entropy.h"
#include "handshake/admission.h"
#include "handshake/connection.h"
#include "handshake/connection_ids.h"
#include "handshake/credentials.h"
#include "handshake/outcome.h"
#include "handshake/source_shares.h"

namespace weir::handshake {

inline constexpr std::size_t kMinDatagramBytes = 21;    // no QUIC packet is shorter
inline constexpr std::size_t kMaxDatagramBytes = 1500;  // what we look at; a peer need not send more than 1,200
inline constexpr std::size_t kMaxPendingReplies = 256;  // datagrams of no connection that wait to be taken
inline constexpr std::size_t kMaxClosed = 256;          // closed connections that we still answer for
inline constexpr unsigned kMaxRepliesWhenClosed = 8;    // of each
inline constexpr Duration kClosedFor = std::chrono::seconds(1);
// When full, a half-open handshake older than this makes room for a new one: an honest one is long through by then.
inline constexpr Duration kEvictAfter = std::chrono::milliseconds(500);

struct EndpointStats {
  std::uint64_t started = 0;          // by connect()
  std::uint64_t accepted = 0;         // inbound ones that we keep state for
  std::uint64_t completed = 0;        // outcomes without failure, both ways
  std::uint64_t failed = 0;           // outcomes with one
  std::uint64_t failed_unproven = 0;  // inbound ones without outcome: the peer had not proven its address
  std::uint64_t retries_sent = 0;
  std::uint64_t versions_sent = 0;
  std::uint64_t dropped_full = 0;     // first datagrams, because there were max_incoming already
  std::uint64_t dropped_source = 0;   // the same, because their source had its share
  std::uint64_t evicted = 0;          // half-open ones that made room, for anybody or for others of their source
  std::uint64_t dropped_asking = 0;   // first datagrams, because their sender waits for an answer already
  std::uint64_t dropped_garbage = 0;  // datagrams that belong to nothing
  std::size_t half_open = 0;          // inbound ones whose peer has not proven itself, now
  std::size_t connections = 0;        // all, now
  std::size_t closed = 0;             // closed ones that we still answer for, now
  std::size_t sources = 0;            // that are remembered, now
};

// One per pool; one thread at a time. No I/O, no clock, no threads: after each call that takes `now`, take all
// datagrams and outcomes, then come back at next_deadline() at the latest. Memory is bounded by the options.
class Endpoint {
 public:
  struct Options {
    std::shared_ptr<const Credentials> credentials;
    bool accepts = false;
    Answer answer;         // responder; required if it accepts. Called inside answer_one()
    MakeOffer offer;       // initiator
    WallClock wall_clock;  // for the validity of certificates
    std::size_t max_outgoing = 64;
    std::size_t max_incoming = 1024;
    std::size_t max_per_source = 0;  // of these, from one source (see SourceShares); 0: a quarter
    std::size_t retry_from = 64;     // so many half-open inbound ones: further ones must prove their address first
    Duration timeout = std::chrono::seconds(5);
    Duration initial_rtt =
        std::chrono::milliseconds(25);   // until measured; a third of the first retransmission's delay
    crypto::Entropy* entropy = nullptr;  // connection ids, the retry secret; outlives the endpoint
    KeyLog key_log;                      // opt-in, for debugging: whoever reads it reads everything
  };
  explicit Endpoint(Options options);
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  // For handshakes that begin from now on.
  void set_credentials(std::shared_ptr<const Credentials> credentials);

  // `tag` is the caller's, not in use. `expected_name`: what the peer's certificate must prove; empty: its address.
  // Errors (there will be no outcome): overloaded at max_outgoing, invalid_argument, too_large.
  Result<void> connect(std::uint64_t tag, const Address& remote, std::string expected_name, Instant now);
  // No outcome will come, unless one has been queued already.
  void abandon(std::uint64_t tag, Instant now);
  void abandon_silently(std::uint64_t tag, Instant now);  // the peer is told nothing: it is known to be gone
  bool has_heard(std::uint64_t tag) const;                // from the peer, in this handshake
  // When it began, or last received something; and how long QUIC waits for an answer in it.
  struct Progress {
    Instant last_received;
    Duration probe_timeout;
  };
  std::optional<Progress> progress(std::uint64_t tag) const;  // nothing: there is no such handshake

  void on_datagram(MutableByteSpan datagram, const Address& from, Instant now);
  void on_timeout(Instant now);
  Instant next_deadline() const;

  // The next datagram to send; valid until the next call. False: none for now.
  bool take_datagram(Address& to, ByteSpan& bytes, Instant now);
  // The answer may take its time, and visitors that hear nothing think that we are gone. So whatever has come is to be
  // taken in, and whatever there is to send is to be sent, before each answer: that says that we live, and a visitor
  // that has gone meanwhile is asked about no more. Answers the visitor that has waited for longest; false if there is
  // none.
  bool answer_one(Instant now);
  bool has_question() const { return !questions_.empty(); }
  std::optional<Outcome> take_outcome();
  EndpointStats stats() const;
  const std::optional<Error>& last_unproven_failure() const { return last_unproven_failure_; }

 private:
  using Serial = ConnectionIds::Owner;  // ascending: also the order of age

  struct Live {
    std::unique_ptr<Connection> connection;
    std::optional<ConnectionIds::Initial> initial;  // inbound: what its first datagrams are found by
    Instant born;
    Instant deadline = Instant::never();
    bool ready = false;          // is in ready_
    bool held = false;           // counts against its source's share
    std::uint64_t question = 0;  // its place in questions_, if it waits for an answer
  };
  struct Reply {
    Address to;
    std::vector<std::byte> bytes;
  };
  // What remains of a connection that we closed: the last datagram is repeated to a peer that did not get it.
  struct Closed {
    Serial serial;
    Address remote;
    std::vector<std::uint64_t> ids;
    std::optional<ConnectionIds::Initial> initial;
    std::vector<std::byte> last;
    Instant until;
    unsigned replies = 0;
  };

  void accept(ByteSpan datagram, const ngtcp2_version_cid& ids, const Address& from, Instant now);
  bool make_room(Instant now);
  void hold(Serial serial, Live& live, Instant now);
  bool evict(Serial serial, Instant now);
  void deliver(Serial serial, ByteSpan datagram, const Address& from, bool proven, Instant now);
  void reply(const Address& to, std::vector<std::byte> bytes);
  bool take_reply(Address& to, ByteSpan& bytes);
  void mark_ready(Serial serial, Live& live);
  void forget_question(Live& live);
  // After anything that happened to it. Removes it if it is over; false then.
  bool settle(Serial serial, Live& live, Instant now);
  void schedule(Serial serial, Live& live, Instant now);
  void remove(Serial serial, Instant now);
  void forget_closed(Instant now);
  void forget(const Closed& closed);

  Options options_;
  ConnectionIds ids_;
  TlsPolicy policy_;
  Connection::Context context_;
  Admission admission_;
  SourceShares shares_;
  Serial next_serial_ = 1;
  std::unordered_map<Serial, Live> live_;
  std::unordered_map<std::uint64_t, Serial> by_tag_;
  std::set<Serial> half_open_;
  std::set<std::pair<Instant, Serial>> deadlines_;
  std::deque<Serial> ready_;
  std::map<std::uint64_t, Serial> questions_;                     // visitors that wait for an answer, in their order
  std::unordered_map<Address, std::size_t, AddressHash> asking_;  // how many of these are at an address
  std::uint64_t next_question_ = 1;
  std::deque<Closed> closed_;  // by age, hence also by end and by serial order of closing
  std::deque<Reply> replies_;
  std::deque<Outcome> outcomes_;
  std::vector<std::byte> taken_;
  EndpointStats stats_;
  std::optional<Error> last_unproven_failure_;
};

}  // namespace weir::handshake
