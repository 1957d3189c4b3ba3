#include "sim/fabric_run.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "crypto/nonce_ledger.h"
#include "sim/random_stream.h"

namespace weir::sim {
namespace {

constexpr std::uint32_t kPacketBytes = 24;  // of a full packet: header and tag

// What b has more than a, of what is shown.
Counters difference(const Counters& after, const Counters& before) {
  Counters d;
  d.calls_completed = after.calls_completed - before.calls_completed;
  d.calls_failed = after.calls_failed - before.calls_failed;
  d.packets_sent = after.packets_sent - before.packets_sent;
  d.packets_received = after.packets_received - before.packets_received;
  d.packets_control_only = after.packets_control_only - before.packets_control_only;
  d.packets_lost = after.packets_lost - before.packets_lost;
  d.bytes_sent = after.bytes_sent - before.bytes_sent;
  d.bytes_retransmitted = after.bytes_retransmitted - before.bytes_retransmitted;
  d.frames_retransmitted = after.frames_retransmitted - before.frames_retransmitted;
  d.probe_timeouts = after.probe_timeouts - before.probe_timeouts;
  d.ecn_marks = after.ecn_marks - before.ecn_marks;
  d.credit_blocked = after.credit_blocked - before.credit_blocked;
  d.payload_bytes_sent = after.payload_bytes_sent - before.payload_bytes_sent;
  d.polls = after.polls - before.polls;
  return d;
}

}  // namespace

FabricRun::FabricRun(FabricScenario scenario) : scenario_(std::move(scenario)), fabric_(scenario_.fabric) {
  crypto::forget_recorded_nonces();
  for (const CallKind& kind : scenario_.kinds) {
    payloads_.push_back(std::make_unique<FabricPayload>(kind, blocks_, memory_, scenario_.fabric.seed));
    kinds_.push_back({.kind = kind});
  }
  const FabricHost::Shared shared{
      .fabric = fabric_, .memory = memory_, .burst = burst_, .payloads = payloads_, .judge = *this};
  for (HostId host = 0; host < scenario_.fabric.hosts; ++host) {
    hosts_.push_back(std::make_unique<FabricHost>(shared, host));
  }
  for (const auto& plan : scenario_.plans) {
    planned_ += plan.size();
    for (const PlannedCall& call : plan) ++kinds_[call.kind].calls;
  }
}

FabricRun::~FabricRun() = default;

void FabricRun::on_complete(const FabricCall& call, const transfer::Outcome& outcome) {
  if (start_ == Instant{}) return;  // it was only to make a path
  ++ended_;
  last_end_ = fabric_.now();
  FabricReport::Kind& kind = kinds_[call.kind];
  if (outcome.failed) {
    ++kind.failed[outcome.code];
    return;
  }
  const Duration took = fabric_.now() - call.started;
  ++kind.completed;
  kind.times_ns.add(static_cast<std::uint64_t>(took.count()));
  kind.longest = std::max(kind.longest, took);
  const std::uint64_t bytes = std::uint64_t{kind.kind.request_bytes} + kind.kind.reply_bytes;
  payload_bytes_ += bytes;
  useful_bytes_.add(fabric_.now(), kind.kind.reply_bytes);
}

void FabricRun::on_request(const CallKind& kind) {
  if (start_ != Instant{}) useful_bytes_.add(fabric_.now(), kind.request_bytes);
}

std::size_t FabricRun::under_way() const {
  std::size_t sum = 0;
  for (const auto& host : hosts_) sum += host->under_way();
  return sum;
}

void FabricRun::run_until(Instant end) {
  while (fabric_.agenda().next() <= end) {
    const HostId host = fabric_.run_next(end);
    if (host != Fabric::kNobody) hosts_[host]->poll();
    if (start_ != Instant{} && ended_ == planned_) return;
  }
  fabric_.run_next(end);
}

// Every host calls everybody whom it is going to call, a few times, spread over a while: paths are made, and know their
// MTU and round trip, as they do in a fabric that has been in use.
void FabricRun::warm_up() {
  Random random = stream(scenario_.fabric.seed, "fabric warm-up");
  warm_plans_.resize(hosts_.size());
  const Duration round = kWarmSpread * kWarmRounds;
  for (HostId host = 0; host < hosts_.size(); ++host) {
    std::vector<HostId> peers;
    for (const PlannedCall& call : scenario_.plans[host]) peers.push_back(call.to);
    std::ranges::sort(peers);
    peers.erase(std::ranges::unique(peers).begin(), peers.end());
    for (int i = 0; i < kWarmRounds; ++i) {
      for (const HostId peer : peers) {
        warm_plans_[host].push_back({.to = peer, .at = i * round + between(random, Duration{0}, round)});
      }
    }
    std::ranges::stable_sort(warm_plans_[host], {}, &PlannedCall::at);
    hosts_[host]->load(warm_plans_[host], fabric_.now());
  }
  run_until(fabric_.now() + kWarmRounds * round + kSettle);
  WEIR_CHECK(under_way() == 0, "calls that warm up a fabric end soon");
}

Counters FabricRun::counters() const {
  Counters sum;
  for (const auto& host : hosts_) sum += host->engine().events().counters;
  return sum;
}

void FabricRun::start_counting() {
  fabric_.start_counting();
  for (const auto& host : hosts_) host->link().start_counting();
  before_ = counters();
  start_ = fabric_.now();
  useful_bytes_.start(start_);
}

FabricReport FabricRun::run() {
  if (!scenario_.is_cold) warm_up();
  start_counting();
  for (HostId host = 0; host < hosts_.size(); ++host) hosts_[host]->load(scenario_.plans[host], start_);
  run_until(start_ + scenario_.longest);
  return report();
}

// ---- what it came to -----------------------------------------------------------------------------------------------

std::uint64_t FabricRun::wire_bytes_of(std::uint64_t payload) const {
  const std::uint64_t room = fabric_.shape().datagram_bytes() - kPacketBytes;
  const std::uint64_t rest = FabricShape::kIpBytes + FabricShape::kEthernetBytes + kPacketBytes;
  return payload + (payload * rest + room - 1) / room;
}

// As if every packet were full, and all cables were used from the start on.
Duration FabricRun::ideal_time(PortKind& busiest) const {
  Fabric::Load load(fabric_);
  for (HostId host = 0; host < scenario_.plans.size(); ++host) {
    for (const PlannedCall& call : scenario_.plans[host]) {
      const CallKind& kind = scenario_.kinds[call.kind];
      load.add(host, call.to, wire_bytes_of(kind.request_bytes));
      load.add(call.to, host, wire_bytes_of(kind.reply_bytes));
    }
  }
  busiest = load.busiest().first;
  return load.time();
}

// Across a spine, with one packet each way and the time until either side looks.
Duration FabricRun::round_trip_of(const CallKind& kind) const {
  constexpr int kCables = 4;
  constexpr std::uint64_t kFrameBytes = 32;
  const std::uint64_t headers = FabricShape::kIpBytes + FabricShape::kEthernetBytes + kPacketBytes + kFrameBytes;
  const std::uint64_t bytes =
      std::min<std::uint64_t>(kind.request_bytes, fabric_.shape().datagram_bytes()) + kind.reply_bytes + 2 * headers;
  const double seconds =
      8.0 * static_cast<double>(bytes) * kCables / static_cast<double>(fabric_.shape().bits_per_second);
  return Duration{static_cast<std::int64_t>(seconds * 1e9)} + 2 * kCables * fabric_.shape().latency +
         2 * kFabricPollDelay;
}

void FabricRun::report_queues(FabricReport& report) const {
  for (const PortReport& port : fabric_.ports()) {
    QueueReport& queue = report.queues[static_cast<std::size_t>(port.kind)];
    ++queue.ports;
    queue.packets += port.packets;
    queue.drops += port.drops;
    queue.marks += port.marks;
    queue.worst_p99 = std::max(queue.worst_p99, port.p99);
  }
  for (std::size_t i = 0; i < kPortKinds; ++i) {
    const auto kind = static_cast<PortKind>(i);
    const LogHistogram& depths = fabric_.depths_of(kind);
    report.queues[i].p50 = depths.quantile(0.5);
    report.queues[i].p99 = depths.quantile(0.99);
    report.queues[i].largest = depths.largest();
    report.depths[i] = fabric_.depth_of(kind);
  }
}

FabricReport FabricRun::report() {
  FabricReport report{.name = std::string(scenario_.name),
                      .description = scenario_.description,
                      .shape = scenario_.fabric,
                      .is_cold = scenario_.is_cold,
                      .kinds = std::move(kinds_),
                      .counts = fabric_.counts(),
                      .engines = difference(counters(), before_),
                      .payload_bytes = payload_bytes_,
                      .took = last_end_ - start_,
                      .delivered = fabric_.delivered_bytes(),
                      .dropped = fabric_.dropped_packets(),
                      .marked = fabric_.marked_packets(),
                      .useful_bytes = useful_bytes_,
                      .events = fabric_.events_run(),
                      .hash = fabric_.hash()};
  for (const auto& host : hosts_) {
    report.control_ip_bytes += host->link().control_ip_bytes();
    report.largest_train_bytes = std::max(report.largest_train_bytes, host->link().largest_train_bytes());
    report.paths += host->engine().census().paths;
  }
  report.round_trip = round_trip_of(scenario_.kinds.front());
  report.ideal = ideal_time(report.busiest) + report.round_trip;
  report_queues(report);
  report.goals = judge_fabric(scenario_.goals, report);
  return report;
}

}  // namespace weir::sim
