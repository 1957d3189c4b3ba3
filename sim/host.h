// A simulated host: one process with an engine and its sockets, which can crash, come back and fall asleep.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "buffer/heap_memory.h"
#include "engine/engine.h"
#include "router/router.h"
#include "schedule/timing_wheel.h"
#include "sim/entropy.h"
#include "sim/handshaker.h"
#include "sim/link.h"
#include "sim/siblings.h"
#include "sim/watch.h"
#include "sim/worker.h"
#include "sim/world.h"

namespace weir::sim {

// Told about the life of processes. Handlers are registered in on_start().
class Application {
 public:
  virtual ~Application() = default;
  virtual void on_start(HostId host) = 0;
  // The engine is gone: nothing that was lent to it will come back.
  virtual void on_stop(HostId host) = 0;
};

// A worker looks at its socket so long after something arrived, and again so long after a poll that left work over.
inline constexpr Duration kPollDelay{1'000};

// Of a host that proves who it is with a certificate. Others know a secret that all share.
struct HostIdentity {
  bool keeps_signer = true;  // when its process restarts
  std::int64_t clock_error_seconds = 0;
  std::optional<HostId> certificate_of;              // another host's certificate, which both have
  bool forgets_members = false;                      // does not know who has made a path
  Duration grace = std::chrono::seconds(30);         // see peer::SecretMap
  Duration simultaneous = std::chrono::seconds(10);  // the same
  std::optional<ShortCertificates> certificates{};
  Instant run_start{};        // if there are any
  bool forgets_ends = false;  // of credentials: sabotage
};

// Workers of one process. With a shared secret those of a listening host share its port; all others have one each.
struct HostWorkers {
  std::uint32_t count = 1;
  bool share_a_name = false;  // sabotage: all of them say that they are the first one, at its port
};

class Host {
 public:
  Host(World& world, HostId id, const engine::EngineConfig& config, const SimLink::Options& link_options,
       const std::optional<HostIdentity>& identity, Application& application, const HostWorkers& workers = {});
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  HostId id() const { return id_; }
  bool is_up() const { return process_ != nullptr; }
  // How many times the process was started: tells its lives apart.
  std::uint32_t life() const { return life_; }
  const engine::EngineConfig& config() const { return config_; }
  // There is one for each of a host's sockets.
  std::size_t engines() const { return process_->workers.size(); }
  engine::Engine& engine(std::size_t which = 0) { return process_->workers[which]->engine(); }
  // That calls the other host, as long as the process lives.
  engine::Engine& engine_to(const Host& other) { return worker_to(other).engine(); }
  const SimLink& link(std::size_t which = 0) const { return process_->workers[which]->link(); }
  // Null: it has no identity.
  const Handshaker* handshaker() const { return process_->handshaker.get(); }
  std::size_t buffers_in_use() const;
  std::size_t packets_in_flight();
  // Memory that large messages arrive in, and that of payloads which are sent. Both outlive the process, because what
  // is in them may be held by whoever is told of its end.
  const buffer::HeapMemory& landings() const { return *landings_; }
  const buffer::HeapMemory& payloads() const { return *payloads_; }
  // With a key of the process's own, which comes from the seed. Lent. Not 0: in pieces of so many bytes.
  buffer::Sealed* seal(ByteSpan text, std::uint64_t piece_bytes);
  // As an application does that seals by itself; see disguise().
  buffer::Sealed* adopt(ByteSpan text);
  // Takes back regions that the process has granted, each by the chance given.
  void revoke_regions(double chance, Random& random);
  // Seals something under the nonce of each path's last packet, and sends it nowhere. For tests of who watches nonces.
  void repeat_nonces();
  // For tests of who looks for what is left over: a timer that nobody will cancel, credit that no answer gives back,
  // and regions that, from now on, nobody remembers to take back.
  void leak_a_timer();
  void leak_credit();
  void forget_regions() { forgets_regions_ = true; }
  // How others name it.
  const Address& address() const { return address_; }
  // Where its workers receive, without the handshakes' address.
  std::vector<Address> data_addresses() const;
  // What engine_to() knows the other host by.
  Result<std::uint32_t> peer(const Host& other);

  void start();
  // Everything inside is gone at this instant. Packets that have left the process still travel.
  void crash();
  // Polls nothing until then, though packets keep arriving.
  void stall_until(Instant end);
  Duration time_stalled() const { return stalled_; }
  // From now on the process is late for each of its timers, by any time up to this.
  void set_timer_lateness(Duration longest) { timer_lateness_ = longest; }
  Duration timer_lateness() const { return timer_lateness_; }
  // So long does the process work on each datagram that it receives or sends. It polls nothing meanwhile.
  void set_datagram_cost(Duration cost) { datagram_cost_ = cost; }

  // Datagrams to a port that several workers share come out at other sockets than before.
  void reshuffle();
  // See Handshaker::forget_callers(). Only if the host is up.
  void forget_callers();

  // Something was submitted or answered outside of a poll.
  void wake() { poll_at(world_.now() + kPollDelay); }
  // Runs in the process when it is awake; never, if it dies before.
  void run_at(Instant when, EventQueue::Action action);

  std::uint64_t polls() const { return polls_; }

 private:
  struct Process {
    Process(Host& host, std::uint32_t life);
    SeededEntropy entropy;
    SeededEntropy data_keys;
    Watch watch;
    std::unique_ptr<SimLink> handshake_link;
    engine::EngineConfig config;  // of all workers
    std::unique_ptr<Handshaker> handshaker;
    std::unique_ptr<SimSiblings> siblings;  // if several workers share a port
    std::unique_ptr<SharedPort> port;       // the same
    std::vector<std::unique_ptr<SimWorker>> workers;
    router::Router router;
  };

  // Null, if the host has no identity; otherwise `config` is told of it.
  std::unique_ptr<Handshaker> make_handshaker(Process& process, std::uint32_t life);
  bool shares_port() const { return workers_.count > 1 && config_.accepts && !identity_; }
  std::uint16_t port_of(std::size_t worker) const;
  void add_worker(Process& process, std::uint32_t life);
  SimWorker& worker_to(const Host& other);
  void poll_at(Instant when);
  // When the process notices that a timer has run out.
  Instant noticed_at(Instant deadline);
  void poll();
  void be_busy(std::uint64_t datagrams);

  static constexpr std::uint64_t kMemoryBytes = std::uint64_t{1} << 32;  // beyond every limit of a scenario

  World& world_;
  HostId id_;
  std::unique_ptr<buffer::HeapMemory> landings_ = std::make_unique<buffer::HeapMemory>(kMemoryBytes);
  std::unique_ptr<buffer::HeapMemory> payloads_ = std::make_unique<buffer::HeapMemory>(kMemoryBytes);
  engine::EngineConfig config_;
  SimLink::Options link_options_;
  std::optional<HostIdentity> identity_;
  const HostWorkers workers_;
  Address address_;
  Application& application_;
  std::unique_ptr<Process> process_;
  std::uint32_t life_ = 0;
  Instant stalled_until_{};
  Duration stalled_{0};
  Duration timer_lateness_{0};
  Duration datagram_cost_{0};
  Instant busy_until_{};
  Random lateness_;
  Instant next_poll_ = Instant::never();
  std::uint64_t poll_ticket_ = 0;  // of the one scheduled poll that counts
  std::uint64_t polls_ = 0;
  schedule::Timer leaked_timer_;
  bool forgets_regions_ = false;
};

}  // namespace weir::sim
