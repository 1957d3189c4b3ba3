// What a pool tells about itself while it works. Each event is declared once, here. Counters of what has an event of
// its own derive from those events; what happens with every packet or small call is counted where it happens and has
// none, which would cost more than the packet. A subscriber is called from several threads at once (each worker, the
// watchdog, the thread in open(), one that allocates about huge pages, one that opens a large message about a forged
// record, and one that runs a handler about an exception), must not block and must not call back into the pool.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "weir/error.h"

namespace weir {
namespace event {

struct Meta {
  std::int64_t time_ns = 0;  // the worker's clock (monotonic; virtual time in simulation)
  std::uint32_t worker = 0;  // the handshake thread's number follows the workers'
};

enum class TransferStage : std::uint8_t { submitted, sent, dispatched, replied, completed, failed, cancelled };
enum class PeerHealth : std::uint8_t { connecting, healthy, probing, failed, closed };
enum class Rejection : std::uint8_t {
  truncated,        // too short to be a packet
  unknown_path,     // names a path that is not there
  unknown_key,      // a key id that is neither previous, current nor next
  forged,           // the tag does not match
  replayed,         // this packet number was seen before
  too_old,          // older than the replay window remembers
  malformed_frame,  // authenticated, but it makes no sense
  bad_hello,        // a hello that is stale, forged or not for us
  limit,            // over a limit that an honest peer keeps
};

struct TransferMoved {
  Meta meta;
  std::uint32_t path;
  std::uint64_t transfer;
  TransferStage stage;
  bool incoming;
};
struct TransferFailed {
  Meta meta;
  std::uint32_t path;
  std::uint64_t transfer;
  Code code;
  bool may_have_run;
};
struct PacketRejected {
  Meta meta;
  Rejection reason;
  std::uint32_t bytes;
};
struct PacketsLost {
  Meta meta;
  std::uint32_t path;
  std::uint32_t packets;
  std::uint64_t bytes;
};
struct ProbeTimeout {
  Meta meta;
  std::uint32_t path;
  std::uint32_t backoff;
};
struct CongestionChanged {
  Meta meta;
  std::uint32_t path;
  std::uint64_t window_bytes;
  bool by_loss;
  bool by_ecn;
};
struct MtuChanged {
  Meta meta;
  std::uint32_t path;
  std::uint32_t datagram_bytes;
};
struct KeyRotated {
  Meta meta;
  std::uint32_t path;
  std::uint32_t key_id;
};
struct CreditBlocked {
  Meta meta;
  std::uint32_t path;
  std::uint64_t limit;
};
// A caller's packets come from another address, which has answered a challenge: replies go there from now on.
struct AddressChanged {
  Meta meta;
  std::uint32_t path;
  std::string_view from;
  std::string_view to;
};
// The peer has no memory for a large message of ours now. It keeps our place in its line.
struct MemoryAwaited {
  Meta meta;
  std::uint32_t path;
  std::uint64_t transfer;
  std::chrono::microseconds retry_hint;
};
// A peer may write a large message into memory of ours, from now on.
struct RegionGranted {
  Meta meta;
  std::uint32_t path;
  std::uint64_t region;
  std::uint64_t bytes;
};
// We take that memory back: its time is over, or others need it. The peer is told.
struct RegionRevoked {
  Meta meta;
  std::uint32_t path;
  std::uint64_t region;
  std::uint64_t transfer;  // of the message that was being written; 0: none was
};
// We have no memory for a peer's large message now. It waits in line.
struct RegionExhausted {
  Meta meta;
  std::uint32_t path;
  std::uint64_t transfer;
};
// The peer took the memory back that we wrote a large message into. The message asks for other memory.
struct RegionLost {
  Meta meta;
  std::uint32_t path;
  std::uint64_t region;
  std::uint64_t transfer;
};
// A peer's write into memory that is not, or no longer, granted to it. It changed no byte.
struct WriteRefused {
  Meta meta;
  std::uint32_t path;
  std::uint64_t region;
  std::uint32_t bytes;
};
// A record of a large message has arrived, but did not authenticate when it was opened. Of one that the application
// sealed: its binding (record 0).
struct RecordForged {
  Meta meta;
  std::uint32_t path;
  std::uint64_t record;  // its number in the message
};
struct PeerHealthChanged {
  Meta meta;
  std::uint32_t path;
  std::string_view peer;
  PeerHealth health;
};
struct PeerRestarted {
  Meta meta;
  std::uint32_t path;
  std::string_view peer;
};
struct HandshakeFailed {
  Meta meta;
  std::string_view peer;
  Code code;
  std::string_view sentence;
  // Failed handshakes with this peer since its last such event that had no event: each peer has at most one per second.
  // With more than 1,024 peers that fail to prove themselves within a second, the others have none.
  std::uint64_t left_out = 0;
};
struct Degraded {
  Meta meta;
  std::string_view what;
  std::string_view sentence;
};
// An exception left a handler. The caller gets its text only if Config::send_exception_text is set.
struct HandlerThrew {
  Meta meta;  // the worker is the one that the request came to
  std::string_view method;
  std::string_view text;  // what() of the exception
};
struct WorkerStalled {
  Meta meta;
  std::chrono::nanoseconds for_how_long;
};

}  // namespace event

// Totals of one worker since it started. Counted from its events: calls_failed, packets_lost, packets_rejected,
// probe_timeouts, key_rotations, addresses_changed, handshakes_failed, credit_blocked, degradations, regions_*,
// writes_refused, records_forged and handlers_threw. The others have no events; what the handshake thread and the
// system tell has no counter.
struct Counters {
  std::uint64_t calls_started = 0, calls_completed = 0, calls_failed = 0;
  std::uint64_t requests_received = 0, requests_dispatched = 0, requests_duplicate = 0, replies_sent = 0;
  std::uint64_t packets_sent = 0, packets_received = 0, packets_control_only = 0, packets_lost = 0,
                packets_rejected = 0;
  std::uint64_t bytes_sent = 0, bytes_received = 0;
  // Of frames that went out again, with the packets that hold nothing else; of these, frames that had arrived before.
  std::uint64_t bytes_retransmitted = 0, bytes_in_vain = 0;
  std::uint64_t packets_late = 0;     // declared lost, and acknowledged later
  std::uint64_t probes_needless = 0;  // what they asked for was only late
  std::uint64_t payload_bytes_sent = 0,
                payload_bytes_received = 0;  // headers and bodies of messages, first sending only
  std::uint64_t frames_retransmitted = 0, probe_timeouts = 0, ecn_marks = 0, key_rotations = 0;
  std::uint64_t addresses_changed = 0;    // of callers
  std::uint64_t datagrams_forwarded = 0,  // to another worker at the same port, which has their path
      forwards_dropped = 0;               // because that worker had no room, or the limit per millisecond was reached
  std::uint64_t handshakes_started = 0, handshakes_completed = 0, handshakes_failed = 0;
  std::uint64_t credit_blocked = 0, flow_resets_sent = 0, degradations = 0;
  std::uint64_t large_messages_received = 0, tokens_used = 0;  // tokens: large messages that went without asking first
  std::uint64_t regions_granted = 0, regions_revoked = 0, regions_exhausted = 0, regions_lost = 0, writes_refused = 0;
  std::uint64_t records_forged = 0;  // of large messages: arrived, but did not authenticate when they were opened
  std::uint64_t handlers_threw = 0;
  std::uint64_t nic_waits = 0,
                nic_wait_ns = 0;  // times, and how long, that something waited for Config::nic_bits_per_s
  std::uint64_t polls = 0, send_calls = 0, receive_calls = 0;

  Counters& operator+=(const Counters& other);
};

class Subscriber {
 public:
  virtual ~Subscriber() = default;
  // Per-transfer events are many; they are made only for subscribers that say so here (asked once, at open).
  virtual bool wants_transfers() const { return false; }
  virtual void on(const event::TransferMoved&) {}
  virtual void on(const event::TransferFailed&) {}
  virtual void on(const event::PacketRejected&) {}
  virtual void on(const event::PacketsLost&) {}
  virtual void on(const event::ProbeTimeout&) {}
  virtual void on(const event::CongestionChanged&) {}
  virtual void on(const event::MtuChanged&) {}
  virtual void on(const event::KeyRotated&) {}
  virtual void on(const event::CreditBlocked&) {}
  virtual void on(const event::AddressChanged&) {}
  virtual void on(const event::MemoryAwaited&) {}
  virtual void on(const event::RegionGranted&) {}
  virtual void on(const event::RegionRevoked&) {}
  virtual void on(const event::RegionExhausted&) {}
  virtual void on(const event::RegionLost&) {}
  virtual void on(const event::WriteRefused&) {}
  virtual void on(const event::RecordForged&) {}
  virtual void on(const event::PeerHealthChanged&) {}
  virtual void on(const event::PeerRestarted&) {}
  virtual void on(const event::HandshakeFailed&) {}
  virtual void on(const event::Degraded&) {}
  virtual void on(const event::HandlerThrew&) {}
  virtual void on(const event::WorkerStalled&) {}
};

}  // namespace weir
