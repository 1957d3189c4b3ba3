#include <utility>

#include "pool/lane.h"
#include "pool/post.h"
#include "tests/explore/explorer.h"
#include "worker/thread_context.h"

namespace weir::pool {

Post::Post(std::shared_ptr<worker::Worker> worker, const Limits& limits, std::uint32_t turns_to_answer)
    : worker_(std::move(worker)),
      gate_(std::make_shared<Gate>(worker_, limits, nullptr)),
      engine_(std::make_shared<engine::Engine>(turns_to_answer)),
      calls_(gate_, limits.queued_calls),
      inbox_(gate_) {
  gate_->post = this;
  gate_->engine = engine_;
  hosted_.seat = this;
  hosted_.rung = &gate_->rung;
}

void Post::submit(CallRecord* record, Instant now) { engine_->submit(*record, now); }

void Post::drop(CallRecord* record) { drop_on_worker(record, *engine_, worker_->now()); }

void Post::go_on(Waiting*) { explore::check(false, "no explored call waits for others"); }
void Post::open_reply(CallRecord*, buffer::Landing*) { explore::check(false, "no explored reply is large"); }

bool Post::drain(Instant now) {
  return inbox_.drain(*engine_, now, [&](CallRecord* record) { submit(record, now); });
}

void Post::flush() {
  outbox_.deliver();
  if (Lane* lane = Lane::mine_if_any()) lane->drive_in_turn();
}

bool Post::poll_once(Instant now) {
  const bool is_busy = drain(now);
  engine_->receive();
  const bool has_delivered = engine_->deliver(now) != 0;
  flush();
  return is_busy || has_delivered || engine_->has_work();
}

void Post::leave_now() {
  const std::uint32_t loops_entered = std::exchange(worker::thread_context.loops_entered, 1);
  const Instant now = worker_->now();
  drain(now);
  engine_->close(now);
  while (poll_once(now)) {
  }
  worker_->remove(hosted_);
  gate_->close();
  flush();
  let_go();
  worker::thread_context.loops_entered = loops_entered;
}

}  // namespace weir::pool
