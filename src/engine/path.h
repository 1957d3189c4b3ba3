// Path and Peer: what an engine knows of one other process.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/address.h"
#include "base/time.h"
#include "crypto/derive.h"
#include "engine/call_queues.h"
#include "engine/call_slots.h"
#include "engine/credential.h"
#include "engine/frame_ring.h"
#include "engine/keying.h"
#include "engine/members.h"
#include "engine/path_keys.h"
#include "engine/shared_links.h"
#include "engine/waiting_requests.h"
#include "peer/replay_window.h"
#include "recovery/ack_policy.h"
#include "recovery/ack_ranges.h"
#include "recovery/ecn_validator.h"
#include "recovery/loss_detector.h"
#include "recovery/mtu_search.h"
#include "recovery/path_controller.h"
#include "schedule/pacer.h"
#include "schedule/priority_queue.h"
#include "schedule/timing_wheel.h"
#include "token/ahead.h"
#include "token/credit.h"
#include "token/grant_ledger.h"
#include "token/grant_window.h"
#include "token/region_table.h"
#include "token/token_cache.h"
#include "transfer/incoming_transfer.h"
#include "transfer/known_caller.h"
#include "transfer/outgoing_call.h"
#include "transfer/writer.h"
#include "wire/packet.h"

namespace weir::engine {

using transfer::IncomingTransfer;
using transfer::OutgoingCall;

inline constexpr std::uint32_t kNoPath = ~std::uint32_t{0};

enum class TimerKind : std::uint32_t { call, path, peer, retry, writer, pause, arrival, regions, link, nic, pace };

struct Peer;

// The callee's memory of one slot: the last generation that was opened, and its transfer while there is one.
struct IncomingSlot {
  std::uint64_t generation = 0;
  IncomingTransfer* transfer = nullptr;
};

// What a path has of large messages; made when the first one comes.
struct LargePath {
  explicit LargePath(std::uint64_t ahead_bytes) : ahead(ahead_bytes) {}

  // ---- sending ----
  schedule::WeightedQueue<transfer::Writer, &transfer::Writer::hook> writing;
  FrameRing again;  // slices that were lost
  token::TokenCache tokens;
  Instant last_new_byte{};                            // that any region of this path's got
  std::uint64_t in_flight_bytes = ~std::uint64_t{0};  // that the receiver's socket has room for, as it says
  std::uint64_t reply_bytes = 0;                      // that replies keep which the peer has not acknowledged yet
  std::uint32_t sent_slices = 0;                      // of all messages
  std::uint64_t sent_bytes = 0;                       // of all messages, but for those that were sent again
  // ---- receiving ----
  Member* member = nullptr;  // who sends; null: there are no members
  token::SenderAccount own;  // without a member
  token::Ahead ahead;
  Duration grant_round_trip{};     // the shortest from a grant to the first bytes that it brought; 0: not known
  bool receives = false;           // counted in Core::large_receivers
  bool is_remote = false;          // counted in Core::remote_receivers
  bool serves_held = false;        // in Core::held_asks
  std::uint32_t arrivals = 0;      // that have memory or wait for it
  std::uint32_t spare_tokens = 0;  // regions granted ahead of need and not used yet
  token::GrantWindow::Losses grant_losses;  // of this sender
  token::PathRegions regions;

  token::SenderAccount& account() { return member != nullptr ? *member->large : own; }
  bool is_idle() const {
    const bool owes = std::any_of(own.bytes.begin(), own.bytes.end(), [](std::uint64_t b) { return b != 0; });
    return writing.empty() && again.empty() && !owes && arrivals == 0 && regions.first == nullptr;
  }
};

// One pair of (worker, port) and (worker, port), with everything that is counted per path. Lives in a slab of its
// engine; both sides number it on their own.
struct Path {
  enum class State : std::uint8_t {
    hello,       // initiator: waiting for the reply to its hello; no keys yet
    confirming,  // initiator: sends `first` packets until the responder has told its path number
    open,
  };

  Path(Random& random, const recovery::LossDetector::Options& loss_options, recovery::MtuSearch::Options mtu_options,
       recovery::AckPolicy::Options ack_options)
      : ack_policy(ack_options), loss(loss_options, random), mtu(mtu_options) {}
  ~Path() {
    if (reset_key) crypto::wipe(*reset_key);
  }

  std::uint32_t id = kNoPath;         // ours: what the other side puts into headers
  std::uint32_t remote_id = kNoPath;  // theirs
  std::uint64_t serial = 0;           // never used again, unlike `id`
  State state = State::hello;
  bool initiator = false;
  bool touched = false;         // in Core::touched
  bool passed_over = false;     // found the transmit memory used up: goes first the next time
  bool waits_for_room = false;  // in Core::waiting_for_room
  bool ever_received = false;   // anything that authenticated
  bool probing = false;         // nothing has, for so long that its peer was asked whether it lives
  bool draining = false;        // its peer has a newer path: only what was sent here is still answered here
  bool key_confirmed = false;   // the other side has acknowledged a packet under the current sending key
  bool received_any_ecn = false;
  bool announce_path = false;           // responder: tell our path number
  std::uint8_t credit_levels_owed = 0;  // bit per level
  bool probe_wanted = false;
  bool ping_owed = false;  // an ack-eliciting packet is wanted even if there is nothing to say
  bool probe_response_owed = false;
  std::uint8_t responses_owed = 0;  // initiator: to challenges of its address, in Core::challenges
  bool is_changing = false;         // responder: its address, see Core::changes
  // Initiator: authenticates the peer's unknown_path answers, if open; before that its unknown_secret answers. None:
  // the peer has no such words to say.
  std::optional<crypto::KeyBytes> reset_key;
  std::uint8_t probes_owed = 0;  // packets that may go whatever the windows say
  LinkShare link;                // of the link that it shares with paths to the same network
  const crypto::KeyBytes* known_reset_key() const { return reset_key ? &*reset_key : nullptr; }
  Peer* peer = nullptr;              // of an outgoing path
  transfer::CallerReference caller;  // there before its first request
  Address remote;
  crypto::Incarnation remote_incarnation{};
  CredentialId credential{};  // initiator: that it was made with
  // Responder: when the last request came, or word of a reply, or when the path was given credit that it had asked for;
  // before that, when the path was made. In units of 2^20 ns.
  std::uint32_t last_use = 0;
  void note_use(Instant now) { last_use = static_cast<std::uint32_t>(now.ns >> 20); }
  Duration unused_for(Instant now) const {
    return Duration(std::int64_t{static_cast<std::uint32_t>(now.ns >> 20) - last_use} << 20);
  }

  // ---- sealing and opening ----
  PathKeys keys;
  std::uint64_t next_number = 0;
  std::uint64_t key_first_number = 0;  // first packet under the current sending key
  std::uint64_t key_bytes = 0;
  peer::ReplayWindow replay;
  struct Confirming {
    std::vector<std::byte> prefix;  // of `first` packets
    std::uint64_t sequence() const { return load<std::uint64_t>(prefix.data()); }
    Instant doubt_at = Instant::never();  // then a second hello asks whether the peer has restarted
  };
  std::unique_ptr<Confirming> confirming;  // in that state

  // ---- recovery ----
  recovery::AckRanges received;
  recovery::AckPolicy ack_policy;
  Instant largest_received_at{};
  recovery::EcnCounts received_ecn;
  recovery::LossDetector loss;
  recovery::PathController congestion;
  recovery::EcnValidator ecn;
  recovery::MtuSearch mtu;
  schedule::Pacer pacer;
  FrameRing frames;  // of the packets in flight
  FrameRing again;   // to be sent (again): lost frames and control frames
  std::unique_ptr<LargePath> large;

  // ---- calls from here ----
  CallSlots calls;
  std::uint32_t max_calls = 0;
  std::uint32_t max_bytes = 0;  // largest message that the other side takes
  std::uint32_t outstanding = 0;
  std::uint32_t receiving = 0;  // calls to here, with fragments missing
  std::uint64_t next_generation = 1;
  OutgoingCall* partial = nullptr;  // some of its fragments are out: the rest goes before any other call
  token::CreditSenders credit;
  Instant blocked_since = Instant::never();  // a call waits for credit
  Instant say_blocked_at = Instant::never();

  // ---- calls to here ----
  std::vector<IncomingSlot> incoming;
  SparseQueue<IncomingTransfer, &IncomingTransfer::hook> replies;
  token::CreditAccounts accounts;
  std::unique_ptr<WaitingRequests> waiting;  // for room for their answers; without a member
  std::uint64_t last_incoming = 0;           // the highest generation that a request or cancellation named
  std::uint32_t incoming_live = 0;
  std::uint32_t replying = 0;  // of these, answered and not acknowledged
  Instant heard_of_replies{};  // when the last of them was, or the first was made

  // Responder: who has made the path; null: there are no members.
  Member* member() const { return static_cast<Member*>(accounts.member()); }

  // ---- control owed ----
  std::uint64_t probe_timestamp = 0;

  std::uint8_t key_low() const { return static_cast<std::uint8_t>(keys.send_id() & ((1u << wire::kKeyIdBits) - 1)); }

  // ---- liveness ----
  Instant expires = Instant::never();  // identity mode: with its credential. Nothing is taken or sent from then on
  Instant last_received{};
  Instant last_sent{};
  Instant waiting_since{};  // something has been outstanding since
  schedule::Timer timer;
};

// Somebody this engine calls, by address. Lives in a slab; never removed, because applications hold its index.
struct Peer {
  Address address;   // where its packets go; in identity mode, once there is a credential
  std::string name;  // the address that the application named, printed
  std::uint32_t index = 0;
  std::uint32_t path = kNoPath;       // that carries its calls, in whatever state
  std::uint32_t candidate = kNoPath;  // a second hello, sent because the first path fell silent
  // Identity mode:
  bool wants_credential = false;  // in Core::wanted, or asked for
  Hurry hurry = Hurry::none;      // in that wish
  bool lost_path = false;         // while that or a hello stood: the next call hurries
  bool renewing = false;          // the candidate has a new credential: it takes over although nobody restarted
  CallQueues queue;

  bool has_queued() const { return !queue.empty(); }

  // ---- identity mode ----
  HeldCredential credential;

  // ---- the hello under way ----
  std::unique_ptr<std::array<std::byte, 32>> random;  // until its path is open
  Instant hello_started{};
  Instant hello_sent{};                     // the last of them
  Instant failure_told = Instant::never();  // the last HandshakeFailed event
  std::uint32_t failures_untold = 0;        // since
  std::uint8_t failures = 0;                // to reach it, in a row
  std::uint8_t hellos_sent = 0;             // up to 255
  bool has_own_replies = false;             // our own hello came back to us
  bool has_forged_replies = false;          // or its secret is another one
  schedule::Timer timer;

  bool saying_hello() const { return timer.armed(); }
  // Whether `echo` repeats the first bytes of the random of our hello.
  bool is_own_random(ByteSpan echo) const {
    return random != nullptr && crypto::equal_in_constant_time(echo, ByteSpan(*random).first(echo.size()));
  }
};

}  // namespace weir::engine
