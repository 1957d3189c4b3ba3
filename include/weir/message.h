// What a caller receives (Reply) and what a handler receives (Request, InlineRequest).
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "weir/body.h"
#include "weir/buffer.h"
#include "weir/caller.h"
#include "weir/error.h"
#include "weir/pattern.h"

namespace weir {

namespace detail {
struct IncomingRecord;  // the callee's half of a transfer, inside the library
}

// A reply: a header (often empty) and a body. A handler makes one; a caller receives one.
class [[nodiscard]] Reply {
 public:
  Reply() = default;
  explicit Reply(std::string_view body, std::string_view header = {}) : Reply(as_bytes(body), as_bytes(header)) {}
  explicit Reply(Bytes body, Bytes header = {});
  // A payload that was sealed before, perhaps for many: nothing is copied or sealed again. A handler's only; body() is
  // empty.
  explicit Reply(Payload payload, std::string_view header = {});
  // Takes over a received body of which the first `header_bytes` are the header.
  Reply(Body storage, std::uint32_t header_bytes) noexcept
      : storage_(std::move(storage)), header_bytes_(header_bytes) {}

  Bytes body() const { return storage_.bytes().subspan(header().size()); }
  std::string_view text() const { return storage_.text().substr(header().size()); }
  Bytes header() const {
    return storage_.bytes().first(
        std::min<std::size_t>(header_bytes_, storage_.bytes().size()));  // none, if it was moved from
  }
  std::string_view header_text() const { return storage_.text().substr(0, header_bytes_); }
  bool has_payload() const { return has_payload_; }
  // Empty unless it was made of one.
  Payload payload() const { return has_payload_ ? held_payload() : Payload(); }

 private:
  Payload held_payload() const;

  Body storage_;
  std::uint32_t header_bytes_ = 0;
  bool has_payload_ = false;  // it is kept alive, with the header, by storage_
};

// The right, and the duty, to answer one request. May be moved to another thread and used after the handler
// returned. Dropping it unanswered answers with an `application` error, so that the caller never hangs.
class [[nodiscard]] Responder {
 public:
  Responder() = default;
  Responder(Responder&& other) noexcept : record_(std::exchange(other.record_, nullptr)) {}
  Responder& operator=(Responder&& other) noexcept {
    Responder dropped(std::exchange(record_, std::exchange(other.record_, nullptr)));
    return *this;
  }
  Responder(const Responder&) = delete;
  Responder& operator=(const Responder&) = delete;
  ~Responder() {
    if (record_ != nullptr) fail_dropped();
  }

  // Of any size up to Limits::message_bytes. More than Limits::inline_bytes is sealed by this thread, which takes a
  // while: on a worker thread, reply with a Payload or defer() instead.
  void reply(Bytes body, Bytes header = {});
  void reply(std::string_view body, std::string_view header = {}) { reply(as_bytes(body), as_bytes(header)); }
  void reply(Payload payload, Bytes header = {});
  void reply(const Reply& r) {
    if (r.has_payload()) return reply(r.payload(), r.header());
    reply(r.body(), r.header());
  }
  void fail(Code code, std::string_view sentence);

  // The caller has gone (cancelled, timed out or failed): an answer would reach nobody.
  bool cancelled() const;
  // Who asked. Empty once it is answered.
  Caller caller() const;
  bool pending() const { return record_ != nullptr; }

  // For the library.
  explicit Responder(detail::IncomingRecord* record) noexcept : record_(record) {}
  detail::IncomingRecord* release() noexcept { return std::exchange(record_, nullptr); }

 private:
  void fail_dropped();

  detail::IncomingRecord* record_ = nullptr;
};

// A request given to a handler registered with serve(): owns its bytes.
class Request {
 public:
  Bytes body() const { return storage_.bytes().subspan(header().size()); }
  std::string_view text() const { return storage_.text().substr(header().size()); }
  Bytes header() const {
    return storage_.bytes().first(
        std::min<std::size_t>(header_bytes_, storage_.bytes().size()));  // none, if it was moved from
  }
  std::string_view header_text() const { return storage_.text().substr(0, header_bytes_); }
  // What was left of the caller's deadline when the request was dispatched.
  std::chrono::nanoseconds time_left() const { return time_left_; }
  int priority() const { return priority_; }
  // How many handlers stand between the first caller and this one.
  int depth() const { return depth_; }
  // The caller has gone; stop working for it. Only while the handler runs: a Request that was moved out of it must not
  // be asked any more.
  bool cancelled() const { return responder_->cancelled(); }
  // Who asks. Also only while the handler runs.
  Caller caller() const { return responder_->caller(); }

  // For the library.
  Request(Body storage, std::uint32_t header_bytes, std::chrono::nanoseconds time_left, int priority, int depth,
          const Responder* responder) noexcept
      : storage_(std::move(storage)),
        header_bytes_(header_bytes),
        time_left_(time_left),
        priority_(priority),
        depth_(depth),
        responder_(responder) {}

 private:
  Body storage_;
  std::uint32_t header_bytes_;
  std::chrono::nanoseconds time_left_;
  int priority_;
  int depth_;
  const Responder* responder_;
};

// A request given to a handler registered with serve_inline(): its bytes are valid until the handler returns.
class InlineRequest {
 public:
  Bytes body() const { return body_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(body_.data()), body_.size()}; }
  Bytes header() const { return header_; }
  std::string_view header_text() const { return {reinterpret_cast<const char*>(header_.data()), header_.size()}; }
  std::chrono::nanoseconds time_left() const { return time_left_; }
  int priority() const { return priority_; }
  int depth() const { return depth_; }
  // The caller has gone; an answer would reach nobody.
  bool cancelled() const { return responder_.cancelled(); }
  // Who asks. Empty once it is answered or deferred; then the Responder knows.
  Caller caller() const { return responder_.caller(); }

  // Exactly one of these, once. A handler that returns without any of them answers with an `application` error.
  void reply(Bytes body, Bytes header = {}) { std::exchange(responder_, {}).reply(body, header); }
  void reply(std::string_view body, std::string_view header = {}) { reply(as_bytes(body), as_bytes(header)); }
  void reply(Payload payload, Bytes header = {}) { std::exchange(responder_, {}).reply(std::move(payload), header); }
  void fail(Code code, std::string_view sentence) { std::exchange(responder_, {}).fail(code, sentence); }
  // Keep the right to answer for later. Copy what you need of body() first.
  Responder defer() { return std::move(responder_); }

  // For the library.
  InlineRequest(Bytes body, Bytes header, std::chrono::nanoseconds time_left, int priority, int depth,
                Responder responder) noexcept
      : body_(body),
        header_(header),
        time_left_(time_left),
        priority_(priority),
        depth_(depth),
        responder_(std::move(responder)) {}

 private:
  Bytes body_;
  Bytes header_;
  std::chrono::nanoseconds time_left_;
  int priority_;
  int depth_;
  Responder responder_;
};

// What a large request says of itself before it is sent. Valid until the function returns that is shown it.
struct LargeRequest {
  std::string_view method{};         // that was called
  Pattern pattern = Pattern::unary;  // or broadcast
  Bytes header{};
  std::uint64_t bytes = 0;  // of its body
  std::uint8_t priority = 0;
  Caller caller{};
};

// Where a large request goes. `return {};` leaves it where it is.
struct Route {
  // Another method that this pool serves: its handler runs, as it was registered, inline or as a task. Its own `admit`
  // is not asked. One that nobody serves is an `unknown_method` error to the caller. Empty: the method that was called.
  std::string method{};
  // Where its memory is taken: a wish, as AllocateOptions::numa_node is. A caller that had memory of this side's in
  // hand has written into that already; the next that it is given ahead of need is on this node. -1: as always.
  int numa_node = -1;
};

struct ServeOptions {
  // Asked once about each request that is too large to travel inline, on a worker's thread (on several at once, if
  // there are several), before there is memory for it: where it goes. An error is the caller's answer, its sentence up
  // to 256 bytes: nothing ran, and nothing was sent, unless the caller had memory of this side's in hand for just such
  // a message. It must be quick, and wait for nothing. A request that is let in may still be cancelled or lost before
  // its handler runs, and comes again if its caller tries again: reserve nothing here.
  std::function<Result<Route>(const LargeRequest&)> admit{};
};

}  // namespace weir
