// What applications hold of messages: bodies, replies, and the right to answer.
#include "weir/message.h"

#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "base/check.h"
#include "buffer/holds.h"
#include "buffer/work.h"
#include "pool/gate.h"
#include "pool/incoming_record.h"
#include "pool/lane.h"
#include "pool/post.h"
#include "pool/sealing.h"

namespace weir {
namespace {

constexpr const char* kAnsweredTwice = "a request is answered once: by reply(), fail() or the Responder of defer()";

// A body of its own, larger than fits inside the object.
struct HeapBytes : detail::Pin {
  static void destroy(detail::Pin* pin) noexcept {
    auto* bytes = static_cast<HeapBytes*>(pin);
    bytes->~HeapBytes();
    std::free(bytes);
  }
  std::byte* data() { return reinterpret_cast<std::byte*>(this + 1); }
};

// A payload and the header that goes with it.
struct PayloadBytes : detail::Pin {
  static void destroy(detail::Pin* pin) noexcept { delete static_cast<PayloadBytes*>(pin); }
  Payload payload;
  std::string header;
};

HeapBytes* make_heap_bytes(std::size_t size) {
  void* memory = std::malloc(sizeof(HeapBytes) + size);
  if (memory == nullptr) throw std::bad_alloc();
  return ::new (memory) HeapBytes{{.references{1}, .release = &HeapBytes::destroy}};
}

using Answer = detail::IncomingRecord::Answer;
using pool::check_large;
using pool::LargeSize;

// Takes over what was lent of all of `body`.
void give_large(detail::IncomingRecord* record, buffer::Sealed* body, Bytes header) {
  pool::Gate& gate = *record->core->shared;
  if (gate.is_mine()) {
    if (gate.post != nullptr) return gate.post->reply_large(record, header, body);
    buffer::give_back(body, buffer::pieces_of(*body, 0, body->bytes));
    return detail::IncomingRecord::Pool::release(record);
  }
  const std::size_t size = pool::kAnswerBodyBytes + header.size();
  record->answer_kind = Answer::large_reply;
  record->answer_bytes = {.all = static_cast<std::uint32_t>(size), .header = 0};
  record->answer = pool::Lane::mine().blocks().acquire(size);
  std::memcpy(record->answer->bytes(), &body, pool::kAnswerBodyBytes);
  if (!header.empty()) std::memcpy(record->answer->bytes() + pool::kAnswerBodyBytes, header.data(), header.size());
  gate.answer(record);
}

[[gnu::cold, gnu::noinline]] void reply_large(detail::IncomingRecord* record, Bytes body, Bytes header) {
  pool::Gate& gate = *record->core->shared;
  Responder responder(record);
  if (responder.cancelled()) return responder.fail(Code::cancelled, "the caller has gone");
  const LargeSize size{.what = "reply",
                       .body_bytes = body.size(),
                       .header_bytes = header.size(),
                       .max_reply = record->transfer->max_reply};
  if (Result<void> checked = check_large(gate.limits(), size); !checked) {
    return responder.fail(checked.error().code(), checked.error().message());
  }
  Result<buffer::Sealed*> sealed = pool::seal_text(gate, body);
  if (!sealed) return responder.fail(sealed.error().code(), sealed.error().message());
  give_large(responder.release(), *sealed, header);
}

}  // namespace

void Body::copy_to_heap(Bytes bytes) {
  HeapBytes* copy = make_heap_bytes(bytes.size());
  std::memcpy(copy->data(), bytes.data(), bytes.size());
  buffer::count_copy(bytes.size());
  data_ = copy->data();
  size_ = bytes.size();
  pin_ = copy;
}

Reply::Reply(Bytes body, Bytes header) : header_bytes_(static_cast<std::uint32_t>(header.size())) {
  if (header.empty()) {
    storage_ = Body(body);
    return;
  }
  const std::size_t size = header.size() + body.size();
  if (size <= Body::kInlineBytes) {
    std::byte both[Body::kInlineBytes];
    std::memcpy(both, header.data(), header.size());
    if (!body.empty()) std::memcpy(both + header.size(), body.data(), body.size());
    storage_ = Body(Bytes{both, size});
    return;
  }
  HeapBytes* both = make_heap_bytes(size);
  std::memcpy(both->data(), header.data(), header.size());
  if (!body.empty()) std::memcpy(both->data() + header.size(), body.data(), body.size());
  buffer::count_copy(body.size());
  storage_ = Body(Bytes{both->data(), size}, both);
}

Reply::Reply(Payload payload, std::string_view header)
    : header_bytes_(static_cast<std::uint32_t>(header.size())), has_payload_(true) {
  auto* both =
      new PayloadBytes{{.references{1}, .release = &PayloadBytes::destroy}, std::move(payload), std::string(header)};
  storage_ = Body(as_bytes(both->header), both);
}

Payload Reply::held_payload() const { return static_cast<const PayloadBytes*>(storage_.pin())->payload; }

void Responder::fail_dropped() { fail(Code::application, "the handler dropped the request without an answer"); }

void Responder::reply(Bytes body, Bytes header) {
  detail::IncomingRecord* record = std::exchange(record_, nullptr);
  WEIR_CHECK(record != nullptr, kAnsweredTwice);
  pool::Gate& gate = *record->core->shared;
  if (gate.is_in_child()) [[unlikely]]
    return;  // the parent answers
  const std::size_t size = header.size() + body.size();
  if (size > gate.limits().inline_bytes) [[unlikely]]
    return reply_large(record, body, header);
  if (gate.is_mine()) [[likely]] {
    if (gate.post == nullptr) return detail::IncomingRecord::Pool::release(record);
    return gate.post->reply(record, header, body);
  }
  record->answer_kind = Answer::reply;
  record->answer_bytes = {.all = static_cast<std::uint32_t>(size), .header = static_cast<std::uint32_t>(header.size())};
  std::byte* to = record->transfer->inline_bytes;  // ours until we have answered
  if (size > transfer::IncomingTransfer::kInlineBytes) {
    record->answer = pool::Lane::mine().blocks().acquire(size);
    to = record->answer->bytes();
  }
  if (!header.empty()) std::memcpy(to, header.data(), header.size());
  if (!body.empty()) std::memcpy(to + header.size(), body.data(), body.size());
  gate.answer(record);
}

void Responder::reply(Payload payload, Bytes header) {
  if (payload.sealed() == nullptr) return fail(Code::application, pool::kNoPayload);
  if (payload.size() == 0) return reply(Bytes{}, header);
  detail::IncomingRecord* record = std::exchange(record_, nullptr);
  WEIR_CHECK(record != nullptr, kAnsweredTwice);
  if (record->core->shared->is_in_child()) return;
  if (pool::is_inherited(payload)) return Responder(record).fail(Code::application, kForked);
  const LargeSize size{.what = "reply",
                       .body_bytes = payload.size(),
                       .header_bytes = header.size(),
                       .max_reply = record->transfer->max_reply};
  if (Result<void> checked = check_large(record->core->shared->limits(), size); !checked) {
    return Responder(record).fail(checked.error().code(), checked.error().message());
  }
  buffer::Sealed& body = *payload.sealed();
  buffer::Sealed* const lent = buffer::lend(body, buffer::pieces_of(body, 0, body.bytes));
  payload = Payload();  // from now on the answer alone needs it
  give_large(record, lent, header);
}

void Responder::fail(Code code, std::string_view sentence) {
  detail::IncomingRecord* record = std::exchange(record_, nullptr);
  WEIR_CHECK(record != nullptr, kAnsweredTwice);
  pool::Gate& gate = *record->core->shared;
  if (gate.is_in_child()) return;
  sentence = sentence.substr(0, gate.limits().inline_bytes);
  if (gate.is_mine()) {
    if (gate.post == nullptr) return detail::IncomingRecord::Pool::release(record);
    return gate.post->fail(record, code, sentence);
  }
  record->answer_kind = Answer::failure;
  record->answer_code = code;
  record->answer_bytes = {.all = static_cast<std::uint32_t>(sentence.size()), .header = 0};
  if (!sentence.empty()) {
    record->answer = pool::Lane::mine().blocks().acquire(sentence.size());
    std::memcpy(record->answer->bytes(), sentence.data(), sentence.size());
  }
  gate.answer(record);
}

Caller Responder::caller() const {
  if (record_ == nullptr || record_->core->shared->is_in_child()) return {};
  return record_->transfer->caller->shown();  // both are there until we have answered
}

bool Responder::cancelled() const {
  if (record_ == nullptr) return false;
  // Relaxed: a hint that orders nothing.
  const pool::Gate& gate = *record_->core->shared;
  return gate.is_closed() || gate.is_in_child() || record_->transfer->cancelled.load(std::memory_order_relaxed);
}

}  // namespace weir
