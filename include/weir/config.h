// Everything that can be configured, with the defaults that serve most.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "weir/after.h"
#include "weir/identity.h"

namespace weir {

class Subscriber;
class Workers;

enum class Idle : std::uint8_t {
  spin,      // never sleeps: for a dedicated core
  adaptive,  // spins a little, yields when threads outnumber cores, then sleeps until there is work
};

// What happens when a worker has made no progress for `Config::watchdog`.
enum class OnHang : std::uint8_t { report, abort };

struct WorkerPlace {
  int core = -1;       // CPU to pin the thread to; -1: anywhere
  int numa_node = -1;  // node whose CPUs the thread may use, if no core is given; -1: any
};

// What buffers and large messages live in.
enum class BufferMemory : std::uint8_t {
  heap,
  pages,       // mapped in large pieces, which the kernel backs with huge pages where it can
  huge_pages,  // reserved ones (vm.nr_hugepages); when too few are left for a mapping (64 MiB at first): as `pages`,
               // and an event
  files,       // mapped files without names, each twice as long as the last, up to 32 GiB: more than there is memory.
               // Messages lie in them as they were before they were sealed
};

struct BufferPlan {
  BufferMemory memory = BufferMemory::heap;
  std::string directory{};              // files: where
  bool touch = false;                   // pages: the first 64 MiB, by Pool::open(), so that no message waits for them
  std::size_t keep_bytes = 256u << 20;  // of what came back, for the next messages; 0: none. Mappings stay anyway
};

// Every bound of a pool. What is full makes callers wait; nothing grows past these and nothing is dropped silently.
struct Limits {
  std::size_t inline_bytes = 16 * 1024;           // largest that travels in packets with others, header included
  std::uint32_t calls_per_peer = 4096;            // outstanding calls to one peer; further ones queue
  std::uint32_t queued_calls = 1 << 20;           // waiting calls per worker; further ones fail with `overloaded`
  std::uint32_t peers = 16 * 1024;                // paths per worker, both directions
  std::size_t request_bytes = 64u << 20;          // requests received and not yet answered, per worker
  std::size_t request_bytes_per_peer = 4u << 20;  // of these, one member's: a certificate's; with a secret, a path's
  std::size_t nested_request_bytes = 8u << 20;    // the same for calls from inside handlers, at each of four levels
  std::size_t answer_bytes = 1u << 30;            // answers due or not yet acknowledged, per worker
  std::size_t reply_bytes = 1u << 30;             // room reserved for replies to outstanding calls, per worker
  std::size_t message_bytes = 64u << 20;          // largest request or reply; over inline_bytes it is a large message
  std::size_t large_request_bytes = 256u << 20;   // large requests that arrive or were not let go of, per worker
  std::size_t nested_large_request_bytes = 64u
                                           << 20;  // the same for calls from inside handlers, at each of four levels
  std::size_t large_reply_bytes = 256u << 20;      // large replies that arrive or were not let go of, per worker
  std::size_t large_bytes_per_peer = 128u << 20;   // of each of these, one member's
  std::size_t buffer_bytes = 1u << 30;             // buffers, and payloads that are sent, per pool
  std::size_t receive_buffers = 1024;              // 64 KiB each, per worker thread
  std::uint32_t submission_ring[8] = {1024, 1024, 1024, 1024,
                                      1024, 1024, 1024, 1024};  // per priority, thread and worker
  std::size_t executor_queue = 64 * 1024;  // requests of one member and priority waiting for an executor thread; more
                                           // wait in front of that, and their callers for credit
  std::uint32_t credentials = 16 * 1024;   // peers that proved who they are, both directions
  std::uint32_t handshakes_out = 64;       // that this side has under way at once
  std::uint32_t handshakes_in = 1024;      // the same, of others with this side
};

struct Timeouts {
  std::chrono::nanoseconds default_deadline = std::chrono::seconds(10);  // for calls that name none
  std::chrono::nanoseconds silence =
      std::chrono::seconds(3);  // a peer silent for this long with calls outstanding has failed
  std::chrono::nanoseconds keepalive = std::chrono::milliseconds(750);  // a caller that waits for replies and neither
                                                                        // sends nor hears anything sends a packet this
                                                                        // often, or every quarter of `silence` if that
                                                                        // is sooner
  std::chrono::nanoseconds connect = std::chrono::seconds(3);           // a peer that never answered at all has failed
  std::chrono::nanoseconds idle_peer = std::chrono::minutes(5);         // an unused path is forgotten
  std::chrono::nanoseconds handshake = std::chrono::seconds(5);         // of identities; then it has failed
  std::chrono::nanoseconds credential = std::chrono::hours(1);  // peers in use prove who they are again within this
};

// Every member has an initialiser of its own, also an empty one, or compilers would warn of each that `{.listen = ...}`
// leaves out.
struct Config {
  std::string listen{};  // "0.0.0.0:4433"; empty: this pool only calls
  Identity identity{};   // who this process is: certificates. Or, for tests and closed clusters:
  std::string secret{};  // shared by all pools that may talk to each other; at least 16 bytes
  std::string name{};    // with a secret: how this process is called in handshakes and events; empty: made up

  std::uint16_t data_port = 0;  // with an identity: where the first worker receives, the next at the next port; 0: any.
                                // Fixed ports let peers notice a restart at once (see Identity::signer_file)

  int workers = 1;                    // worker threads; 0: the application calls poll()
  std::vector<WorkerPlace> places{};  // one per worker, or empty
  const Workers* on = nullptr;        // run on these workers, shared with other pools; `workers`, `places`, `idle`,
                                      // `watchdog` and `on_hang` are theirs then
  Idle idle = Idle::adaptive;
  int executor_threads = 1;  // threads for handlers registered with serve(); 0 or no workers: they run on the worker

  // What the network interface carries, in bits per second. All workers and pools of the process that name this
  // interface, and a rate, send no faster together; they must name the same rate. 0: as fast as it goes.
  std::uint64_t nic_bits_per_s = 0;
  std::string nic{};  // its name; empty: the interface that has the address of `listen`; 0.0.0.0 and none: one for all
  std::size_t datagram_bytes = 65'507;  // largest datagram to try for; 1,472 is Ethernet's
  std::size_t socket_buffer_bytes = 16 << 20;
  bool portable_link = false;  // plain sendmsg/recvmsg instead of Linux offloads
  bool openssl_aead = false;   // packets by OpenSSL instead of the fastest AES-GCM there is; payloads by that

  Limits limits{};
  BufferPlan buffers{};
  Timeouts timeouts{};
  std::chrono::nanoseconds watchdog = std::chrono::seconds(10);  // 0: none
  OnHang on_hang = OnHang::report;
  std::shared_ptr<Subscriber> subscriber{};
  // The what() of an exception that leaves a handler may name files, hosts and data of this process. The subscriber
  // gets it by event::HandlerThrew. Callers get it only if this is set.
  bool send_exception_text = false;
};

struct PeerOptions {
  std::string_view name{};  // what the peer's certificate must prove; empty: the address that it is called by
};

// Trivially destructible on purpose (views and numbers only): g++ 12 destroys owning temporaries inside a co_await
// expression twice.
struct CallOptions {
  int priority = 3;                      // 0 (most urgent) to 7
  std::chrono::nanoseconds deadline{0};  // from now; 0: Timeouts::default_deadline
  std::string_view header{};             // copied at the call
  // Bytes of the largest reply that it accepts, header and body: room for it is reserved until the call completes. 0:
  // Limits::inline_bytes is reserved, and any reply is accepted; so it is from 4 GiB on. A larger reply is `too_large`.
  std::uint64_t max_reply = 0;
  bool wait_for_ready = false;  // a peer or method that is not up yet is tried again until the deadline
  bool tracked = false;         // others may come after it: Call::sent() and Call::responded()
  After after{};                // what it comes after; its deadline runs meanwhile
};

}  // namespace weir
