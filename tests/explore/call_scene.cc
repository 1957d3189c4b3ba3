#include "tests/explore/call_scene.h"

#include <algorithm>

#include "base/bytes.h"

namespace weir::explore {
namespace {

Limits limits_of(const CallSceneOptions& options) {
  Limits limits;
  limits.queued_calls = 4;
  std::ranges::fill(limits.submission_ring, options.ring);
  return limits;
}

}  // namespace

CallScene::CallScene(const CallSceneOptions& options)
    : worker_(std::make_shared<worker::Worker>(worker::Worker::Options{.has_thread = options.has_thread})),
      post_(std::make_shared<pool::Post>(worker_, limits_of(options), options.turns_to_answer)),
      peer_(std::make_shared<detail::PeerState>()) {
  peer_->gate = post_->gate();
  peer_->shown = &shown_;
  post_->join();
}

void CallScene::work() {
  worker_->try_claim();
  worker_->loop();
}

Call CallScene::call(std::uint32_t number) {
  pool::Way way;
  const Code code = pool::find_way(*peer_, way);
  if (way.record == nullptr) return Call(Error(code, "there is no way"));
  CallOptions options;
  options.deadline = std::chrono::hours(1);
  pool::fill(way, *peer_, 1, options);
  way.record->connect_only = way.record->is_large = false;
  way.record->bytes = sizeof number;
  way.record->header_bytes = 0;
  std::memcpy(way.record->inline_bytes, &number, sizeof number);
  return pool::send(way, *peer_->gate);
}

void CallScene::close() {
  std::lock_guard lock(close_mutex_);
  if (std::exchange(is_closed_, true)) return;
  gate().is_draining.store(true, std::memory_order_relaxed);
  if (pool::Lane* lane = pool::Lane::mine_if_any()) lane->publish();
  worker_->run_on_loop([this] { post_->leave_now(); });
  worker_->request_stop();
}

void CallScene::judge() {
  engine::Engine& engine = post_->engine();
  check(engine.submitted() == engine.completed(), "the engine ends every call once");
  if (!std::exchange(is_closed_, true)) post_->leave_now();
}

void Ending::operator()(const Result<Reply>& result) {
  sync::writes(this);
  failed_ = !result;
  if (failed_) {
    code_ = result.error().code();
  } else {
    check(result->body().size() == sizeof number_, "a reply is whole");
    std::memcpy(&number_, result->body().data(), sizeof number_);
  }
  count_.fetch_add(1, std::memory_order_release);
}

void Ending::expect_reply(std::uint32_t number) const {
  check(count_.load() == 1, "a call ends once");
  check(!failed_ && number_ == number, "a call has its own reply");
}

void Ending::expect(Code code) const {
  check(count_.load() == 1, "a call ends once");
  check(failed_ && code_ == code, "a call fails as it should");
}

void Ending::expect_reply_or(std::uint32_t number, Code code) const { failed_ ? expect(code) : expect_reply(number); }

}  // namespace weir::explore
