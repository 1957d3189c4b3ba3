// In place of pool/post.h: a post as calls, lanes and gates see it, with its real inbox, outbox and records, and the
// engine's stand-in. It is its own seat. A turn takes its steps in the order of worker::Seat::poll_once() and
// pool::Post::drain(); its end is that of pool::Post::leave_now().
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/time.h"
#include "engine/engine.h"
#include "pool/gate.h"
#include "pool/inbox.h"
#include "pool/outbox.h"
#include "pool/ties.h"
#include "weir/config.h"
#include "worker/pollable.h"
#include "worker/worker.h"

namespace weir::pool {

class Post final : public worker::Pollable {
 public:
  Post(std::shared_ptr<worker::Worker> worker, const Limits& limits, std::uint32_t turns_to_answer);

  const std::shared_ptr<Gate>& gate() const { return gate_; }
  engine::Engine& engine() { return *engine_; }
  // Before its worker turns.
  void join() { worker_->add(hosted_); }
  // On the worker.
  void leave_now();

  // ---- what the code under test calls ----
  CallRecord* acquire() { return calls_.acquire(); }
  void submit(CallRecord* record, Instant now);
  void drop(CallRecord* record);
  void go_on(Waiting* waiting);
  void hand_to_lane(CallRecord* record) { outbox_.put(record); }
  const std::string* shown_name(std::uint32_t) const { return nullptr; }
  void open_reply(CallRecord* record, buffer::Landing* landing);

  // ---- the seat ----
  bool poll_once(Instant now) override;
  Instant next_deadline() const override { return engine_->has_work() ? Instant{} : Instant::never(); }
  int descriptor() const override { return -1; }
  bool is_blocked() const override { return false; }
  bool is_starved() const override { return false; }
  void note_error() override {}
  void let_go() override { calls_.disown(); }

 private:
  bool drain(Instant now);
  void flush();

  const std::shared_ptr<worker::Worker> worker_;
  const std::shared_ptr<Gate> gate_;
  const std::shared_ptr<engine::Engine> engine_;
  worker::Hosted hosted_;
  CallRecord::Pool calls_;
  Inbox inbox_;
  Outbox outbox_;
};

}  // namespace weir::pool
