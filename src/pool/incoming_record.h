// IncomingRecord: the right to answer one request, wherever it goes.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "buffer/holds.h"
#include "buffer/landing.h"
#include "buffer/sealed.h"
#include "pool/intake.h"
#include "pool/record_pool.h"
#include "schedule/priority_queue.h"
#include "transfer/block_pool.h"
#include "transfer/incoming_transfer.h"
#include "weir/body.h"

namespace weir::pool {
class Gate;
struct MethodEntry;
}  // namespace weir::pool

namespace weir::detail {

struct CallRecord;

// Taken on the worker when a request is dispatched; given back by whoever carries out the answer. Also carries large
// messages, requests and replies, to where they are opened and back.
struct IncomingRecord {
  using Pool = pool::RecordPool<IncomingRecord, std::shared_ptr<pool::Gate>>;

  // What the worker does with it when it comes through the gate.
  enum class Errand : std::uint8_t {
    answer,    // send the answer
    run,       // the request is open: run its inline handler
    complete,  // the reply is open: complete its call
  };

  Pool::Core* core = nullptr;
  IncomingRecord* link = nullptr;               // in the free list, or at the gate
  schedule::QueueHook<IncomingRecord> waiting;  // in the executor's queue
  transfer::IncomingTransfer* transfer = nullptr;

  // The answer, on its way from another thread: header and body, or the sentence of a failure.
  transfer::Block* answer = nullptr;
  buffer::Sealed* answer_body = nullptr;  // of a large one, lent: `answer` is its header only
  std::uint32_t answer_bytes = 0;
  std::uint32_t answer_header_bytes = 0;
  bool answer_failed = false;
  bool never_ran = false;  // it fails before any handler has seen it
  Code answer_code{};

  // The request, for the executor; or a large reply.
  const pool::MethodEntry* method = nullptr;
  std::chrono::nanoseconds time_left{};
  std::uint32_t header_bytes = 0;
  std::uint8_t priority = 0;
  std::uint8_t depth = 0;
  Errand errand = Errand::answer;
  Body storage;

  // ---- a large message that is to be opened; as they are here again when the record is given back ----
  buffer::Landing* landing = nullptr;    // kept by `storage`
  CallRecord* call = nullptr;            // whose reply it is; the worker's
  std::unique_ptr<pool::Intake> intake;  // takes a request's records as they are opened, if there is one
  std::size_t call_index = 0;            // where it is among those of its post
  schedule::QueueHook<IncomingRecord> hook;
};

}  // namespace weir::detail

namespace weir::pool {

// Gives a record back with all that it carries; nobody is answered.
inline void drop_incoming(detail::IncomingRecord* record) noexcept {
  if (record->answer != nullptr) detail::unpin(std::exchange(record->answer, nullptr));
  if (buffer::Sealed* const body = std::exchange(record->answer_body, nullptr)) {
    buffer::give_back(body, buffer::pieces_of(*body, 0, body->bytes));
  }
  record->storage = Body();
  record->landing = nullptr;
  record->intake.reset();
  record->errand = detail::IncomingRecord::Errand::answer;
  detail::IncomingRecord::Pool::release(record);
}

}  // namespace weir::pool
