// A broadcast: one payload in a call to each peer. What becomes of the calls is gathered where they complete, on the
// workers, so that stragglers need nobody who waits for them.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/fork_guard.h"
#include "pool/bulk_client.h"
#include "pool/gathering.h"
#include "pool/method_names.h"
#include "pool/pool_state.h"
#include "pool/there.h"
#include "weir/bulk.h"
#include "weir/pool.h"

namespace weir {

BroadcastOutcome::BroadcastOutcome(Results results, std::size_t quorum)
    : results_(std::move(results)), quorum_(quorum) {
  for (const auto& result : results_) replies_ += result && *result;
}

BroadcastOutcome::BroadcastOutcome(std::size_t peers, const Error& refusal)
    : results_(peers), quorum_(peers + 1), refusal_(refusal) {
  for (auto& result : results_) result.emplace(std::unexpected(refusal));
}

std::optional<Error> BroadcastOutcome::error() const {
  if (reached()) return std::nullopt;
  if (refusal_) return refusal_;
  for (const auto& result : results_) {
    if (result && !*result) return result->error();
  }
  return std::nullopt;
}

}  // namespace weir

namespace weir::pool {
namespace {

// The coroutine's hold on it.
class Hold {
 public:
  explicit Hold(Gathering* gathering) : gathering_(gathering) {}
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  ~Hold() {
    if (fork_guard_.is_in_child()) return;
    if (!is_complete) {
      gathering_->abandon();
      static_cast<void>(gathering_->take(Stragglers::cancel));
      gathering_->cancel_rest();
    }
    gathering_->release();
  }
  Gathering* operator->() const { return gathering_; }

  struct Awaiter {
    Gathering* gathering;
    const std::shared_ptr<worker::Worker>& loop;
    bool await_ready() const noexcept { return gathering->is_raised(); }
    bool await_suspend(std::coroutine_handle<> waiter) { return gathering->wait(waiter, loop); }
    void await_resume() const noexcept {}
  };
  Awaiter decided(const std::shared_ptr<worker::Worker>& loop) const { return {gathering_, loop}; }

  bool is_complete = false;

 private:
  const ForkGuard fork_guard_;
  Gathering* const gathering_;
};

Call send_one(const Peer& peer, Method method, const Payload& payload, const CallOptions& options) {
  if (payload.sealed() == nullptr || payload.size() == 0) return peer.unary(method, payload, options);
  return send_part(peer.state(), method, *payload.sealed(), {.bytes = payload.size()}, Pattern::broadcast, options);
}

Task<BroadcastOutcome> run_broadcast(std::shared_ptr<worker::Worker> loop, std::vector<Peer> peers, Method method,
                                     Payload payload, std::string header, std::vector<Dependency> after,
                                     BroadcastOptions options) {
  const std::size_t quorum = options.quorum == 0 ? peers.size() : options.quorum;
  if (method.name().empty()) {
    co_return BroadcastOutcome(peers.size(), {Code::invalid_argument, "a method that is called needs a name"});
  }
  if (quorum > peers.size()) {
    co_return BroadcastOutcome(peers.size(), {Code::invalid_argument, "the quorum (" + std::to_string(quorum) +
                                                                          ") is larger than the number of peers (" +
                                                                          std::to_string(peers.size()) + ")"});
  }
  if (peers.empty()) co_return BroadcastOutcome({}, 0);
  Hold gathering(new Gathering(peers.size(), quorum, options.report));
  for (std::size_t peer = 0; peer < peers.size(); ++peer) {
    gathering->send(peer, peers[peer].state(),
                    send_one(peers[peer], method, payload,
                             {.priority = options.priority,
                              .deadline = options.deadline,
                              .header = header,
                              .max_reply = options.max_reply,
                              .after = After(after)}));
  }
  // Its memory goes back piece by piece as the last peer has it, or is given up.
  payload = Payload();
  auto decided = gathering.decided(loop);
  co_await decided;
  gathering.is_complete = true;
  BroadcastOutcome::Results results = gathering->take(options.stragglers);
  if (options.stragglers == Stragglers::cancel) gathering->cancel_rest();
  co_return BroadcastOutcome(std::move(results), quorum);
}

}  // namespace
}  // namespace weir::pool

namespace weir {

Bulk<BroadcastOutcome> Pool::broadcast(std::span<const Peer> peers, Method method, Payload payload,
                                       const BroadcastOptions& options) const {
  detail::PoolState& state = pool::there(state_);
  for (const Peer& peer : peers) pool::there(peer.state());
  pool::MethodNames::of_process().note(method);  // while its name is surely there
  const std::span<const Dependency> after = options.after.dependencies();
  return {pool::run_broadcast(state.loop(), {peers.begin(), peers.end()}, method, std::move(payload),
                              std::string(options.header), {after.begin(), after.end()}, options),
          state.loop()};
}

}  // namespace weir
