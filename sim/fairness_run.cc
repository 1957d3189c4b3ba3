#include "sim/fairness_run.h"

#include <algorithm>

#include "crypto/nonce_ledger.h"

namespace weir::sim {

double FairnessReport::jain() const {
  double sum = 0, squares = 0;
  for (const std::uint64_t each : bytes) {
    sum += static_cast<double>(each);
    squares += static_cast<double>(each) * static_cast<double>(each);
  }
  return squares == 0 ? 0 : sum * sum / (static_cast<double>(bytes.size()) * squares);
}

double FairnessReport::dropped_share() const {
  return packets + drops == 0 ? 0 : static_cast<double>(drops) / static_cast<double>(packets + drops);
}

namespace {

double over_equal_share(const std::vector<std::uint64_t>& bytes, std::uint64_t one) {
  std::uint64_t sum = 0;
  for (const std::uint64_t each : bytes) sum += each;
  return sum == 0 ? 0 : static_cast<double>(one) * static_cast<double>(bytes.size()) / static_cast<double>(sum);
}

}  // namespace

double FairnessReport::least() const { return over_equal_share(bytes, *std::ranges::min_element(bytes)); }
double FairnessReport::most() const { return over_equal_share(bytes, *std::ranges::max_element(bytes)); }

// All senders are below one leaf, all receivers below others, and the first leaf has one way to these.
FabricShape FairnessRun::shape_of(const FairnessPlan& plan) {
  return {.hosts = plan.flows * (1 + plan.paths),
          .hosts_per_leaf = plan.flows,
          .spines = 1,
          .bits_per_second = plan.bits_per_second,
          .latency = plan.latency,
          .buffer_bytes = plan.queue_bytes,
          .ecn_threshold_bytes = 0,
          .tells_rate = false,
          .seed = plan.seed};
}

FairnessRun::FairnessRun(const FairnessPlan& plan) : plan_(plan), fabric_(shape_of(plan)) {
  crypto::forget_recorded_nonces();
  payloads_.push_back(std::make_unique<FabricPayload>(kind_, blocks_, memory_, plan.seed));
  const FabricHost::Shared shared{
      .fabric = fabric_, .memory = memory_, .burst = burst_, .payloads = payloads_, .judge = *this};
  for (HostId host = 0; host < fabric_.shape().hosts; ++host) {
    hosts_.push_back(std::make_unique<FabricHost>(shared, host));
  }
  // As much as a flow could send at twice its equal share, and some more, in turn to its receivers.
  const double seconds = 1e-9 * static_cast<double>(kLongest.count());
  const double messages = seconds * static_cast<double>(plan.bits_per_second) / 8 / kMessageBytes;
  const auto each = static_cast<std::uint32_t>(2 * messages / plan.flows) + 8 * plan.paths;
  calls_.resize(plan.flows);
  for (HostId sender = 0; sender < plan.flows; ++sender) {
    for (std::uint32_t i = 0; i < each; ++i) {
      calls_[sender].push_back({.to = plan.flows + sender * plan.paths + i % plan.paths});
    }
    hosts_[sender]->load(calls_[sender], fabric_.now() + start_of(sender));
  }
}

FairnessReport FairnessRun::run_for(Duration time) {
  fabric_.start_counting();
  const Instant end = fabric_.now() + time;
  while (fabric_.agenda().next() <= end) {
    const HostId host = fabric_.run_next(end);
    if (host != Fabric::kNobody) hosts_[host]->poll();
  }
  fabric_.run_next(end);

  FairnessReport report;
  report.bytes.resize(plan_.flows);
  std::uint64_t used = 0;
  for (const PortReport& port : fabric_.ports()) {
    if (port.kind == PortKind::leaf_up && port.from == 0) {
      report.packets = port.packets;
      report.drops = port.drops;
      used = port.bytes;
    } else if (port.kind == PortKind::leaf_down && port.to >= plan_.flows) {
      report.bytes[(port.to - plan_.flows) / plan_.paths] += port.bytes;
    }
  }
  report.link_used =
      8e9 * static_cast<double>(used) / static_cast<double>(time.count()) / static_cast<double>(plan_.bits_per_second);
  return report;
}

}  // namespace weir::sim
