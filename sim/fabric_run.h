// One run of a load in a fabric: what it cost the network, and whether that meets the goals.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sim/fabric.h"
#include "sim/fabric_host.h"
#include "sim/fabric_scenario.h"
#include "sim/histogram.h"
#include "weir/error.h"
#include "weir/event.h"

namespace weir::sim {

struct FabricGoal {
  std::string name, wanted, measured;
  bool is_met = false;
};

struct QueueReport {
  std::uint64_t ports = 0, packets = 0, drops = 0, marks = 0;
  std::uint64_t p50 = 0, p99 = 0, largest = 0;  // bytes, as packets found them at all ports of a kind
  std::uint64_t worst_p99 = 0;                  // of one port
};

// Without its host names and pointers: what may be kept after the run.
struct FabricReport {
  struct Kind {
    CallKind kind;
    std::uint64_t calls = 0, completed = 0;
    std::map<Code, std::uint64_t> failed;
    LogHistogram times_ns;
    Duration longest{0};
  };

  std::string name, description;
  FabricShape shape;
  bool is_cold = false;
  std::vector<Kind> kinds;
  FabricCounts counts;
  Counters engines;  // since the start, of all hosts
  std::uint64_t payload_bytes = 0, control_ip_bytes = 0, paths = 0;
  std::uint32_t largest_train_bytes = 0;
  Duration took{0};        // from the first call to the last completion
  Duration ideal{0};       // the busiest cable's time for what it must carry, and one round trip
  PortKind busiest{};      // where that cable is
  Duration round_trip{0};  // of a small call in an idle fabric
  std::array<QueueReport, kPortKinds> queues;
  std::array<TimeSeries, kPortKinds> depths;
  TimeSeries delivered, dropped, marked, useful_bytes;
  std::uint64_t events = 0, hash = 0;
  std::vector<FabricGoal> goals;

  std::uint64_t unfinished() const;
  double retransmitted_share() const;
  double control_share() const;
  double goodput() const;
  double completion() const;  // over the ideal
  // Every call was answered.
  bool is_complete() const;
  bool meets_goals() const;
};

// One per run.
class FabricRun final : public FabricJudge {
 public:
  explicit FabricRun(FabricScenario scenario);
  ~FabricRun() override;

  FabricReport run();

  // ---- FabricJudge ----
  void on_request(const CallKind& kind) override;
  void on_complete(const FabricCall& call, const transfer::Outcome& outcome) override;

 private:
  static constexpr std::uint64_t kMemoryBytes = std::uint64_t{1} << 40;  // beyond what a run takes
  static constexpr int kWarmRounds = 4;
  static constexpr Duration kWarmSpread{5'000'000};
  static constexpr Duration kSettle{20'000'000};

  void warm_up();
  void run_until(Instant end);
  bool is_over() const;
  std::size_t under_way() const;
  Counters counters() const;
  void start_counting();
  Duration ideal_time(PortKind& busiest) const;
  Duration round_trip_of(const CallKind& kind) const;
  std::uint64_t wire_bytes_of(std::uint64_t payload) const;
  void report_queues(FabricReport& report) const;
  FabricReport report();

  const FabricScenario scenario_;
  Fabric fabric_;
  buffer::HeapMemory memory_{kMemoryBytes};
  transfer::BlockPool blocks_;
  worker::Burst burst_;
  std::vector<std::unique_ptr<FabricPayload>> payloads_;
  std::vector<std::unique_ptr<FabricHost>> hosts_;
  std::vector<std::vector<PlannedCall>> warm_plans_;
  std::vector<FabricReport::Kind> kinds_;
  TimeSeries useful_bytes_;
  Counters before_;
  std::uint64_t planned_ = 0, ended_ = 0, payload_bytes_ = 0;
  Instant start_{}, last_end_{};
};

// Every goal of the scenario, against what was measured.
std::vector<FabricGoal> judge_fabric(const FabricGoals& goals, const FabricReport& report);

// A table of what was measured, and a line for each goal.
void print(std::FILE* out, const FabricReport& report);

}  // namespace weir::sim
