// Call: the handle of one outstanding call. Await it, get() it, or then() it. Dropping it cancels it, here and at the
// peer. A call completes exactly once.
#pragma once

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "weir/after.h"
#include "weir/canceller.h"
#include "weir/error.h"
#include "weir/message.h"

namespace weir {

namespace detail {

inline constexpr std::size_t kContinuationBytes = 48;
using RunContinuation = void (*)(void* storage, Result<Reply>&& result);  // runs it, then destroys it

void* continuation_storage(CallRecord* record) noexcept;  // kContinuationBytes, aligned for any scalar
// Detaches: from here on the library owns the record. If the call is complete already, runs the continuation now.
void attach_continuation(CallRecord* record, RunContinuation run);

// Before the continuation is attached.
void make_cancellable(CallRecord* record, CancellableCall& call);

bool call_ready(CallRecord* record) noexcept;
// False if the call completed meanwhile and the coroutine should go on at once.
bool call_suspend(CallRecord* record, std::coroutine_handle<> waiter) noexcept;
// Several calls that one coroutine awaits together. It stays where it is until the waiter was resumed.
struct CallGroup {
  std::coroutine_handle<> waiter;
  std::size_t remaining = 0;
};
// False if the call is complete already and does not count.
bool call_join(CallRecord* record, CallGroup& group) noexcept;
Result<Reply> call_take(CallRecord* record);    // the result, once; releases the record
Result<Bytes> call_header(CallRecord* record);  // the reply's header, of a call that is ready
Result<Reply> call_wait(CallRecord* record);    // blocks this thread; releases the record
void call_drop(CallRecord* record) noexcept;    // cancels; releases the record

}  // namespace detail

class [[nodiscard]] Call {
 public:
  Call(Call&& other) noexcept
      : record_(std::exchange(other.record_, nullptr)), failure_(std::move(other.failure_)), token_(other.token_) {}
  Call& operator=(Call&& other) noexcept {
    if (this != &other) {
      cancel();
      record_ = std::exchange(other.record_, nullptr);
      failure_ = std::move(other.failure_);
      token_ = other.token_;
    }
    return *this;
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call() { cancel(); }

  // Blocks this thread until the call is complete. With zero worker threads it polls meanwhile. Not allowed inside
  // handlers and continuations (detected).
  Result<Reply> get() {
    if (record_ == nullptr) return take_failure();
    return detail::call_wait(std::exchange(record_, nullptr));
  }

  // Runs `function(Result<Reply>)` when the call is complete: on the worker thread, inside poll() with zero worker
  // threads, or at once if it is complete already. It may submit calls; it must not block, poll, or close the pool.
  template <class F>
  void then(F&& function) {
    using Function = std::decay_t<F>;
    if (record_ == nullptr) {
      std::forward<F>(function)(take_failure());
      return;
    }
    detail::CallRecord* record = std::exchange(record_, nullptr);
    if constexpr (sizeof(Function) <= detail::kContinuationBytes && alignof(Function) <= alignof(std::max_align_t)) {
      ::new (detail::continuation_storage(record)) Function(std::forward<F>(function));
      detail::attach_continuation(record, [](void* storage, Result<Reply>&& result) {
        auto* f = static_cast<Function*>(storage);
        (*f)(std::move(result));
        f->~Function();
      });
    } else {
      then([boxed = std::make_unique<Function>(std::forward<F>(function))](Result<Reply>&& result) {
        (*boxed)(std::move(result));
      });
    }
  }

  // The same, and the call can be cancelled afterwards. The function runs exactly once in any case, with
  // Code::cancelled if the cancellation came first. Costs an allocation.
  template <class F>
  Canceller then_cancellable(F&& function) {
    if (record_ == nullptr) {
      std::forward<F>(function)(take_failure());
      return {};
    }
    auto* const shared = new detail::CancellableFunction<std::decay_t<F>>(std::forward<F>(function));
    Canceller canceller(shared);
    detail::make_cancellable(record_, *shared);
    // The library may drop this continuation without running it, so it has nothing to destroy.
    then([call = static_cast<detail::CancellableCall*>(shared)](Result<Reply>&& result) {
      call->complete(std::move(result));
    });
    return canceller;
  }

  // Tells the peer to stop, if it is still of use. The handle is empty afterwards.
  void cancel() noexcept {
    if (record_ != nullptr) detail::call_drop(std::exchange(record_, nullptr));
  }

  struct Awaiter {
    Call& call;
    bool await_ready() const noexcept { return call.record_ == nullptr || detail::call_ready(call.record_); }
    bool await_suspend(std::coroutine_handle<> waiter) noexcept { return detail::call_suspend(call.record_, waiter); }
    Result<Reply> await_resume() {
      if (call.record_ == nullptr) return call.take_failure();
      return detail::call_take(std::exchange(call.record_, nullptr));
    }
  };
  Awaiter operator co_await() & noexcept { return Awaiter{*this}; }
  Awaiter operator co_await() && noexcept { return Awaiter{*this}; }

  // `co_await call.header()`: the reply's header; the reply itself can still be awaited afterwards.
  struct HeaderAwaiter {
    Call& call;
    bool await_ready() const noexcept { return call.record_ == nullptr || detail::call_ready(call.record_); }
    bool await_suspend(std::coroutine_handle<> waiter) noexcept { return detail::call_suspend(call.record_, waiter); }
    Result<Bytes> await_resume() {
      if (call.record_ == nullptr) return std::unexpected(call.failure_ ? *call.failure_ : call.consumed());
      return detail::call_header(call.record_);
    }
  };
  HeaderAwaiter header() & noexcept { return HeaderAwaiter{*this}; }

  // What other calls can come after (CallOptions::after), if this one is tracked: its request is with the peer; its
  // reply is here. If it fails before, they fail with `dependency_failed`, unless they said or_failed(). Also of a
  // handle that was awaited; of one that was given to then() or then_cancellable(), ask before.
  [[nodiscard]] Dependency sent() const { return Dependency(token_ | Dependency::kSent); }
  [[nodiscard]] Dependency responded() const { return Dependency(token_); }

  // For the library.
  explicit Call(detail::CallRecord* record, std::uint64_t token = Dependency::kNotTracked) noexcept
      : record_(record), token_(token) {}
  explicit Call(Error failure)
      : failure_(std::make_unique<Error>(std::move(failure))), token_(Dependency::kFailedAtOnce) {}
  detail::CallRecord* record() const { return record_; }
  detail::CallRecord* release() { return std::exchange(record_, nullptr); }

 private:
  static Error consumed() { return Error(Code::invalid_argument, "this call was consumed or cancelled already"); }
  Result<Reply> take_failure() {
    if (!failure_) return std::unexpected(consumed());
    Error error = std::move(*failure_);
    failure_.reset();
    return std::unexpected(std::move(error));
  }

  detail::CallRecord* record_ = nullptr;
  std::unique_ptr<Error> failure_;
  std::uint64_t token_;
};

}  // namespace weir
