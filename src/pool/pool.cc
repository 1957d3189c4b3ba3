// The public handles. Everything behind them is PoolState's.
#include "weir/pool.h"

#include <cstring>
#include <utility>

#include "engine/config.h"
#include "pool/pool_state.h"
#include "worker/clock.h"
#include "worker/thread_context.h"

namespace weir {
namespace {

using detail::CallRecord;
using pool::Gate;

[[gnu::cold, gnu::noinline]] Call refused(const detail::PeerState& peer, const CallOptions& options,
                                          std::size_t bytes) {
  if (peer.failure) return Call(*peer.failure);
  if (options.priority < 0 || options.priority > 7) {
    return Call(Error(Code::invalid_argument, "the priority of a call is between 0 (most urgent) and 7"));
  }
  if (options.deadline < std::chrono::nanoseconds::zero()) {
    return Call(Error(Code::invalid_argument, "the deadline of a call is a time from now and not negative"));
  }
  if (bytes > peer.gate->limits().inline_bytes) {
    return Call(Error(Code::too_large, "the request has " + std::to_string(bytes) +
                                           " bytes, header included, and Limits::inline_bytes is " +
                                           std::to_string(peer.gate->limits().inline_bytes)));
  }
  if (worker::thread_context.depth > engine::kMaxDepth) {
    return Call(Error(Code::overloaded, "calls from handlers are nested more than four deep"));
  }
  return Call(Error(Code::closed, "the pool is closed"));
}

bool is_acceptable(const detail::PeerState& peer, const CallOptions& options, std::size_t bytes) {
  if (peer.failure) return false;
  const Gate& gate = *peer.gate;
  const std::uint8_t depth = worker::thread_context.depth;
  // Handlers that still run while the pool drains may finish what they do.
  const bool is_open = !gate.is_draining.load(std::memory_order_relaxed) || (depth != 0 && !gate.is_closed());
  return is_open && bytes <= gate.limits().inline_bytes && static_cast<unsigned>(options.priority) < 8 &&
         options.deadline >= std::chrono::nanoseconds::zero() && depth <= engine::kMaxDepth;
}

Call submit(const std::shared_ptr<detail::PeerState>& state, std::uint64_t method, Bytes body,
            const CallOptions& options, bool connect_only) {
  detail::PeerState& peer = *state;
  const std::size_t bytes = options.header.size() + body.size();
  if (!is_acceptable(peer, options, bytes)) [[unlikely]]
    return refused(peer, options, bytes);
  Gate& gate = *peer.gate;
  const bool is_direct = gate.is_mine();
  pool::Lane* lane = nullptr;
  pool::Port* port = nullptr;
  CallRecord* record = nullptr;
  Instant now;
  if (is_direct) [[likely]] {
    if (gate.post == nullptr) return Call(Error(Code::closed, "the pool is closed"));
    record = gate.post->acquire();
    now = gate.worker().now();
  } else {
    lane = &pool::Lane::mine();
    port = lane->port_to(peer.gate);
    if (port == nullptr) return Call(Error(Code::closed, "the pool is closed"));
    record = port->acquire();
    now = worker::read_clock();
  }
  if (record == nullptr) return Call(Error(Code::overloaded, "as many calls are outstanding as Limits::queued_calls"));

  record->complete = is_direct ? &pool::complete_direct : &pool::complete_for_lane;
  record->method = method;
  const auto deadline = options.deadline.count() == 0 ? peer.default_deadline : options.deadline;
  record->deadline = deadline > Instant::never() - now ? Instant::never() : now + deadline;
  record->block = nullptr;
  record->bytes = static_cast<std::uint32_t>(bytes);
  record->header_bytes = static_cast<std::uint16_t>(options.header.size());
  record->priority = static_cast<std::uint8_t>(options.priority);
  record->depth = worker::thread_context.depth;
  record->connect_only = connect_only;
  record->is_patient = options.wait_for_ready;
  record->state = CallRecord::State::idle;
  record->owners = static_cast<pool::PeerEntry*>(&peer);
  record->stage.store(detail::CallStage::pending, std::memory_order_relaxed);
  record->waiter_kind = detail::WaiterKind::none;
  record->is_dropped = false;

  std::byte* to = record->inline_bytes;
  if (bytes > CallRecord::kInlineBytes) [[unlikely]] {
    record->block = is_direct ? gate.engine->blocks().acquire(bytes) : lane->blocks().acquire(bytes);
    to = record->block->bytes();
  }
  if (!options.header.empty()) std::memcpy(to, options.header.data(), options.header.size());
  if (!body.empty()) std::memcpy(to + options.header.size(), body.data(), body.size());

  Call call(record);
  if (is_direct) [[likely]] {
    gate.post->submit(record, now);
  } else {
    lane->submit(*port, record);
  }
  return call;
}

detail::Detached run_detached(Task<void> task) { co_await std::move(task); }

}  // namespace

// ---- Peer ----------------------------------------------------------------------------------------------------------

Call Peer::unary(Method method, Bytes body, const CallOptions& options) const {
  return submit(state_, method.id(), body, options, false);
}

Call Peer::ready(const CallOptions& options) const { return submit(state_, 0, {}, options, true); }

std::string_view Peer::address() const { return state_->text; }

// ---- Pool ----------------------------------------------------------------------------------------------------------

Result<Pool> Pool::open(Config config) {
  auto state = detail::PoolState::open(std::move(config));
  if (!state) return std::unexpected(state.error());
  return Pool(std::move(*state));
}

Peer Pool::peer(std::string_view address, const PeerOptions& options) const {
  return Peer(state_->peer(address, options));
}

Result<void> Pool::serve_inline(Method method, std::function<void(InlineRequest&)> function) {
  return state_->serve(method, {.run_inline = std::make_shared<decltype(function)>(std::move(function))});
}

Result<void> Pool::serve_task(Method method, std::function<Task<Result<Reply>>(Request)> function) {
  return state_->serve(method, {.run_task = std::make_shared<decltype(function)>(std::move(function))});
}

bool Pool::poll() const { return state_->poll(); }
bool Pool::poll_for(std::chrono::nanoseconds at_most) const { return state_->poll_for(at_most); }
void Pool::run_until_done(detail::TaskBase& task) const { state_->run_until_done(task); }

void Pool::spawn(Task<void> task) const {
  const pool::Lane::Batch batch(pool::Lane::mine());
  run_detached(std::move(task));
}

Result<void> Pool::close(std::chrono::nanoseconds deadline) const { return state_->close(deadline); }
std::string Pool::listen_address() const { return state_->listen_address(); }
std::vector<Counters> Pool::counters() const { return state_->counters(); }
std::string Pool::limits() const { return state_->limits(); }

// ---- Workers -------------------------------------------------------------------------------------------------------

Result<Workers> Workers::open(Options options) {
  auto crew = worker::Crew::open({.threads = options.threads,
                                  .places = std::move(options.places),
                                  .idle = options.idle,
                                  .watchdog = options.watchdog,
                                  .on_hang = options.on_hang,
                                  .subscriber = std::move(options.subscriber)});
  if (!crew) return std::unexpected(crew.error());
  return Workers(std::make_shared<detail::WorkersState>(std::move(*crew)));
}

bool Workers::poll() const { return detail::poll_crew(*state_->crew, std::chrono::nanoseconds::zero()); }
bool Workers::poll_for(std::chrono::nanoseconds at_most) const { return detail::poll_crew(*state_->crew, at_most); }

}  // namespace weir
