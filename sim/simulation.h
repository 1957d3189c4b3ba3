// One run of one scenario, from the first process to the last check.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sim/address_trial.h"
#include "sim/attacker.h"
#include "sim/checker.h"
#include "sim/courier.h"
#include "sim/host.h"
#include "sim/hostile_sender.h"
#include "sim/hostile_service.h"
#include "sim/lapse.h"
#include "sim/member_trial.h"
#include "sim/reconnection.h"
#include "sim/recovery.h"
#include "sim/scenario.h"
#include "sim/workload.h"
#include "sim/world.h"

namespace weir::sim {

struct RunOptions {
  bool trace = false;
  Sabotage sabotage = Sabotage::none;
};

// Bytes of all processes until the network heals.
struct Waste {
  std::uint64_t sent = 0;
  std::uint64_t again = 0;    // retransmitted
  std::uint64_t in_vain = 0;  // of these, what had arrived before
  std::uint64_t late = 0;     // packets declared lost that arrived
  std::uint64_t needless_probes = 0;

  double share() const { return sent == 0 ? 0 : static_cast<double>(again) / static_cast<double>(sent); }
};

struct Report {
  std::uint64_t seed = 0;
  std::string_view scenario;
  std::uint64_t event_hash = 0;
  std::uint64_t calls = 0, ok = 0, abandoned = 0, handlers_run = 0;
  std::map<Code, std::uint64_t> failed;
  double virtual_seconds = 0;
  std::uint64_t events = 0;
  NetworkCounts network;
  Waste waste;
  Counters engines;               // of all processes that lived to the end
  std::uint64_t handshakes = 0;   // begun by those processes
  std::uint64_t credentials = 0;  // given to their engines
  std::uint64_t evicted = 0;      // credentials that had to make room
  std::uint64_t stalls = 0;       // processes that stood still for a while
  std::uint64_t crashes = 0;      // of processes
  std::uint64_t rebindings = 0;   // changes of callers' addresses
  std::uint64_t copies = 0;       // of datagrams, sent by somebody else
  Duration longest_search{0};     // see AddressTrial
  HostileSender::Totals hostile;  // what hostile senders did
  HostileService::Totals served;  // what those whom they called found in it
  std::vector<std::string> violations;

  // One line.
  std::string summary() const;
};

Report run(const Scenario& scenario, const RunOptions& options = {});

// What run() does, step by step.
class Simulation {
 public:
  Simulation(const Scenario& scenario, const RunOptions& options);

  Report run();

 private:
  static constexpr std::uint64_t kMaxEvents = 4'000'000;  // of a run that comes to an end

  void make_hosts();
  void plan_faults();
  void plan_partition(Random& random);
  void plan_crash(Random& random, bool orderly);
  void plan_crash_at(const CrashAt& crash);
  void die(HostId host, Duration absence);
  void stall(HostId host);
  void plan_mtu_change(Random& random);
  void plan_revocation(Random& random);
  void plan_worker_faults();
  HostId any_host(Random& random) const;
  Instant any_time(Random& random) const;
  void restore();
  // True if `done` became true in time.
  template <class Done>
  bool run_until(Instant end, Done done);
  void run_for(Duration d);
  void check_leftovers(Duration patience);
  void check_credentials();
  void check_handshakes();
  void check_waste();
  void end_hostile();
  bool nothing_was_lost() const;
  void replay_conversation(Duration settle);
  void sabotage_hosts();
  Report report();

  Scenario scenario_;
  World world_;
  Checker checker_;
  Workload workload_;
  std::unique_ptr<HostileService> service_;              // if there are any hostile senders
  std::vector<std::unique_ptr<HostileSender>> hostile_;  // one for each
  std::unique_ptr<MemberTrial> member_trial_;            // if there is one
  std::vector<std::unique_ptr<Host>> hosts_;
  std::unique_ptr<Attacker> attacker_;
  std::unique_ptr<Courier> courier_;  // if there is one
  std::unique_ptr<Recovery> recovery_;
  std::unique_ptr<Reconnection> reconnection_;
  std::unique_ptr<Lapse> lapse_;
  std::unique_ptr<AddressTrial> address_trial_;  // if there is one
  std::uint64_t datagrams_ = 0;                  // that reached the switch, if anything depends on it
  std::uint64_t stalls_ = 0;
  std::uint64_t crashes_ = 0;
  Waste waste_;
  Random revocations_;
  Random stall_lengths_;
  Sabotage sabotage_;
  Instant start_;
  bool is_over_ = false;  // no more faults
};

}  // namespace weir::sim
