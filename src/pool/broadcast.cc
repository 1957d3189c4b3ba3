// A broadcast: one payload in a call to each peer. What becomes of the calls is gathered where they complete, on the
// workers, so that stragglers need nobody who waits for them.
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/fork_guard.h"
#include "pool/bulk_client.h"
#include "pool/gate.h"
#include "pool/method_names.h"
#include "pool/pool_state.h"
#include "pool/post.h"
#include "pool/signal.h"
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

// References: one for the coroutine, one for each call that has not run its continuation, one for the signal.
class Gathering final : public Signal {
 public:
  Gathering(std::size_t peers, std::size_t quorum, const StragglerReport& report)
      : quorum_(quorum), report_(report), calls_(peers), results_(peers), left_(peers), references_(2 + peers) {}

  // A continuation that is dropped without being run needs no destructor.
  struct Arrive {
    Gathering* to;
    std::size_t peer;
    void operator()(Result<Reply>&& result) const { to->on_result(peer, std::move(result)); }
  };

  void send(std::size_t peer, const std::shared_ptr<detail::PeerState>& state, Call call) {
    calls_[peer] = {.gate = state->gate, .record = call.record()};
    call.then(Arrive{this, peer});
  }

  // Once, on the coroutine's thread: what there is. Everything else is a straggler's from then on.
  BroadcastOutcome::Results take() {
    std::lock_guard lock(mutex_);
    is_taken_ = true;
    return std::move(results_);
  }

  // Cancels what is outstanding; takes effect on the workers.
  void cancel_rest() {
    hold();
    // Shared: a worker that stops runs none of these any more.
    const std::shared_ptr<Gathering> self(this, [](Gathering* gathering) { gathering->release(); });
    for (std::size_t peer = 0; peer < calls_.size(); ++peer) {
      {
        std::lock_guard lock(mutex_);
        is_silent_ = true;
        if (calls_[peer].is_over) continue;
      }
      const auto cancel = [self, peer] { self->drop(peer); };
      Gate& gate = *calls_[peer].gate;
      gate.is_mine() ? cancel() : gate.worker().post(cancel);
    }
  }

  void release() noexcept override {
    // Acquire-release: the last one sees what the others did.
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

 private:
  struct OneCall {
    std::shared_ptr<Gate> gate;
    CallRecord* record = nullptr;  // the library's, until its continuation has run
    bool is_over = false;
  };

  ~Gathering() = default;
  // Relaxed: who holds one may take another.
  void hold() { references_.fetch_add(1, std::memory_order_relaxed); }

  bool is_decided() const { return replies_ >= quorum_ || failures_ > calls_.size() - quorum_ || left_ == 0; }

  // Under the lock. True: it is decided by this.
  bool end(std::size_t peer, bool has_replied) {
    const bool was_decided = is_decided();
    calls_[peer].is_over = true;
    --left_;
    ++(has_replied ? replies_ : failures_);
    return !was_decided && is_decided();
  }

  void on_result(std::size_t peer, Result<Reply>&& result) {
    const Result<Reply>* told = nullptr;
    bool is_news = false;
    {
      std::lock_guard lock(mutex_);
      is_news = end(peer, result.has_value());
      if (!is_taken_) {
        results_[peer] = std::move(result);
      } else if (!is_silent_ && report_.function != nullptr) {
        told = &result;
      }
    }
    if (told != nullptr) report_.function(report_.context, peer, *told);
    if (is_news) raise();  // its reference goes with it
    release();
  }

  // On the worker, where the continuation would run: so it has run, or never will.
  void drop(std::size_t peer) {
    OneCall& call = calls_[peer];
    bool is_news = false;
    {
      std::lock_guard lock(mutex_);
      if (call.is_over || call.gate->post == nullptr) return;
      is_news = end(peer, false);
    }
    call.gate->post->drop(call.record);
    if (is_news) raise();
    release();  // the continuation's
  }

  const std::size_t quorum_;
  const StragglerReport report_;
  std::mutex mutex_;
  std::vector<OneCall> calls_;
  BroadcastOutcome::Results results_;
  std::size_t left_;
  std::size_t replies_ = 0, failures_ = 0;
  bool is_taken_ = false;
  bool is_silent_ = false;  // stragglers are cancelled, not reported
  std::atomic<std::size_t> references_;
};

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
      static_cast<void>(gathering_->take());
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
    gathering->send(
        peer, peers[peer].state(),
        send_one(
            peers[peer], method, payload,
            {.priority = options.priority, .deadline = options.deadline, .header = header, .after = After(after)}));
  }
  // Its memory goes back piece by piece as the last peer has it, or is given up.
  payload = Payload();
  auto decided = gathering.decided(loop);
  co_await decided;
  gathering.is_complete = true;
  BroadcastOutcome::Results results = gathering->take();
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
