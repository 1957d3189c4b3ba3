#include "pool/gate.h"

#include <utility>

#include "base/check.h"
#include "pool/call.h"
#include "pool/incoming_record.h"
#include "pool/ties.h"
#include "worker/clock.h"

namespace weir::pool {
namespace {

std::uint64_t next_gate_id() {
  // Names must differ between all gates that a thread ever sees, since threads remember their ports by them.
  static sync::Atomic<std::uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

template <class Record>
void push(sync::Atomic<Record*>& stack, Record* record) noexcept {
  Record* top = stack.load(std::memory_order_relaxed);
  do {
    sync::writes(&record->link);
    record->link = top;
    // Release: the taker sees the record as it was given.
  } while (!stack.compare_exchange_weak(top, record, std::memory_order_release, std::memory_order_relaxed));
}

}  // namespace

Port::Port(const std::shared_ptr<Gate>& gate) : gate_id_(gate->id()), records_(gate, gate->limits().queued_calls) {}

Port::~Port() {
  for (auto& ring : rings_) delete ring.load(std::memory_order_acquire);
}

const std::string* Gate::keep_name(std::string_view name) {
  std::lock_guard lock(mutex_);
  return &names_.emplace_front(name);
}

SpscRing<CallRecord*>& Port::ring(std::size_t priority) {
  SpscRing<CallRecord*>* ring = rings_[priority].load(std::memory_order_relaxed);
  if (ring == nullptr) [[unlikely]] {
    ring = new SpscRing<CallRecord*>(gate().limits().submission_ring[priority]);
    rings_[priority].store(ring, std::memory_order_release);  // made before it is seen
  }
  return *ring;
}

bool Port::push(CallRecord* record) {
  if (!ring(record->priority).try_push(record)) return false;
  dirty_priorities_ |= 1u << record->priority;
  ++unpublished_;
  return true;
}

void Port::publish() {
  if (unpublished_ == 0) return;
  for (std::uint32_t left = std::exchange(dirty_priorities_, 0); left != 0; left &= left - 1) {
    ring(static_cast<std::size_t>(std::countr_zero(left))).publish();
  }
  unpublished_ = 0;
  gate().ring(this);
}

Gate::Gate(std::shared_ptr<worker::Worker> worker, const Limits& limits, std::shared_ptr<Subscriber> subscriber)
    : id_(next_gate_id()), worker_(std::move(worker)), limits_(limits), subscriber_(std::move(subscriber)) {}

void Gate::tell_forged(const buffer::Landing& landing) {
  forged_.fetch_add(1, std::memory_order_relaxed);  // relaxed: a count that publishes nothing
  // Bodies may be opened long after the pool was closed, when nobody expects news of it.
  if (subscriber_ == nullptr || is_closed() || is_in_child()) return;
  subscriber_->on(event::RecordForged{.meta = {.time_ns = worker::read_clock().ns, .worker = worker_->index()},
                                      .path = landing.path,
                                      .record = landing.first_record + landing.failed_record});
}

std::string_view Gate::tell_thrown(std::string_view method, std::string_view text) {
  thrown_.fetch_add(1, std::memory_order_relaxed);  // relaxed: a count that publishes nothing
  // A handler may outlive the pool, when nobody expects news of it.
  if (subscriber_ != nullptr && !is_closed() && !is_in_child()) {
    subscriber_->on(event::HandlerThrew{
        .meta = {.time_ns = worker::read_clock().ns, .worker = worker_->index()}, .method = method, .text = text});
  }
  return sends_exception_text ? text : "the handler threw an exception";
}

std::shared_ptr<Port> Gate::open_port(const std::shared_ptr<Gate>& self) {
  std::lock_guard lock(mutex_);
  if (worker_has_gone_) return nullptr;
  for (auto& port : ports_) {
    // Acquire: pairs with the end of its former thread.
    if (port->is_orphaned.load(std::memory_order_acquire)) {
      port->is_orphaned.store(false, std::memory_order_relaxed);
      return port;
    }
  }
  ports_.push_back(std::make_shared<Port>(self));
  ports_version_.fetch_add(1, std::memory_order_release);
  return ports_.back();
}

void Gate::ring(Port* port) noexcept {
  rung.store(true, std::memory_order_release);  // after the work, for look_for_rung()
  worker_->doorbell()->ring();
  // The doorbell fenced after our work was in place; close() fences after it set the flag. Either we see it here, or
  // the last look of the worker sees our work.
  if (!is_closed_.load(std::memory_order_relaxed)) [[likely]]
    return;
  if (is_in_child()) return;
  // What runs below may drop the last handle of everything else that holds this gate.
  const std::shared_ptr<Gate> self = shared_from_this();
  Refused refused;
  {
    std::lock_guard lock(mutex_);
    if (!worker_has_gone_) return;  // it refuses what it finds when it goes
    if (port != nullptr) refuse(*port, refused);
    refuse_wishes_and_answers(refused);
  }
  finish_refused(refused);
}

void Gate::wish(CallRecord* record, std::uint8_t bit) noexcept {
  // Acquire-release: what this thread did to the record is seen with the bit. Not zero before: it is queued already.
  if (record->wishes.fetch_or(bit, std::memory_order_acq_rel) != 0) return;
  queue_wishes(record);
}

void Gate::queue_wishes(CallRecord* record) noexcept {
  push(wishes_, record);
  ring(nullptr);
}

void Gate::tell_of_waiter() noexcept {
  // Sequentially consistent: see Post::tell_of_waiting_replies().
  if (!replies_wait.load(std::memory_order_seq_cst)) [[likely]]
    return;
  has_new_waiter.store(true, std::memory_order_release);  // after the claim
  ring(nullptr);
}

void Gate::answer(IncomingRecord* record) noexcept {
  push(answers_, record);
  ring(nullptr);
}

void Gate::go_on(Waiting* waiting) noexcept {
  push(waiting_, waiting);
  ring(nullptr);
}

void Gate::cancel(detail::CancellableCall* call) noexcept {
  push(cancelled_, call);
  ring(nullptr);
}

detail::CancellableCall* Gate::take_cancelled() noexcept {
  if (cancelled_.load(std::memory_order_relaxed) == nullptr) return nullptr;
  return cancelled_.exchange(nullptr, std::memory_order_acquire);
}

Waiting* Gate::take_waiting() noexcept {
  if (waiting_.load(std::memory_order_relaxed) == nullptr) return nullptr;
  Waiting* newest = waiting_.exchange(nullptr, std::memory_order_acquire);
  // A stack: those first who were told first.
  Waiting* oldest = nullptr;
  while (newest != nullptr) {
    Waiting* const next = std::exchange(newest->link, oldest);
    oldest = std::exchange(newest, next);
  }
  return oldest;
}

CallRecord* Gate::take_wishes() noexcept {
  if (wishes_.load(std::memory_order_relaxed) == nullptr) return nullptr;
  return wishes_.exchange(nullptr, std::memory_order_acquire);
}

IncomingRecord* Gate::take_answers() noexcept {
  if (answers_.load(std::memory_order_relaxed) == nullptr) return nullptr;
  return answers_.exchange(nullptr, std::memory_order_acquire);
}

void Gate::copy_ports(std::vector<std::shared_ptr<Port>>& out) {
  std::lock_guard lock(mutex_);
  out = ports_;
}

void Gate::close() {
  is_closed_.store(true, std::memory_order_release);
  sync::fence(std::memory_order_seq_cst);  // pairs with the one in ring()
  const std::shared_ptr<Gate> self = shared_from_this();
  std::vector<std::shared_ptr<Port>> ports;
  Refused refused;
  {
    std::lock_guard lock(mutex_);
    worker_has_gone_ = true;
    post = nullptr;
    for (auto& port : ports_) refuse(*port, refused);
    refuse_wishes_and_answers(refused);
    // Ports hold on to the gate through their records; without this, both would stay for ever.
    ports.swap(ports_);
  }
  finish_refused(refused);
}

void Gate::refuse(Port& port, Refused& refused) noexcept {
  for (std::size_t priority = 0; priority < Port::kPriorities; ++priority) {
    while (port.pop(priority, 64, [&](CallRecord* record) { refuse_call(record, refused); }) != 0) {
    }
  }
}

void Gate::refuse_wishes_and_answers(Refused& refused) noexcept {
  for (CallRecord* record = take_wishes(); record != nullptr;) {
    sync::reads(&record->link);
    CallRecord* next = record->link;
    const std::uint8_t wishes = record->wishes.exchange(0, std::memory_order_acq_rel);
    // Everything that the engine had is complete by now; what is not done is still in a ring, or refused right here.
    if (wishes & CallRecord::kDrop) {
      if (record->stage.load(std::memory_order_acquire) == detail::CallStage::done) {
        drop_result(record);
      } else {
        record->is_dropped = true;
        if (wishes & CallRecord::kSubmit) refuse_call(record, refused);
      }
    } else if (wishes & CallRecord::kSubmit) {
      refuse_call(record, refused);
    } else if (wishes & CallRecord::kClaim) {
      hand_over_refused(record, refused);
    }
    record = next;
  }
  for (IncomingRecord* record = take_answers(); record != nullptr;) {
    IncomingRecord* next = record->link;
    drop_incoming(record);
    record = next;
  }
  for (Waiting* waiting = take_waiting(); waiting != nullptr;) {
    Waiting* const one = std::exchange(waiting, waiting->link);  // whose call is over
    one->forget_gate();
    one->release();
  }
  // Their calls are told that the pool is closed.
  for (detail::CancellableCall* call = take_cancelled(); call != nullptr;) std::exchange(call, call->link)->release();
}

}  // namespace weir::pool
