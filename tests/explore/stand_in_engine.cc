#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/engine.h"
#include "tests/explore/explorer.h"

namespace weir::engine {

using transfer::OutgoingCall;

void Engine::submit(OutgoingCall& call, Instant) {
  explore::check(call.state == OutgoingCall::State::idle, "a call is submitted to the engine once");
  call.state = OutgoingCall::State::sent;
  sent_.push_back({&call, turns_to_answer_});
  ++submitted_;
  if (is_closed_) end(call, Code::closed);
}

void Engine::end(OutgoingCall& call, Code code) {
  const auto found = std::ranges::find(sent_, &call, &Sent::call);
  if (found == sent_.end()) return;
  sent_.erase(found);
  call.state = OutgoingCall::State::done;
  done_.push_back({.call = &call, .code = code, .failed = true});
}

void Engine::cancel(OutgoingCall& call, Instant) {
  if (call.state != OutgoingCall::State::done) end(call, Code::cancelled);
}

void Engine::release(OutgoingCall&, Instant) { explore::check(false, "no explored call waits for others"); }
void Engine::fail_held(OutgoingCall&, Code, const char*, Instant) {
  explore::check(false, "no explored call waits for others");
}

void Engine::receive() {
  if (turns_to_answer_ == kNever) return;
  for (std::size_t i = 0; i < sent_.size();) {
    if (sent_[i].turns != 0) {
      --sent_[i++].turns;
      continue;
    }
    sent_[i].call->state = OutgoingCall::State::done;
    done_.push_back({.call = sent_[i].call});
    sent_.erase(sent_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

std::size_t Engine::deliver(Instant) {
  std::size_t count = 0;
  for (std::vector<Done> done = std::exchange(done_, {}); const Done& each : done) {
    OutgoingCall& call = *each.call;
    call.drop_bytes();
    std::byte reply[OutgoingCall::kInlineBytes];
    std::memcpy(reply, call.inline_bytes, call.bytes);
    ++completed_;
    ++count;
    if (each.failed) {
      call.complete(call, {.failed = true, .code = each.code, .may_have_run = true, .sentence = "it ends"});
    } else {
      call.complete(call, {.bytes = {reply, call.bytes}});
    }
  }
  return count;
}

void Engine::close(Instant) {
  is_closed_ = true;
  while (!sent_.empty()) end(*sent_.front().call, Code::closed);
}

}  // namespace weir::engine
