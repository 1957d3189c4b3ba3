#include "sim/checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace weir::sim {
namespace {

double milliseconds(Duration d) { return static_cast<double>(d.count()) / 1e6; }

}  // namespace

std::uint64_t Totals::all_failed() const {
  std::uint64_t sum = 0;
  for (const auto& [code, count] : failed) sum += count;
  return sum;
}

void Checker::violation(const std::string& sentence) {
  if (violations_.size() == kMaxViolations) return;
  violations_.push_back(fmt::format("{:.6f} ms: {} (to replay: weir sim --seed {} --scenario {})",
                                    milliseconds(world_.now() - Instant{1'000'000'000}), sentence, world_.seed,
                                    scenario_));
  world_.journal.note(world_.now(), "violation", {violations_.size()});
}

std::string Checker::describe(const CallRecord& record) {
  return fmt::format("call {} (host {} life {} to host {}, {} bytes, depth {}, priority {})", record.instruction.id,
                     record.caller, record.caller_life, record.callee, record.instruction.bytes,
                     record.instruction.depth, record.instruction.priority);
}

std::uint64_t Checker::add(const CallRecord& record) {
  const std::uint64_t id = records_.size();
  records_.push_back(record);
  records_.back().instruction.id = id;
  ++totals_.calls;
  ++open_;
  if (record.instruction.bytes == 0) ++nothing_calls_;
  return id;
}

void Checker::on_start(HostId host) { started_[host] = world_.now(); }

void Checker::on_stop(HostId host) { unanswered_.erase(host); }

const CallRecord* Checker::on_run(HostId host, const engine::EngineConfig& config,
                                  const transfer::IncomingTransfer& request, ByteSpan message,
                                  std::size_t header_bytes) {
  ++totals_.handlers_run;
  const auto instruction = read_request(message);
  if (!instruction || instruction->id >= records_.size()) {
    violation(fmt::format("host {} ran a request of {} bytes that nobody sent", host, message.size()));
    return nullptr;
  }
  CallRecord& record = records_[instruction->id];
  world_.journal.note(world_.now(), "run host id", {host, instruction->id});
  if (record.callee != host && (!misrouting_expected_ || host == record.caller)) {
    violation(fmt::format("{} ran on host {}", describe(record), host));
  }
  if (record.must_be_refused) violation(fmt::format("{} ran, but its caller proved nothing", describe(record)));
  if (on_run_) on_run_(host, record);
  if (++record.runs > 1) {
    violation(fmt::format("{} ran {} times", describe(record), record.runs));
  }
  if (record.ended && record.failed && !record.may_have_run) {
    violation(fmt::format("{} ran after it had failed with {} and the word that it never would", describe(record),
                          name(record.code)));
  }
  if ((record.ended || record.abandoned) && record.gone_at < started_[host]) {
    violation(fmt::format("{} was over before host {} restarted, and ran after it", describe(record), host));
  }
  if (request.priority != record.instruction.priority || request.depth != record.instruction.depth ||
      header_bytes != record.instruction.header_bytes) {
    violation(fmt::format("{} arrived with priority {}, depth {} and {} header bytes instead of {}", describe(record),
                          request.priority, request.depth, header_bytes, record.instruction.header_bytes));
  }
  check_bounds(host, config, record, request.bytes);
  return &record;
}

void Checker::check_bounds(HostId host, const engine::EngineConfig& config, const CallRecord& record,
                           std::size_t bytes) {
  Unanswered& unanswered = unanswered_[host];
  unanswered.bytes += bytes;
  std::size_t& from_caller = unanswered.by_caller[{record.caller, record.caller_life}];
  from_caller += bytes;
  const std::size_t limit = workers_ * config.limits.request_bytes;
  if (unanswered.bytes > limit) {
    violation(
        fmt::format("host {} holds {} bytes of unanswered requests; its limit is {}", host, unanswered.bytes, limit));
  }
  const std::size_t limit_per_peer = workers_ * config.limits.request_bytes_per_peer;
  if (from_caller > limit_per_peer) {
    violation(fmt::format("host {} holds {} bytes of unanswered requests from host {}; its limit per peer is {}", host,
                          from_caller, record.caller, limit_per_peer));
  }
}

void Checker::on_answered(HostId host, std::uint64_t id, std::size_t bytes) {
  world_.journal.note(world_.now(), "answer host id", {host, id});
  Unanswered& unanswered = unanswered_[host];
  unanswered.bytes -= bytes;
  unanswered.by_caller[{records_[id].caller, records_[id].caller_life}] -= bytes;
}

void Checker::on_nothing_run() {
  ++totals_.handlers_run;
  if (++nothing_runs_ > nothing_calls_) {
    violation(fmt::format("{} empty requests ran, but only {} were made", nothing_runs_, nothing_calls_));
  }
}

void Checker::on_complete(std::uint64_t id, const transfer::Outcome& outcome, Duration slack) {
  CallRecord& record = records_[id];
  const Instant now = world_.now();
  world_.journal.note(now, "complete id failed code may-have-run",
                      {id, outcome.failed, outcome.failed ? static_cast<std::uint64_t>(outcome.code) : 0,
                       outcome.failed && outcome.may_have_run});
  if (record.ended || record.abandoned) {
    violation(
        fmt::format("{} completed again{}", describe(record), record.abandoned ? " after its process had died" : ""));
    return;
  }
  --open_;
  record.ended = true;
  record.gone_at = now;
  record.failed = outcome.failed;
  record.code = outcome.code;
  record.may_have_run = outcome.may_have_run;
  if (!record.latest_end.is_never() && now > record.latest_end + slack) {
    violation(
        fmt::format("{} ended {:.3f} ms after its deadline", describe(record), milliseconds(now - record.latest_end)));
  }
  const bool is_empty = record.instruction.bytes == 0;
  if (!outcome.failed) {
    ++totals_.ok;
    if (record.must_be_refused) violation(fmt::format("{} succeeded, but nobody proved anything", describe(record)));
    if (on_success_) on_success_(record);
    if (is_empty) {
      ++nothing_ok_;
      if (!outcome.bytes.empty()) violation(fmt::format("{} got a reply to something else", describe(record)));
      return;
    }
    if (record.runs != 1) violation(fmt::format("{} got a reply, but ran {} times", describe(record), record.runs));
    return judge_reply(record, outcome);
  }
  ++totals_.failed[outcome.code];
  if (!outcome.may_have_run && record.runs != 0) {
    violation(fmt::format("{} failed with {} and the word that it had not run, but it had", describe(record),
                          name(outcome.code)));
  }
  judge_patience(record, outcome);
  const std::string_view got(reinterpret_cast<const char*>(outcome.bytes.data()), outcome.bytes.size());
  if (record.must_be_refused && outcome.code == Code::unauthenticated) {
    // Whoever reads it must learn whose clock or certificate to look at.
    if (got.find("certificate") == got.npos || (got.find("expired") == got.npos && got.find("valid") == got.npos)) {
      violation(fmt::format("{} was refused without a reason: \"{}\"", describe(record), got));
    }
  } else if (record.must_be_refused && outcome.code != Code::timeout && outcome.code != Code::cancelled) {
    violation(fmt::format("{} should have been refused, but failed with {}: {}", describe(record), name(outcome.code),
                          got.empty() ? std::string_view(outcome.sentence) : got));
  }
  if (outcome.code == Code::application) {
    const std::string expected = fmt::format("no {}", id);
    if (record.runs != 1 || got != expected) {
      violation(fmt::format("{} got the error of another call: \"{}\"", describe(record), got));
    }
  } else if (outcome.code == Code::cancelled) {
    if (!record.cancel_asked) violation(fmt::format("{} ended as cancelled, but nobody did that", describe(record)));
  } else if (record.must_succeed) {
    violation(fmt::format("{} had to succeed, but failed with {} after {:.3f} ms: {}", describe(record),
                          name(outcome.code), milliseconds(now - record.submitted),
                          got.empty() ? std::string_view(outcome.sentence) : got));
  }
}

void Checker::judge_reply(const CallRecord& record, const transfer::Outcome& outcome) {
  ByteSpan reply = outcome.bytes;
  if (outcome.landing != nullptr) {
    if (!open_body(*outcome.landing)) {
      violation(fmt::format("{} got a large reply that does not open", describe(record)));
      return;
    }
    reply = outcome.landing->whole();
  }
  if (record.instruction.answer == Answer::error) {
    violation(fmt::format("{} got a reply although its handler answers with errors", describe(record)));
  } else if (!is_reply_to(reply, outcome.header_bytes, record.instruction)) {
    violation(fmt::format("{} got a reply that does not belong to it", describe(record)));
  }
}

// A call that waits for its peer and certainly did not run ends with its deadline, unless what is wrong stays wrong.
void Checker::judge_patience(const CallRecord& record, const transfer::Outcome& outcome) {
  constexpr Code kPassing[] = {Code::timeout,    Code::peer_failed,    Code::refused,
                               Code::overloaded, Code::unknown_method, Code::reset};
  constexpr std::uint8_t kMaxDepth = 4;
  if (!record.is_patient || outcome.may_have_run || world_.now() >= record.latest_end) return;
  if (record.must_be_refused || record.instruction.depth > kMaxDepth) return;
  if (record.may_be_freed) return;  // what is free by now cannot be sent again
  if (std::ranges::find(kPassing, outcome.code) == std::end(kPassing)) return;
  violation(fmt::format(
      "{} was to wait for its peer and did not run, but failed with {} {:.3f} ms before its deadline: {}",
      describe(record), name(outcome.code), milliseconds(record.latest_end - world_.now()), outcome.sentence));
}

void Checker::on_abandoned(std::uint64_t id) {
  CallRecord& record = records_[id];
  if (record.ended) return;
  --open_;
  ++totals_.abandoned;
  record.abandoned = true;
  record.gone_at = world_.now();
}

void Checker::check_end() {
  if (nothing_ok_ > nothing_runs_) {
    violation(fmt::format("{} empty calls succeeded, but only {} ran", nothing_ok_, nothing_runs_));
  }
  for (const CallRecord& record : records_) {
    if (!record.ended && !record.abandoned) violation(fmt::format("{} never completed", describe(record)));
  }
}

void Checker::check_nothing_left(HostId host, const engine::Census& census, std::size_t buffers) {
  const std::pair<const char*, std::size_t> kinds[] = {
      {"queued calls", census.calls_queued},
      {"sent calls", census.calls_sent},
      {"incoming transfers", census.incoming},
      {"blocks", census.blocks},
      {"reassemblies", census.reassemblies},
      {"timers", census.timers - std::min(census.timers, census.paths)},  // an idle path waits to be forgotten
      {"frames in flight", census.frames_in_flight},
      {"packets in flight", census.packets_in_flight},
      {"bytes of credit", census.credit_used},
      {"receive buffers", buffers},
      {"writers", census.writers},
      {"arrivals", census.arrivals},
      {"regions", census.regions},
      {"leaked regions", census.regions_leaked},
      {"bytes of large messages", census.large_bytes},
  };
  for (const auto& [what, count] : kinds) {
    if (count != 0) violation(fmt::format("host {} has {} {} left over", host, count, what));
  }
}

void Checker::check_memory(Host& host) {
  const Limits& limits = host.config().limits;
  const std::uint64_t bound =
      workers_ * (limits.large_request_bytes + 4 * limits.nested_large_request_bytes + limits.large_reply_bytes);
  std::uint64_t accounted = 0;
  for (std::size_t which = 0; which < host.engines(); ++which) accounted += host.engine(which).census().large_bytes;
  if (accounted > bound) {
    violation(fmt::format("host {} has {} bytes of large messages; its limits make {}", host.id(), accounted, bound));
  }
  // What comes with each message, tags and the like, is small beside it.
  if (host.landings().taken_bytes() > accounted + accounted / 8) {
    violation(fmt::format("host {} has {} bytes of memory for large messages, of which only {} are accounted for",
                          host.id(), host.landings().taken_bytes(), accounted));
  }
}

void Checker::check_no_memory_left(const Host& host) {
  if (host.landings().taken_bytes() + host.payloads().taken_bytes() == 0) return;
  violation(fmt::format("host {} has {} bytes of large messages and {} bytes of payloads left over", host.id(),
                        host.landings().taken_bytes(), host.payloads().taken_bytes()));
}

void Checker::check_nothing_left(HostId host, const Handshaker& handshaker, std::uint32_t max_credentials) {
  const handshake::EndpointStats stats = handshaker.endpoint_stats();
  const std::pair<const char*, std::size_t> kinds[] = {
      {"handshakes", stats.connections},
      {"half-open handshakes", stats.half_open},
      {"peers that wait for a credential", handshaker.waiting()},
      {"pieces of news", handshaker.has_news()},
      {"unsent datagrams", handshaker.is_blocked()},
  };
  for (const auto& [what, count] : kinds) {
    if (count != 0) violation(fmt::format("host {} has {} {} left over", host, count, what));
  }
  if (handshaker.map().size() > max_credentials) {
    violation(
        fmt::format("host {} keeps {} credentials; its limit is {}", host, handshaker.map().size(), max_credentials));
  }
}

void Checker::on_datagram(const Packet& packet) {
  if (memmem(packet.bytes.data(), packet.bytes.size(), kPlaintextMarker.data(), kPlaintextMarker.size()) != nullptr) {
    violation(fmt::format("a datagram of {} bytes from {} to {} shows a message's contents", packet.bytes.size(),
                          packet.source.to_string(), packet.destination.to_string()));
  }
}

void Checker::check_priorities(double least_advantage) {
  struct Side {
    double seconds = 0;
    std::uint64_t calls = 0;
    double mean() const { return seconds / static_cast<double>(calls); }
  } urgent, bulk;
  std::uint64_t bulk_meanwhile = 0;
  Instant last_urgent{};
  for (const CallRecord& record : records_) {
    if (!record.ended || record.failed) continue;
    const bool is_urgent = record.instruction.priority == kUrgentPriority;
    Side& side = is_urgent ? urgent : bulk;
    side.seconds += static_cast<double>((record.gone_at - record.submitted).count()) * 1e-9;
    ++side.calls;
    if (is_urgent) last_urgent = std::max(last_urgent, record.gone_at);
  }
  if (urgent.calls == 0 || bulk.calls == 0) return violation("there is nothing to compare urgent calls with");
  if (urgent.mean() * least_advantage > bulk.mean()) {
    violation(fmt::format("urgent calls take {:.3f} ms on average, bulk ones {:.3f} ms: not {} times as long",
                          urgent.mean() * 1e3, bulk.mean() * 1e3, least_advantage));
  }
  // Those that were submitted and answered before the last urgent call was.
  for (const CallRecord& record : records_) {
    bulk_meanwhile +=
        record.ended && !record.failed && record.instruction.priority == kBulkPriority && record.gone_at < last_urgent;
  }
  if (bulk_meanwhile * 50 < bulk.calls) {
    violation(fmt::format("of {} bulk calls {} were answered while urgent ones came: they starve", bulk.calls,
                          bulk_meanwhile));
  }
}

void Checker::check_success(double least) {
  // Errors that the handlers wanted, and those that callers asked for, are no failures.
  std::uint64_t judged = 0, good = 0;
  for (const CallRecord& record : records_) {
    if (record.abandoned || !record.ended || (record.failed && record.code == Code::cancelled)) continue;
    ++judged;
    if (!record.failed || record.code == Code::application) ++good;
  }
  if (static_cast<double>(good) < least * static_cast<double>(judged)) {
    violation(fmt::format("only {} of {} calls got an answer; at least {:.0f} % should", good, judged, least * 100));
  }
}

}  // namespace weir::sim
