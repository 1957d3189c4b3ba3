// Allocation: a buffer that was asked for. Await it, or get() it.
#pragma once

#include <coroutine>
#include <optional>
#include <utility>

#include "weir/buffer.h"
#include "weir/error.h"

namespace weir {

namespace detail {

struct AllocationRecord;  // one that waits, inside the library

bool allocation_ready(const AllocationRecord* record) noexcept;
// False if there is a result meanwhile and the coroutine should go on at once.
bool allocation_suspend(AllocationRecord* record, std::coroutine_handle<> waiter) noexcept;
Result<Buffer> allocation_take(AllocationRecord* record);  // the result, once; releases the record
Result<Buffer> allocation_wait(AllocationRecord* record);  // blocks this thread; releases the record
void allocation_drop(AllocationRecord* record) noexcept;   // gives up the wait; releases the record

}  // namespace detail

// Made by Pool::allocate(). Dropping it gives up the wait.
class [[nodiscard]] Allocation {
 public:
  Allocation(Allocation&& other) noexcept
      : record_(std::exchange(other.record_, nullptr)), result_(std::exchange(other.result_, std::nullopt)) {}
  Allocation& operator=(Allocation&& other) noexcept {
    if (this != &other) {
      drop();
      record_ = std::exchange(other.record_, nullptr);
      result_ = std::exchange(other.result_, std::nullopt);
    }
    return *this;
  }
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;
  ~Allocation() { drop(); }

  // Blocks this thread until there is memory. With zero worker threads it polls meanwhile. Not allowed inside handlers
  // and continuations on a worker (detected).
  Result<Buffer> get() {
    if (record_ == nullptr) return take_result();
    return detail::allocation_wait(std::exchange(record_, nullptr));
  }

  struct Awaiter {
    Allocation& allocation;
    bool await_ready() const noexcept {
      return allocation.record_ == nullptr || detail::allocation_ready(allocation.record_);
    }
    bool await_suspend(std::coroutine_handle<> waiter) noexcept {
      return detail::allocation_suspend(allocation.record_, waiter);
    }
    Result<Buffer> await_resume() {
      if (allocation.record_ == nullptr) return allocation.take_result();
      return detail::allocation_take(std::exchange(allocation.record_, nullptr));
    }
  };
  Awaiter operator co_await() & noexcept { return Awaiter{*this}; }
  Awaiter operator co_await() && noexcept { return Awaiter{*this}; }

  // For the library.
  explicit Allocation(detail::AllocationRecord* record) noexcept : record_(record) {}
  explicit Allocation(Result<Buffer> result) : result_(std::move(result)) {}

 private:
  Result<Buffer> take_result() {
    if (!result_) return std::unexpected(Error(Code::invalid_argument, "this allocation was consumed already"));
    Result<Buffer> result = std::move(*result_);
    result_.reset();
    return result;
  }
  void drop() noexcept {
    if (record_ != nullptr) detail::allocation_drop(std::exchange(record_, nullptr));
  }

  detail::AllocationRecord* record_ = nullptr;
  std::optional<Result<Buffer>> result_;
};

}  // namespace weir
