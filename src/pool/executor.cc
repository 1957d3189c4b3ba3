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

// Replies of ours that are opened take turns with the members; none of these has that number.
constexpr std::uint64_t kOwnReplies = 0;

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
detail::Detached answer_large(Responder responder, Reply reply, std::shared_ptr<Gate> gate, std::uint32_t max_reply) {
  Result<void> possible = check_large(gate->limits(), {.what = "reply",
                                                       .body_bytes = reply.body().size(),
                                                       .header_bytes = reply.header().size(),
                                                       .max_reply = max_reply});
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

// The handler is ours: the post, and its table of methods with it, may go before it runs, and while it awaits another
// pool.
detail::Detached answer_request(IncomingRecord* record, std::shared_ptr<TaskHandler> handler) {
  Responder responder(record);
  Request request(take_request(*record), record->transfer->header_bytes, record->time_left, record->priority,
                  record->depth, &responder);
  try {
    Result<Reply> result = co_await handler->run(std::move(request));
    const std::shared_ptr<Gate>& gate = record->core->shared;  // the record is there until it is answered
    if (result && result->header().size() + result->body().size() > gate->limits().inline_bytes) [[unlikely]] {
      answer_large(std::move(responder), *std::move(result), gate, record->transfer->max_reply);
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

void run_request(IncomingRecord* record, std::shared_ptr<TaskHandler> handler) {
  const worker::DepthScope depth(static_cast<std::uint8_t>(record->depth + 1));
  answer_request(record, std::move(handler));
}

std::shared_ptr<Executor> Executor::start(int threads, std::size_t places) {
  auto executor = std::make_shared<Executor>(
      MemberTurns::Options{.places = places, .most_running = static_cast<std::uint32_t>(most_of_one_member(threads))});
  for (int i = 0; i < threads; ++i) {
    Thread& thread = *executor->threads_.emplace_back(std::make_unique<Thread>());
    thread.thread = std::thread([executor, &thread] { executor->run(thread); });
  }
  return executor;
}

// A worker that was let go may have pushed something after stop().
Executor::~Executor() { drop_queued(); }

// ---- workers -------------------------------------------------------------------------------------------------------

void Executor::add(const std::shared_ptr<Gate>& gate) {
  std::lock_guard lock(mutex_);
  gate->places.bit = std::uint64_t{1} << gates_.size() % 64;
  gates_.push_back(gate);
}

bool Executor::try_push(IncomingRecord* record, std::uint64_t member) {
  std::lock_guard lock(mutex_);
  if (!turns_.push(*record, member, record->core->shared->places.bit)) return false;
  publish_ready();
  return true;
}

void Executor::push_reply(IncomingRecord* record) {
  std::lock_guard lock(mutex_);
  turns_.push_unbounded(*record, kOwnReplies);
  publish_ready();
}

void Executor::take_freed(Gate& gate, std::vector<std::uint64_t>& members) {
  std::lock_guard lock(mutex_);
  gate.places.take_freed(members);
}

void Executor::flush() {
  // Relaxed: our own pushes are seen; those of other workers they flush themselves.
  if (ready_.load(std::memory_order_relaxed) == 0) return;
  std::lock_guard lock(mutex_);
  wake_idle(turns_.ready());
}

// Under the mutex, like those below.
void Executor::wake_idle(std::size_t most) {
  for (; most != 0 && !idle_.empty(); --most) {
    Sleeper* sleeper = idle_.back();
    idle_.pop_back();
    sleeper->is_woken.store(true, std::memory_order_relaxed);  // the nudge orders it
    sleeper->lane->nudge();
  }
}

void Executor::tell_freed(const MemberTurns::Freed& freed) {
  for (const auto& gate : gates_) {
    if ((gate->places.bit & freed.gates) == 0 || gate->is_closed()) continue;
    gate->places.free(freed.member);
    gate->rung.store(true, std::memory_order_release);  // after the work, for look_for_rung()
    gate->worker().doorbell()->ring();
  }
}

// ---- its threads ---------------------------------------------------------------------------------------------------

void Executor::end_turn_locked(Thread& self, std::int64_t ran_ns) {
  if (self.turn.member == nullptr) return;
  turns_.end(self.turn, ran_ns);
  self.turn = {};
}

static std::int64_t time_since(Instant began, Instant now) { return began.is_never() ? -1 : (now - began).count(); }

// The thread goes on with something that is not in the queue.
void Executor::end_turn(Thread& self) {
  if (self.turn.member == nullptr) return;
  const Instant now = self.began.is_never() ? self.began : worker::read_clock();
  std::lock_guard lock(mutex_);
  end_turn_locked(self, time_since(self.began, now));
  publish_ready();
  wake_idle(turns_.ready());
}

IncomingRecord* Executor::pop(Thread& self) {
  // The end of the one before is the beginning of the next.
  const Instant now = self.began.is_never() ? self.began : worker::read_clock();
  IncomingRecord* record = nullptr;
  bool is_measuring = false;
  {
    std::lock_guard lock(mutex_);
    end_turn_locked(self, time_since(self.began, now));
    MemberTurns::Freed freed;
    // When it is to end, the methods go: who has no handler by then finds none.
    if (!is_stopping_.load(std::memory_order_relaxed)) record = turns_.pop(self.turn, freed);
    publish_ready();
    if (record == nullptr) {
      self.began = Instant::never();
      return nullptr;
    }
    if (turns_.ready() != 0) wake_idle(1);
    if (freed.gates != 0) [[unlikely]]
      tell_freed(freed);
    is_measuring = turns_.is_measuring();
    if (record->errand == IncomingRecord::Errand::complete) {
      self.handler.reset();
    } else if (self.handler != record->method->run_task) {
      self.handler = record->method->run_task;
    }
  }
  self.began = !is_measuring ? Instant::never() : now.is_never() ? worker::read_clock() : now;
  return record;
}

void Executor::run_record(Thread& self, IncomingRecord* record) {
  const Lane::Batch batch(Lane::mine());
  if (record->unopened != nullptr) {
    open_and_go_on(record, self.handler);
  } else if (has_caller_gone(*record)) {
    refuse_unwanted(record);
  } else {
    run_request(record, self.handler);
  }
}

void Executor::run(Thread& self) {
  worker::name_this_thread("weir-executor");
  executor_of_this_thread = this;
  Lane& lane = Lane::mine();
  Sleeper sleeper{&lane};
  const auto has_work = [&] {
    return ready_.load(std::memory_order_relaxed) != 0 || is_stopping_.load(std::memory_order_relaxed) ||
           sleeper.is_woken.load(std::memory_order_relaxed);
  };
  while (!is_stopping_.load(std::memory_order_relaxed)) {
    if (fork_guard_.is_in_child()) return;  // a handler forked, and returned in the child: no lock is waited for there
    if (lane.has_arrivals()) {
      end_turn(self);  // what is resumed may block, and is not what ran before
      lane.drive();
      if (fork_guard_.is_in_child()) return;
    }
    if (IncomingRecord* record = pop(self)) {
      run_record(self, record);
      continue;
    }
    {
      std::lock_guard lock(mutex_);
      if (turns_.ready() != 0) continue;
      sleeper.is_woken.store(false, std::memory_order_relaxed);
      idle_.push_back(&sleeper);
    }
    lane.wait_until(has_work);
    std::lock_guard lock(mutex_);
    std::erase(idle_, &sleeper);
  }
  end_turn(self);
  // Handlers that wait have been told that the pool is closed; those that wait for another pool get a moment.
  lane.wait_until([&] { return lane.awaited == 0; }, kLastMoment);
  std::shared_ptr<TaskHandler> last;  // ends after the lock
  const std::lock_guard lock(mutex_);
  last.swap(self.handler);
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
        const bool is_running = each->turn.member != nullptr && each->handler != nullptr;
        left.push_back(is_running ? each->handler->method : std::string());
        each->thread.detach();
        continue;
      }
    }
    each->thread.join();
  }
  drop_queued();
  std::vector<std::shared_ptr<Gate>> gates;  // end after the lock
  std::lock_guard lock(mutex_);
  gates.swap(gates_);
  return left;
}

void Executor::drop_queued() {
  for (;;) {
    IncomingRecord* record = nullptr;
    {
      std::lock_guard lock(mutex_);
      record = turns_.take_any();
      publish_ready();
    }
    if (record == nullptr) return;
    drop_message(*record);
    if (std::exchange(record->errand, IncomingRecord::Errand::answer) == IncomingRecord::Errand::complete) {
      drop_incoming(record);  // its call has been told that the pool is closed
      continue;
    }
    Responder dropped(record);
  }
}

}  // namespace weir::pool
