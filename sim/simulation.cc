#include "sim/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>

#include "base/check.h"
#include "crypto/nonce_ledger.h"
#include "engine/bounds.h"
#include "sim/random_stream.h"

namespace weir::sim {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view kSecret = "a secret that every simulated host knows";
constexpr Duration kTokenLife = 11s;
constexpr Duration kClosingTime = 5ms;  // between an orderly end and the end of the process

// The one whose certificate is not replaced is the one whose calls fail from its end on.
Scenario lapsing_at_end(Scenario scenario) {
  if (!scenario.identity || !scenario.identity->certificates) return scenario;
  const ShortCertificates& plan = *scenario.identity->certificates;
  scenario.workload.lapsing = plan.not_replaced;
  scenario.workload.lapses_at = end_of_validity(plan, EventQueue{}.now());
  return scenario;
}

}  // namespace

Report run(const Scenario& scenario, const RunOptions& options) {
  // Another run with this seed in this process makes the same keys, rightly.
  crypto::forget_recorded_nonces();
  return Simulation(scenario, options).run();
}

Simulation::Simulation(const Scenario& scenario, const RunOptions& options)
    : scenario_(lapsing_at_end(scenario)),
      world_(scenario.seed, options.trace),
      checker_(world_, scenario_.name),
      workload_(world_, checker_, scenario_.workload, options.sabotage),
      revocations_(stream(scenario.seed, "revocations")),
      stall_lengths_(stream(scenario.seed, "stall lengths")),
      sabotage_(options.sabotage),
      start_(world_.now()) {
  checker_.expect_workers(scenario_.workers);
  world_.network.set_faults(scenario_.faults);
  world_.network.add_tap([this](const Packet& packet) { checker_.on_datagram(packet); });
  if (scenario_.identity) {
    // Keys, and with them every byte on the wire, come from dice that no seed reaches.
    world_.network.hide_contents();
    if (scenario_.identity->handshake_faults) {
      world_.network.set_port_faults(kHandshakePort, *scenario_.identity->handshake_faults);
    }
  }
  world_.network.report_closed_ports(scenario_.reports_closed_ports);
  make_hosts();
  if (scenario_.attack_interval.count() != 0) {
    attacker_ = std::make_unique<Attacker>(world_);
    if (!scenario_.identity) checker_.expect_misrouting();
  }
  if (scenario_.carry_interval.count() != 0) {
    std::vector<std::vector<Address>> addresses;
    for (const auto& host : hosts_) addresses.push_back(host->data_addresses());
    courier_ = std::make_unique<Courier>(world_, std::move(addresses));
  }
  if (scenario_.measures_reconnection) {
    reconnection_ = std::make_unique<Reconnection>(world_, checker_, hosts_, scenario_.identity.has_value());
  }
  if (scenario_.workload.lapsing) lapse_ = std::make_unique<Lapse>(world_, checker_, scenario_.workload);
  if (scenario_.addresses) {
    address_trial_ = std::make_unique<AddressTrial>(world_, checker_, *scenario_.addresses, sabotage_, hosts_);
  }
  if (scenario_.measures_recovery) recovery_ = std::make_unique<Recovery>(world_, checker_, hosts_);
}

void Simulation::make_hosts() {
  const std::uint32_t honest = scenario_.hosts - scenario_.hostile.senders;
  if (honest != scenario_.hosts) {
    WEIR_CHECK(scenario_.hostile.senders <= kMaxHostileSenders,
               "bytes say which of so many hostile senders wrote them");
    // Each of those who keep what they have loses it after its life, before an honest one's turn comes.
    const Duration starving = scenario_.hostile.hoards ? 12s * (scenario_.hostile.senders + 1) : 0s;
    service_ =
        std::make_unique<HostileService>(world_, checker_, workload_,
                                         HostileService::Options{.call_interval = scenario_.hostile.interval * 20,
                                                                 .longest_starving = starving,
                                                                 .limits = scenario_.limits,
                                                                 .sabotage = sabotage_});
  }
  if (scenario_.members) {
    member_trial_ = std::make_unique<MemberTrial>(world_, checker_, workload_, *scenario_.members);
  }
  for (HostId id = 0; id < scenario_.hosts; ++id) {
    world_.network.add_host(Address::v4(0x0a000001u + id, kDataPort), scenario_.link);
    engine::EngineConfig config{.secret = crypto::SharedSecret::from_text(kSecret).value()};
    config.name = fmt::format("host{}", id);
    config.port = kDataPort;
    config.accepts =
        std::ranges::find(scenario_.workload.callees, id) != scenario_.workload.callees.end() || id >= honest;
    config.datagram_bytes = scenario_.largest_datagram_bytes;
    config.receive_buffer_bytes = scenario_.socket.receive_buffer_bytes;
    if (scenario_.nic_bytes_per_second != 0) {
      config.nic = std::make_shared<schedule::NicShaper>(scenario_.nic_bytes_per_second, start_);
    }
    config.limits = scenario_.limits;
    if (sabotage_ == Sabotage::grants_too_much) {
      config.limits.large_request_bytes *= 2;
      config.limits.large_bytes_per_peer *= 2;
    }
    config.timeouts = scenario_.timeouts;
    config.rotate_packets = scenario_.rotate_packets;
    config.on_sent = &Workload::on_sent;
    std::optional<HostIdentity> identity;
    if (const auto& shape = scenario_.identity) {
      identity = {.keeps_signer = shape->keeps_signer, .grace = shape->grace, .simultaneous = shape->simultaneous};
      const auto& errors = shape->clock_error_seconds;
      if (id < errors.size()) identity->clock_error_seconds = errors[id];
      identity->certificates = shape->certificates;
      identity->run_start = start_;
      identity->forgets_ends = sabotage_ == Sabotage::forgets_ends;
      if (scenario_.members && scenario_.members->is_hostile(id)) {
        identity->certificate_of = static_cast<HostId>(scenario_.members->honest + 1);
      }
      identity->forgets_members = sabotage_ == Sabotage::forgets_members;
    }
    Application* application = service_ ? static_cast<Application*>(service_.get()) : &workload_;
    if (member_trial_) application = member_trial_.get();
    if (id >= honest) {
      hostile_.push_back(std::make_unique<HostileSender>(world_, scenario_.hostile, id - honest, sabotage_));
      application = hostile_.back().get();
    }
    hosts_.push_back(std::make_unique<Host>(
        world_, id, config, scenario_.socket, identity, *application,
        HostWorkers{.count = scenario_.workers, .share_a_name = sabotage_ == Sabotage::share_a_name}));
    hosts_.back()->set_timer_lateness(scenario_.timer_lateness);
    workload_.add_host(*hosts_.back());
    if (member_trial_) member_trial_->add_host(*hosts_.back());
  }
  for (HostId id = 0; id < scenario_.hosts && service_; ++id) {
    if (id < honest) {
      service_->add_honest(*hosts_[id]);
      continue;
    }
    service_->add_hostile(*hosts_[id]);
    hostile_[id - honest]->set_host(*hosts_[id]);
    for (const HostId victim : scenario_.workload.callees) hostile_[id - honest]->add_victim(*hosts_[victim]);
  }
}

// ---- faults --------------------------------------------------------------------------------------------------------

HostId Simulation::any_host(Random& random) const { return static_cast<HostId>(random.below(hosts_.size())); }

Instant Simulation::any_time(Random& random) const { return start_ + between(random, Duration{0}, scenario_.span); }

void Simulation::plan_faults() {
  Random partitions = stream(scenario_.seed, "partitions");
  Random crashes = stream(scenario_.seed, "crashes");
  Random closings = stream(scenario_.seed, "closings");
  Random stalls = stream(scenario_.seed, "stalls");
  Random mtus = stream(scenario_.seed, "mtus");
  for (std::uint32_t i = 0; i < scenario_.revocations; ++i) plan_revocation(revocations_);
  for (std::uint32_t i = 0; i < scenario_.partitions; ++i) plan_partition(partitions);
  for (std::uint32_t i = 0; i < scenario_.crashes; ++i) plan_crash(crashes, false);
  for (std::uint32_t i = 0; i < scenario_.closings; ++i) plan_crash(closings, true);
  if (!scenario_.crashes_at.empty() || !scenario_.revokes_at.empty() || !scenario_.stalls_at.empty()) {
    world_.network.add_tap(
        [this, counts = std::vector<std::uint32_t>(scenario_.crashes_at.size())](const Packet& packet) mutable {
          ++datagrams_;
          for (std::size_t i = 0; i < counts.size(); ++i) {
            const CrashAt& crash = scenario_.crashes_at[i];
            const bool begins = crash.from.count() == 0 ||
                                (world_.now() >= start_ + crash.from && packet.destination.port == kHandshakePort);
            if ((counts[i] != 0 || begins) && ++counts[i] == crash.datagram) plan_crash_at(crash);
          }
          for (const StallAt& each : scenario_.stalls_at) {
            if (each.datagram == datagrams_) stall(static_cast<HostId>(each.host % hosts_.size()));
          }
          for (const RevokeAt& revoke : scenario_.revokes_at) {
            if (revoke.datagram != datagrams_) continue;
            world_.queue.after(revoke.delay, [this, host = revoke.host] {
              if (!is_over_ && hosts_[host]->is_up()) hosts_[host]->revoke_regions(1, revocations_);
            });
          }
        });
  }
  for (std::uint32_t i = 0; i < scenario_.stalls; ++i) {
    const HostId host = any_host(stalls);
    world_.queue.at(any_time(stalls), [this, host] { stall(host); });
  }
  for (std::uint32_t i = 0; i < scenario_.mtu_changes; ++i) plan_mtu_change(mtus);
  plan_worker_faults();
}

void Simulation::plan_worker_faults() {
  Random faults = stream(scenario_.seed, "worker faults");
  const auto plan = [&](std::uint32_t count, void (Host::*happens)()) {
    for (std::uint32_t i = 0; i < count; ++i) {
      world_.queue.at(any_time(faults), [this, happens, host = any_host(faults)] {
        if (!is_over_) (hosts_[host].get()->*happens)();
      });
    }
  };
  plan(scenario_.reshuffles, &Host::reshuffle);
  plan(scenario_.forgettings, &Host::forget_callers);
}

void Simulation::plan_partition(Random& random) {
  const HostId from = any_host(random);
  const HostId to = static_cast<HostId>((from + 1 + random.below(hosts_.size() - 1)) % hosts_.size());
  const Instant begin = any_time(random);
  const Instant end = begin + between(random, Duration{1}, scenario_.longest_partition);
  world_.network.cut(from, to, begin, end);
  if (random.chance(0.7)) world_.network.cut(to, from, begin, end);
}

void Simulation::plan_crash(Random& random, bool orderly) {
  const HostId host = any_host(random);
  const Instant when = any_time(random);
  const Duration absence = between(random, Duration{1}, scenario_.longest_absence);
  world_.queue.at(when, [this, host, orderly, absence] {
    if (is_over_ || !hosts_[host]->is_up()) return;
    if (!orderly) {
      die(host, absence);
      return;
    }
    world_.journal.note(world_.now(), "close host", {host});
    for (std::size_t which = 0; which < hosts_[host]->engines(); ++which) {
      hosts_[host]->engine(which).close(world_.now());
    }
    hosts_[host]->wake();
    // A closed process ends in any case, unless it crashed meanwhile.
    world_.queue.after(kClosingTime, [this, host, absence, life = hosts_[host]->life()] {
      if (hosts_[host]->is_up() && hosts_[host]->life() == life) die(host, absence);
    });
  });
}

void Simulation::plan_crash_at(const CrashAt& crash) {
  world_.queue.after(crash.delay, [this, crash] {
    if (!is_over_ && hosts_[crash.host]->is_up()) die(crash.host, crash.absence);
  });
}

void Simulation::die(HostId host, Duration absence) {
  ++crashes_;
  hosts_[host]->crash();
  world_.queue.after(is_over_ ? Duration{0} : absence, [this, host] {
    if (!hosts_[host]->is_up()) hosts_[host]->start();
  });
}

void Simulation::stall(HostId host) {
  const Duration length =
      any_length(stall_lengths_, std::min(scenario_.shortest_stall, scenario_.longest_stall), scenario_.longest_stall);
  if (is_over_) return;
  stalls_ += hosts_[host]->is_up();
  hosts_[host]->stall_until(world_.now() + length);
}

void Simulation::plan_mtu_change(Random& random) {
  constexpr std::size_t kSizes[] = {1'200, 1'252, 1'400, 1'472, 4'000, 8'972, 20'000};
  const HostId from = any_host(random);
  const HostId to = static_cast<HostId>((from + 1 + random.below(hosts_.size() - 1)) % hosts_.size());
  const std::size_t bytes = kSizes[random.below(std::size(kSizes))];
  const bool tells = random.chance(0.3);
  const Instant when = random.chance(0.4) ? start_ : any_time(random);
  world_.queue.at(when, [this, from, to, bytes, tells] {
    world_.journal.note(world_.now(), "mtu-change from to bytes told", {from, to, bytes, tells});
    if (tells) {
      world_.network.set_datagram_bytes(from, std::min(bytes, scenario_.link.datagram_bytes));
    } else {
      world_.network.set_path_datagram_bytes(from, to, bytes);
    }
  });
}

void Simulation::plan_revocation(Random& random) {
  const HostId host = any_host(random);
  const double chance = random.chance(0.5) ? 1 : 0.3;
  world_.queue.at(any_time(random), [this, host, chance] {
    if (!is_over_ && hosts_[host]->is_up()) hosts_[host]->revoke_regions(chance, revocations_);
  });
}

void Simulation::restore() {
  is_over_ = true;
  world_.journal.note(world_.now(), "heal", {});
  world_.network.heal();
  if (attacker_) attacker_->stop();
  if (address_trial_) address_trial_->stop();
  if (courier_) courier_->stop();
  end_hostile();
  for (const auto& host : hosts_) {
    if (!host->is_up()) host->start();
  }
}

// Their processes die with all that they had under way, and come back as innocent ones.
void Simulation::end_hostile() {
  if (service_) service_->stop();
  for (std::size_t i = 0; i < hostile_.size(); ++i) {
    hostile_[i]->stop();
    Host& host = *hosts_[hosts_.size() - hostile_.size() + i];
    if (host.is_up()) host.crash();
  }
}

// ---- the run -------------------------------------------------------------------------------------------------------

template <class Done>
bool Simulation::run_until(Instant end, Done done) {
  while (!done()) {
    if (!world_.queue.run_next(end)) return done();
    if (service_) service_->check_bounds();
    if (world_.queue.events_run() > kMaxEvents) {
      checker_.violation(fmt::format("the run does not come to rest: more than {} events", kMaxEvents));
      return false;
    }
  }
  return true;
}

void Simulation::run_for(Duration d) {
  run_until(world_.now() + d, [] { return false; });
}

void Simulation::check_leftovers(Duration patience) {
  // A credential may just be renewed; but there is always a moment at which none is.
  run_until(world_.now() + patience, [this] {
    return std::ranges::all_of(hosts_, [](const auto& host) {
      return host->handshaker() == nullptr || (host->handshaker()->endpoint_stats().connections == 0 &&
                                               !host->handshaker()->has_news() && host->packets_in_flight() == 0);
    });
  });
  for (const auto& host : hosts_) {
    for (std::size_t which = 0; which < host->engines(); ++which) {
      checker_.check_nothing_left(host->id(), host->engine(which).census(), host->buffers_in_use());
    }
    checker_.check_no_memory_left(*host);
    if (host->handshaker() == nullptr) continue;
    checker_.check_nothing_left(host->id(), *host->handshaker(), scenario_.limits.credentials);
  }
}

void Simulation::check_credentials() {
  for (HostId host : scenario_.workload.callers) {
    const std::uint64_t installed = hosts_[host]->handshaker()->stats().installed;
    if (installed >= scenario_.least_credentials) continue;
    checker_.violation(fmt::format("host {} was given {} credentials in a run that asks for {} at least", host,
                                   installed, scenario_.least_credentials));
  }
}

void Simulation::check_handshakes() {
  const double most = static_cast<double>((world_.now() - start_).count()) /
                      static_cast<double>(scenario_.handshake_interval.count()) *
                      static_cast<double>(scenario_.workload.callees.size());
  for (HostId host : scenario_.workload.callers) {
    const std::uint64_t started = hosts_[host]->handshaker()->endpoint_stats().started;
    if (static_cast<double>(started) <= most) continue;
    checker_.violation(fmt::format("host {} began {} handshakes, more than {:.0f}", host, started, most));
  }
}

// What was sent in vain while things went wrong, and before the network heals.
void Simulation::check_waste() {
  Counters sum;
  std::size_t paths = 0;
  for (const auto& host : hosts_) {
    if (!host->is_up()) continue;
    for (std::size_t which = 0; which < host->engines(); ++which) {
      sum += host->engine(which).events().counters;
      paths += host->engine(which).census().paths;
    }
  }
  waste_ = {.sent = sum.bytes_sent,
            .again = sum.bytes_retransmitted,
            .in_vain = sum.bytes_in_vain,
            .late = sum.packets_late,
            .needless_probes = sum.probes_needless};
  if (waste_.share() > scenario_.most_sent_again) {
    checker_.violation(fmt::format("{:.3f} % of {} bytes were sent again, more than {:.1f} %", 100 * waste_.share(),
                                   waste_.sent, 100 * scenario_.most_sent_again));
  }
  const double probes = static_cast<double>(waste_.needless_probes);
  if (scenario_.most_needless_probes >= 0 &&
      probes > scenario_.most_needless_probes * static_cast<double>(stalls_ * paths)) {
    checker_.violation(fmt::format("{} needless probes of {} paths after {} stalls, more than {} for each",
                                   waste_.needless_probes, paths, stalls_, scenario_.most_needless_probes));
  }
}

bool Simulation::nothing_was_lost() const {
  const NetworkCounts& counts = world_.network.counts();
  const auto dropped = [this](const auto& host) {
    return host->link().dropped() != 0 || (host->life() != 1 && !scenario_.identity);
  };
  return counts.lost + counts.queue_drops + counts.too_big_drops + counts.partition_drops + counts.corrupted == 0 &&
         std::ranges::none_of(hosts_, dropped);
}

void Simulation::replay_conversation(Duration settle) {
  // What was lost the first time is news to its receiver, and may run now, once; all else has run or never will.
  // A process that was not there the first time runs nothing at all.
  for (const bool is_restarted : {false, true}) {
    const bool may_run = !is_restarted && !nothing_was_lost();
    if (is_restarted) {
      for (const auto& host : hosts_) host->crash();
      for (const auto& host : hosts_) host->start();
    }
    const std::uint64_t before = checker_.totals().handlers_run;
    attacker_->replay_everything(10us);
    run_for(settle);
    if (!may_run && checker_.totals().handlers_run != before) {
      checker_.violation(fmt::format("replayed datagrams ran {} handlers{}", checker_.totals().handlers_run - before,
                                     is_restarted ? " after a restart" : ""));
    }
    check_leftovers(settle);
  }
}

void Simulation::sabotage_hosts() {
  for (const auto& host : hosts_) {
    if (sabotage_ == Sabotage::repeats_a_nonce) host->repeat_nonces();
    if (sabotage_ == Sabotage::keeps_a_timer) host->leak_a_timer();
    if (sabotage_ == Sabotage::keeps_credit) host->leak_credit();
    if (sabotage_ == Sabotage::keeps_regions) host->forget_regions();
  }
}

Report Simulation::run() {
  Random starts = stream(scenario_.seed, "starts");
  for (const auto& host : hosts_) {
    if (scenario_.start_spread.count() == 0) {
      host->start();
    } else {
      world_.queue.at(start_ + between(starts, Duration{0}, scenario_.start_spread), [&host] {
        if (!host->is_up()) host->start();
      });
    }
  }
  plan_faults();
  if (sabotage_ == Sabotage::leaks_a_request) {
    std::vector<std::byte> leak(200);
    write_request(leak, {.bytes = 200});
    world_.network.transmit(0, {.source = hosts_[0]->address(), .destination = hosts_[1]->address(), .bytes = leak});
  }
  if (sabotage_ != Sabotage::none) world_.queue.at(start_ + scenario_.span / 2, [this] { sabotage_hosts(); });
  if (attacker_) attacker_->start(scenario_.attack_interval);
  if (address_trial_) address_trial_->start();
  if (courier_) courier_->start(scenario_.carry_interval);
  run_until(start_ + scenario_.span, [this] { return workload_.is_done() && world_.now() >= start_ + scenario_.span; });
  workload_.stop();
  if (member_trial_) member_trial_->stop();
  check_waste();
  restore();

  // Everything must end, then come to rest. Then everybody calls everybody: once to find out who restarted meanwhile,
  // and once more, when there is no reason left to fail.
  Duration settle = scenario_.timeouts.silence * 2 + scenario_.longest_stall + 500ms + 10 * scenario_.timer_lateness;
  const bool has_large = scenario_.workload.large > 0 || scenario_.workload.exact_bytes > scenario_.limits.inline_bytes;
  if (has_large) settle += kTokenLife;                                  // those that nobody uses expire
  if (service_) settle += 2 * engine::Bounds::kLongestUnfetched + 15s;  // replies that nobody fetches are given up
  if (scenario_.identity) settle += scenario_.timeouts.handshake + handshake::kClosedFor;
  const Duration longest = std::max(scenario_.workload.longest_deadline, scenario_.timeouts.default_deadline);
  run_until(world_.now() + longest + settle, [this] { return checker_.all_ended(); });
  checker_.check_success(scenario_.least_success);
  if (scenario_.least_advantage != 0) checker_.check_priorities(scenario_.least_advantage);
  run_for(settle);
  for (const bool must_succeed : {false, true}) {
    workload_.call_everybody(must_succeed);
    run_until(world_.now() + longest + settle, [this] { return checker_.all_ended(); });
    run_for(settle);
  }
  checker_.check_end();
  if (service_) service_->check_end();
  if (member_trial_) member_trial_->check_end();
  check_leftovers(settle);
  if (scenario_.least_credentials != 0) check_credentials();
  if (scenario_.handshake_interval.count() != 0) check_handshakes();
  if (!scenario_.workload.untrusted.empty() && !checker_.totals().failed.contains(Code::unauthenticated)) {
    checker_.violation("nobody was told that a clock or a certificate is wrong");
  }
  if (recovery_) recovery_->check_end();
  if (reconnection_) reconnection_->check_end();
  if (lapse_) lapse_->check_end();
  if (address_trial_) address_trial_->check_end();

  if (attacker_) replay_conversation(settle);
  workload_.check_end();
  return report();
}

Report Simulation::report() {
  Report report;
  report.seed = scenario_.seed;
  report.scenario = scenario_.name;
  report.event_hash = world_.journal.hash();
  const Totals& totals = checker_.totals();
  report.calls = totals.calls;
  report.ok = totals.ok;
  report.abandoned = totals.abandoned;
  report.handlers_run = totals.handlers_run;
  report.failed = totals.failed;
  report.virtual_seconds = static_cast<double>((world_.now() - start_).count()) * 1e-9;
  report.events = world_.queue.events_run();
  report.network = world_.network.counts();
  report.stalls = stalls_;
  report.crashes = crashes_;
  report.waste = waste_;
  if (address_trial_) {
    report.rebindings = address_trial_->changes();
    report.copies = address_trial_->copies();
    report.longest_search = address_trial_->longest_search();
  }
  for (const auto& hostile : hostile_) report.hostile += hostile->totals();
  if (service_) report.served = service_->totals();
  for (const auto& host : hosts_) {
    for (std::size_t which = 0; which < host->engines(); ++which) {
      report.engines += host->engine(which).events().counters;
    }
    if (host->handshaker() == nullptr) continue;
    report.handshakes += host->handshaker()->endpoint_stats().started;
    report.credentials += host->handshaker()->stats().installed;
    report.evicted += host->handshaker()->map().stats().evicted;
  }
  report.violations = checker_.violations();
  return report;
}

std::string Report::summary() const {
  std::string line = fmt::format("seed {} {}: {} calls, {} ok, {} handlers run, {} abandoned", seed, scenario, calls,
                                 ok, handlers_run, abandoned);
  for (const auto& [code, count] : failed) line += fmt::format(", {} {}", count, name(code));
  if (handshakes != 0) {
    line += fmt::format(", {} handshakes, {} credentials, {} evicted", handshakes, credentials, evicted);
  }
  if (engines.regions_granted != 0) {
    line += fmt::format(", {} large messages, {} regions, {} revoked, {} waits, {} writes refused",
                        engines.large_messages_received, engines.regions_granted, engines.regions_revoked,
                        engines.regions_exhausted, engines.writes_refused);
  }
  if (hostile.opened != 0) {
    line +=
        fmt::format(", {} hostile openings, {} writes where they may not, {} hostile messages taken, {} not opened",
                    hostile.opened, hostile.outside + hostile.foreign + hostile.stale, served.taken, served.unopened);
    const double starving = static_cast<double>(served.longest_starving.count()) * 1e-9;
    line += fmt::format(", honest senders without memory for {:.3f} s", starving);
  }
  if (rebindings + copies != 0) {
    line += fmt::format(", {} changes of address, {} paths moved, {} copies, found again within {:.1f} ms", rebindings,
                        engines.addresses_changed, copies, static_cast<double>(longest_search.count()) * 1e-6);
  }
  if (waste.again + waste.late + waste.needless_probes != 0) {
    line += fmt::format(", {:.3f} % of {} bytes sent again ({:.3f} % in vain), {} packets late, {} probes needless",
                        100 * waste.share(), waste.sent,
                        100 * static_cast<double>(waste.in_vain) / static_cast<double>(waste.sent), waste.late,
                        waste.needless_probes);
  }
  line += fmt::format("; {} datagrams, {} lost, {:.3f} virtual s, {} events, {} violations, hash {:016x}", network.sent,
                      network.sent - std::min(network.sent, network.delivered), virtual_seconds, events,
                      violations.size(), event_hash);
  return line;
}

}  // namespace weir::sim
