// The public handles. Everything behind them is PoolState's.
#include "weir/pool.h"

#include <cstring>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/fork_guard.h"
#include "buffer/holds.h"
#include "buffer/seal.h"
#include "engine/config.h"
#include "pool/bulk_client.h"
#include "pool/call_result.h"
#include "pool/method_names.h"
#include "pool/pool_state.h"
#include "pool/sealing.h"
#include "pool/there.h"
#include "pool/ties.h"
#include "pool/way.h"
#include "transfer/cargo.h"
#include "worker/clock.h"
#include "worker/thread_context.h"

namespace weir {
namespace {

using detail::CallRecord;
using pool::Gate;
using pool::MethodNames;
using pool::there;
using pool::Way;

// What everything of a pool says in a forked child.
Error forked() { return {Code::closed, kForked}; }

// Whether a call may be made at all; its size is looked at elsewhere.
bool is_possible(const detail::PeerState& peer, const CallOptions& options) {
  if (peer.failure) return false;
  const Gate& gate = *peer.gate;
  const std::uint8_t depth = worker::thread_context.depth;
  // Handlers that still run while the pool drains may finish what they do.
  const bool is_open = !gate.is_draining.load(std::memory_order_relaxed) || (depth != 0 && !gate.is_closed());
  return is_open && !gate.is_in_child() && static_cast<unsigned>(options.priority) < 8 &&
         options.deadline >= std::chrono::nanoseconds::zero() && depth <= engine::kMaxDepth;
}

[[gnu::cold, gnu::noinline]] Call refused(const detail::PeerState& peer, const CallOptions& options) {
  if (peer.failure) return Call(*peer.failure);
  if (peer.gate->is_in_child()) return Call(forked());
  if (options.priority < 0 || options.priority > 7) {
    return Call(Error(Code::invalid_argument, "the priority of a call is between 0 (most urgent) and 7"));
  }
  if (options.deadline < std::chrono::nanoseconds::zero()) {
    return Call(Error(Code::invalid_argument, "the deadline of a call is a time from now and not negative"));
  }
  if (worker::thread_context.depth > engine::kMaxDepth) {
    return Call(Error(Code::overloaded, "calls from handlers are nested more than four deep"));
  }
  return Call(Error(Code::closed, "the pool is closed"));
}

[[gnu::cold, gnu::noinline]] Call no_way(Code code) {
  if (code == Code::closed) return Call(Error(Code::closed, "the pool is closed"));
  return Call(Error(Code::overloaded, "as many calls are outstanding as Limits::queued_calls"));
}

// Its ties are impossible, or it failed with those that it was to come after.
[[gnu::cold, gnu::noinline]] Call cannot_wait(const detail::PeerState& peer, CallRecord* record, Error failure) {
  Call call(pool::with_names(record, *peer.shown, std::move(failure), true));
  CallRecord::Pool::release(record);
  return call;
}

// Takes over what was lent of `body`.
Call submit_payload(detail::PeerState& peer, std::uint64_t method, buffer::Sealed* body,
                    const transfer::CargoRange& range, Pattern pattern, const CallOptions& options) {
  Way way;
  const Code code = find_way(peer, way);
  if (way.record == nullptr) {
    buffer::give_back(body, transfer::pieces_of(*body, range));
    return no_way(code);
  }
  fill(way, peer, method, options);
  if (pool::has_ties(options)) {
    if (const std::optional<Error> failure = pool::tie(*way.record, peer.gate, options)) {
      buffer::give_back(body, transfer::pieces_of(*body, range));
      return cannot_wait(peer, way.record, *failure);
    }
  }
  way.record->connect_only = false;
  way.record->is_large = true;
  way.record->block = transfer::load_cargo(way.blocks(*peer.gate), body, range, pattern, as_bytes(options.header));
  way.record->bytes = static_cast<std::uint32_t>(wire::kCargoBytes + options.header.size());
  way.record->header_bytes = 0;
  return send(way, *peer.gate);
}

[[gnu::cold, gnu::noinline]] Call submit_large(detail::PeerState& peer, std::uint64_t method, Bytes body,
                                               const CallOptions& options) {
  const pool::LargeSize size{.what = "request", .body_bytes = body.size(), .header_bytes = options.header.size()};
  if (Result<void> checked = pool::check_large(peer.gate->limits(), size); !checked) return Call(checked.error());
  Result<buffer::Sealed*> sealed = pool::seal_text(*peer.gate, body);
  if (!sealed) return Call(sealed.error());
  return submit_payload(peer, method, *sealed, {.bytes = (*sealed)->bytes}, Pattern::unary, options);
}

Call submit(const std::shared_ptr<detail::PeerState>& state, std::uint64_t method, Bytes body,
            const CallOptions& options, bool connect_only) {
  detail::PeerState& peer = there(state);
  if (!is_possible(peer, options)) [[unlikely]]
    return refused(peer, options);
  Gate& gate = *peer.gate;
  const std::size_t bytes = options.header.size() + body.size();
  if (bytes > gate.limits().inline_bytes) [[unlikely]]
    return submit_large(peer, method, body, options);
  Way way;
  const Code code = find_way(peer, way);
  if (way.record == nullptr) [[unlikely]]
    return no_way(code);
  fill(way, peer, method, options);
  CallRecord* record = way.record;
  record->connect_only = connect_only;
  record->is_large = false;
  record->bytes = static_cast<std::uint32_t>(bytes);
  record->header_bytes = static_cast<std::uint16_t>(options.header.size());
  std::size_t room = CallRecord::kInlineBytes;
  if (pool::has_ties(options)) [[unlikely]] {
    if (const std::optional<Error> failure = pool::tie(*record, peer.gate, options)) {
      return cannot_wait(peer, record, *failure);
    }
    room = pool::Ties::kInlineBytes;
  }
  std::byte* to = record->inline_bytes;
  if (bytes > room) [[unlikely]] {
    record->block = way.blocks(gate).acquire(bytes);
    to = record->block->bytes();
  }
  if (!options.header.empty()) std::memcpy(to, options.header.data(), options.header.size());
  if (!body.empty()) std::memcpy(to + options.header.size(), body.data(), body.size());
  return send(way, gate);
}

// Nobody can serve it, so nobody is asked.
[[gnu::cold, gnu::noinline]] Call nameless() {
  return Call(Error(Code::invalid_argument, "a method that is called needs a name"));
}

Result<void> check_served_name(std::string_view name) {
  if (name.empty()) return std::unexpected(Error(Code::invalid_argument, "a method that is served needs a name"));
  if (!pool::is_reserved(name)) return {};
  return std::unexpected(Error(Code::invalid_argument, "the method \"" + std::string(name) +
                                                           "\" cannot be served: names that begin with \"weir.\" are "
                                                           "the library's own"));
}

detail::Detached run_detached(Task<void> task) { co_await std::move(task); }

}  // namespace

// ---- Peer ----------------------------------------------------------------------------------------------------------

Call Peer::unary(Method method, Bytes body, const CallOptions& options) const {
  if (method.name().empty()) [[unlikely]]
    return nameless();
  MethodNames::of_process().note(method);
  return submit(state_, method.id(), body, options, false);
}

Call Peer::unary(Method method, Payload payload, const CallOptions& options) const {
  if (payload.sealed() == nullptr) return Call(Error(Code::invalid_argument, pool::kNoPayload));
  if (pool::is_inherited(payload)) return Call(forked());
  if (payload.size() == 0) return unary(method, Bytes{}, options);
  if (method.name().empty()) return nameless();
  MethodNames::of_process().note(method);
  detail::PeerState& peer = there(state_);
  if (!is_possible(peer, options)) return refused(peer, options);
  const pool::LargeSize size{.what = "request", .body_bytes = payload.size(), .header_bytes = options.header.size()};
  if (Result<void> checked = pool::check_large(peer.gate->limits(), size); !checked) return Call(checked.error());
  const transfer::CargoRange whole{.bytes = payload.size()};
  buffer::Sealed* const body = buffer::lend(*payload.sealed(), transfer::pieces_of(*payload.sealed(), whole));
  payload = Payload();  // from now on the call alone needs it
  return submit_payload(peer, method.id(), body, whole, Pattern::unary, options);
}

Call pool::send_part(const std::shared_ptr<detail::PeerState>& peer, Method method, buffer::Sealed& payload,
                     const transfer::CargoRange& range, Pattern pattern, const CallOptions& options) {
  if (!is_possible(*peer, options)) return refused(*peer, options);
  const LargeSize size{.what = "request", .body_bytes = range.bytes, .header_bytes = options.header.size()};
  if (Result<void> checked = check_large(peer->gate->limits(), size); !checked) return Call(checked.error());
  return submit_payload(*peer, method.id(), buffer::lend(payload, transfer::pieces_of(payload, range)), range, pattern,
                        options);
}

Call Peer::ready(const CallOptions& options) const { return submit(state_, 0, {}, options, true); }

std::string_view Peer::address() const { return there(state_).text; }

// ---- Pool ----------------------------------------------------------------------------------------------------------

Result<Pool> Pool::open(Config config) {
  auto state = detail::PoolState::open(std::move(config));
  if (!state) return std::unexpected(state.error());
  return Pool(std::move(*state));
}

Peer Pool::peer(std::string_view address, const PeerOptions& options) const {
  if (there(state_).is_in_child()) {
    auto none = std::make_shared<detail::PeerState>();
    none->text = address;
    none->failure = forked();
    return Peer(std::move(none));
  }
  return Peer(there(state_).peer(address, options));
}

Result<void> Pool::serve_inline(Method method, std::function<void(InlineRequest&)> function,
                                const ServeOptions& options) {
  if (there(state_).is_in_child()) return std::unexpected(forked());
  if (Result<void> valid = check_served_name(method.name()); !valid) return valid;
  return there(state_).serve(method, {.run_inline = std::make_shared<decltype(function)>(std::move(function)),
                                      .admit = pool::shared_if_set(options.admit)});
}

Result<void> Pool::serve_task(Method method, std::function<Task<Result<Reply>>(Request)> function,
                              const ServeOptions& options) {
  if (there(state_).is_in_child()) return std::unexpected(forked());
  if (Result<void> valid = check_served_name(method.name()); !valid) return valid;
  return there(state_).serve(
      method, {.run_task = std::make_shared<pool::TaskHandler>(std::string(method.name()), std::move(function)),
               .admit = pool::shared_if_set(options.admit)});
}

Allocation Pool::allocate(std::size_t bytes, const AllocateOptions& options) const {
  if (there(state_).is_in_child()) return Allocation(Result<Buffer>(std::unexpected(forked())));
  return there(state_).allocate(bytes, options);
}

Payload Pool::seal(Buffer&& buffer) const {
  if (there(state_).is_in_child()) return {};
  crypto::KeyBytes key = pool::next_data_key();
  Result<Payload> sealed = buffer::seal_in_place(std::move(buffer), key, buffer::thread_key());
  crypto::wipe(key);
  WEIR_CHECK(sealed, "seal() takes a buffer that was allocated and written to: fill span() first");
  return *std::move(sealed);
}

Payload Pool::adopt(Buffer&& buffer, const Binding& binding) const {
  if (there(state_).is_in_child()) return {};
  Result<Payload> adopted = buffer::adopt(std::move(buffer), binding);
  WEIR_CHECK(adopted, "adopt() takes a buffer that was allocated and written to: fill span() first");
  return *std::move(adopted);
}

Result<void> Pool::place(std::string_view name, Placement placement) {
  if (there(state_).is_in_child()) return std::unexpected(forked());
  return there(state_).place(name, std::move(placement));
}
Result<void> Pool::unplace(std::string_view name) {
  if (there(state_).is_in_child()) return std::unexpected(forked());
  return there(state_).unplace(name);
}

bool Pool::poll() const {
  WEIR_CHECK(!there(state_).is_in_child(), kForked);
  return there(state_).poll();
}
bool Pool::poll_for(std::chrono::nanoseconds at_most) const {
  WEIR_CHECK(!there(state_).is_in_child(), kForked);
  return there(state_).poll_for(at_most);
}
void Pool::run_until_done(detail::TaskBase& task) const {
  if (there(state_).is_in_child()) {
    // Whatever it awaits of this pool fails at once.
    task.start();
    WEIR_CHECK(task.done(), kForked);
    return;
  }
  there(state_).run_until_done(task);
}

void Pool::spawn(Task<void> task) const {
  there(state_);
  const pool::Lane::Batch batch(pool::Lane::mine());
  run_detached(std::move(task));
}

Result<void> Pool::close(std::chrono::nanoseconds deadline) const {
  if (there(state_).is_in_child()) return std::unexpected(forked());
  return there(state_).close(deadline);
}
std::string Pool::listen_address() const { return there(state_).listen_address(); }
std::vector<Counters> Pool::counters() const {
  if (there(state_).is_in_child()) return {};
  return there(state_).counters();
}
std::string Pool::limits() const { return there(state_).is_in_child() ? kForked : there(state_).limits(); }

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

bool Workers::poll() const { return poll_for(std::chrono::nanoseconds::zero()); }
bool Workers::poll_for(std::chrono::nanoseconds at_most) const {
  WEIR_CHECK(!there(state_).crew->is_in_child(), kForked);
  return detail::poll_crew(*there(state_).crew, at_most);
}

}  // namespace weir
