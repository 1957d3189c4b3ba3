// Handshaker: what a pool does about identities, for one simulated process: a broker with its socket, and the ways
// between it and the engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"
#include "handshake/broker.h"
#include "peer/hello_budget.h"
#include "sim/identities.h"
#include "sim/link.h"
#include "sim/world.h"

namespace weir::sim {

inline constexpr std::uint16_t kDataPort = 4'433;
inline constexpr std::uint16_t kHandshakePort = 4'434;
inline constexpr std::uint16_t kOtherPorts = 4'440;  // from here on, of workers beyond the first

// One per simulated process of a host with an identity. It stands for pool::Handshaker and for the part of pool::Post
// that talks to it; those have threads, sockets and a clock, and hand over between them what passes directly here.
class Handshaker final : public engine::CredentialBook {
 public:
  struct Options {
    HostId host = 0;
    HostId certificate_of = 0;  // the host, whose certificate it is
    bool forgets_members = false;
    std::uint64_t seed = 0;
    crypto::KeyBytes signer{};
    crypto::Incarnation incarnation{};
    bool accepts = false;
    std::vector<std::uint16_t> worker_ports;  // of data
    std::uint32_t mtu = 0;
    std::int64_t clock_error_seconds = 0;
    Duration grace{};         // of credentials that were replaced
    Duration simultaneous{};  // handshakes of both sides within this
    Limits limits;
    Timeouts timeouts;
    std::optional<ShortCertificates> certificates;
    Instant run_start{};        // if there are any
    bool forgets_ends = false;  // of credentials: sabotage
  };
  // How long handshakes took and how many there were.
  struct Stats {
    std::uint64_t installed = 0;  // credentials given to the engine
    std::uint64_t refused = 0;    // wishes that failed
    Duration first_handshake{0};  // from the engine's first wish to its credential
  };

  Handshaker(World& world, const Options& options, crypto::Entropy& entropy, SimLink& link);
  ~Handshaker() override;

  // Before the first turn.
  void add_engine(std::size_t worker, engine::Engine& engine);
  // The engine of this worker calls this peer by this address.
  void add_peer(std::size_t worker, std::uint32_t peer, const Address& address);
  // All credentials that paths to this process were made with are gone, as if others had taken their room.
  void forget_callers(Instant now);

  // ---- engine::CredentialBook ----
  bool find(const engine::CredentialId& id, Instant now, engine::KnownCredential& out) const override;
  transfer::ProvenNames names_of(const engine::CredentialId& id) const override { return broker_->caller_names(id); }
  void on_shown(const engine::CredentialId& id) override;
  bool may_greet(const Address& to, bool is_proven, Instant now) override { return budget_.spend(to, is_proven, now); }
  void on_answer(const Address& from, Instant now) override { budget_.on_answer(from, now); }

  // ---- one worker's turn ----
  bool drain(std::size_t worker, Instant now);
  void flush(std::size_t worker, Instant now);

  // A turn, after the seat's.
  void poll_once(Instant now);
  Instant next_deadline() const;
  bool is_blocked() const { return !pending_.bytes.empty(); }
  bool has_news() const;

  const Stats& stats() const { return stats_; }
  handshake::EndpointStats endpoint_stats() const { return broker_->stats(); }
  const peer::SecretMap& map() const { return broker_->map(); }
  std::size_t waiting() const;  // peers of the engine whose credentials are under way

 private:
  // And everybody who was ever answered: renewals go to them, too. One for each address: only the worker that the
  // router has chosen calls it.
  struct Waiter {
    std::size_t worker = 0;
    std::uint32_t peer = 0;
    bool is_waiting = false;
    Instant since{};
  };
  struct Request {
    std::size_t worker = 0;
    engine::Wanted wanted;
  };
  struct Told {
    std::uint32_t peer = 0;
    std::optional<Error> failure;
    engine::Credential credential;
  };

  void replace_certificate(Instant now);
  void take_requests(Instant now);
  void receive(Instant now);
  void send(Instant now);
  void take_news(Instant now);

  World& world_;
  const Options options_;
  SimLink& link_;
  struct Desk {  // of a worker
    engine::Engine* engine = nullptr;
    std::vector<Told> told;
    std::unordered_map<std::uint32_t, Address> addresses;  // of peers
  };
  std::vector<Desk> desks_;
  std::unique_ptr<handshake::Broker> broker_;
  Instant next_certificate_ = Instant::never();
  peer::HelloBudget budget_;
  std::unordered_map<Address, Waiter, AddressHash> waiters_;
  std::vector<Request> requests_;
  std::vector<engine::CredentialId> shown_;
  std::vector<engine::CredentialId> used_by_callers_;
  std::vector<link::Datagram> datagrams_;
  std::vector<std::byte> sending_;
  link::Train pending_;  // did not fit into the socket's buffer
  Stats stats_;
};

}  // namespace weir::sim
