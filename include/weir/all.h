// weir::all: many calls, one coroutine, one wake-up.
#pragma once

#include <algorithm>
#include <coroutine>
#include <cstddef>
#include <ranges>
#include <type_traits>
#include <utility>
#include <vector>

#include "weir/call.h"

namespace weir {

// Await it, or get() it: the results in the order of the calls. Dropping it cancels those that are not complete.
class [[nodiscard]] AllCalls {
 public:
  explicit AllCalls(std::vector<Call> calls) : calls_(std::move(calls)) {}

  // Waits for the last one first: replies mostly come in the order of the calls, and then the thread sleeps once.
  std::vector<Result<Reply>> get() {
    std::vector<Result<Reply>> results;
    results.reserve(calls_.size());
    for (auto call = calls_.rbegin(); call != calls_.rend(); ++call) results.push_back(call->get());
    std::reverse(results.begin(), results.end());
    return results;
  }

  struct Awaiter {
    AllCalls& all;
    detail::CallGroup group{};
    bool await_ready() const noexcept { return false; }
    bool await_suspend(std::coroutine_handle<> waiter) noexcept {
      group.waiter = waiter;
      for (Call& call : all.calls_) {
        if (call.record() != nullptr && detail::call_join(call.record(), group)) ++group.remaining;
      }
      return group.remaining != 0;
    }
    std::vector<Result<Reply>> await_resume() {
      std::vector<Result<Reply>> results;
      results.reserve(all.calls_.size());
      for (Call& call : all.calls_) results.push_back(Call::Awaiter{call}.await_resume());
      return results;
    }
  };
  Awaiter operator co_await() & noexcept { return Awaiter{*this}; }
  Awaiter operator co_await() && noexcept { return Awaiter{*this}; }

 private:
  std::vector<Call> calls_;
};

inline AllCalls all(std::vector<Call> calls) { return AllCalls(std::move(calls)); }

// Calls `make` for each item of `range`, for example `all(shards, [&](Peer& s) { return s.unary("lock", key); })`.
template <std::ranges::input_range Range, class Make>
AllCalls all(Range&& range, Make&& make) {
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 13
  static_assert(
      std::is_lvalue_reference_v<Make> || std::is_trivially_destructible_v<std::remove_cvref_t<Make>>,
      "g++ 12 destroys a temporary function with owning captures twice inside a co_await expression: capture by "
      "reference, or give the function a name and pass that");
#endif
  std::vector<Call> calls;
  if constexpr (std::ranges::sized_range<Range>) calls.reserve(std::ranges::size(range));
  for (auto&& item : range) calls.push_back(make(item));
  return AllCalls(std::move(calls));
}

}  // namespace weir
