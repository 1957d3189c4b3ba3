// Broker: everything between "somebody wants to talk to this address" and "here is a credential", but the datagrams'
// way. The pool's handshaker and the simulator carry those.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/address.h"
#include "base/bytes.h"
#include "base/time.h"
#include "crypto/derive.h"
#include "crypto/prf.h"
#include "handshake/caller_names.h"
#include "handshake/endpoint.h"
#include "handshake/offer.h"
#include "peer/handshake_plan.h"
#include "peer/secret_map.h"

namespace weir::handshake {

// Addresses that do not answer must not keep those waiting that would. A handshake that has heard nothing for kPatience
// gives its place to one that waits for a place, and is tried again later, with twice the patience each time, for as
// long as a handshake may take. Such further tries have a quarter of the places at most.
//
// A peer that restarts in the middle of a handshake answers nothing more of it. If a handshake was heard and then hears
// nothing for kSilence, or for kSilentProbes probe timeouts of QUIC if that is longer, another one begins beside it.
// The silent one stays, because the peer may only be slow: its application is asked who may call. What ends first
// counts. If the silent one is heard again, the other one is given up, and the patience doubles. Another one begins at
// most kMostRestarts times in a row, and none after the time that a handshake may take.
//
// One per pool; one thread at a time, but for map() and caller_names(). No I/O, no clock, no threads: after each call
// that takes `now`, take all datagrams and news, then come back at next_deadline() at the latest. Visitors get their
// answers by answer_one().
class Broker {
 public:
  static constexpr std::size_t kHandshakesPerPlace = 2;  // of ours: one beside each that is silent

  struct Options {
    std::shared_ptr<const Credentials> credentials;
    std::function<bool(const Names&)> allows;  // who may call us
    std::function<bool(const Names&)> denies;  // who may not even be called
    bool accepts = false;
    Offer self;                 // what we say of ourselves; its reset key is filled in for each credential
    crypto::KeyBytes signer{};  // where those come from
    WallClock wall_clock;       // for the validity of certificates
    crypto::Entropy* entropy = nullptr;
    std::uint64_t seed = 0;        // of jitter and hash tables
    peer::SecretMap::Options map;  // but for the seed
    peer::HandshakePlan::Options plan;
    std::size_t max_incoming = 1024;
    Duration timeout = std::chrono::seconds(5);
    KeyLog key_log;
  };

  // What became of an address that was wanted, once for each want() and suspect(); and a credential more whenever one
  // that is in use was renewed.
  struct News {
    Address address;
    std::string expected_name;  // as it was wanted: news about one name are none about another
    std::optional<Error> failure;
    peer::Credential credential;
  };
  // A handshake of somebody else's that failed.
  struct Refusal {
    Address from;
    Error error;
  };

  explicit Broker(Options options);
  ~Broker();
  Broker(const Broker&) = delete;
  Broker& operator=(const Broker&) = delete;

  // `expected_name`: what the peer's certificate must prove; empty: its address. One name per address.
  void want(const Address& address, const std::string& expected_name, Instant now);
  // The same, by somebody who has reason to believe that the peer has forgotten this credential.
  void suspect(const Address& address, const std::string& expected_name, const CredentialId& suspected,
               peer::Hurry hurry, Instant now);
  // A peer has used this credential: it surely has it.
  void on_shown(const CredentialId& id, Instant now);
  // For handshakes that begin from now on.
  void set_credentials(std::shared_ptr<const Credentials> credentials);

  void on_datagram(MutableByteSpan datagram, const Address& from, Instant now);
  // An ICMP unreachable that quotes the beginning of a datagram sent to `who`.
  void on_unreachable(const Address& who, ByteSpan quoted, Instant now);
  void on_timeout(Instant now);
  Instant next_deadline() const;

  bool take_datagram(Address& to, ByteSpan& bytes, Instant now);
  // As in Endpoint: to be called when nothing else is to be received or sent.
  bool answer_one(Instant now);
  bool has_question() const { return endpoint_.has_question(); }
  bool take_news(News& out);
  std::optional<Refusal> take_refusal();

  peer::SecretMap& map() { return map_; }  // its readers' part: any thread
  // What the certificate behind a credential proves, if its peer may call us; null: not known. Any thread.
  CallerNames::List caller_names(const CredentialId& id) const { return caller_names_.find(id); }
  EndpointStats stats() const { return endpoint_.stats(); }
  const std::optional<Error>& last_unproven_failure() const { return endpoint_.last_unproven_failure(); }
  const peer::HandshakePlan::Stats& plan_stats() const { return plan_.stats(); }

 private:
  static constexpr std::size_t kQuotedBytes = 24;  // what an ICMP message surely quotes; a QUIC header's ids are in it
  static constexpr std::size_t kMaxRefusals = 256;
  static constexpr Duration kPatience = std::chrono::milliseconds(150);  // two first datagrams and a round trip
  static constexpr Duration kSilence = std::chrono::milliseconds(76);    // QUIC's first probe timeout (initial_rtt)
  static constexpr int kSilentProbes = 2;
  static constexpr std::uint32_t kMostRestarts = 16;
  static constexpr std::uint32_t kMostDoublings = 6;
  static constexpr int kHeardPatience = 8;          // times kPatience, of one that was heard before it fell silent
  static constexpr std::size_t kShareOfSilent = 4;  // they have one place in so many

  // Somebody we call, by address.
  struct Contact {
    std::string expected_name;
    std::uint64_t tag = 0;                       // of the handshake under way,
    Instant begun{};                             // and when it began, or the first of those in a row
    std::uint64_t silent_tag = 0;                // of an older one beside it, that was heard and fell silent,
    Instant silent_since{};                      // and when it was heard last
    bool is_proven = false;                      // it has proven its name before
    bool is_wanted = false;                      // somebody waits for news
    Instant wanted_since{};                      // if so
    std::uint32_t silences = 0;                  // how often it gave up its place since it was last heard
    std::uint32_t restarts = 0;                  // of handshakes that were heard, since one has ended by itself
    std::uint32_t revivals = 0;                  // how often a silent one was heard again, since then
    Instant made_at{};                           // when our last handshake with it succeeded
    CredentialId answered{};                     // of its last handshake with us,
    Instant answered_at{};                       // and when
    bool is_silent = false;                      // the handshake under way counts in silent_running_
    Instant patience_ends = Instant::never();    // its place in unanswered_
    Instant silence_ends = Instant::never();     // its place in heard_
    std::array<std::byte, kQuotedBytes> sent{};  // the beginning of what was sent last
  };

  // `turn`: of those who are told, so that each begins with another worker.
  std::vector<std::byte> describe_self(const CredentialId& id, std::uint64_t turn) const;
  Result<std::vector<std::byte>> answer(const Outcome& visitor);
  static bool proves(const peer::Credential& credential, const Contact& contact);
  bool is_outdated(const CredentialId& id, const Contact& contact) const;
  // Null, and news of a failure, if it has another name.
  Contact* contact(const Address& address, const std::string& expected_name);
  void ask(const Address& address, Contact& contact, Instant now);
  void start(Instant now);
  void begin(const Address& address, Contact& contact, Instant now);
  void give_up(Contact& contact, std::uint64_t tag, Instant now);
  void give_up_all(const Address& address, Contact& contact, Instant now);
  void begin_beside(const Address& address, Contact& contact, Instant now);
  bool revive(const Address& address, Contact& contact, Instant now);
  bool outlives(const Outcome& outcome, const Address& address, Contact& contact, Instant now);
  void begin_anew(const Address& address, Contact& contact, Instant now);
  void reach(const Address& address, Contact& contact, Instant now);
  void end(const Address& address, Contact& contact);
  void await_answer(const Address& address, Contact& contact, Instant now);
  void make_way(Instant now);
  void note_heard(const Address& address, Instant now);
  void measure_silence(const Address& address, Contact& contact, Instant from);
  void look_for_silence(Instant now);
  Instant silence_end(const Contact& contact) const;
  void try_later(const Address& address, Contact& contact, Instant now);
  void take_outcomes(Instant now);
  void on_outcome(const Outcome& outcome, Instant now);
  Result<peer::Credential> make_credential(const Outcome& outcome) const;
  Instant end_of(const Outcome& outcome) const;
  void fail(const Address& address, Error error, Instant now);
  void install(const peer::Credential& credential, const Names& names, Instant now);

  Options options_;
  std::unique_ptr<crypto::Aead> aead_;
  crypto::Prf signer_;
  peer::SecretMap map_;
  CallerNames caller_names_;
  peer::HandshakePlan plan_;
  Instant now_{};  // of the call under way: the endpoint asks for answers inside
  Endpoint endpoint_;
  std::unordered_map<Address, Contact, AddressHash> contacts_;
  std::unordered_map<std::uint64_t, Address> by_tag_;
  std::set<std::pair<Instant, Address>> later_;       // suspected again too soon
  std::set<std::pair<Instant, Address>> unanswered_;  // handshakes under way that have heard nothing, as far as we know
  std::set<std::pair<Instant, Address>> heard_;       // handshakes under way that have, with when to look again
  std::size_t silent_running_ = 0;
  std::uint64_t next_tag_ = 1;
  std::uint64_t hosts_told_ = 0,
                visitors_told_ = 0;  // apart, or one kind could leave the other only every second worker
  std::deque<News> news_;
  std::deque<Refusal> refusals_;
};

}  // namespace weir::handshake
