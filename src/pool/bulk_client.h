// What put() and get() have in common: parts of at most a few megabytes, several of them outstanding, each a call of
// its own. What is acknowledged counts from the beginning, without a gap.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/time.h"
#include "buffer/landing.h"
#include "buffer/sealed.h"
#include "pool/bulk_frame.h"
#include "pool/peer_entry.h"
#include "transfer/cargo.h"
#include "weir/bulk.h"
#include "weir/call.h"
#include "weir/config.h"
#include "weir/method.h"
#include "weir/pattern.h"
#include "weir/pin.h"

namespace weir::pool {

inline constexpr std::uint64_t kPartBytes = std::uint64_t{34} * buffer::kRecordBytes;  // about 2 MiB, whole records
inline constexpr std::uint64_t kThreadlessPartBytes = std::uint64_t{4} * buffer::kRecordBytes;
inline constexpr std::size_t kPartsOutstanding = 4;

// The records in `range` of a payload as a large request. Somebody holds these pieces.
[[nodiscard]] Call send_part(const std::shared_ptr<detail::PeerState>& peer, Method method, buffer::Sealed& payload,
                             const transfer::CargoRange& range, Pattern pattern, const CallOptions& options);

// When all of it has to be done.
class BulkDeadline {
 public:
  explicit BulkDeadline(std::chrono::nanoseconds from_now);
  // For one part. Nothing: it has passed.
  std::optional<std::chrono::nanoseconds> left() const;

 private:
  const std::chrono::nanoseconds given_;
  const Instant end_;
};

// The error of a put that got so far.
Error stopped_at(const Error& error, std::uint64_t acknowledged_bytes, std::uint64_t of_bytes);

// What a peer answered to `ask`.
Result<AskAnswer> ask_answer(const Result<Reply>& reply);

// Why a put or get with these cannot be tried.
Result<void> check_names(std::string_view name, std::string_view header);

// What a call brought: a reply, or one that is large and not open yet. On the thread that awaited it.
struct Arrived {
  std::optional<Reply> reply;
  struct Drop {
    void operator()(buffer::Landing* held) const noexcept { detail::unpin(held); }
  };
  std::unique_ptr<buffer::Landing, Drop> landing;  // instead
};

// `co_await Unopened{call}`: the call's result, without opening it if this thread would be the one to do it.
struct Unopened {
  Call& call;
  bool await_ready() const noexcept { return call.record() == nullptr || detail::call_ready(call.record()); }
  bool await_suspend(std::coroutine_handle<> waiter) noexcept { return detail::call_suspend(call.record(), waiter); }
  Result<Arrived> await_resume();
};

// Made by Peer::put() and Peer::get(), which see to it that the views in the options last.
struct BulkNames {
  std::string name;
  std::string header;
  std::string path;  // of a get's target
};
Task<Result<PutReport>> run_put(std::shared_ptr<detail::PeerState> peer, BulkNames names, Payload payload,
                                PutOptions options);
Task<Result<GetReport>> run_get(std::shared_ptr<detail::PeerState> peer, BulkNames names, GetTarget target,
                                GetOptions options);

}  // namespace weir::pool
