#include "pool/call_result.h"

#include "buffer/open.h"
#include "pool/method_names.h"
#include "pool/post.h"

namespace weir::pool {

using detail::CallStage;
using detail::WaiterKind;

namespace {

// What may have run and is not in our words is in a handler's, and perhaps about something else.
bool deserves_names(const Error& error, bool is_ours) {
  switch (error.code()) {
    case Code::timeout:
    case Code::peer_failed:
    case Code::unauthenticated:
    case Code::reset:
    case Code::dependency_failed:
      return is_ours || !error.may_have_run();
    case Code::unknown_method:
      return !error.may_have_run();
    default:
      return false;
  }
}

}  // namespace

Error with_names(const CallRecord* record, const std::string& peer, Error error, bool is_ours) {
  if (!deserves_names(error, is_ours)) return error;
  std::string sentence;
  if (const std::string_view method = MethodNames::of_process().find(record->method); !method.empty()) {
    sentence.append("\"").append(method).append("\" at ");
  }
  sentence.append(peer).append(": ").append(error.message());
  return {error.code(), std::move(sentence), error.may_have_run()};
}

Result<Reply> take_landing(buffer::Landing* landing, Gate& gate) {
  Body body(landing->whole(), landing);
  if (!buffer::open_all(*landing)) {
    gate.tell_forged(*landing);
    return std::unexpected(Error(Code::unauthenticated, kForgedReply, true));
  }
  return Result<Reply>(std::in_place, std::move(body), landing->header_bytes);
}

void store_landing(CallRecord* record, buffer::Landing* landing) {
  detail::pin(landing);
  record->kept.is_landing = true;
  record->kept.pin = landing;
  record->kept.data = landing->header().data();
  record->kept.bytes = landing->header_bytes;
}

bool open_first(CallRecord* record, buffer::Landing* landing) {
  if (landing->is_open()) return false;
  Gate& gate = *record->core->shared;
  // Acquire: pairs with the claim, so the waiter is seen.
  const bool has_continuation = record->stage.load(std::memory_order_acquire) == CallStage::claimed &&
                                record->waiter_kind == WaiterKind::continuation;
  // A thread that made the call outside of any loop opens the reply itself, when it takes it. Without worker threads
  // it may be the one that turns the loop, though.
  if (record->opens_itself && !has_continuation && gate.worker().has_thread()) return false;
  gate.post->open_reply(record, landing);
  return true;
}

bool open_kept_first(CallRecord* record) {
  if (record->kept.failed || !record->kept.is_landing) return false;
  auto* const landing = static_cast<buffer::Landing*>(record->kept.pin);
  Gate& gate = *record->core->shared;
  if (landing->is_open() || !gate.is_mine() || gate.post == nullptr) return false;
  // Nobody but us knows the record any more: its handle was given up for the continuation.
  record->kept.pin = nullptr;
  record->stage.store(CallStage::claimed, std::memory_order_relaxed);
  gate.post->open_reply(record, landing);
  detail::unpin(landing);
  return true;
}

}  // namespace weir::pool
