// Bulk flows that share one bottleneck in virtual time: what each of them gets of it.
//
// Every sender has a receiver of its own behind the one cable that all of them share, so that no receiver and no sender
// sees more than one flow: what makes them fair is their windows alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "sim/fabric.h"
#include "sim/fabric_host.h"

namespace weir::sim {

struct FairnessPlan {
  std::uint32_t flows = 2;
  std::uint32_t paths = 1;  // of each flow, to receivers of its own; from four on they share a window
  std::uint64_t bits_per_second = 250'000'000;
  Duration latency{5'000};  // of each of the four cables between two hosts
  std::uint32_t queue_bytes = 64 * 1024;
  Duration apart{0};  // how much later than the one before each flow starts
  std::uint64_t seed = 1;
};

// What was delivered within a while.
struct FairnessReport {
  std::vector<std::uint64_t> bytes;      // of each flow
  std::uint64_t packets = 0, drops = 0;  // at the bottleneck
  double link_used = 0;

  // 1: all flows got the same. One of n got all: 1 / n.
  double jain() const;
  double dropped_share() const;
  // Of the flow that got least, over an equal share; and of the one that got most.
  double least() const;
  double most() const;
};

// One per plan.
class FairnessRun final : public FabricJudge {
 public:
  explicit FairnessRun(const FairnessPlan& plan);

  // Goes on for so long.
  FairnessReport run_for(Duration time);
  std::uint64_t failed() const { return failed_; }
  // When this flow starts, from the start of the run on.
  Duration start_of(std::uint32_t flow) const { return plan_.apart * flow; }

  // ---- FabricJudge ----
  void on_request(const CallKind&) override {}
  void on_complete(const FabricCall&, const transfer::Outcome& outcome) override { failed_ += outcome.failed ? 1 : 0; }

 private:
  static constexpr std::uint64_t kMemoryBytes = std::uint64_t{1} << 34;
  static constexpr std::uint32_t kMessageBytes = 1u << 20;
  static constexpr Duration kLongest{10'000'000'000};  // that any flow could use the bottleneck alone

  static FabricShape shape_of(const FairnessPlan& plan);

  const FairnessPlan plan_;
  const CallKind kind_{.name = "bulk", .request_bytes = kMessageBytes, .reply_bytes = 0};
  Fabric fabric_;
  buffer::HeapMemory memory_{kMemoryBytes};
  transfer::BlockPool blocks_;
  worker::Burst burst_;
  std::vector<std::unique_ptr<FabricPayload>> payloads_;
  std::vector<std::unique_ptr<FabricHost>> hosts_;  // senders, then receivers
  std::vector<std::vector<PlannedCall>> calls_;     // by sender
  std::uint64_t failed_ = 0;
};

}  // namespace weir::sim
