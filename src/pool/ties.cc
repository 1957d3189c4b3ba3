#include "pool/ties.h"

#include <span>
#include <utility>

#include "base/check.h"
#include "base/fork_guard.h"
#include "engine/engine.h"
#include "pool/gate.h"
#include "pool/post.h"
#include "weir/after.h"

namespace weir::pool {
namespace {

using causality::Answer;
using causality::Registration;

constexpr const char* kDependencyFailed = "a call that it was to come after has failed";
static_assert(causality::Map::kMaxTracked <= Dependency::kSent, "a slot's number leaves room for two bits");

Registration add(Waiting& waiting, const Dependency& dependency) {
  if (dependency.token() == Dependency::kFailedAtOnce) {
    return dependency.is_or_failed() ? Registration::met : Registration::failed;
  }
  return tracked_calls().add(waiting,
                             {.token = dependency.token(),
                              .moment = dependency.is_sent() ? causality::Moment::sent : causality::Moment::responded,
                              .or_failed = dependency.is_or_failed()});
}

Error error_of(Registration registration) {
  switch (registration) {
    case Registration::forgotten:
      return {Code::dependency_failed,
              "a call that it was to come after ended so long ago that nobody knows how: leave it out, or name it "
              "or_failed()"};
    case Registration::full:
      return {Code::overloaded, "too many calls of this process wait for others"};
    default:
      return {Code::dependency_failed, kDependencyFailed};
  }
}

// Null: there is nothing to wait for.
Result<Waiting*> wait_for(const std::shared_ptr<Gate>& gate, std::span<const Dependency> dependencies) {
  if (dependencies.size() > causality::Map::kMaxWaiting) return std::unexpected(error_of(Registration::full));
  for (const Dependency& dependency : dependencies) {
    if (dependency.token() != Dependency::kNotTracked) continue;
    return std::unexpected(Error(Code::invalid_argument,
                                 "a call that it was to come after is not tracked: make that one with {.tracked = "
                                 "true}"));
  }
  auto* const waiting = new Waiting(gate, static_cast<std::uint32_t>(dependencies.size()));
  Registration found = Registration::waits;
  for (const Dependency& dependency : dependencies) {
    found = add(*waiting, dependency);
    if (found == Registration::met) {
      waiting->meet();
    } else if (found != Registration::waits) {
      break;
    }
  }
  if (found == Registration::waits || found == Registration::met) {
    const Answer so_far = waiting->look();
    if (so_far == Answer::wait) return waiting;
    found = so_far == Answer::go ? Registration::met : Registration::failed;
  }
  waiting->end();
  if (found != Registration::met) return std::unexpected(error_of(found));
  return nullptr;
}

}  // namespace

causality::Map& tracked_calls() {
  // Never destroyed: threads and pools may end after main(). A forked child tracks calls of its own only.
  static constinit OnePerProcess<causality::Map> map;
  return map.get();
}

Waiting::Waiting(std::shared_ptr<Gate> gate, std::uint32_t conditions) : Waiter(conditions), gate_(std::move(gate)) {}

void Waiting::tell(Answer) {
  // Ours: once the worker has heard, it may let go of it.
  const std::shared_ptr<Gate> gate = gate_;
  if (gate->is_closed()) return forget_gate();  // so its call is over, or about to be
  hold();
  if (gate->is_mine() && gate->post != nullptr) {
    gate->post->go_on(this);
  } else {
    gate->go_on(this);
  }
}

void Waiting::end() {
  record = nullptr;
  if (leave()) forget_gate();
  release();
}

std::optional<Error> tie(CallRecord& record, const std::shared_ptr<Gate>& gate, const CallOptions& options) {
  Ties ties;
  if (!options.after.empty()) {
    Result<Waiting*> waiting = wait_for(gate, options.after.dependencies());
    if (!waiting) return std::move(waiting).error();
    ties.waiting = *waiting;
  }
  if (options.tracked) {
    ties.token = tracked_calls().begin();
    if (ties.token == 0) {
      if (ties.waiting != nullptr) ties.waiting->end();
      return Error(Code::overloaded, "too many calls of this process are tracked");
    }
  }
  ::new (record.inline_bytes + Ties::kInlineBytes) Ties(ties);
  record.has_ties = true;
  record.is_held = ties.waiting != nullptr;
  record.tells_sent = options.tracked;
  // Whether it failed is to be known when it ends, not when somebody looks at its reply.
  if (options.tracked) record.opens_itself = false;
  return std::nullopt;
}

void on_sent(transfer::OutgoingCall& call) {
  auto& record = static_cast<CallRecord&>(call);
  tracked_calls().note_sent(Ties::of(record).token);
}

Answer arrive(CallRecord& record) {
  Waiting* const waiting = Ties::of(record).waiting;
  if (waiting == nullptr) return Answer::wait;  // for nobody
  waiting->record = &record;
  const Answer answer = waiting->arrive();
  if (answer != Answer::wait) waiting->forget_gate();  // nobody tells it anything
  return answer;
}

void go_on(CallRecord& record, Answer answer, engine::Engine& engine, Instant now) {
  if (answer == Answer::go) engine.release(record, now);
  if (answer == Answer::fail) engine.fail_held(record, Code::dependency_failed, kDependencyFailed, now);
}

void go_on(Waiting* waiting, engine::Engine& engine, Instant now) {
  if (waiting->record != nullptr) go_on(*waiting->record, waiting->look(), engine, now);
  waiting->forget_gate();
  waiting->release();
}

Ties take_ties(CallRecord& record) noexcept {
  const Ties ties = Ties::of(record);
  record.has_ties = false;
  return ties;
}

void end(const Ties& ties, bool has_failed) noexcept {
  if (ties.waiting != nullptr) ties.waiting->end();
  if (ties.token != 0) tracked_calls().end(ties.token, has_failed);
}

void untie(CallRecord& record, bool has_failed) noexcept { end(take_ties(record), has_failed); }

}  // namespace weir::pool
