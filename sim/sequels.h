// Sequels: calls that come after others of the same host, tied as a pool ties them; and whether they kept to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "base/random.h"
#include "causality/map.h"
#include "causality/waiter.h"
#include "sim/checker.h"
#include "sim/host.h"
#include "sim/world.h"
#include "transfer/outgoing_call.h"

namespace weir::sim {

struct SequelShape {
  double tracked = 0;  // share of calls that others may come after
  double after = 0;    // share of calls that come after some of these
};

// One per run. Lives longer than the hosts.
class Sequels {
 public:
  Sequels(World& world, Checker& checker, const std::vector<Host*>& hosts, const SequelShape& shape,
          bool goes_on_early);
  ~Sequels();

  // Around Engine::submit(): perhaps it has ties; then it may be held, and is let go on when it need not be.
  void tie(HostId host, std::uint64_t id, transfer::OutgoingCall& call, Random& choices);
  void arrive(std::uint64_t id);

  void on_sent(std::uint64_t id);
  // A handler is given it.
  void on_run(std::uint64_t id);
  // Before anything else is done about it.
  void on_complete(std::uint64_t id, const transfer::Outcome& outcome);
  // The process is gone with all of its calls.
  void on_stop(HostId host);
  void check_end();

 private:
  class Waiting;
  struct Condition {
    std::uint64_t id = 0;  // of the call that it comes after
    causality::Moment moment = causality::Moment::responded;
    bool or_failed = false;
  };
  // A call with ties, for as long as the run: others may name it when it has long ended.
  struct Tied {
    HostId host = 0;
    std::uint32_t callee_life = 0;
    transfer::OutgoingCall* call = nullptr;  // until it ends
    causality::Token token = 0;
    Waiting* waiting = nullptr;  // the same
    std::vector<Condition> conditions;
    bool is_sent = false, has_ended = false, has_failed = false;
  };

  bool is_met(const Condition& condition) const;
  bool is_impossible(const Condition& condition) const;
  void go_on(std::uint64_t id, causality::Answer answer);
  void end(Tied& tied, bool has_failed);

  World& world_;
  Checker& checker_;
  const std::vector<Host*>& hosts_;
  const SequelShape shape_;
  const bool goes_on_early_;
  causality::Map map_;
  std::map<std::uint64_t, Tied> tied_;
  std::map<HostId, std::vector<std::uint64_t>> recent_;  // tracked calls of this life of the host, the newest last
};

}  // namespace weir::sim
