// Canceller: cancels a call whose handle was given to Call::then_cancellable().
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "weir/atomic.h"
#include "weir/error.h"
#include "weir/message.h"

namespace weir {

namespace pool {
class Gate;
}

namespace detail {

struct CallRecord;  // the caller's half of a transfer, inside the library

// A continuation that its call shares with those who may cancel the call. References: one of the call, one of each
// Canceller, one while the worker is being asked to cancel.
class CancellableCall {
 public:
  CancellableCall(const CancellableCall&) = delete;
  CancellableCall& operator=(const CancellableCall&) = delete;

  // Relaxed: who holds a reference may take another.
  void hold() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  void release() noexcept {
    // Acquire-release: the last one sees what the others did.
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  void cancel() noexcept;  // any thread, any time

  // ---- the library ----
  // The call has ended. Once, where its continuation runs. Gives the call's reference back.
  void complete(Result<Reply>&& result) {
    is_over = true;
    run(std::move(result));
    release();
  }

  std::weak_ptr<pool::Gate> gate;   // unchanged once there is a Canceller
  CallRecord* record = nullptr;     // the same; the record is the call's until `is_over`
  CancellableCall* link = nullptr;  // at the gate
  bool is_over = false;             // the worker's, while the gate is open

 protected:
  CancellableCall() = default;
  virtual ~CancellableCall() = default;

 private:
  virtual void run(Result<Reply>&& result) = 0;  // destroys the function when it has run

  Atomic<std::uint32_t> references_{2};  // of the call and of the first Canceller
  Atomic<bool> is_asked_{false};
};

template <class Function>
class CancellableFunction final : public CancellableCall {
 public:
  template <class F>
  explicit CancellableFunction(F&& function) : function_(std::in_place, std::forward<F>(function)) {}

 private:
  void run(Result<Reply>&& result) override {
    (*function_)(std::move(result));
    function_.reset();  // what it captured goes now, not with the last Canceller
  }

  std::optional<Function> function_;
};

}  // namespace detail

// Cancels one call, from any thread and at any time. If the call is complete or its pool is gone, cancel() does
// nothing. Dropping a Canceller does not cancel. Copies cancel the same call.
class Canceller {
 public:
  Canceller() = default;  // of no call: cancel() does nothing
  Canceller(const Canceller& other) noexcept : call_(other.call_) {
    if (call_ != nullptr) call_->hold();
  }
  Canceller(Canceller&& other) noexcept : call_(std::exchange(other.call_, nullptr)) {}
  Canceller& operator=(Canceller other) noexcept {
    std::swap(call_, other.call_);
    return *this;
  }
  ~Canceller() {
    if (call_ != nullptr) call_->release();
  }

  // Asks for it and returns. If the call is not complete by then, its continuation runs with Code::cancelled, where it
  // would have run anyway (never inside cancel()), and the peer is told to stop.
  void cancel() const noexcept {
    if (call_ != nullptr) call_->cancel();
  }

  // For the library. Takes over one reference.
  explicit Canceller(detail::CancellableCall* call) noexcept : call_(call) {}

 private:
  detail::CancellableCall* call_ = nullptr;
};

}  // namespace weir
