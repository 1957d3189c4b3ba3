#include "pool/bulk_client.h"

#include <algorithm>
#include <utility>

#include "pool/call_record.h"
#include "pool/lane.h"
#include "pool/pool_state.h"
#include "pool/there.h"
#include "worker/clock.h"
#include "worker/thread_context.h"

namespace weir::pool {

BulkDeadline::BulkDeadline(std::chrono::nanoseconds from_now)
    : given_(from_now), end_(from_now.count() == 0 ? Instant::never() : worker::read_clock() + from_now) {}

std::optional<std::chrono::nanoseconds> BulkDeadline::left() const {
  if (end_.is_never() || given_.count() < 0) return given_;  // each call says what is wrong with a negative one
  const auto time_left = end_ - worker::read_clock();
  if (time_left.count() <= 0) return std::nullopt;
  return time_left;
}

Error stopped_at(const Error& error, std::uint64_t acknowledged_bytes, std::uint64_t of_bytes) {
  return {error.code(),
          std::string(error.message()) + " (" + std::to_string(acknowledged_bytes) + " of " + std::to_string(of_bytes) +
              " bytes are acknowledged)",
          error.may_have_run()};
}

Result<AskAnswer> ask_answer(const Result<Reply>& reply) {
  // Nothing was written or read yet, whatever became of the question.
  if (!reply) return std::unexpected(Error(reply.error().code(), std::string(reply.error().message())));
  if (const std::optional<AskAnswer> answer = decode_ask_answer(reply->body())) return *answer;
  return std::unexpected(
      Error(Code::application, "the peer's answer to whether it would take a put or get is nonsense"));
}

Result<void> check_names(std::string_view name, std::string_view header) {
  if (name.empty() || name.size() > kLargestNameBytes) {
    return std::unexpected(Error(Code::invalid_argument, "the name of a placement has between 1 and 255 bytes"));
  }
  if (header.size() > kLargestBulkHeaderBytes) {
    return std::unexpected(Error(Code::too_large, "the header of a put or get has at most 512 bytes"));
  }
  return {};
}

Result<Arrived> Unopened::await_resume() {
  detail::CallRecord* const record = call.record();
  const bool is_unopened = record != nullptr && !record->core->shared->is_in_child() &&
                           record->stage.load(std::memory_order_acquire) != detail::CallStage::in_place &&
                           !record->kept.failed && record->kept.is_landing;
  if (!is_unopened) {
    Result<Reply> reply = Call::Awaiter{call}.await_resume();
    if (!reply) return std::unexpected(std::move(reply).error());
    return Arrived{.reply = *std::move(reply), .landing = nullptr};
  }
  Arrived arrived;
  arrived.landing.reset(static_cast<buffer::Landing*>(std::exchange(record->kept.pin, nullptr)));
  call.release();
  CallRecord::Pool::release(record);
  return arrived;
}

}  // namespace weir::pool

namespace weir {

void detail::run_here(TaskBase& task, const std::shared_ptr<worker::Worker>& loop) {
  WEIR_CHECK(worker::thread_context.loops_entered == 0,
             "get() was called inside a handler or continuation on the thread that turns the loop: await it");
  pool::Lane& lane = pool::Lane::mine();
  if (loop != nullptr) lane.borrow(loop);
  {
    const pool::Lane::Batch batch(lane);
    task.start();
  }
  lane.wait_until([&] { return task.done(); });
}

namespace {

std::shared_ptr<worker::Worker> loop_of(const detail::PeerState& peer) {
  if (peer.gate == nullptr || peer.gate->worker().has_thread() || peer.gate->is_in_child()) return nullptr;
  return peer.gate->shared_worker();
}

}  // namespace

Bulk<Result<PutReport>> Peer::put(std::string_view name, Payload payload, const PutOptions& options) const {
  const detail::PeerState& peer = pool::there(state_);
  return {pool::run_put(state_, {std::string(name), std::string(options.header), {}}, std::move(payload), options),
          loop_of(peer)};
}

Bulk<Result<GetReport>> Peer::get(std::string_view name, const GetTarget& target, const GetOptions& options) const {
  const detail::PeerState& peer = pool::there(state_);
  return {pool::run_get(state_, {std::string(name), std::string(options.header), std::string(target.path)}, target,
                        options),
          loop_of(peer)};
}

}  // namespace weir
