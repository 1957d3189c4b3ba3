// IncomingRecord: the right to answer one request, wherever it goes.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

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

// Taken on the worker when a request is dispatched; given back by whoever carries out the answer.
struct IncomingRecord {
  using Pool = pool::RecordPool<IncomingRecord, std::shared_ptr<pool::Gate>>;

  Pool::Core* core = nullptr;
  IncomingRecord* link = nullptr;               // in the free list, or at the gate with an answer
  schedule::QueueHook<IncomingRecord> waiting;  // in the executor's queue
  transfer::IncomingTransfer* transfer = nullptr;

  // The answer, on its way from another thread: header and body, or the sentence of a failure.
  transfer::Block* answer = nullptr;
  std::uint32_t answer_bytes = 0;
  std::uint32_t answer_header_bytes = 0;
  bool answer_failed = false;
  Code answer_code{};

  // The request, for the executor.
  const pool::MethodEntry* method = nullptr;
  std::chrono::nanoseconds time_left{};
  std::uint32_t header_bytes = 0;
  std::uint8_t priority = 0;
  std::uint8_t depth = 0;
  Body storage;
};

}  // namespace weir::detail
