// A put: it is asked whether it would be taken, then the payload goes out in parts of whole records.
#include <algorithm>
#include <deque>
#include <utility>

#include "base/check.h"
#include "base/fork_guard.h"
#include "buffer/block.h"
#include "buffer/holds.h"
#include "pool/bulk_client.h"
#include "pool/gate.h"
#include "pool/sealing.h"
#include "weir/pool.h"

namespace weir::pool {
namespace {

struct Part {
  Call call;
  std::uint64_t begin = 0;
  std::uint64_t bytes = 0;
};

Error not_in_time() { return {Code::timeout, "the deadline passed", true}; }

// Nobody knows what has become of it; nor is there time to wait for the others.
bool is_late(const Result<Reply>& reply) { return !reply && reply.error().code() == Code::timeout; }

// Of one part; `written_bytes` says how far it got.
Result<void> judge(const Result<Reply>& reply, const Part& part, std::uint64_t& written_bytes) {
  if (!reply) return std::unexpected(reply.error());
  const std::optional<PutAnswer> answer = decode_put_answer(reply->body());
  if (!answer || answer->written_bytes > part.bytes ||
      (answer->code == Code{} && answer->written_bytes != part.bytes)) {
    return std::unexpected(Error(Code::application, "the peer's answer to a put makes no sense", true));
  }
  written_bytes = answer->written_bytes;
  if (answer->code == Code{}) return {};
  return std::unexpected(Error(answer->code, std::string(answer->sentence), true));
}

// What a put needs of its payload: at first all that is not acknowledged, then less and less.
class Remainder {
 public:
  Remainder(const Payload& payload, std::uint64_t begin)
      : held_(buffer::pieces_of(*payload.sealed(), begin, payload.size())) {
    sealed_ = buffer::lend(*payload.sealed(), held_);
  }
  Remainder(const Remainder&) = delete;
  Remainder& operator=(const Remainder&) = delete;
  ~Remainder() { buffer::give_back(sealed_, held_); }
  buffer::Sealed& operator*() const { return *sealed_; }
  buffer::Sealed* operator->() const { return sealed_; }

  // All before `offset` has arrived.
  void let_go(std::uint64_t offset) {
    const std::uint32_t first = offset == sealed_->bytes ? held_.end : sealed_->piece_at(offset);
    if (first <= held_.begin) return;
    buffer::let_go(*sealed_, {.begin = held_.begin, .end = first});
    held_.begin = first;
  }

 private:
  buffer::PieceRange held_;
  buffer::Sealed* sealed_;
};

Result<void> check_payload(const Payload& payload, const PutOptions& options) {
  const buffer::Sealed* const sealed = payload.sealed();
  if (sealed == nullptr) return std::unexpected(Error(Code::invalid_argument, kNoPayload));
  if (is_inherited(payload)) return std::unexpected(Error(Code::closed, kForked));
  if (sealed->adopted) {
    return std::unexpected(Error(Code::invalid_argument,
                                 "a payload that the application sealed itself cannot be put: nobody could open it"));
  }
  if (options.resume_at > sealed->bytes ||
      (options.resume_at % sealed->record_bytes != 0 && options.resume_at != sealed->bytes)) {
    return std::unexpected(
        Error(Code::invalid_argument, "a put resumes at acknowledged_bytes of a report about the same payload"));
  }
  return {};
}

}  // namespace

Task<Result<PutReport>> run_put(std::shared_ptr<detail::PeerState> peer, BulkNames names, Payload payload,
                                PutOptions options) {
  PutReport report{.acknowledged_bytes = options.resume_at};
  const auto tell = [&options, &report] {
    if (options.report != nullptr) *options.report = report;
  };
  tell();
  const std::uint64_t bytes = payload.size();
  const BulkDeadline deadline(options.deadline);
  Result<void> checked = check_names(names.name, names.header);
  if (checked) checked = check_payload(payload, options);
  if (!checked) co_return std::unexpected(checked.error());

  BulkFrame frame{.is_put = true,
                  .sync = options.sync,
                  .offset = options.offset,
                  .bytes = bytes,
                  .name = names.name,
                  .header = as_bytes(names.header)};
  std::string header = encode(frame);
  const Peer to(peer);
  Call asking = to.unary(kAskMethod, std::string_view{},
                         {.priority = options.priority, .deadline = options.deadline, .header = header});
  const Result<AskAnswer> answer = ask_answer(co_await asking);
  if (!answer) co_return std::unexpected(stopped_at(answer.error(), report.acknowledged_bytes, bytes));
  if (bytes == options.resume_at) co_return report;

  Remainder sealed(payload, options.resume_at);
  payload = Payload();  // unless the caller has another handle, what is acknowledged is free
  const std::uint64_t most = std::min(kPartBytes, answer->largest_part_bytes);
  const std::uint64_t part_bytes =
      std::min<std::uint64_t>(most, peer->gate->limits().message_bytes) / sealed->record_bytes * sealed->record_bytes;
  if (part_bytes == 0) {
    co_return std::unexpected(
        Error(Code::too_large, "Limits::message_bytes, here or at the peer, is less than one record of 60 KiB"));
  }
  std::deque<Part> parts;  // at most kPartsOutstanding
  std::uint64_t next = options.resume_at;
  std::optional<Error> failure;
  while (report.acknowledged_bytes < bytes && !failure) {
    while (next < bytes && parts.size() < kPartsOutstanding) {
      const auto time_left = deadline.left();
      if (!time_left) break;
      Part part{.call = Call(not_in_time()), .begin = next, .bytes = std::min(part_bytes, bytes - next)};
      frame.offset = options.offset + next;
      frame.bytes = part.bytes;
      header = encode(frame);
      part.call =
          send_part(peer, kPutMethod, *sealed, {.first_record = next / sealed->record_bytes, .bytes = part.bytes},
                    Pattern::put, {.priority = options.priority, .deadline = *time_left, .header = header});
      next += part.bytes;
      parts.push_back(std::move(part));
    }
    if (parts.empty()) {
      failure = not_in_time();
      break;
    }
    const Result<Reply> reply = co_await parts.front().call;
    std::uint64_t written_bytes = 0;
    const Result<void> judged = judge(reply, parts.front(), written_bytes);
    report.acknowledged_bytes += written_bytes;
    tell();
    if (!judged) failure = judged.error();
    if (!failure) sealed.let_go(report.acknowledged_bytes);
    parts.pop_front();
    // Dropping the others would leave it open when they are written for the last time.
    for (; failure && !is_late(reply) && !parts.empty(); parts.pop_front()) {
      static_cast<void>(co_await parts.front().call);
    }
    if (options.progress.function != nullptr && written_bytes != 0) {
      options.progress.function(options.progress.context, report.acknowledged_bytes, bytes);
    }
  }
  if (failure) co_return std::unexpected(stopped_at(*failure, report.acknowledged_bytes, bytes));
  co_return report;
}

}  // namespace weir::pool
