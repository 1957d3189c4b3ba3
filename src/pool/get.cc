// A get: parts are asked for, several at a time, and opened straight into the caller's memory, or written to its file.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <system_error>
#include <utility>

#include "buffer/open.h"
#include "buffer/work.h"
#include "pool/bulk_client.h"
#include "pool/call_result.h"
#include "pool/gate.h"
#include "weir/pool.h"

namespace weir::pool {
namespace {

// What is wanted, and where it goes.
class Sink {
 public:
  Sink(const GetTarget& target, std::string path) : memory_(target.memory), path_(std::move(path)) {
    file_offset_ = target.offset;
  }
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;
  ~Sink() {
    if (file_ >= 0) ::close(file_);
  }

  bool is_file() const { return !path_.empty(); }
  std::uint64_t room() const { return memory_.size(); }

  Result<void> open() {
    if (!is_file()) return {};
    file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (file_ < 0) return std::unexpected(failed("open "));
    return {};
  }

  // Up to what `arrived` has, at `offset` of the whole. `taken` says how many verified bytes are in place.
  Result<void> take(std::uint64_t offset, Arrived& arrived, Gate& gate, std::uint64_t& taken) {
    if (arrived.landing == nullptr) return write(offset, arrived.reply->body(), taken);
    buffer::Landing& landing = *arrived.landing;
    if (is_file() || landing.adopted || landing.is_open()) {
      if (!buffer::open_all(landing)) return forged(gate, landing);
      return write(offset, {landing.body, landing.bytes}, taken);
    }
    for (std::uint64_t record = 0; record < landing.records(); ++record) {
      const std::uint64_t at = record * landing.record_bytes;
      if (!buffer::open_into(landing, record, memory_.data() + offset + at)) return forged(gate, landing);
      taken += buffer::record_length(landing, record);
    }
    return {};
  }

 private:
  Error failed(const char* what) const {
    return {Code::system, "cannot " + std::string(what) + path_ + ": " + std::generic_category().message(errno)};
  }

  static Result<void> forged(Gate& gate, const buffer::Landing& landing) {
    gate.tell_forged(landing);
    return std::unexpected(Error(Code::unauthenticated, kForgedReply, true));
  }

  Result<void> write(std::uint64_t offset, ByteSpan text, std::uint64_t& taken) {
    if (!is_file()) {
      std::memcpy(memory_.data() + offset, text.data(), text.size());
      buffer::count(buffer::work.copied_bytes, text.size());
      taken += text.size();
      return {};
    }
    offset += file_offset_;
    while (!text.empty()) {
      const ssize_t written = pwrite(file_, text.data(), text.size(), static_cast<off_t>(offset));
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return std::unexpected(failed("write to "));
      offset += static_cast<std::uint64_t>(written);
      taken += static_cast<std::uint64_t>(written);
      text = text.subspan(static_cast<std::size_t>(written));
    }
    return {};
  }

  const std::span<std::byte> memory_;
  const std::string path_;
  std::uint64_t file_offset_ = 0;
  int file_ = -1;
};

struct Part {
  Call call;
  std::uint64_t bytes = 0;
};

Error not_in_time() { return {Code::timeout, "the deadline passed"}; }

// "...: \"snapshot\" has 5242880 bytes (100 of 4096 bytes from 5242780 on are acknowledged)". A get changes nothing at
// the peer, so nobody needs to know whether it ran.
Error stopped_at(const Error& error, const GetReport& report, std::uint64_t of_bytes, std::uint64_t offset) {
  return {error.code(), std::string(error.message()) + " (" + std::to_string(report.acknowledged_bytes) + " of " +
                            std::to_string(of_bytes) + " bytes from " + std::to_string(offset) +
                            " on are acknowledged)"};
}

std::uint64_t bytes_of(const Arrived& arrived) {
  return arrived.landing != nullptr ? arrived.landing->bytes : arrived.reply->body().size();
}

bool is_sound(const Arrived& arrived, std::uint64_t wanted) {
  const std::uint64_t bytes = bytes_of(arrived);
  return bytes != 0 && bytes <= wanted && (arrived.landing == nullptr || !arrived.landing->adopted);
}

}  // namespace

Task<Result<GetReport>> run_get(std::shared_ptr<detail::PeerState> peer, BulkNames names, GetTarget target,
                                GetOptions options) {
  GetReport report{.acknowledged_bytes = options.resume_at};
  const auto tell = [&options, &report] {
    if (options.report != nullptr) *options.report = report;
  };
  tell();
  const BulkDeadline deadline(options.deadline);
  Sink sink(target, names.path);
  if (Result<void> checked = check_names(names.name, names.header); !checked)
    co_return std::unexpected(checked.error());
  std::uint64_t bytes = options.bytes != 0 || sink.is_file() ? options.bytes : sink.room();
  if (!sink.is_file() && bytes > sink.room()) {
    co_return std::unexpected(Error(Code::too_large, "the memory is smaller than what was asked for"));
  }
  BulkFrame frame{.offset = options.offset, .name = names.name, .header = as_bytes(names.header)};
  std::string header = encode(frame);
  const Peer from(peer);
  if (bytes == 0) {
    Call asking = from.unary(kAskMethod, std::string_view{},
                             {.priority = options.priority, .deadline = options.deadline, .header = header});
    const Result<AskAnswer> answer = ask_answer(co_await asking);
    if (!answer) co_return std::unexpected(answer.error());
    if (sink.is_file()) bytes = answer->placement_bytes - std::min(answer->placement_bytes, options.offset);
  }
  if (options.resume_at > bytes) {
    co_return std::unexpected(Error(Code::invalid_argument, "a get resumes within what it asks for"));
  }
  if (Result<void> opened = sink.open(); !opened) co_return std::unexpected(opened.error());
  if (bytes == options.resume_at) co_return report;

  const bool has_threads = peer->gate == nullptr || peer->gate->worker().has_thread();
  const std::uint64_t message_bytes = peer->gate == nullptr ? kPartBytes : peer->gate->limits().message_bytes;
  const std::uint64_t part_bytes = std::min(has_threads ? kPartBytes : kThreadlessPartBytes, message_bytes);
  const auto ask_for = [&](std::uint64_t at, std::uint64_t wanted) {
    const auto time_left = deadline.left();
    if (!time_left) return Part{.call = Call(not_in_time()), .bytes = wanted};
    frame.offset = options.offset + at;
    frame.bytes = wanted;
    header = encode(frame);
    return Part{.call = from.unary(kGetMethod, std::string_view{},
                                   {.priority = options.priority,
                                    .deadline = *time_left,
                                    .header = header,
                                    .max_reply = wanted + kGetHeaderBytes}),
                .bytes = wanted};
  };
  std::deque<Part> parts;  // at most kPartsOutstanding
  std::uint64_t next = options.resume_at;
  std::optional<Error> failure;
  while (report.acknowledged_bytes < bytes && !failure) {
    while (next < bytes && parts.size() < kPartsOutstanding) {
      const std::uint64_t wanted = std::min(part_bytes, bytes - next);
      parts.push_back(ask_for(next, wanted));
      next += wanted;
    }
    Unopened unopened{parts.front().call};
    Result<Arrived> arrived = co_await unopened;
    if (!arrived) {
      failure = arrived.error();
      break;
    }
    const std::uint64_t wanted = parts.front().bytes;
    if (!is_sound(*arrived, wanted)) {
      failure = Error(Code::application, "the peer's answer to a get makes no sense", true);
      break;
    }
    std::uint64_t taken = 0;
    const Result<void> took = sink.take(report.acknowledged_bytes, *arrived, *peer->gate, taken);
    report.acknowledged_bytes += taken;
    tell();
    if (!took) failure = took.error();
    // The peer may send less at once than we would take.
    if (took && taken < wanted) {
      parts.front() = ask_for(report.acknowledged_bytes, wanted - taken);
    } else {
      parts.pop_front();
    }
    if (options.progress.function != nullptr && taken != 0) {
      options.progress.function(options.progress.context, report.acknowledged_bytes, bytes);
    }
  }
  if (failure) co_return std::unexpected(stopped_at(*failure, report, bytes, options.offset));
  co_return report;
}

}  // namespace weir::pool
