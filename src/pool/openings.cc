#include "pool/openings.h"

#include <string_view>
#include <utility>

#include "buffer/open.h"
#include "buffer/seal.h"
#include "pool/call.h"
#include "pool/call_result.h"
#include "pool/executor.h"
#include "pool/gate.h"
#include "pool/post.h"

namespace weir::pool {
namespace {

using Errand = IncomingRecord::Errand;

constexpr transfer::Outcome kClosed{
    .failed = true, .code = Code::closed, .may_have_run = true, .sentence = "the pool is closed"};
constexpr const char* kForgedRequest = "the request's data does not authenticate";

bool has_failed(const buffer::Landing& landing) { return landing.failed_record != buffer::Landing::kNoRecord; }

// May be read: every record verified; of what the application sealed, its binding.
bool is_good(const buffer::Landing& landing) { return landing.is_open() && !has_failed(landing); }

bool is_over(const buffer::Landing& landing) { return landing.is_open() || has_failed(landing); }

void refuse(IncomingRecord* record, Code code, std::string_view sentence) {
  drop_message(*record);
  record->errand = Errand::answer;
  record->never_ran = true;
  Responder(record).fail(code, sentence);
}

void refuse_request(IncomingRecord* record) {
  if (!has_failed(*record->landing())) return refuse_unwanted(record);
  record->core->shared->tell_forged(*record->landing());
  refuse(record, Code::unauthenticated, kForgedRequest);
}

// The next record of a request that an intake takes. False: there is no other.
bool take_in(IncomingRecord* record) {
  return !has_caller_gone(*record) && record->unopened->intake->take_next(*record->landing());
}

void answer_intake(IncomingRecord* record) {
  const std::unique_ptr<Intake> intake = std::move(record->unopened->intake);
  buffer::Landing* const landing = take_landing(*record);
  const Body kept(landing->whole(), landing);
  if (has_failed(*landing)) record->core->shared->tell_forged(*landing);
  intake->answer(Responder(record));
}

// A request whose handler is a task; on the thread that runs it.
void run_opened(IncomingRecord* record, const std::shared_ptr<TaskHandler>& handler) {
  if (!is_good(*record->landing())) return refuse_request(record);
  run_request(record, handler);
}

}  // namespace

// Relaxed: a hint that orders nothing.
bool has_caller_gone(const IncomingRecord& record) {
  return record.transfer->cancelled.load(std::memory_order_relaxed);
}

void refuse_unwanted(IncomingRecord* record) { refuse(record, Code::cancelled, "the caller has gone"); }

void open_and_go_on(IncomingRecord* record, const std::shared_ptr<TaskHandler>& handler) {
  if (record->unopened->intake != nullptr) {
    while (take_in(record)) {
    }
    return answer_intake(record);
  }
  const bool is_reply = record->errand == Errand::complete;
  if (is_reply || !has_caller_gone(*record)) {
    // Whoever goes on looks at the landing.
    static_cast<void>(buffer::open_all(*record->landing()));
  }
  if (record->errand == Errand::answer) return run_opened(record, handler);
  record->core->shared->answer(record);
}

void Openings::begin(IncomingRecord* record, buffer::Landing* landing) {
  detail::pin(landing);
  record->unopened->landing = landing;
  if (executor_ == nullptr) {
    record->waiting = {};
    waiting_.push_back(*record, record->priority);
  } else if (record->errand == Errand::complete) {
    executor_->push_reply(record);
  } else {
    post_.queue_request(record);
  }
}

void Openings::open_reply(CallRecord* call, buffer::Landing* landing, IncomingRecord* carrier) {
  if (has_given_up_) {
    drop_incoming(carrier);
    return call->complete(*call, kClosed);
  }
  carrier->errand = Errand::complete;
  carrier->priority = call->priority;
  carrier->unopened = unopened_.acquire();
  carrier->unopened->call = call;
  carrier->unopened->call_index = calls_.size();
  calls_.push_back(carrier);
  begin(carrier, landing);
}

void Openings::open_request(IncomingRecord* record, buffer::Landing* landing) {
  if (has_given_up_) return post_.refuse(record, Code::refused, "the peer is closing");
  record->errand = record->method->run_inline ? Errand::run : Errand::answer;
  record->unopened = unopened_.acquire();
  if (record->method->make_intake) {
    record->unopened->intake = (*record->method->make_intake)(record->transfer->caller->shown(), record->core->shared);
  }
  begin(record, landing);
  // Nothing is left to do but to run its handler, if it was opened as it came.
  if (executor_ == nullptr && landing->opens_ahead && is_over(*landing)) {
    finish(record);
  }
}

bool Openings::turn() {
  IncomingRecord* const record = waiting_.front();
  if (record == nullptr) return false;
  buffer::Landing& landing = *record->landing();
  if (record->unopened->intake != nullptr) {
    waiting_.charge(record->waiting.level, landing.record_bytes);
    if (take_in(record)) return true;
    waiting_.remove(*record);
    answer_intake(record);
    return true;
  }
  const CallRecord* const call = record->unopened->call;
  const bool is_unwanted = call != nullptr ? call->is_dropped : has_caller_gone(*record);
  if (!is_unwanted && landing.adopted) {
    static_cast<void>(buffer::open_all(landing));  // looks at the binding
  } else if (!is_unwanted && !is_over(landing)) {
    waiting_.charge(record->waiting.level, landing.record_bytes);
    static_cast<void>(buffer::open_next(landing, buffer::thread_key()));
    if (!is_over(landing)) return true;
  }
  finish(record);
  return true;
}

// Of one that waits: nothing is left to open.
void Openings::finish(IncomingRecord* record) {
  waiting_.remove(*record);
  record->errand == Errand::answer ? run_opened(record, record->method->run_task) : go_on(record);
}

void Openings::go_on(IncomingRecord* record) {
  if (record->errand == Errand::complete) return complete(record);
  if (!is_good(*record->landing())) return refuse_request(record);
  record->errand = Errand::answer;
  post_.run_opened(record);
}

CallRecord* Openings::take_call(IncomingRecord* record) {
  CallRecord* const call = std::exchange(record->unopened->call, nullptr);
  if (call == nullptr) return nullptr;
  const std::size_t index = record->unopened->call_index;
  calls_.back()->unopened->call_index = index;
  calls_[index] = calls_.back();
  calls_.pop_back();
  return call;
}

void Openings::complete(IncomingRecord* record) {
  CallRecord* const call = take_call(record);
  buffer::Landing* const landing = take_landing(*record);
  const Body kept(landing->whole(), landing);
  drop_incoming(record);
  if (call == nullptr) return;
  // A dropped call's record is given back in there, whatever the outcome.
  if (is_good(*landing)) {
    return call->complete(
        *call, {.bytes = landing->header(), .header_bytes = landing->header_bytes, .pin = landing, .landing = landing});
  }
  if (!call->is_dropped) post_.gate()->tell_forged(*landing);
  call->complete(*call,
                 {.failed = true, .code = Code::unauthenticated, .may_have_run = true, .sentence = kForgedReply});
}

void Openings::give_up() {
  has_given_up_ = true;
  while (!calls_.empty()) {
    CallRecord* const call = take_call(calls_.back());
    call->complete(*call, kClosed);
  }
  // What the executor has comes back through the gate, and is dropped there.
  while (IncomingRecord* record = waiting_.pop()) drop_incoming(record);
}

}  // namespace weir::pool
