// A host in a fabric: one engine and its socket, and an application that makes the calls it was told to make and
// answers all it gets. It is lean, so that thousands fit into one run: payloads of all hosts share memory, and nobody
// reads what has arrived.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "buffer/heap_memory.h"
#include "engine/engine.h"
#include "sim/entropy.h"
#include "sim/fabric.h"
#include "sim/fabric_link.h"
#include "sim/fabric_scenario.h"
#include "transfer/block_pool.h"
#include "worker/seat.h"

namespace weir::sim {

class FabricHost;

// One call of one host, from its start to its end.
struct FabricCall {
  transfer::OutgoingCall outgoing;  // first: the engine gives it back
  FabricHost* host = nullptr;
  Instant started{};
  std::uint32_t kind = 0;
  bool is_under_way = false;
};

// The calls of one host. Those that are under way when the engine has ended let go of their payloads.
struct FabricCalls {
  explicit FabricCalls(std::size_t calls_made) : count(calls_made), calls(std::make_unique<FabricCall[]>(calls_made)) {}
  ~FabricCalls();
  FabricCalls(const FabricCalls&) = delete;
  FabricCalls& operator=(const FabricCalls&) = delete;

  const std::size_t count;
  const std::unique_ptr<FabricCall[]> calls;
};

// Told of every request that is there whole, and of every call's end.
class FabricJudge {
 public:
  virtual ~FabricJudge() = default;
  virtual void on_request(const CallKind& kind) = 0;
  virtual void on_complete(const FabricCall& call, const transfer::Outcome& outcome) = 0;
};

// What all messages of one kind are made of. One per kind and run; outlives the engines.
class FabricPayload {
 public:
  FabricPayload(const CallKind& kind, transfer::BlockPool& blocks, buffer::Memory& memory, std::uint64_t seed);
  ~FabricPayload();
  FabricPayload(const FabricPayload&) = delete;
  FabricPayload& operator=(const FabricPayload&) = delete;

  const CallKind& kind() const { return kind_; }
  std::uint64_t method() const { return method_; }
  // Puts the request into the call.
  void load(transfer::OutgoingCall& call, transfer::BlockPool& blocks) const;
  ByteSpan reply() const { return reply_; }

 private:
  const CallKind kind_;
  const std::uint64_t method_;
  transfer::Block* block_ = nullptr;  // a request that travels inline
  buffer::Sealed* sealed_ = nullptr;  // a large one
  std::vector<std::byte> reply_;
};

// A worker looks at its socket so long after a packet has come, and then not again for so long.
inline constexpr Duration kFabricPollDelay{1'000};
inline constexpr Duration kFabricPollInterval{2'000};

class FabricHost final : public FabricReceiver, public worker::SeatHost {
 public:
  // What all hosts of a run share.
  struct Shared {
    Fabric& fabric;
    buffer::Memory& memory;  // that large messages arrive in
    worker::Burst& burst;
    std::span<const std::unique_ptr<FabricPayload>> payloads;  // by kind
    FabricJudge& judge;
  };

  FabricHost(const Shared& shared, HostId id);

  // Makes these calls from `start` on. The last ones have all ended.
  void load(std::span<const PlannedCall> plan, Instant start);
  // It is the host's turn in the fabric's agenda.
  void poll();
  std::size_t under_way() const { return under_way_; }
  engine::Engine& engine() { return engine_; }
  FabricLink& link() { return link_; }

  // ---- FabricReceiver ----
  void expect(Instant arrival) override { poll_at(arrival + kFabricPollDelay); }

  // ---- worker::SeatHost ----
  bool drain(Instant now) override;
  void flush(Instant) override {}

 private:
  struct Service {
    FabricHost* host = nullptr;
    const FabricPayload* payload = nullptr;
  };

  static engine::EngineConfig config_of(const Shared& shared, HostId id);
  static void run_request(void* context, transfer::IncomingTransfer& request, Instant now);
  static void complete(transfer::OutgoingCall& call, const transfer::Outcome& outcome);
  void start(FabricCall& call, const PlannedCall& planned, Instant now);
  void poll_at(Instant when);

  Shared shared_;
  const HostId id_;
  SeededEntropy entropy_;
  std::unique_ptr<FabricCalls> calls_;  // ends after the engine, which they are lent to
  FabricLink link_;
  engine::Engine engine_;
  worker::Seat seat_;
  std::vector<Service> services_;
  std::vector<std::uint32_t> peers_;  // by host
  std::span<const PlannedCall> plan_;
  Instant start_{};
  std::size_t next_call_ = 0;
  std::size_t under_way_ = 0;
  Instant last_poll_{};
};

}  // namespace weir::sim
