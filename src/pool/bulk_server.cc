#include "pool/bulk_server.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "buffer/open.h"
#include "buffer/seal.h"
#include "pool/allocation.h"
#include "pool/bulk_frame.h"
#include "pool/gate.h"
#include "pool/incoming_record.h"
#include "pool/intake.h"

namespace weir::pool {
namespace {

constexpr const char kNonsense[] = "the peer sent a put or get that makes no sense";

BulkRequest request_of(const BulkFrame& frame, const Caller& caller) {
  return {.name = frame.name,
          .header = frame.header,
          .offset = frame.offset,
          .bytes = frame.bytes,
          .is_put = frame.is_put,
          .caller = caller};
}

// ---- put ------------------------------------------------------------------------------------------------------------

// One part of a put. Each record is opened where it landed and written from there: whoever looks at the placement sees
// the old bytes or a whole verified record, also when a record turns out to be forged.
class PutIntake final : public Intake {
 public:
  // The caller is known until we answer.
  PutIntake(std::shared_ptr<Placements> placements, const Caller& caller, std::shared_ptr<Gate> gate)
      : placements_(std::move(placements)), caller_(caller), gate_(std::move(gate)) {}

  bool take_next(buffer::Landing& landing) override {
    if (placed_ == nullptr && !begin(landing)) return false;
    const std::uint64_t record = landing.opened_records;
    const std::uint64_t at = record * landing.record_bytes;
    if (!buffer::open_next(landing, buffer::thread_key())) {
      return fail({Code::unauthenticated, "the put's data does not authenticate"});
    }
    const ByteSpan text{landing.body + at, buffer::record_length(landing, record)};
    try {
      if (Result<void> written = placed_->write(offset_ + at, text); !written) return fail(written.error());
    } catch (const std::exception& thrown) {
      return fail_thrown(thrown.what());
    } catch (...) {
      return fail_thrown(kNoStandardException);
    }
    written_bytes_ += text.size();
    return !landing.is_open();
  }

  void answer(Responder responder) override {
    if (sync_ && written_bytes_ != 0) {
      if (Result<void> synced = placed_->sync(); !synced) {
        if (!failure_) failure_ = synced.error();
        written_bytes_ = 0;  // nobody knows how many are on the disk
      }
    }
    PutAnswer answer{.written_bytes = written_bytes_};
    if (failure_) {
      answer.code = failure_->code();
      answer.sentence = failure_->message();
    }
    responder.reply(encode(answer));
  }

 private:
  bool begin(const buffer::Landing& landing) {
    const std::optional<BulkFrame> frame = decode_bulk(landing.header());
    if (!frame || !frame->is_put || frame->bytes != landing.bytes || landing.adopted) {
      return fail({Code::invalid_argument, kNonsense});
    }
    Result<std::shared_ptr<Placed>> placed = placements_->find(frame->name);
    if (!placed) return fail(placed.error());
    try {
      if (Result<void> admitted = (*placed)->admit(request_of(*frame, caller_)); !admitted)
        return fail(admitted.error());
    } catch (const std::exception& thrown) {
      return fail_thrown(thrown.what());
    } catch (...) {
      return fail_thrown(kNoStandardException);
    }
    placed_ = *std::move(placed);
    offset_ = frame->offset;
    sync_ = frame->sync;
    return true;
  }

  bool fail_thrown(const char* text) {
    return fail({Code::application, std::string(gate_->tell_thrown(kPutMethod.name(), text))});
  }

  bool fail(Error error) {
    failure_ = std::move(error);
    return false;
  }

  const std::shared_ptr<Placements> placements_;
  const Caller caller_;
  const std::shared_ptr<Gate> gate_;
  std::shared_ptr<Placed> placed_;
  std::uint64_t offset_ = 0;
  std::uint64_t written_bytes_ = 0;
  bool sync_ = false;
  std::optional<Error> failure_;
};

// On the worker, before any data flows: what needs no more than a look.
Result<Route> admit_put(Placements& placements, const LargeRequest& request) {
  const std::optional<BulkFrame> frame = decode_bulk(request.header);
  if (!frame || !frame->is_put || frame->bytes != request.bytes) {
    return std::unexpected(Error(Code::invalid_argument, kNonsense));
  }
  const Result<std::shared_ptr<Placed>> placed = placements.find(frame->name);
  if (!placed) return std::unexpected(placed.error());
  if (const Result<void> checked = (*placed)->check(request_of(*frame, {})); !checked) {  // asks no guard
    return std::unexpected(checked.error());
  }
  return {};
}

// ---- ask and get ----------------------------------------------------------------------------------------------------

struct Found {
  BulkFrame frame;
  std::shared_ptr<Placed> placed;
  std::uint64_t bytes = 0;
};

Result<Found> find(Placements& placements, const Request& request) {
  const std::optional<BulkFrame> frame = decode_bulk(request.header());
  if (!frame) return std::unexpected(Error(Code::invalid_argument, kNonsense));
  Result<std::shared_ptr<Placed>> placed = placements.find(frame->name);
  if (!placed) return std::unexpected(placed.error());
  if (Result<void> admitted = (*placed)->admit(request_of(*frame, request.caller())); !admitted) {
    return std::unexpected(admitted.error());
  }
  Result<std::uint64_t> bytes = (*placed)->bytes();
  if (!bytes) return std::unexpected(bytes.error());
  return Found{.frame = *frame, .placed = *std::move(placed), .bytes = *bytes};
}

Task<Result<Reply>> answer_ask(const BulkServerParts& parts, Request request) {
  Result<Found> found = find(*parts.placements, request);
  if (!found) co_return std::unexpected(found.error());
  co_return Reply{encode(AskAnswer{.placement_bytes = found->bytes, .largest_part_bytes = parts.largest_put_bytes})};
}

Task<Result<Reply>> answer_get(const BulkServerParts& parts, Request request) {
  Result<Found> found = find(*parts.placements, request);
  if (!found) co_return std::unexpected(found.error());
  const BulkFrame& frame = found->frame;
  if (frame.is_put) co_return std::unexpected(Error(Code::invalid_argument, kNonsense));
  char header[kGetHeaderBytes];
  store<std::uint64_t>(reinterpret_cast<std::byte*>(header), found->bytes);
  const std::string_view size(header, sizeof header);
  if (frame.bytes == 0) co_return Reply{std::string_view{}, size};
  // Looked at once more: a guard may have taken its time.
  if (frame.offset >= found->bytes) co_return std::unexpected(Error(Code::invalid_argument, kNonsense));
  const std::uint64_t bytes = std::min({frame.bytes, found->bytes - frame.offset, parts.largest_get_bytes});
  Allocation allocation = allocate(parts.buffers, parts.loop, bytes, {});
  Result<Buffer> room = co_await allocation;
  if (!room) co_return std::unexpected(room.error());
  Result<Payload> sealed = found->placed->seal(frame.offset, *std::move(room));
  if (!sealed) co_return std::unexpected(sealed.error());
  co_return Reply{*sealed, size};
}

template <class F>
MethodEntry task_entry(Method method, F function) {
  return {.run_task = std::make_shared<TaskHandler>(std::string(method.name()), std::move(function))};
}

}  // namespace

Result<void> serve_bulk(const BulkServerParts& parts,
                        const std::function<Result<void>(Method, const MethodEntry&)>& serve) {
  Result<void> served = serve(
      kAskMethod, task_entry(kAskMethod, [parts](Request request) { return answer_ask(parts, std::move(request)); }));
  if (!served) return served;
  MethodEntry get = task_entry(kGetMethod, [parts](Request request) { return answer_get(parts, std::move(request)); });
  get.reply_pattern = Pattern::get;
  served = serve(kGetMethod, get);
  if (!served) return served;
  // A part of a put is always a large message.
  MethodEntry put = task_entry(kPutMethod, [](Request) -> Task<Result<Reply>> {
    co_return std::unexpected(Error(Code::invalid_argument, kNonsense));
  });
  put.make_intake = std::make_shared<MakeIntake>(
      [placements = parts.placements](const Caller& caller, const std::shared_ptr<Gate>& gate) {
        return std::make_unique<PutIntake>(placements, caller, gate);
      });
  put.admit = std::make_shared<Admit>(
      [placements = parts.placements](const LargeRequest& request) { return admit_put(*placements, request); });
  return serve(kPutMethod, put);
}

}  // namespace weir::pool
