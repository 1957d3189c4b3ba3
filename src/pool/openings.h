// Openings: the large messages of one post between their arrival and the moment somebody may read them. Their records
// are ciphertext; they are opened on the executor, or, where there is none, one record in each turn of the loop, so
// that whatever is more urgent waits for 60 KiB at most. Without any threads most are open already: the engine does it
// as they come (docs/decisions/0015).
#pragma once

#include <cstddef>
#include <vector>

#include "base/time.h"
#include "buffer/landing.h"
#include "pool/incoming_record.h"
#include "schedule/priority_queue.h"

namespace weir::pool {

using detail::CallRecord;
using detail::IncomingRecord;
class Executor;
class Post;
struct TaskHandler;

// On an executor thread: opens what the record carries and goes on with it. `handler`: of a request that a task serves.
void open_and_go_on(IncomingRecord* record, const std::shared_ptr<TaskHandler>& handler);
// Whether the caller of a request has gone: it is not to run.
bool has_caller_gone(const IncomingRecord& record);
// Answers a request that no handler has seen and that its caller does not want any more.
void refuse_unwanted(IncomingRecord* record);

// Part of a post; for its worker only. As many can wait as the limits of large messages allow to arrive.
class Openings {
 public:
  Openings(Post& post, Executor* executor) : post_(post), executor_(executor) {}

  // A reply; `call` completes when it is open. Takes references of its own.
  void open_reply(CallRecord* call, buffer::Landing* landing, IncomingRecord* carrier);
  // A request, whose handler runs when it is open.
  void open_request(IncomingRecord* record, buffer::Landing* landing);
  // Opens one record of one message, if there is no executor. False: there is none to open.
  bool turn();
  // The executor has opened it.
  void go_on(IncomingRecord* record);
  bool has_calls() const { return !calls_.empty(); }
  void disown() { unopened_.disown(); }  // see RecordPool
  // The post goes: nothing is opened any more. Calls whose replies are not open complete with `closed`.
  void give_up();

 private:
  void begin(IncomingRecord* record, buffer::Landing* landing);
  void finish(IncomingRecord* record);
  void complete(IncomingRecord* record);
  CallRecord* take_call(IncomingRecord* record);

  Post& post_;
  Executor* const executor_;
  schedule::WeightedQueue<IncomingRecord, &IncomingRecord::waiting> waiting_;
  detail::Unopened::Pool unopened_{{}, ~std::size_t{0} >> 1};  // the engine bounds them
  std::vector<IncomingRecord*> calls_;                         // the replies among those under way
  bool has_given_up_ = false;
};

}  // namespace weir::pool
