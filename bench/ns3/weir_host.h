// WeirHost: an application of ns-3 that is Weir. The engine and the seat that turns it are those of production; ns-3
// has the clock, the sockets and the network.
#pragma once

#include <ns3/event-id.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "buffer/heap_memory.h"
#include "burst_host.h"
#include "engine/engine.h"
#include "network.h"
#include "sim/entropy.h"
#include "socket_link.h"
#include "worker/seat.h"

namespace weir::bench {

// One process with one worker, which has one socket.
class WeirHost final : public BurstHost {
 public:
  struct Options {
    HostId host = 0;
    std::uint64_t seed = 0;
    Messages messages;
    std::uint64_t bits_per_second = 0;  // of the network card
    ns3::Ptr<ns3::QueueDisc> card_queue;
    std::uint32_t receive_buffer_bytes = 0;  // of the socket
  };

  static ns3::TypeId GetTypeId();
  explicit WeirHost(const Options& options);
  ~WeirHost() override;

  // ---- BurstHost ----
  void call(const std::vector<HostId>& callees) override;
  std::uint64_t retransmitted_bytes() const override { return counters().bytes_retransmitted; }
  std::uint64_t marks_received() const override { return counters().ecn_marks; }
  std::uint64_t socket_drops() const override { return link_->drops(); }

  const Counters& counters() const { return engine_->events().counters; }
  // Bytes of large messages that are in somebody's hands.
  std::uint64_t memory_taken() const { return landings_.taken_bytes() + payloads_.taken_bytes(); }

 private:
  struct Call {
    transfer::OutgoingCall outgoing;  // the first member, so that complete() finds the rest
    WeirHost* host = nullptr;
    bool has_ended = true;
  };

  // ---- ns3::Application ----
  void StartApplication() override;
  void DoDispose() override;

  engine::EngineConfig config();
  std::uint32_t peer(HostId host);
  void submit(Call& call, HostId callee);
  void load(transfer::OutgoingCall& outgoing);
  static void complete(transfer::OutgoingCall& outgoing, const transfer::Outcome& outcome);
  static void run(void* context, transfer::IncomingTransfer& request, Instant at);
  void poll_at(Instant when);
  void poll();

  static constexpr std::uint64_t kMemoryBytes = std::uint64_t{1} << 32;

  const Options options_;
  sim::SeededEntropy entropy_;
  sim::SeededEntropy data_keys_;
  buffer::HeapMemory landings_{kMemoryBytes};
  buffer::HeapMemory payloads_{kMemoryBytes};
  const std::vector<std::byte> request_;
  const std::vector<std::byte> reply_;
  std::unique_ptr<SocketLink> link_;
  std::unique_ptr<engine::Engine> engine_;
  worker::Burst burst_;
  std::unique_ptr<worker::Seat> seat_;
  std::map<HostId, std::uint32_t> peers_;
  std::deque<Call> calls_;
  ns3::EventId next_poll_;
  Instant next_poll_at_ = Instant::never();
};

}  // namespace weir::bench
