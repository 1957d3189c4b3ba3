#include <fmt/format.h>

#include <algorithm>

#include "sim/fabric_run.h"

namespace weir::sim {
namespace {

double share(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

double kib(std::uint64_t bytes) { return static_cast<double>(bytes) / 1'024; }
double us(std::uint64_t ns) { return static_cast<double>(ns) * 1e-3; }
double ms(Duration d) { return static_cast<double>(d.count()) * 1e-6; }

std::string percent(double value) { return fmt::format("{:.2f} %", 100 * value); }

bool is_of_switch(PortKind kind) { return kind != PortKind::host && kind != PortKind::cap; }

}  // namespace

std::uint64_t FabricReport::unfinished() const {
  std::uint64_t sum = 0;
  for (const Kind& kind : kinds) {
    sum += kind.calls - kind.completed;
    for (const auto& [code, count] : kind.failed) sum -= count;
  }
  return sum;
}

bool FabricReport::is_complete() const {
  return std::ranges::all_of(kinds, [](const Kind& kind) { return kind.completed == kind.calls; });
}

bool FabricReport::meets_goals() const { return is_complete() && std::ranges::all_of(goals, &FabricGoal::is_met); }

double FabricReport::retransmitted_share() const { return share(engines.bytes_retransmitted, engines.bytes_sent); }
double FabricReport::control_share() const { return share(control_ip_bytes, counts.ip_bytes); }
double FabricReport::goodput() const { return share(payload_bytes, counts.ip_bytes); }
double FabricReport::completion() const {
  return static_cast<double>(took.count()) / static_cast<double>(std::max<std::int64_t>(ideal.count(), 1));
}

std::vector<FabricGoal> judge_fabric(const FabricGoals& goals, const FabricReport& report) {
  std::vector<FabricGoal> all;
  all.push_back({.name = "every call is answered",
                 .wanted = "all",
                 .measured = report.is_complete() ? "all" : "not all",
                 .is_met = report.is_complete()});
  const auto at_most = [&](std::string name, const std::optional<double>& most, double measured) {
    if (most) all.push_back({std::move(name), "under " + percent(*most), percent(measured), measured < *most});
  };
  at_most("retransmitted bytes", goals.most_retransmitted, report.retransmitted_share());
  at_most("bytes of control-only packets", goals.most_control, report.control_share());
  if (goals.least_goodput) {
    all.push_back({"goodput", "at least " + percent(*goals.least_goodput), percent(report.goodput()),
                   report.goodput() >= *goals.least_goodput});
  }
  if (goals.most_completion) {
    all.push_back({"completion over the ideal", fmt::format("within {:.2f}", *goals.most_completion),
                   fmt::format("{:.2f}", report.completion()), report.completion() <= *goals.most_completion});
  }
  if (goals.no_tail_drops) {
    all.push_back({"tail drops", "none", fmt::format("{}", report.counts.tail_drops), report.counts.tail_drops == 0});
  }
  if (goals.short_queues) {
    std::uint64_t worst = 0;
    for (std::size_t i = 0; i < kPortKinds; ++i) {
      if (is_of_switch(static_cast<PortKind>(i))) worst = std::max(worst, report.queues[i].worst_p99);
    }
    const std::uint64_t most = report.shape.ecn_threshold_bytes + report.largest_train_bytes;
    all.push_back({"p99 of every switch queue",
                   fmt::format("at most {:.1f} KiB: ECN threshold and one train of {:.1f} KiB", kib(most),
                               kib(report.largest_train_bytes)),
                   fmt::format("{:.1f} KiB", kib(worst)), worst <= most});
  }
  for (std::uint32_t i = 0; i < goals.prompt_kinds; ++i) {
    const FabricReport::Kind& kind = report.kinds[i];
    const double train = 8e6 * report.largest_train_bytes / static_cast<double>(report.shape.bits_per_second);
    const double most = 2e-3 * static_cast<double>(report.round_trip.count()) + train;
    const double measured = us(kind.times_ns.quantile(0.99));
    all.push_back({fmt::format("p99 of {}", kind.kind.name),
                   fmt::format("under {:.1f} us: two base round trips and one train", most),
                   fmt::format("{:.1f} us", measured), measured < most});
  }
  return all;
}

void print(std::FILE* out, const FabricReport& report) {
  const FabricShape& shape = report.shape;
  fmt::print(out, "{} seed {}: {}\n", report.name, shape.seed, report.description);
  fmt::print(
      out,
      "fabric: {} hosts, {} leaves of {}, {} spines; {:.1f} Gbit/s, {:.1f} us per cable, MTU {}, {} KiB of buffer per "
      "port{}, ECN from {} KiB, {} % loss{}\n",
      shape.hosts, shape.leaves(), shape.hosts_per_leaf, shape.spines,
      static_cast<double>(shape.bits_per_second) * 1e-9, us(static_cast<std::uint64_t>(shape.latency.count())),
      shape.mtu, shape.buffer_bytes / 1'024,
      shape.shared_part == 0 ? ""
                             : fmt::format(" shared by a switch's ports, {} x what is free each", shape.shared_part),
      shape.ecn_threshold_bytes / 1'024, 100 * shape.loss,
      shape.flow_bits_per_second == 0
          ? ""
          : fmt::format(", flows of {:.1f} Gbit/s", static_cast<double>(shape.flow_bits_per_second) * 1e-9));
  fmt::print(out, "packets sealed and opened with AES-GCM; payloads share memory; paths {}; hosts {} their rate\n",
             report.is_cold ? "are made by the first calls" : "made before the start",
             shape.tells_rate ? "know" : "do not know");
  fmt::print(out, "{:<28} {:>10} {:>10} {:>8} {:>11} {:>11} {:>11}\n", "calls", "made", "answered", "failed", "p50 us",
             "p99 us", "longest us");
  for (const FabricReport::Kind& kind : report.kinds) {
    std::uint64_t failed = 0;
    for (const auto& [code, count] : kind.failed) failed += count;
    fmt::print(out, "{:<28} {:>10} {:>10} {:>8} {:>11.1f} {:>11.1f} {:>11.1f}\n", kind.kind.name, kind.calls,
               kind.completed, failed, us(kind.times_ns.quantile(0.5)), us(kind.times_ns.quantile(0.99)),
               us(static_cast<std::uint64_t>(kind.longest.count())));
  }
  fmt::print(out, "{:<28} {:>10} {:>10} {:>8} {:>11} {:>11} {:>11}\n", "queues (bytes)", "packets", "drops", "marks",
             "p50", "p99", "worst p99");
  for (std::size_t i = 0; i < kPortKinds; ++i) {
    const QueueReport& queue = report.queues[i];
    if (queue.ports == 0) continue;
    fmt::print(out, "{:<28} {:>10} {:>10} {:>8} {:>11} {:>11} {:>11}\n", name_of(static_cast<PortKind>(i)),
               queue.packets, queue.drops, queue.marks, queue.p50, queue.p99, queue.worst_p99);
  }
  const Counters& e = report.engines;
  fmt::print(out, "took {:.3f} ms, {:.2f} x the ideal {:.3f} ms (busiest cable: {}); goodput {}; {} paths\n",
             ms(report.took), report.completion(), ms(report.ideal), name_of(report.busiest), percent(report.goodput()),
             report.paths);
  fmt::print(out,
             "{} packets, {} IP bytes; retransmitted {}, control-only packets {} ({} of bytes), found lost {}, probe "
             "timeouts {}, tail drops {}, lost {}, marked {}\n",
             report.counts.packets, report.counts.ip_bytes, percent(report.retransmitted_share()),
             e.packets_control_only, percent(report.control_share()), e.packets_lost, e.probe_timeouts,
             report.counts.tail_drops, report.counts.lost, report.counts.marked);
  for (const FabricReport::Kind& kind : report.kinds) {
    for (const auto& [code, count] : kind.failed)
      fmt::print(out, "  {} {} failed: {}\n", count, kind.kind.name, name(code));
  }
  if (report.unfinished() != 0) fmt::print(out, "  {} calls had not ended\n", report.unfinished());
  for (const FabricGoal& goal : report.goals) {
    fmt::print(out, "  {:<7} {}: {} (wanted: {})\n", goal.is_met ? "met" : "MISSED", goal.name, goal.measured,
               goal.wanted);
  }
  fmt::print(out, "{} events, hash {:016x}\n", report.events, report.hash);
  std::fflush(out);
}

}  // namespace weir::sim
