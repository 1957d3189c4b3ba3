#include "pool/executor.h"

#include <bit>
#include <exception>
#include <utility>

#include "base/check.h"
#include "pool/allocation.h"
#include "pool/gate.h"
#include "pool/openings.h"
#include "pool/post.h"
#include "pool/sealing.h"
#include "weir/message.h"
#include "weir/task.h"
#include "worker/clock.h"
#include "worker/place.h"
#include "worker/thread_context.h"
#include "worker/waiting.h"

namespace weir::pool {
namespace {

constexpr Duration kLastMoment = std::chrono::milliseconds(100);

constinit thread_local const Executor* executor_of_this_thread = nullptr;

// What the handler is given, on the thread that it runs on.
Body take_request(IncomingRecord& record) {
  if (std::exchange(record.is_kept, false)) [[likely]]
    return take_kept(*record.transfer);
  if (record.unopened != nullptr) {
    buffer::Landing* const landing = take_landing(record);
    return Body(landing->whole(), landing);
  }
  const transfer::IncomingTransfer& transfer = *record.transfer;  // its delivery is under way
  return keep_bytes({transfer.delivery.request, transfer.bytes}, transfer.delivery.pin, *record.core->shared);
}

// A large reply of bytes. If there is no memory for its ciphertext at the moment it waits, like an allocate(): its
// handler has run, and what was done should not end as a failure.
detail::Detached answer_large(Responder responder, Reply reply, std::shared_ptr<Gate> gate) {
  Result<void> possible = check_large(
      gate->limits(), {.what = "reply", .body_bytes = reply.body().size(), .header_bytes = reply.header().size()});
  if (!possible) {
    responder.fail(possible.error().code(), possible.error().message());
    co_return;
  }
  Result<Buffer> room = co_await allocate(gate->payloads, nullptr, reply.body().size(), {});
  if (responder.cancelled()) {
    responder.fail(Code::cancelled, "the caller has gone");
    co_return;
  }
  Result<Payload> payload = room ? seal_into(*std::move(room), reply.body()) : std::unexpected(std::move(room).error());
  if (payload) {
    responder.reply(*std::move(payload), reply.header());
  } else {
    responder.fail(payload.error().code(), payload.error().message());
  }
}

void fail_thrown(const TaskHandler& handler, Responder& responder, const IncomingRecord* record, const char* text) {
  if (!responder.pending()) return;  // the record is there until it is answered
  const std::shared_ptr<Gate> gate = record->core->shared;
  responder.fail(Code::application, gate->tell_thrown(handler.method, text));
}

detail::Detached answer_request(IncomingRecord* record) {
  // Ours: the post, and its table of methods with it, may go while the handler awaits another pool.
  const std::shared_ptr<TaskHandler> handler = record->method->run_task;
  Responder responder(record);
  Request request(take_request(*record), record->transfer->header_bytes, record->time_left, record->priority,
                  record->depth, &responder);
  try {
    Result<Reply> result = co_await handler->run(std::move(request));
    const std::shared_ptr<Gate>& gate = record->core->shared;  // the record is there until it is answered
    if (result && result->header().size() + result->body().size() > gate->limits().inline_bytes) [[unlikely]] {
      answer_large(std::move(responder), *std::move(result), gate);
    } else if (result) {
      responder.reply(*result);
    } else {
      responder.fail(result.error().code(), result.error().message());
    }
  } catch (const std::exception& thrown) {
    fail_thrown(*handler, responder, record, thrown.what());
  } catch (...) {
    fail_thrown(*handler, responder, record, kNoStandardException);
  }
}

}  // namespace

void run_request(IncomingRecord* record) {
  const worker::DepthScope depth(static_cast<std::uint8_t>(record->depth + 1));
  answer_request(record);
}

std::shared_ptr<Executor> Executor::start(int threads, std::size_t places) {
  auto executor = std::make_shared<Executor>(places);
  for (int i = 0; i < threads; ++i) {
    Thread& thread = *executor->threads_.emplace_back(std::make_unique<Thread>());
    thread.thread = std::thread([executor, &thread] { executor->run(thread); });
  }
  return executor;
}

// A worker that was let go may have pushed something after stop().
Executor::~Executor() { drop_queued(); }

bool Executor::try_push(IncomingRecord* record) {
  Places& places = record->core->shared->places;
  std::lock_guard lock(mutex_);
  if (!places.take(record->priority, places_)) return false;
  push(record);
  return true;
}

void Executor::push_reply(IncomingRecord* record) {
  std::lock_guard lock(mutex_);
  push(record);
}

// Under the mutex.
void Executor::push(IncomingRecord* record) {
  queued_.fetch_add(1, std::memory_order_relaxed);
  record->waiting = {};
  queue_.push_back(*record, record->priority);
}

void Executor::flush() {
  // Relaxed: our own pushes are seen; those of other workers they flush themselves.
  if (queued_.load(std::memory_order_relaxed) == 0) return;
  std::lock_guard lock(mutex_);
  for (std::size_t waiting = queue_.size(); waiting != 0 && !idle_.empty(); --waiting) {
    Sleeper* sleeper = idle_.back();
    idle_.pop_back();
    sleeper->is_woken.store(true, std::memory_order_relaxed);  // the nudge orders it
    sleeper->lane->nudge();
  }
}

IncomingRecord* Executor::pop() {
  IncomingRecord* record = nullptr;
  bool is_wanted = false;
  {
    std::lock_guard lock(mutex_);
    record = queue_.pop();
    if (record == nullptr) return nullptr;
    queue_.charge(record->waiting.level, 1);
    queued_.fetch_sub(1, std::memory_order_relaxed);
    if (record->errand != IncomingRecord::Errand::complete) {
      is_wanted = record->core->shared->places.give_back(record->waiting.level, places_);
    }
  }
  if (is_wanted) [[unlikely]]
    record->core->shared->ring(nullptr);
  return record;
}

void Executor::run(Thread& self) {
  worker::name_this_thread("weir-executor");
  executor_of_this_thread = this;
  Lane& lane = Lane::mine();
  Sleeper sleeper{&lane};
  const auto has_work = [&] {
    return queued_.load(std::memory_order_relaxed) != 0 || is_stopping_.load(std::memory_order_relaxed) ||
           sleeper.is_woken.load(std::memory_order_relaxed);
  };
  while (!is_stopping_.load(std::memory_order_relaxed)) {
    lane.drive();
    if (fork_guard_.is_in_child()) return;  // a handler forked, and returned in the child
    if (IncomingRecord* record = pop()) {
      const Lane::Batch batch(lane);
      const bool is_reply = record->errand == IncomingRecord::Errand::complete;
      // Relaxed: read by who has given up waiting.
      self.running.store(is_reply ? nullptr : record->method, std::memory_order_relaxed);
      if (record->unopened != nullptr) {
        open_and_go_on(record);
      } else if (has_caller_gone(*record)) {
        refuse_unwanted(record);
      } else {
        run_request(record);
      }
      self.running.store(nullptr, std::memory_order_relaxed);
      continue;
    }
    {
      std::lock_guard lock(mutex_);
      if (!queue_.empty()) continue;
      sleeper.is_woken.store(false, std::memory_order_relaxed);
      idle_.push_back(&sleeper);
    }
    lane.wait_until(has_work);
    std::lock_guard lock(mutex_);
    std::erase(idle_, &sleeper);
  }
  // Handlers that wait have been told that the pool is closed; those that wait for another pool get a moment.
  lane.wait_until([&] { return lane.awaited == 0; }, kLastMoment);
  const std::lock_guard lock(mutex_);
  self.has_ended = true;
  has_ended_.notify_all();
}

bool Executor::is_mine() const { return executor_of_this_thread == this; }

std::vector<std::string> Executor::stop(Instant until) {
  WEIR_CHECK(!is_mine(),
             "the last handle of a pool was dropped inside one of its own handlers: keep a handle outside and close "
             "the pool from there");
  {
    std::lock_guard lock(mutex_);
    is_stopping_.store(true, std::memory_order_relaxed);
    for (Sleeper* sleeper : idle_) sleeper->lane->nudge();
  }
  std::vector<std::string> left;
  for (auto& each : threads_) {
    if (!each->thread.joinable()) continue;
    {
      std::unique_lock lock(mutex_);
      while (!each->has_ended && worker::read_clock() < until) has_ended_.wait_for(lock, worker::wait_until(until));
      if (!each->has_ended) {
        const MethodEntry* const method = each->running.load(std::memory_order_relaxed);
        left.push_back(method == nullptr ? std::string() : method->name);
        each->thread.detach();
        continue;
      }
    }
    each->thread.join();
  }
  drop_queued();
  return left;
}

void Executor::drop_queued() {
  while (IncomingRecord* record = pop()) {
    drop_message(*record);
    if (std::exchange(record->errand, IncomingRecord::Errand::answer) == IncomingRecord::Errand::complete) {
      drop_incoming(record);  // its call has been told that the pool is closed
      continue;
    }
    Responder dropped(record);
  }
}

}  // namespace weir::pool
