// The credentials that a pool shares with other pools, by id and by the peer's handshake address (docs/protocol.md,
// rules I-7 and I-8).
//
// A credential's life, which only goes forward:
//
//   openable    install(): found by id, so that what the peer seals can be opened; we do not begin anything with it
//   usable      confirm(): the peer has shown that it has it too; found by address
//   superseded  another one took its address (a later handshake, or the winner of two simultaneous ones): found by id
//               until both sides were seen to use that other one
//   retired     found by id for a grace period, then wiped
//
// Two handshakes are simultaneous if either side began one of them with the same incarnation of the other and both
// were installed within Options::simultaneous. Both sides then keep the one with the lower crypto::derive_order.
//
// Readers never wait, not even for a writer that was descheduled halfway. Each entry has a word with its generation,
// which readers load before and after copying the entry; chains are changed one link at a time, and `moves_` counts the
// changes that could make a reader miss an entry that is there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/sync.h"
#include "base/time.h"
#include "peer/credential.h"

namespace weir::peer {

// One per pool. What is marked "writer" may be called by one thread at a time; the rest by any thread at any time.
class SecretMap {
 public:
  static constexpr std::uint32_t kMaxCapacity = 1u << 24;

  struct Options {
    std::uint32_t capacity = 16'384;                   // credentials; one takes at most 512 bytes in all
    Duration grace = std::chrono::seconds{30};         // of retired ones
    Duration lifetime = std::chrono::hours{2};         // of any, if it does not end earlier by itself
    Duration simultaneous = std::chrono::seconds{10};  // see above
    std::uint64_t hash_seed = 0x9e3779b97f4a7c15;      // random, so that nobody can choose ids that collide
    // Instead of crypto::derive_order, for simulations: secrets are the one thing in them that no seed decides. Both
    // sides must come to the same for one credential.
    std::function<std::uint64_t(const Credential&)> order;
  };

  enum class State : std::uint8_t { openable, usable, superseded, retired };
  enum class Confirmation : std::uint8_t { unknown, current, lost };
  enum class Side : std::uint8_t { us, peer, both };

  struct Stats {
    std::uint64_t installed = 0;
    std::uint64_t evicted = 0;
    std::uint64_t expired = 0;
  };

  explicit SecretMap(const Options& options);
  ~SecretMap();
  SecretMap(const SecretMap&) = delete;
  SecretMap& operator=(const SecretMap&) = delete;

  // Writer. False: it is there already. A full map gives up one that was not looked up for longest.
  bool install(const Credential& credential, Instant now);
  // Writer. The peer has shown that it has this credential. `lost`: a simultaneous one stays the address's, or the
  // credential is superseded or retired already. Whoever makes a handshake because a credential is suspected to be
  // forgotten by the peer retires that one first, or it might win.
  Confirmation confirm(const CredentialId& id, Instant now);
  // Writer. No longer found by address from now on, nor by id from `at` on. False: not there.
  bool retire(const CredentialId& id, Instant at);
  // Writer. Returns how many were wiped. Call it at next_deadline().
  std::size_t expire(Instant now);
  Instant next_deadline() const;  // Writer.

  std::optional<State> state(const CredentialId& id) const;  // Writer.
  std::size_t size() const { return size_; }                 // Writer.
  const Stats& stats() const { return stats_; }              // Writer.

  // From its end on (Credential::expires_ns) no credential is found, also before expire() has come to it.
  [[nodiscard]] bool find(const CredentialId& id, Instant now, Credential& out) const;
  // The same, of one who may call us, and with as little work as can be: anybody can make us look. Keys that are not to
  // be used may be left in `out`, which wipes them.
  [[nodiscard]] bool find_caller(const CredentialId& id, Instant now, KnownCredential& out) const;
  // The one to begin a path with.
  [[nodiscard]] bool find_by_address(const Address& address, Instant now, Credential& out) const;
  // Somebody has sealed with it. True if that was news, so that the caller can tell the writer to confirm() once.
  bool mark_used(const CredentialId& id, Side side);

 private:
  struct Stored;
  struct Slot;
  enum Chain : std::uint8_t { by_id, by_address };
  using Index = std::uint32_t;  // of a slot, plus one; 0 is none
  using Link = sync::Atomic<Index>;

  static constexpr std::uint32_t kChunkSlots = 64;

  Slot& slot(Index index) const;
  Link& head(const CredentialId& id) const;
  Link& head(const Address& address) const;
  template <Chain chain, class Key, class Take>
  Slot* locate(const Key& key, std::uint64_t& use, Take&& take) const;
  static void note_look(Slot& entry, std::uint64_t use);
  template <Chain chain, class Key>
  bool read(const Key& key, Instant now, Credential& out) const;

  Index index_by_id(const CredentialId& id) const;
  Index index_by_address(const Address& address) const;
  void link(Chain chain, Link& head, Index index);
  void unlink(Chain chain, Link& head, Index index);
  void leave_address(Index index);
  void supersede(Index loser, Index winner, Instant now);
  bool simultaneous(const Slot& one, const Slot& other) const;
  std::uint64_t order_of(const Stored& stored) const;
  bool precedes(const Slot& one, const Slot& other) const;
  bool is_due(const Slot& entry, Instant now) const;
  void review(Slot& loser, Instant now);
  Index take_slot();
  void evict();
  void remove(Index index);
  Instant end_of(const Slot& entry) const;

  void schedule(Index index, Instant deadline);
  void unschedule(Index index);
  void place(std::size_t position, Index index);
  std::size_t sift_up(std::size_t position);
  void sift_down(std::size_t position);

  const Options options_;
  const std::uint32_t mask_;
  const std::unique_ptr<Link[]> ids_;
  const std::unique_ptr<Link[]> addresses_;
  const std::unique_ptr<sync::Atomic<Slot*>[]> chunks_;
  sync::Atomic<std::uint64_t> moves_{0};

  std::vector<Index> deadlines_;  // a heap
  std::size_t size_ = 0;
  std::uint32_t touched_ = 0;  // slots that were ever taken
  Index free_ = 0;
  Index hand_ = 0;
  Stats stats_;
};

}  // namespace weir::peer
