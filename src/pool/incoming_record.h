// IncomingRecord: the right to answer one request, wherever it goes.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <variant>

#include "buffer/holds.h"
#include "buffer/landing.h"
#include "buffer/sealed.h"
#include "pool/intake.h"
#include "pool/keep.h"
#include "pool/record_pool.h"
#include "schedule/priority_queue.h"
#include "transfer/block_pool.h"
#include "transfer/incoming_transfer.h"

namespace weir::pool {
class Gate;
struct MethodEntry;
}  // namespace weir::pool

namespace weir::detail {

struct CallRecord;

// A large message that is to be opened; as it is here again when it is given back.
struct Unopened {
  using Pool = pool::RecordPool<Unopened, std::monostate>;

  Pool::Core* core = nullptr;
  Unopened* link = nullptr;              // in the free list
  buffer::Landing* landing = nullptr;    // one reference
  CallRecord* call = nullptr;            // whose reply it is; the worker's
  std::unique_ptr<pool::Intake> intake;  // takes a request's records as they are opened, if there is one
  std::size_t call_index = 0;            // where it is among those of its post
};

// Taken on the worker when a request is dispatched; given back by whoever carries out the answer. Also carries large
// messages, requests and replies, to where they are opened and back. A server has one for each request that it holds,
// so that it is small: the request's bytes stay with its transfer until the handler runs.
struct IncomingRecord {
  using Pool = pool::RecordPool<IncomingRecord, std::shared_ptr<pool::Gate>>;

  // What the worker does with it when it comes through the gate.
  enum class Errand : std::uint8_t {
    answer,    // send the answer
    run,       // the request is open: run its inline handler
    complete,  // the reply is open: complete its call
  };
  enum class Answer : std::uint8_t {
    reply,
    large_reply,  // `answer` holds a Sealed*, lent, and then the header
    failure,
  };
  struct AnswerBytes {
    std::uint32_t all;
    std::uint32_t header;
  };

  Pool::Core* core = nullptr;
  union {
    schedule::QueueHook<IncomingRecord> waiting{};  // in the queue of the executor, or of those that are opened
    IncomingRecord* link;                           // in the free list, or at the gate
  };
  transfer::IncomingTransfer* transfer = nullptr;
  const pool::MethodEntry* method = nullptr;
  Unopened* unopened = nullptr;  // of a large message, until somebody reads it
  // The answer, on its way from another thread: header and body, or the sentence of a failure. None: it is empty, or
  // small enough to lie in the transfer.
  transfer::Block* answer = nullptr;
  union {
    std::chrono::nanoseconds time_left{};  // until the handler runs
    AnswerBytes answer_bytes;
  };
  std::uint8_t priority = 0;
  std::uint8_t depth = 0;
  Errand errand = Errand::answer;
  Answer answer_kind = Answer::reply;
  Code answer_code{};
  bool never_ran = false;  // it fails before any handler has seen it
  bool is_kept = false;    // the request's bytes are kept by its transfer, until the handler runs

  buffer::Landing* landing() const { return unopened == nullptr ? nullptr : unopened->landing; }
};
static_assert(sizeof(IncomingRecord) <= 80);

}  // namespace weir::detail

namespace weir::pool {

// For event::HandlerThrew, in place of what().
inline constexpr const char kNoStandardException[] = "the handler threw something that is no std::exception";

inline constexpr std::size_t kAnswerBodyBytes = sizeof(void*);  // of the pointer to it, in an answer's block

// The body of a large answer, lent.
inline buffer::Sealed* take_answer_body(detail::IncomingRecord& record, transfer::Block* answer) noexcept {
  buffer::Sealed* body = nullptr;
  std::memcpy(&body, answer->bytes(), kAnswerBodyBytes);
  record.answer_kind = detail::IncomingRecord::Answer::reply;
  return body;
}

// Its large message is somebody else's from here on, and the reference on it.
inline buffer::Landing* take_landing(detail::IncomingRecord& record) noexcept {
  detail::Unopened* const unopened = std::exchange(record.unopened, nullptr);
  unopened->intake.reset();
  unopened->call = nullptr;
  buffer::Landing* const landing = std::exchange(unopened->landing, nullptr);
  detail::Unopened::Pool::release(unopened);
  return landing;
}

// Nobody will read the message that it carries.
inline void drop_message(detail::IncomingRecord& record) noexcept {
  if (std::exchange(record.is_kept, false)) drop_kept(*record.transfer);
  if (record.unopened != nullptr) detail::unpin(take_landing(record));
}

// Gives a record back with all that it carries; nobody is answered.
inline void drop_incoming(detail::IncomingRecord* record) noexcept {
  using Answer = detail::IncomingRecord::Answer;
  if (record->answer != nullptr) {
    transfer::Block* const answer = std::exchange(record->answer, nullptr);
    if (record->answer_kind == Answer::large_reply) {
      buffer::Sealed* const body = take_answer_body(*record, answer);
      buffer::give_back(body, buffer::pieces_of(*body, 0, body->bytes));
    }
    detail::unpin(answer);
  }
  drop_message(*record);
  record->errand = detail::IncomingRecord::Errand::answer;
  detail::IncomingRecord::Pool::release(record);
}

}  // namespace weir::pool
