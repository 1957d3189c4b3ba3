#include "pool/post.h"

#include <algorithm>
#include <bit>
#include <exception>
#include <utility>

#include "base/check.h"
#include "pool/call.h"
#include "pool/call_rooms.h"
#include "pool/executor.h"
#include "pool/handshaker.h"
#include "pool/keep.h"
#include "pool/ties.h"
#include "worker/thread_context.h"
#include "worker/waiting.h"

namespace weir::pool {
namespace {

constexpr int kFarewellTurns = 1'000;  // tries to send the closing packets through a full socket

engine::EngineConfig with_memory(engine::EngineConfig config, buffer::Memory* memory, Gate& gate,
                                 const Executor* executor) {
  config.memory = memory;
  config.opens_arrivals = executor == nullptr && !gate.worker().has_thread();
  config.on_sent = &on_sent;
  config.is_awaited = &is_awaited;
  // Called with a lock of the engine's held, so nothing is looked at here. The gate outlives the engine.
  config.wake = [&gate] {
    gate.rung.store(true, std::memory_order_release);  // after the work, for look_for_rung()
    gate.worker().doorbell()->ring();
  };
  return config;
}

}  // namespace

Post::Post(Options options)
    : subscriber_(std::move(options.subscriber)),
      worker_(std::move(options.worker)),
      gate_(make_shared_unless_forked<Gate>(worker_, options.engine.limits, subscriber_)),
      buffers_(std::move(options.buffers)),
      link_(std::move(options.link)),
      engine_(std::make_shared<engine::Engine>(
          with_memory(options.engine, options.arrivals.get(), *gate_, options.executor.get()), entropy_,
          subscriber_.get(), options.seed, worker::read_clock())),
      calls_(gate_, options.engine.limits.queued_calls),
      incoming_(gate_, ~std::size_t{0} >> 1),  // the engine bounds them
      executor_(std::move(options.executor)),
      openings_(*this, executor_.get()),
      handshaker_(std::move(options.handshaker)),
      forwarding_(std::move(options.forwarding)),
      forwarded_(forwarding_ != nullptr ? &forwarding_->ring(options.engine.worker) : nullptr),
      inbox_(gate_),
      local_(link_->local()) {
  gate_->post = this;
  gate_->rooms = std::make_shared<CallRooms>(options.engine.limits.queued_calls);
  gate_->sends_exception_text = options.sends_exception_text;
  gate_->payloads = std::move(options.payloads);
  gate_->arrivals = std::move(options.arrivals);
  gate_->engine = engine_;
  gate_->buffers = buffers_.get();
  if (executor_ != nullptr) executor_->add(gate_);
  seat_ = std::make_unique<worker::Seat>(*engine_, *link_, worker_->burst(), this);
  hosted_.seat = seat_.get();
  hosted_.rung = &gate_->rung;
  limits_text_ = engine_->describe_limits();
}

Post::~Post() { WEIR_CHECK(has_left_, "a post was destroyed before it left its worker"); }

bool Post::join(Instant until) {
  return worker_->run_on_loop([this] { worker_->add(hosted_); }, until);
}

bool Post::leave(Instant until) {
  if (worker_->run_on_loop([this] { leave_now(); }, until)) return true;
  worker_->post([self = shared_from_this()] { self->leave_now(); });
  return false;
}

void Post::begin_to_leave(std::shared_ptr<const void> kept) {
  worker_->post([self = shared_from_this(), kept = std::move(kept)] { self->leave_now(); });
}

bool Post::has_left_by(Instant until) {
  std::unique_lock lock(answer_mutex_);
  while (!has_left_ && worker::read_clock() < until) answered_.wait_for(lock, worker::wait_until(until));
  return has_left_;
}

void Post::leave_now() {
  // Continuations and coroutines run in here like in any turn.
  const std::uint32_t loops_entered = std::exchange(worker::thread_context.loops_entered, 1);
  farewell();
  worker_->remove(hosted_);
  gate_->close();
  gate_->rooms->close();
  flush(worker_->now());
  let_go();
  worker::thread_context.loops_entered = loops_entered;
  std::lock_guard lock(answer_mutex_);
  counters_copy_ = read_counters();
  has_left_ = true;
  answered_.notify_all();
}

void Post::farewell() {
  Instant now = worker::read_clock();
  drain(now);
  openings_.give_up();
  engine_->close(now);
  while (IncomingRecord* record = parked_.pop_any()) drop_incoming(record);  // their callers have been told
  for (int i = 0; i < kFarewellTurns && (seat_->poll_once(now) || seat_->is_blocked() || engine_->has_work()); ++i) {
    now = worker::read_clock();
  }
}

void Post::let_go() {
  calls_.disown();
  incoming_.disown();
  openings_.disown();
}

Result<void> Post::serve(Method method, MethodEntry entry) {
  auto& kept = *methods_.emplace_back(std::make_unique<MethodEntry>(std::move(entry)));
  kept.post = this;
  kept.name = method.name();
  Result<void> served = engine_->serve(method.id(), method.name(),
                                       {.run = kept.run_inline ? &run_inline : &run_task,
                                        .context = &kept,
                                        .admit = kept.admit ? &admit_large : nullptr,
                                        .takes_records = kept.make_intake != nullptr});
  if (!served) methods_.pop_back();
  return served;
}

// ---- calls ---------------------------------------------------------------------------------------------------------

void Post::submit(CallRecord* record, Instant now) {
  PeerEntry& peer = *record->peer_entry();
  if (peer.number == PeerEntry::kUnknown) [[unlikely]] {
    Result<std::uint32_t> number = engine_->connect(peer.address);
    if (!number) {
      // The engine knows no such peer, so submit() refuses; but the reason is this one.
      record->drop_bytes();
      record->state = CallRecord::State::done;
      record->complete(*record, {.failed = true,
                                 .code = number.error().code(),
                                 .sentence = "there are as many peers as Limits::peers allows"});
      return;
    }
    peer.number = *number;
    if (shown_.size() <= *number) shown_.resize(*number + 1);
    shown_[*number] = peer.shown;
    if (handshaker_ != nullptr) {
      if (peers_.size() <= *number) peers_.resize(*number + 1);
      peers_[*number] = &peer;
    }
  }
  record->peer = peer.number;
  engine_->submit(*record, now);
  if (record->has_ties) [[unlikely]]
    arrive(record, now);
  worker_->touch(hosted_);
}

void Post::arrive(CallRecord* record, Instant now) {
  const causality::Answer answer = pool::arrive(*record);
  if (answer == causality::Answer::wait) return;
  take_waiting();  // those who were here before it go on before it
  pool::go_on(*record, answer, *engine_, now);
}

void Post::take_waiting() {
  for (Waiting* waiting = gate_->take_waiting(); waiting != nullptr;) {
    go_on(std::exchange(waiting, waiting->link));
  }
}

void Post::go_on(Waiting* waiting) {
  pool::go_on(waiting, *engine_, worker_->now());
  worker_->touch(hosted_);
}

void Post::drop(CallRecord* record) {
  drop_on_worker(record, *engine_, worker_->now());
  worker_->touch(hosted_);
}

// Those of the turn before have been delivered by now.
bool Post::take_forwarded(Instant now) {
  forwarded_->give_back();
  worker::ForwardRing::Datagram datagram;
  bool is_busy = false;
  while (forwarded_->take(datagram)) {
    engine_->on_forwarded(datagram.bytes, datagram.from, datagram.ecn, now);
    is_busy = true;
  }
  return is_busy;
}

bool Post::drain(Instant now) {
  bool is_busy = inbox_.drain(*engine_, now, [&](CallRecord* record) { submit(record, now); });
  if (gate_->is_in_child()) [[unlikely]]
    return false;
  take_waiting();
  // Relaxed: the exchange decides. Acquire: the claim is seen.
  if (gate_->has_new_waiter.load(std::memory_order_relaxed) &&
      gate_->has_new_waiter.exchange(false, std::memory_order_acquire)) [[unlikely]] {
    engine_->look_for_awaited(now);
  }
  take_answers(now);
  if (gate_->is_in_child()) [[unlikely]]
    return false;  // a handler forked, and returned in the child
  if (forwarded_ != nullptr) is_busy |= take_forwarded(now);
  if (!parked_.empty()) [[unlikely]]
    is_busy |= serve_parked(now);
  if (openings_.turn()) [[unlikely]]
    is_busy = true;
  if (handshaker_ != nullptr) {
    if (has_news_.load(std::memory_order_relaxed)) [[unlikely]]
      take_news(now);
    ask_for_credentials();
  }
  if (is_asked_.load(std::memory_order_relaxed)) [[unlikely]]
    answer_questions();
  return is_busy;
}

// So that who begins to wait for a call rings, and only then.
void Post::tell_of_waiting_replies(Instant now) {
  const bool replies_wait = engine_->replies_wait();
  if (replies_wait == gate_->replies_wait.load(std::memory_order_relaxed)) return;
  // Sequentially consistent, as are the claim, its look at this flag and the engine's look at the claim: either the
  // waiter sees the flag, or it is found here.
  gate_->replies_wait.store(replies_wait, std::memory_order_seq_cst);
  if (replies_wait) engine_->look_for_awaited(now);
}

void Post::flush(Instant now) {
  tell_of_waiting_replies(now);
  outbox_.deliver();
  if (executor_ != nullptr) executor_->flush();
  if (handshaker_ != nullptr) ask_for_credentials();
  // This thread may itself await calls of other workers; what it does about them leaves in this very turn.
  if (Lane* lane = Lane::mine_if_any()) lane->drive_in_turn();
}

// ---- requests ------------------------------------------------------------------------------------------------------

IncomingRecord* Post::accept(transfer::IncomingTransfer& transfer, Instant now) {
  IncomingRecord* record = incoming_.acquire();
  record->transfer = &transfer;
  record->time_left = transfer.deadline.is_never() ? Duration::max() : transfer.deadline - now;
  record->priority = transfer.priority;
  record->depth = transfer.depth;
  return record;
}

void Post::run_inline(void* context, transfer::IncomingTransfer& transfer, Instant now) {
  auto& method = *static_cast<MethodEntry*>(context);
  if (transfer.is_large) [[unlikely]]
    return method.post->accept_large(method, transfer, now);
  IncomingRecord* record = method.post->accept(transfer, now);
  record->method = &method;
  const ByteSpan bytes{transfer.delivery.request, transfer.bytes};
  const worker::DepthScope depth(static_cast<std::uint8_t>(transfer.depth + 1));
  InlineRequest request(bytes.subspan(transfer.header_bytes), bytes.first(transfer.header_bytes), record->time_left,
                        transfer.priority, transfer.depth, Responder(record));
  call_inline(method, request);
}

void Post::call_inline(MethodEntry& method, InlineRequest& request) {
  std::atomic<const MethodEntry*>& running = method.post->running_;
  running.store(&method, std::memory_order_relaxed);
  try {
    (*method.run_inline)(request);
  } catch (const std::exception& thrown) {
    fail_thrown(method, request.defer(), thrown.what());
  } catch (...) {
    fail_thrown(method, request.defer(), kNoStandardException);
  }
  running.store(nullptr, std::memory_order_relaxed);
}

void Post::fail_thrown(const MethodEntry& method, Responder responder, std::string_view text) {
  const std::string_view sentence = method.post->gate_->tell_thrown(method.name, text);
  // Otherwise the caller has its answer already.
  if (responder.pending()) responder.fail(Code::application, sentence);
}

void Post::run_task(void* context, transfer::IncomingTransfer& transfer, Instant now) {
  auto& method = *static_cast<MethodEntry*>(context);
  Post& post = *method.post;
  if (transfer.is_large) [[unlikely]]
    return post.accept_large(method, transfer, now);
  IncomingRecord* record = post.accept(transfer, now);
  record->method = &method;
  if (post.executor_ != nullptr) {
    keep_request(transfer, *post.gate_);
    record->is_kept = true;
    post.queue_request(record);
  } else {
    post.running_.store(&method, std::memory_order_relaxed);
    run_request(record, method.run_task);
    post.running_.store(nullptr, std::memory_order_relaxed);
  }
}

void Post::accept_large(const MethodEntry& method, transfer::IncomingTransfer& transfer, Instant now) {
  IncomingRecord* record = accept(transfer, now);
  record->method = &method;
  openings_.open_request(record, transfer.landing());
}

// An inline handler whose large request is open.
void Post::run_opened(IncomingRecord* record) {
  auto& method = *const_cast<MethodEntry*>(record->method);  // one of ours
  buffer::Landing* const landing = take_landing(*record);
  const Body kept(landing->whole(), landing);  // the record is gone when it is answered
  const worker::DepthScope depth(static_cast<std::uint8_t>(record->depth + 1));
  InlineRequest request(kept.bytes().subspan(landing->header_bytes), kept.bytes().first(landing->header_bytes),
                        record->time_left, record->priority, record->depth, Responder(record));
  call_inline(method, request);
}

void Post::reply_large(IncomingRecord* record, ByteSpan header, buffer::Sealed* body) {
  engine_->reply_large(*record->transfer, body, {.bytes = body->bytes}, record->method->reply_pattern, header,
                       worker_->now());
  worker_->touch(hosted_);
  IncomingRecord::Pool::release(record);
}

void Post::refuse(IncomingRecord* record, Code code, std::string_view sentence) {
  record->never_ran = true;
  fail(record, code, sentence);
}

void Post::fail(IncomingRecord* record, Code code, std::string_view sentence) {
  const bool may_have_run = !std::exchange(record->never_ran, false);
  engine_->fail(*record->transfer, code, sentence, worker_->now(), may_have_run);
  worker_->touch(hosted_);
  IncomingRecord::Pool::release(record);
}

void Post::take_answers(Instant) {
  for (IncomingRecord* record = gate_->take_answers(); record != nullptr;) {
    if (gate_->is_in_child()) [[unlikely]]
      return;  // an inline handler forked, and returned in the child
    IncomingRecord* next = record->link;
    if (record->errand != IncomingRecord::Errand::answer) [[unlikely]] {
      openings_.go_on(record);
      record = next;
      continue;
    }
    transfer::Block* block = std::exchange(record->answer, nullptr);
    const auto [size, header_bytes] = record->answer_bytes;
    const ByteSpan bytes{block == nullptr ? record->transfer->inline_bytes : block->bytes(), size};
    if (record->answer_kind == IncomingRecord::Answer::reply) [[likely]] {
      reply(record, bytes.first(header_bytes), bytes.subspan(header_bytes));
    } else if (record->answer_kind == IncomingRecord::Answer::failure) {
      fail(record, record->answer_code, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    } else {
      buffer::Sealed* const body = take_answer_body(*record, block);
      reply_large(record, bytes.subspan(kAnswerBodyBytes), body);
    }
    if (block != nullptr) detail::unpin(block);
    record = next;
  }
}

// ---- credentials ---------------------------------------------------------------------------------------------------

void Post::tell(CredentialNews news) {
  {
    std::lock_guard lock(news_mutex_);
    news_.push_back(std::move(news));
    has_news_.store(true, std::memory_order_relaxed);
  }
  gate_->ring(nullptr);
}

void Post::take_news(Instant now) {
  std::vector<CredentialNews> news;
  {
    std::lock_guard lock(news_mutex_);
    has_news_.store(false, std::memory_order_relaxed);
    news.swap(news_);
  }
  for (const CredentialNews& each : news) {
    if (each.failure) {
      engine_->refuse(each.peer, each.failure->code(), each.failure->message(), now);
    } else {
      engine_->install(each.peer, each.credential, now);
    }
  }
}

void Post::ask_for_credentials() {
  engine::Wanted wanted;
  while (engine_->take_wanted(wanted)) {
    handshaker_->request({.post = weak_from_this(),
                          .peer = wanted.peer,
                          .entry = peers_[wanted.peer],
                          .suspects = wanted.suspects,
                          .hurry = wanted.hurry,
                          .suspected = wanted.suspected});
  }
}

}  // namespace weir::pool
