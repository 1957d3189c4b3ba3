// Handshaker: the broker of one pool with its socket, its thread and the ways to the posts.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "crypto/entropy.h"
#include "engine/credential.h"
#include "event/sink.h"
#include "handshake/broker.h"
#include "handshake/identity.h"
#include "link/link.h"
#include "link/receive_buffer.h"
#include "peer/hello_budget.h"
#include "pool/peer_entry.h"
#include "pool/post.h"
#include "pool/refusals.h"
#include "weir/config.h"
#include "worker/pollable.h"
#include "worker/worker.h"

namespace weir::pool {

// One per pool with an identity, turned by a worker of its own, or by the application's loop if the pool has no
// threads. What is not marked is for that loop.
class Handshaker final : public worker::Pollable,
                         public engine::CredentialBook,
                         public std::enable_shared_from_this<Handshaker> {
 public:
  struct Options {
    std::unique_ptr<handshake::IdentitySource> identity;
    std::unique_ptr<link::ReceiveBufferPool> buffers;
    std::unique_ptr<link::Link> link;
    std::shared_ptr<worker::Worker> worker;  // whose loop turns it
    bool has_own_thread = false;             // that does nothing but handshakes
    std::shared_ptr<Subscriber> subscriber;
    bool accepts = false;
    Limits limits;
    Timeouts timeouts;
    std::uint64_t seed = 0;
  };
  // What a post wants, and where the answer goes.
  struct Request {
    std::weak_ptr<Post> post;
    std::uint32_t peer = 0;
    const PeerEntry* entry = nullptr;  // read in request() only
    bool suspects = false;
    peer::Hurry hurry = peer::Hurry::none;
    engine::CredentialId suspected{};
  };

  explicit Handshaker(Options options);
  ~Handshaker() override;

  // ---- before it joins ----
  const crypto::Incarnation& incarnation() const { return incarnation_; }
  crypto::KeyBytes signer() const;
  std::string name() const;  // that our certificate proves
  // `self` says where the posts are; the rest is filled in here.
  Result<void> open(handshake::Offer self);

  // ---- any thread ----
  bool join(Instant until);
  // False if the loop could not do it by then, because the application's own function runs there (see
  // Identity::authorise) or its owner does not poll. It is then done when it can, and this object lives until it is. In
  // either case nothing more is asked of the application, nor told to it.
  bool leave(Instant until);
  void request(Request request);
  const Address& local() const { return local_; }
  // In a forked child, which never destroys a handshaker of its parent.
  void close_in_child() { link_->close_in_child(); }
  bool find(const engine::CredentialId& id, Instant now, engine::KnownCredential& out) const override;
  transfer::ProvenNames names_of(const engine::CredentialId& id) const override;
  void on_shown(const engine::CredentialId& id) override;
  bool may_greet(const Address& to, bool is_proven, Instant now) override;
  void on_answer(const Address& from, Instant now) override;

  // ---- worker::Pollable ----
  bool poll_once(Instant now) override;
  Instant next_deadline() const override;
  int descriptor() const override { return link_->descriptor(); }
  bool is_blocked() const override { return pending_.bytes.size() != 0; }
  bool is_starved() const override { return false; }
  void note_error() override { link_->note_error(); }
  void let_go() override {}

 private:
  static constexpr Duration kReloadInterval = std::chrono::seconds(1);  // and of telling of strangers
  static constexpr int kDatagramsPerTurn = 64;
  static constexpr int kMaxUnreachables = 64;
  static constexpr int kBusyTurnsPerAnswer = 16;  // a visitor gets its answer in one of so many turns, whatever comes
  // A loop that also does other things looks at this socket so often; the poller wakes it if it sleeps.
  static constexpr Duration kLookInterval = std::chrono::microseconds(50);

  struct Waiter {  // and everybody who was ever answered: renewals go to them, too
    std::weak_ptr<Post> post;
    std::uint32_t peer = 0;
    std::string expected_name;
    bool is_waiting = false;
  };

  // A request with what it needs of the pool, which may be gone when its turn comes.
  struct Asked {
    Request request;
    Address address;
    std::string name;
  };

  bool has_left() const { return has_left_.load(std::memory_order_relaxed); }
  bool take_requests(Instant now);
  bool receive(Instant now);
  bool send(Instant now);
  bool answer_one(Instant now, bool is_busy);
  bool tell_news(Instant now);
  void reload(Instant now);
  void tell_of_strangers();

  crypto::SystemEntropy entropy_;
  std::shared_ptr<worker::Worker> worker_;
  const bool has_own_thread_;
  std::unique_ptr<handshake::IdentitySource> identity_;
  std::unique_ptr<link::ReceiveBufferPool> buffers_;
  std::unique_ptr<link::Link> link_;
  const Address local_;
  const std::shared_ptr<Subscriber> subscriber_;
  event::Sink events_;
  Refusals refusals_;
  const bool accepts_;
  const Limits limits_;
  const Timeouts timeouts_;
  const std::uint64_t seed_;
  crypto::Incarnation incarnation_{};
  std::shared_ptr<const int> key_log_;  // a descriptor
  std::unique_ptr<handshake::Broker> broker_;
  std::atomic<peer::SecretMap*> map_{nullptr};  // the broker's, once there is one: the posts join before
  worker::Hosted hosted_;
  std::atomic<bool> rung_{false};

  std::unordered_map<Address, std::vector<Waiter>, AddressHash> waiters_;
  std::vector<link::Datagram> datagrams_;
  std::vector<std::byte> sending_;
  link::Train pending_;  // did not fit into the socket's buffer
  int busy_turns_ = 0;   // since the last answer, while somebody waits for one
  Instant look_at_{};
  Instant reload_at_{};
  handshake::EndpointStats told_;  // when strangers were last told of

  std::mutex mutex_;
  std::vector<Asked> requests_;
  std::vector<engine::CredentialId> shown_;
  std::atomic<bool> has_requests_{false};

  std::mutex budget_mutex_;
  peer::HelloBudget budget_;
  // Relaxed: whoever runs on the loop meanwhile may see it a little later. What it must not touch, it does not have.
  std::atomic<bool> has_left_{false};
};

}  // namespace weir::pool
