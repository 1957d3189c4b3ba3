// PoolState: what all handles of one pool share; the one place that wires everything.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/fork_guard.h"
#include "pool/executor.h"
#include "pool/handshaker.h"
#include "pool/nics.h"
#include "pool/peer_entry.h"
#include "pool/placement.h"
#include "pool/post.h"
#include "router/router.h"
#include "weir/pool.h"
#include "worker/crew.h"

namespace weir::detail {

// What Workers handles share.
class WorkersState {
 public:
  explicit WorkersState(std::shared_ptr<worker::Crew> crew_) : crew(std::move(crew_)) {}
  ~WorkersState() {
    if (crew->is_in_child()) crew->close_in_child();
  }
  WorkersState(const WorkersState&) = delete;
  WorkersState& operator=(const WorkersState&) = delete;
  const std::shared_ptr<worker::Crew> crew;
};

inline constexpr std::chrono::seconds kOwnerPatience{5};  // for what cannot be done before the owner of a loop polls
inline constexpr const char* kOwnerDoesNotPoll =
    "this pool has no worker threads, and the thread that owns its loop lives but does not poll";

// One per pool. Any thread may call it. In a forked child nothing of it may be called but what says so, and it is never
// destroyed: see base/fork_guard.h.
class PoolState {
 public:
  static Result<std::shared_ptr<PoolState>> open(Config config);

  PoolState(Config config, std::shared_ptr<worker::Crew> crew, bool owns_crew, std::shared_ptr<buffer::Memory> memory);
  ~PoolState();
  PoolState(const PoolState&) = delete;
  PoolState& operator=(const PoolState&) = delete;

  // ---- also in a forked child ----
  bool is_in_child() const { return fork_guard_.is_in_child(); }
  // There, when the last handle goes: closes this process's copies of the descriptors.
  void close_in_child();
  std::shared_ptr<worker::Worker> loop() const;  // null: the workers have threads, or this is a forked child
  std::string listen_address() const;

  // ---- not there ----
  std::shared_ptr<PeerState> peer(std::string_view address, const PeerOptions& options);
  Result<void> serve(Method method, const pool::MethodEntry& entry);

  Allocation allocate(std::size_t bytes, const AllocateOptions& options);

  Result<void> place(std::string_view name, Placement placement);
  Result<void> unplace(std::string_view name);

  bool poll();
  bool poll_for(std::chrono::nanoseconds at_most);
  void run_until_done(TaskBase& task);

  Result<void> close(std::chrono::nanoseconds deadline);
  std::vector<Counters> counters();
  std::string limits() const;

 private:
  struct TextHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };

  Result<void> open_posts();
  Result<void> open_with_secret(Address bind);
  Result<void> open_with_identity(Address bind);
  struct OpenedLink {
    std::unique_ptr<link::ReceiveBufferPool> buffers;
    std::unique_ptr<link::Link> link;
  };
  Result<OpenedLink> open_link(const Address& bind, bool shares_port);
  pool::Post& add_post(std::size_t index, OpenedLink opened, engine::EngineConfig engine);
  Result<void> open_post(std::size_t index, const Address& bind, const engine::EngineConfig& engine);
  Result<void> open_shared_posts(Address& bind, engine::EngineConfig engine);
  void report_clamped_buffers(pool::Post& post, const link::LinkReport& report);
  bool wait_until_quiet(Instant until);
  // What close() and the last handle do. `handlers`: how long those that run on threads of the pool are waited for, if
  // that is longer.
  Result<void> finish(std::chrono::nanoseconds deadline, std::chrono::nanoseconds handlers);
  bool leave(Instant until, Instant handlers_until);
  std::shared_ptr<const void> all_peers();
  std::vector<std::string> handlers_on_workers() const;
  std::shared_ptr<PeerState> make_peer(std::string_view address, const PeerOptions& options);

  const ForkGuard fork_guard_;
  const Config config_;
  const std::shared_ptr<worker::Crew> crew_;
  const bool owns_crew_;
  std::shared_ptr<buffer::BufferPool> buffers_;
  std::shared_ptr<buffer::Memory> arrivals_;
  std::shared_ptr<pool::Executor> executor_;
  std::shared_ptr<pool::Handshaker> handshaker_;  // identity mode
  std::shared_ptr<pool::Forwarding> forwarding_;  // of workers that share a port
  std::shared_ptr<pool::Nic> nic_;                // null: no rate is configured
  // One per worker; if workers share a port, one more per worker for its calls, from first_caller_ on.
  std::vector<std::shared_ptr<pool::Post>> posts_;
  std::size_t first_caller_ = 0;
  std::string clamped_buffers_;  // what the kernel gave instead of Config::socket_buffer_bytes; empty: that much
  router::Router router_;
  std::mutex peers_mutex_;
  std::unordered_map<std::string, std::shared_ptr<PeerState>, TextHash, std::equal_to<>> peers_;
  std::mutex serve_mutex_;
  const std::shared_ptr<pool::Placements> placements_ = std::make_shared<pool::Placements>();
  std::mutex place_mutex_;
  bool serves_bulk_ = false;
  std::mutex close_mutex_;
  bool is_closed_ = false;
  std::atomic<bool> has_closed_{false};  // close() is through
};

// Drives what this thread awaits, for pools with worker threads.
bool drive_this_thread(std::chrono::nanoseconds at_most);
bool poll_crew(worker::Crew& crew, std::chrono::nanoseconds at_most);

}  // namespace weir::detail
