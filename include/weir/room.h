// CallRoom: the right to have one more call outstanding, for who makes more calls than can be under way.
//
//   weir::Result<weir::CallRoom> room = co_await db.room({.priority = 5});  // or get()
//   auto reply = co_await db.unary("kv.put", row, {.priority = 5});         // the room is held meanwhile
#pragma once

#include <coroutine>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "weir/error.h"

namespace weir {

namespace pool {
class CallRooms;
}

struct RoomOptions {
  int priority = 3;  // of the call: 0 (most urgent) to 7. The most urgent goes on first, the least urgent waits first
};

// Goes back when it is dropped: keep it until its call has completed. Move it into a continuation given to then().
class [[nodiscard]] CallRoom {
 public:
  CallRoom() = default;
  CallRoom(CallRoom&& other) noexcept : rooms_(std::move(other.rooms_)) {}
  CallRoom& operator=(CallRoom&& other) noexcept {
    rooms_.swap(other.rooms_);
    return *this;
  }
  CallRoom(const CallRoom&) = delete;
  CallRoom& operator=(const CallRoom&) = delete;
  ~CallRoom() {
    if (rooms_ != nullptr) give_back();
  }

  // For the library.
  explicit CallRoom(std::shared_ptr<pool::CallRooms> rooms) : rooms_(std::move(rooms)) {}

 private:
  void give_back() noexcept;
  std::shared_ptr<pool::CallRooms> rooms_;
};

namespace detail {

struct RoomRecord;  // a request that waits, inside the library

bool room_ready(const RoomRecord* record) noexcept;
// False if there is a result meanwhile and the coroutine should go on at once.
bool room_suspend(RoomRecord* record, std::coroutine_handle<> waiter) noexcept;
Result<CallRoom> room_take(RoomRecord* record);  // the result, once; releases the record
Result<CallRoom> room_wait(RoomRecord* record);  // blocks this thread; releases the record
void room_drop(RoomRecord* record) noexcept;     // gives up the wait; releases the record

}  // namespace detail

// Made by Peer::room(). Await it, or get() it. Dropping it gives up the wait.
class [[nodiscard]] RoomRequest {
 public:
  RoomRequest(RoomRequest&& other) noexcept
      : record_(std::exchange(other.record_, nullptr)), result_(std::exchange(other.result_, std::nullopt)) {}
  RoomRequest& operator=(RoomRequest&& other) noexcept {
    if (this != &other) {
      drop();
      record_ = std::exchange(other.record_, nullptr);
      result_ = std::exchange(other.result_, std::nullopt);
    }
    return *this;
  }
  RoomRequest(const RoomRequest&) = delete;
  RoomRequest& operator=(const RoomRequest&) = delete;
  ~RoomRequest() { drop(); }

  // Blocks this thread until there is room. With zero worker threads it polls meanwhile. Not allowed inside handlers
  // and continuations on a worker (detected).
  Result<CallRoom> get() {
    if (record_ == nullptr) return take_result();
    return detail::room_wait(std::exchange(record_, nullptr));
  }

  struct Awaiter {
    RoomRequest& request;
    bool await_ready() const noexcept { return request.record_ == nullptr || detail::room_ready(request.record_); }
    bool await_suspend(std::coroutine_handle<> waiter) noexcept {
      return detail::room_suspend(request.record_, waiter);
    }
    Result<CallRoom> await_resume() {
      if (request.record_ == nullptr) return request.take_result();
      return detail::room_take(std::exchange(request.record_, nullptr));
    }
  };
  Awaiter operator co_await() & noexcept { return Awaiter{*this}; }
  Awaiter operator co_await() && noexcept { return Awaiter{*this}; }

  // For the library.
  explicit RoomRequest(detail::RoomRecord* record) noexcept : record_(record) {}
  explicit RoomRequest(Result<CallRoom> result) : result_(std::move(result)) {}

 private:
  Result<CallRoom> take_result() {
    if (!result_) return std::unexpected(Error(Code::invalid_argument, "this request for room was consumed already"));
    Result<CallRoom> result = std::move(*result_);
    result_.reset();
    return result;
  }
  void drop() noexcept {
    if (record_ != nullptr) detail::room_drop(std::exchange(record_, nullptr));
  }

  detail::RoomRecord* record_ = nullptr;
  std::optional<Result<CallRoom>> result_;
};

}  // namespace weir
