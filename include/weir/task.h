// Task<T>: a coroutine that gives a T. Lazy: it runs when somebody awaits it, or Pool::run() or Pool::spawn() starts
// it.
#pragma once

#include "weir/require.h"
// The rest needs what this asks for.
#include <coroutine>
#include <cstddef>
#include <exception>
#include <optional>
#include <type_traits>
#include <utility>

namespace weir {

template <class T = void>
class Task;

namespace detail {

// Coroutine frames, from a bounded free list of this thread.
void* frame_allocate(std::size_t bytes);
void frame_free(void* frame, std::size_t bytes) noexcept;

[[noreturn]] void misused_task();

struct FramePooled {
  static void* operator new(std::size_t bytes) { return frame_allocate(bytes); }
  static void operator delete(void* frame, std::size_t bytes) noexcept { frame_free(frame, bytes); }
};

struct TaskPromiseBase : FramePooled {
  struct FinalAwaiter {
    bool await_ready() const noexcept { return false; }
    template <class Promise>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> finished) const noexcept {
      std::coroutine_handle<> next = finished.promise().continuation;
      return next ? next : std::noop_coroutine();
    }
    void await_resume() const noexcept {}
  };

  std::suspend_always initial_suspend() const noexcept { return {}; }
  FinalAwaiter final_suspend() const noexcept { return {}; }
  void unhandled_exception() noexcept { exception = std::current_exception(); }

  std::coroutine_handle<> continuation;
  std::exception_ptr exception;
};

template <class T>
struct TaskPromise : TaskPromiseBase {
  Task<T> get_return_object() noexcept;
  template <class U>
    requires std::is_constructible_v<T, U&&>
  void return_value(U&& from) {
    value.emplace(std::forward<U>(from));
  }
  T take() {
    if (exception) std::rethrow_exception(exception);
    return std::move(*value);
  }

  std::optional<T> value;
};

template <>
struct TaskPromise<void> : TaskPromiseBase {
  Task<void> get_return_object() noexcept;
  void return_void() const noexcept {}
  void take() const {
    if (exception) std::rethrow_exception(exception);
  }
};

// What Pool::run() needs to know of a task of any type.
class TaskBase {
 public:
  TaskBase(TaskBase&& other) noexcept : frame_(std::exchange(other.frame_, nullptr)) {}
  TaskBase& operator=(TaskBase&& other) noexcept {
    if (this != &other) {
      if (frame_) frame_.destroy();
      frame_ = std::exchange(other.frame_, nullptr);
    }
    return *this;
  }
  TaskBase(const TaskBase&) = delete;
  TaskBase& operator=(const TaskBase&) = delete;
  ~TaskBase() {
    if (frame_) frame_.destroy();
  }

  bool done() const { return frame_.done(); }
  // Once; a task that was moved from, or is done, stops the process with a sentence.
  void start() const {
    if (!frame_ || frame_.done()) misused_task();
    frame_.resume();
  }

 protected:
  explicit TaskBase(std::coroutine_handle<> frame) noexcept : frame_(frame) {}
  std::coroutine_handle<> frame_;
};

}  // namespace detail

// Owns its coroutine. A task is started once; destroying it while it waits cancels the call it waits for.
template <class T>
class [[nodiscard]] Task : public detail::TaskBase {
 public:
  using promise_type = detail::TaskPromise<T>;

  // Starts the task and gives its value; an exception that left the task is thrown here.
  auto operator co_await() && noexcept {
    struct Awaiter {
      std::coroutine_handle<promise_type> frame;
      bool await_ready() const noexcept { return false; }
      std::coroutine_handle<> await_suspend(std::coroutine_handle<> waiter) const noexcept {
        frame.promise().continuation = waiter;
        return frame;
      }
      T await_resume() const { return frame.promise().take(); }
    };
    return Awaiter{handle()};
  }

  // The value of a task that is done.
  T take() { return handle().promise().take(); }

 private:
  friend promise_type;
  explicit Task(std::coroutine_handle<promise_type> frame) noexcept : TaskBase(frame) {}
  std::coroutine_handle<promise_type> handle() const {
    return std::coroutine_handle<promise_type>::from_address(frame_.address());
  }
};

namespace detail {

template <class T>
Task<T> TaskPromise<T>::get_return_object() noexcept {
  return Task<T>(std::coroutine_handle<TaskPromise>::from_promise(*this));
}

inline Task<void> TaskPromise<void>::get_return_object() noexcept {
  return Task<void>(std::coroutine_handle<TaskPromise>::from_promise(*this));
}

// A coroutine that nobody waits for: it starts at once and frees itself.
struct Detached {
  struct promise_type : FramePooled {
    Detached get_return_object() const noexcept { return {}; }
    std::suspend_never initial_suspend() const noexcept { return {}; }
    std::suspend_never final_suspend() const noexcept { return {}; }
    void return_void() const noexcept {}
    void unhandled_exception() const noexcept { std::terminate(); }
  };
};

}  // namespace detail

}  // namespace weir
