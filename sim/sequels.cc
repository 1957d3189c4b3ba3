#include "sim/sequels.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace weir::sim {

using causality::Moment;
using causality::Registration;

namespace {
constexpr std::size_t kRecent = 12;  // tracked calls that a new one may come after
}

class Sequels::Waiting final : public causality::Waiter {
 public:
  Waiting(Sequels& sequels, std::uint64_t id, std::uint32_t conditions)
      : Waiter(conditions), sequels_(sequels), id_(id) {}

 private:
  ~Waiting() = default;
  void tell(causality::Answer answer) override { sequels_.go_on(id_, answer); }
  void destroy() override { delete this; }

  Sequels& sequels_;
  const std::uint64_t id_;
};

Sequels::Sequels(World& world, Checker& checker, const std::vector<Host*>& hosts, const SequelShape& shape,
                 bool goes_on_early)
    : world_(world), checker_(checker), hosts_(hosts), shape_(shape), goes_on_early_(goes_on_early) {}

Sequels::~Sequels() {
  for (auto& [id, tied] : tied_) {
    if (tied.waiting != nullptr) tied.waiting->release();
  }
}

void Sequels::tie(HostId host, std::uint64_t id, transfer::OutgoingCall& call, Random& choices) {
  if (shape_.tracked == 0) return;
  std::vector<std::uint64_t>& recent = recent_[host];
  Tied tied{.host = host, .callee_life = hosts_[checker_.record(id).callee]->life(), .call = &call};
  if (call.bytes != 0 && !recent.empty() && choices.chance(shape_.after)) {
    const std::uint64_t count = 1 + choices.below(3);
    for (std::uint64_t i = 0; i < count; ++i) {
      tied.conditions.push_back({.id = recent[choices.below(recent.size())],
                                 .moment = choices.chance(0.5) ? Moment::sent : Moment::responded,
                                 .or_failed = choices.chance(0.3)});
    }
    tied.waiting = new Waiting(*this, id, static_cast<std::uint32_t>(count));
    for (const Condition& condition : tied.conditions) {
      switch (map_.add(
          *tied.waiting,
          {.token = tied_.at(condition.id).token, .moment = condition.moment, .or_failed = condition.or_failed})) {
        case Registration::met:
          tied.waiting->meet();
          break;
        case Registration::failed:
          tied.waiting->fail();
          break;
        case Registration::waits:
          break;
        default:
          checker_.violation(fmt::format("call {} is not known any more", condition.id));
      }
    }
    call.is_held = !goes_on_early_;
  }
  if (choices.chance(shape_.tracked)) {
    tied.token = map_.begin();
    call.tells_sent = true;
    recent.push_back(id);
    if (recent.size() > kRecent) recent.erase(recent.begin());
  }
  if (tied.token != 0 || tied.waiting != nullptr) tied_.emplace(id, std::move(tied));
}

void Sequels::arrive(std::uint64_t id) {
  const auto found = tied_.find(id);
  if (found == tied_.end() || found->second.waiting == nullptr) return;
  go_on(id, found->second.waiting->arrive());
}

void Sequels::go_on(std::uint64_t id, causality::Answer answer) {
  const Tied& tied = tied_.at(id);
  if (tied.call == nullptr) return;
  engine::Engine& engine = hosts_[tied.host]->engine();
  if (answer == causality::Answer::go) engine.release(*tied.call, world_.now());
  if (answer == causality::Answer::fail)
    engine.fail_held(*tied.call, Code::dependency_failed, "another failed", world_.now());
}

void Sequels::on_sent(std::uint64_t id) {
  Tied& tied = tied_.at(id);
  const CallRecord& record = checker_.record(id);
  Host& callee = *hosts_[record.callee];
  // Its handler has it, or it waits in that process, unless that has died since.
  if (record.runs == 0 && record.instruction.bytes != 0 && callee.is_up() && callee.life() == tied.callee_life &&
      callee.engine().census().incoming == 0) {
    checker_.violation(fmt::format("{} is said to be with its peer, which has nothing", Checker::describe(record)));
  }
  tied.is_sent = true;
  map_.note_sent(tied.token);
}

bool Sequels::is_met(const Condition& condition) const {
  const Tied& other = tied_.at(condition.id);
  if (condition.moment == Moment::sent && other.is_sent) return true;
  return other.has_ended && (!other.has_failed || condition.or_failed);
}

bool Sequels::is_impossible(const Condition& condition) const {
  const Tied& other = tied_.at(condition.id);
  return other.has_ended && other.has_failed && !is_met(condition);
}

void Sequels::on_run(std::uint64_t id) {
  const auto found = tied_.find(id);
  if (found == tied_.end() || checker_.record(id).abandoned) return;
  for (const Condition& condition : found->second.conditions) {
    if (is_met(condition)) continue;
    checker_.violation(fmt::format("{} ran before call {}, which it comes after",
                                   Checker::describe(checker_.record(id)), condition.id));
  }
}

void Sequels::on_complete(std::uint64_t id, const transfer::Outcome& outcome) {
  const auto found = tied_.find(id);
  if (found == tied_.end()) return;
  Tied& tied = found->second;
  if (outcome.failed && outcome.code == Code::dependency_failed &&
      std::ranges::none_of(tied.conditions, [this](const Condition& c) { return is_impossible(c); })) {
    checker_.violation(fmt::format("{} failed with others that have not", Checker::describe(checker_.record(id))));
  }
  end(tied, outcome.failed);
}

void Sequels::end(Tied& tied, bool has_failed) {
  tied.call = nullptr;
  tied.has_ended = true;
  tied.has_failed = has_failed;
  if (tied.waiting != nullptr) {
    tied.waiting->leave();
    std::exchange(tied.waiting, nullptr)->release();
  }
  if (tied.token != 0) map_.end(tied.token, has_failed);
}

void Sequels::on_stop(HostId host) {
  // First all of them, so that none goes on because another ends.
  for (auto& [id, tied] : tied_) {
    if (tied.host == host) tied.call = nullptr;
  }
  for (auto& [id, tied] : tied_) {
    if (tied.host == host && !tied.has_ended) end(tied, true);
  }
  recent_.erase(host);
}

void Sequels::check_end() {
  if (map_.tracked() != 0 || map_.waiting() != 0) {
    checker_.violation(
        fmt::format("{} calls are tracked and {} conditions waited for after the end", map_.tracked(), map_.waiting()));
  }
}

}  // namespace weir::sim
