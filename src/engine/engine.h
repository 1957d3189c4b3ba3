// Engine: one worker's protocol brain. No I/O, no clock, no dice of its own: it takes `now`, datagrams and
// submissions, and hands out trains of packets, completions and requests. The same code runs in production and in the
// simulator. One thread at a time may call it.
//
// A turn: on_datagram() for each received datagram, on_timeout(), deliver() (handlers and completions run in here and
// may submit, reply and cancel), collect(), then the trains are sent. deliver() comes before collect() so that what
// handlers answer leaves in the same turn.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/address.h"
#include "base/bytes.h"
#include "base/random.h"
#include "base/segment.h"
#include "base/time.h"
#include "crypto/entropy.h"
#include "engine/config.h"
#include "event/sink.h"
#include "transfer/incoming_transfer.h"
#include "transfer/outgoing_call.h"
#include "weir/error.h"
#include "weir/pattern.h"

namespace weir::engine {

struct Core;
namespace testing {
struct EngineAccess;  // lets tests look inside, and seal what no engine would say
}

// Packets to one destination: equal segments, of which the last may be shorter.
struct Train {
  Address to;
  std::uint8_t ecn = 0;
  MutableByteSpan bytes;
  std::uint32_t segment_size = 0;
  std::uint32_t path = 0;
  std::span<const Segment> segments{};  // if there are any: the packets, instead of `bytes`, each in two pieces
};

// One train's fate, as the link saw it.
enum class TrainFate : std::uint8_t { sent, too_big, unreachable, failed };

// What a large request says of itself before there is memory for it.
struct Opening {
  Pattern pattern = Pattern::unary;
  ByteSpan header;
  std::uint64_t bytes = 0;  // of its body
};
// Where it goes.
struct Route {
  std::uint64_t method = 0;  // whose handler runs it; 0: that of the method which was called
  std::string name;          // of that method, for whoever is told that nobody serves it
  int numa_node = -1;        // where its memory should be; -1: where all is (EngineConfig::numa_node)
};

// Runs a request. Called inside Engine::deliver(). It answers through Engine::reply() or fail(), now or later, exactly
// once. `transfer.delivery.request` is valid until it returns, longer if it takes a reference on
// `transfer.delivery.pin`. A large request (`transfer.landing()`) is to be opened first: by whoever keeps a reference
// on it, on another thread than the engine's if there is one.
struct Handler {
  void (*run)(void* context, transfer::IncomingTransfer& request, Instant now) = nullptr;
  void* context = nullptr;
  // Asked once when a large request is opened, before there is memory for it: where it goes, or why it is refused.
  Result<Route> (*admit)(void* context, const transfer::IncomingTransfer& request, const Opening& opening) = nullptr;
  // Of large requests, one by one: opens them itself. For parts of puts, which no other handler gets.
  bool takes_records = false;
};

// What is alive inside an engine; all zero once everything has ended.
struct Census {
  std::size_t calls_queued = 0, calls_sent = 0, incoming = 0, blocks = 0, reassemblies = 0, timers = 0;
  std::size_t frames_in_flight = 0, packets_in_flight = 0, credit_used = 0, paths = 0, peers = 0;
  std::size_t writers = 0, arrivals = 0, regions = 0, regions_leaked = 0;
  std::uint64_t large_bytes = 0;  // reserved for large messages, also by what the application still holds
};

class Engine {
 public:
  Engine(const EngineConfig& config, crypto::Entropy& entropy, Subscriber* subscriber, std::uint64_t seed, Instant now);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // ---- callers ----
  // The peer at `address`, made if need be; `too many peers` is Code::overloaded. Nothing is sent yet. In identity mode
  // every call makes one, and `address` only names it: its credential tells where it is.
  Result<std::uint32_t> connect(const Address& address);
  // Identity mode: which peers lack a credential; each is told once, until one of the two below answers. False: none.
  bool take_wanted(Wanted& out);
  void install(std::uint32_t peer, const Credential& credential, Instant now);
  void refuse(std::uint32_t peer, Code code, std::string_view sentence, Instant now);
  // Takes the call until it completes. It always completes, exactly once, inside a later deliver().
  void submit(transfer::OutgoingCall& call, Instant now);
  // A call that was submitted with is_held goes on as if it were submitted now; or it fails, not having run. Either
  // does nothing to one that has ended meanwhile, or goes on already.
  void release(transfer::OutgoingCall& call, Instant now);
  void fail_held(transfer::OutgoingCall& call, Code code, const char* sentence, Instant now);
  // Completes the call with Code::cancelled (in the next deliver()) and tells the peer. A call that is done already
  // is left alone.
  void cancel(transfer::OutgoingCall& call, Instant now);
  // Large replies wait for memory: who begins to wait for a call then calls look_for_awaited().
  bool replies_wait() const;
  void look_for_awaited(Instant now);
  // Memory for request bytes beyond OutgoingCall::kInlineBytes.
  transfer::BlockPool& blocks();

  // ---- callees ----
  Result<void> serve(std::uint64_t method, std::string_view name, Handler handler);
  void reply(transfer::IncomingTransfer& request, ByteSpan header, ByteSpan body, Instant now);
  void fail(transfer::IncomingTransfer& request, Code code, std::string_view sentence, Instant now,
            bool may_have_run = true);
  // Takes over one reference on `sealed`, of which the records in `range` are the reply's body.
  void reply_large(transfer::IncomingTransfer& request, buffer::Sealed* sealed, transfer::CargoRange range,
                   Pattern pattern, ByteSpan header, Instant now);

  // ---- packets and time ----
  // Opened in place. `buffer` (may be null) keeps the bytes alive if somebody takes a reference.
  void on_datagram(MutableByteSpan datagram, const Address& from, std::uint8_t ecn, detail::Pin* buffer, Instant now);
  // One that another engine at the same port handed over (EngineConfig::siblings).
  void on_forwarded(MutableByteSpan datagram, const Address& from, std::uint8_t ecn, Instant now);
  // An ICMP unreachable that quotes the beginning of a datagram sent to `who`.
  void on_unreachable(const Address& who, ByteSpan quoted, Instant now);
  void on_timeout(Instant now);
  // While this is set, datagrams are such that waited because nobody turned the engine: when they come says nothing
  // about the network.
  void set_catching_up(bool yes);
  Instant next_deadline() const;
  // Runs handlers and completions. Returns how many.
  std::size_t deliver(Instant now);
  // Appends at most one train for each path to `out`; call it again while has_work(). Their bytes stay valid until the
  // next collect().
  void collect(std::vector<Train>& out, Instant now);
  void on_train_fate(const Train& train, TrainFate fate, Instant now);
  std::size_t undelivered() const;  // requests and completions that the next deliver() runs
  bool has_work() const;            // deliver() or collect() would do something now
  // The last collect() ended a train early because more urgent work may come: look for it before the next collect().
  bool has_cut_short() const;

  // ---- end ----
  // Tells every peer that this side is going: their outstanding calls fail at once. Ours fail with Code::closed.
  void close(Instant now);
  bool is_quiet() const;  // nothing outstanding in either direction
  Census census() const;
  std::string describe_limits() const;

  event::Sink& events();

 private:
  friend struct testing::EngineAccess;
  std::unique_ptr<Core> core_;
};

}  // namespace weir::engine
