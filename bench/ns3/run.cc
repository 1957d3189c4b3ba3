#include "run.h"

#include <ns3/rng-seed-manager.h>
#include <ns3/simulator.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "base/check.h"
#include "crypto/nonce_ledger.h"
#include "tcp_host.h"
#include "weir_host.h"

namespace weir::bench {
namespace {

using namespace std::chrono_literals;

constexpr Duration kFirstRound = 1ms;    // when it begins
constexpr Duration kSettle = 50ms;       // after a round, until the last acknowledgements are counted
constexpr Duration kLongestRound = 90s;  // beyond the deadline of Weir's calls; TCP has none of its own

// Counts since the beginning.
struct Totals {
  std::uint64_t arrived = 0, dropped = 0, dropped_everywhere = 0, marked = 0, marks_received = 0;
  std::uint64_t packets = 0, ip_bytes = 0, retransmitted_bytes = 0;
};

class Run {
 public:
  Run(const Scenario& scenario, const Contestant& contestant, const RunOptions& options)
      : options_(options),
        messages_(scenario.messages),
        setting_(make_setting(scenario, options.is_quick ? scenario.quick : scenario.whole, contestant.marks,
                              options.seed)) {
    for (HostId host = 0; host < setting_.network->hosts(); ++host) {
      hosts_.push_back(make_host(host, contestant));
      hosts_.back()->on_end = [this](std::string_view failure) { on_end(failure); };
      setting_.network->node(host)->AddApplication(hosts_.back());
    }
    result_ = {.scenario = std::string(scenario.name),
               .contestant = std::string(contestant.name),
               .hosts = setting_.network->hosts(),
               .calls = setting_.calls(),
               .bound_s = setting_.bound_s};
  }

  RowResult run() {
    after(kFirstRound, [this] { begin_round(); });
    ns3::Simulator::Run();
    for (const auto& host : hosts_) host->Dispose();
    ns3::Simulator::Destroy();
    return std::move(result_);
  }

 private:
  template <class Action>
  static ns3::EventId after(Duration wait, Action action) {
    return ns3::Simulator::Schedule(ns3::NanoSeconds(wait.count()), std::move(action));
  }

  ns3::Ptr<BurstHost> make_host(HostId host, const Contestant& contestant) {
    if (!contestant.tcp.empty()) return ns3::CreateObject<TcpHost>(messages_);
    return ns3::CreateObject<WeirHost>(WeirHost::Options{.host = host,
                                                         .seed = options_.seed,
                                                         .messages = messages_,
                                                         .bits_per_second = setting_.network->host_rate(host),
                                                         .card_queue = setting_.network->host_queue(host),
                                                         .receive_buffer_bytes = options_.receive_buffer_bytes});
  }

  void begin_round() {
    before_ = totals();
    for (PortWatch* const port : setting_.ports) port->restart_depth();
    round_ = {};
    began_ns_ = ns3::Simulator::Now().GetNanoSeconds();
    give_up_ = after(kLongestRound, [this] { end_round(); });
    for (HostId host = 0; host < hosts_.size(); ++host) {
      if (setting_.callees[host].empty()) continue;
      ns3::Simulator::ScheduleWithContext(setting_.network->node(host)->GetId(), ns3::Seconds(0),
                                          [this, host] { hosts_[host]->call(setting_.callees[host]); });
    }
  }

  void on_end(std::string_view failure) {
    ++(failure.empty() ? round_.completed : round_.failed);
    if (round_.completed + round_.failed == (99 * result_.calls + 99) / 100) round_.most_over_bound = time_over_bound();
    if (round_.failed == 1 && round_.first_failure.empty()) round_.first_failure = failure;
    if (round_.completed + round_.failed == result_.calls) end_round();
  }

  double time_over_bound() const {
    return static_cast<double>(ns3::Simulator::Now().GetNanoSeconds() - began_ns_) / 1e9 / setting_.bound_s;
  }

  void end_round() {
    give_up_.Cancel();
    const bool has_given_up = round_.completed + round_.failed < result_.calls;
    round_.failed = result_.calls - round_.completed;
    round_.over_bound = time_over_bound();
    round_.seconds = round_.over_bound * setting_.bound_s;
    for (const PortWatch* const port : setting_.ports) {
      round_.queue_p99_bytes = std::max(round_.queue_p99_bytes, port->depth_bytes(0.99));
      round_.queue_longest_bytes = std::max(round_.queue_longest_bytes, port->longest_bytes());
    }
    after(kSettle, [this, has_given_up] { count_round(has_given_up); });
  }

  void count_round(bool has_given_up) {
    const Totals now = totals();
    const auto share = [](std::uint64_t part, std::uint64_t whole) {
      return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
    };
    round_.dropped = now.dropped - before_.dropped;
    round_.dropped_share = share(round_.dropped, now.arrived - before_.arrived);
    round_.dropped_elsewhere = now.dropped_everywhere - before_.dropped_everywhere - round_.dropped;
    round_.marked = now.marked - before_.marked;
    round_.marks_received = now.marks_received - before_.marks_received;
    round_.packets = now.packets - before_.packets;
    round_.ip_bytes = now.ip_bytes - before_.ip_bytes;
    round_.retransmitted_bytes = now.retransmitted_bytes - before_.retransmitted_bytes;
    round_.retransmitted_share = share(round_.retransmitted_bytes, round_.ip_bytes);
    round_.goodput = share(round_.completed * (messages_.request_bytes + messages_.reply_bytes), round_.ip_bytes);
    result_.rounds.push_back(round_);
    if (has_given_up || result_.rounds.size() > options_.rounds) {
      ns3::Simulator::Stop();
    } else {
      begin_round();
    }
  }

  Totals totals() {
    Network& network = *setting_.network;
    Totals sum{.packets = network.packets_sent(), .ip_bytes = network.bytes_sent()};
    for (const PortWatch* const port : setting_.ports) {
      sum.arrived += port->arrived();
      sum.dropped += port->dropped();
      sum.marked += port->marked();
    }
    for (const PortWatch* const port : network.switch_ports()) sum.dropped_everywhere += port->dropped();
    for (const PortWatch* const port : network.host_ports()) sum.dropped_everywhere += port->dropped();
    sum.dropped_everywhere += network.lost_elsewhere();
    for (const auto& host : hosts_) {
      sum.dropped_everywhere += host->socket_drops();
      sum.retransmitted_bytes += host->retransmitted_bytes();
      sum.marks_received += host->marks_received();
    }
    return sum;
  }

  const RunOptions options_;
  const Messages messages_;
  Setting setting_;
  std::vector<ns3::Ptr<BurstHost>> hosts_;
  RowResult result_;
  RoundResult round_;
  Totals before_;
  std::int64_t began_ns_ = 0;
  ns3::EventId give_up_;
};

}  // namespace

const std::vector<Contestant>& contestants() {
  static const std::vector<Contestant> all{
      {.name = "weir", .description = "Weir, drop-tail queues"},
      {.name = "weir-ecn", .description = "Weir, queues that mark", .marks = true},
      {.name = "cubic", .description = "TCP CUBIC, drop-tail queues", .tcp = "ns3::TcpCubic"},
      {.name = "bbr", .description = "TCP BBR, drop-tail queues", .tcp = "ns3::TcpBbr"},
      {.name = "dctcp", .description = "DCTCP, queues that mark", .tcp = "ns3::TcpDctcp", .marks = true},
  };
  return all;
}

const RoundResult& RowResult::median() const {
  WEIR_CHECK(!rounds.empty(), "a run has a round");
  std::vector<const RoundResult*> later;
  for (std::size_t i = rounds.size() > 1 ? 1 : 0; i < rounds.size(); ++i) later.push_back(&rounds[i]);
  std::ranges::sort(later, {}, &RoundResult::seconds);
  return *later[later.size() / 2];
}

RowResult run_row(const Scenario& scenario, const Contestant& contestant, const RunOptions& options) {
  crypto::forget_recorded_nonces();
  ns3::RngSeedManager::SetSeed(static_cast<std::uint32_t>(options.seed));
  if (!contestant.tcp.empty()) {
    configure_tcp({.congestion = std::string(contestant.tcp),
                   .uses_ecn = contestant.marks,
                   .least_timeout = options.tcp_least_timeout});
  }
  return Run(scenario, contestant, options).run();
}

}  // namespace weir::bench
