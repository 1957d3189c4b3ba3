// Gathering: the results of a broadcast's calls, collected where the calls complete.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "pool/gate.h"
#include "pool/pool_state.h"
#include "pool/post.h"
#include "pool/signal.h"
#include "weir/bulk.h"
#include "weir/call.h"

namespace weir::pool {

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

  // Once, on the coroutine's thread: the results so far. Every later result is a straggler's. Whether stragglers are
  // reported is decided in the same step: a straggler that ends before cancel_rest() reaches it is not reported either.
  BroadcastOutcome::Results take(Stragglers stragglers) {
    std::lock_guard lock(mutex_);
    is_taken_ = true;
    is_silent_ = stragglers == Stragglers::cancel;
    return std::move(results_);
  }

  // After take(Stragglers::cancel). Cancels what is outstanding; takes effect on the workers.
  void cancel_rest() {
    hold();
    // Shared: a worker that stops runs none of these any more.
    const std::shared_ptr<Gathering> self(this, [](Gathering* gathering) { gathering->release(); });
    for (std::size_t peer = 0; peer < calls_.size(); ++peer) {
      {
        std::lock_guard lock(mutex_);
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

}  // namespace weir::pool
