#include "sim/cold_callers.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "crypto/nonce_ledger.h"
#include "sim/random_stream.h"
#include "weir/method.h"

namespace weir::sim {
namespace {

using namespace std::chrono_literals;

constexpr Method kWork = "sim.work";
constexpr std::string_view kSecret = "a secret that every simulated host knows";
constexpr std::uint16_t kPort = 4433;

constexpr std::string_view kNames[] = {"cold_callers", "cold_again"};

}  // namespace

std::span<const std::string_view> cold_scenario_names() { return kNames; }

std::string_view describe_cold_scenario(std::string_view name) {
  if (name == kNames[0]) return "2,000 callers connect at once and keep an overloaded server busy for 60 s";
  if (name == kNames[1]) return "the same with pauses, in which the server closes their paths";
  return {};
}

std::optional<ColdCallersShape> make_cold_scenario(std::string_view name, std::uint64_t seed) {
  ColdCallersShape shape{.seed = seed};
  if (name == kNames[0]) {
    shape.service_time = 1'500us;  // so that a call takes three seconds
    return shape;
  }
  if (name != kNames[1]) return std::nullopt;
  shape.service_time = 500us;
  shape.think_time = 2s;
  return shape;
}

struct ColdCallers::Caller {
  transfer::OutgoingCall outgoing;  // the first member, so that complete() finds the rest
  ColdCallers* run = nullptr;
  Host* host = nullptr;
  Instant called_at{};
  bool is_calling = false;
};

std::uint64_t ColdCallersReport::failures() const {
  std::uint64_t all = 0;
  for (const auto& [code, count] : failed) all += count;
  return all;
}

double ColdCallersReport::worst_share(std::size_t first) const {
  double worst = 0;
  for (std::size_t i = first; i < seconds.size(); ++i) worst = std::max(worst, seconds[i].share());
  return worst;
}

void ColdCallersReport::print(std::FILE* out) const {
  fmt::print(out, "{:>6} {:>9} {:>9} {:>11} {:>9} {:>9} {:>9} {:>9} {:>8}\n", "second", "calls", "datagrams", "bytes",
             "frames", "hellos", "firsts", "closes", "again");
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    const WireSecond& s = seconds[i];
    fmt::print(out, "{:>6} {:>9} {:>9} {:>11} {:>9} {:>9} {:>9} {:>9} {:>6.2f} %\n", i, completed[i], s.datagrams,
               s.bytes, s.frames, s.hellos, s.firsts, s.closes, 100 * s.share());
  }
  fmt::print(out, "{} callers, {} calls, {} failed, the longest took {:.1f} ms; {} paths, {} dropped by the socket\n",
             shape.callers, calls, failures(), static_cast<double>(longest_call.count()) * 1e-6, paths, socket_drops);
  for (const auto& [code, count] : failed) fmt::print(out, "  {} failed: {}\n", count, name(code));
  fmt::print(out, "callers said {} times that they lack credit, and began {} handshakes\n", callers.credit_blocked,
             callers.handshakes_started);
  fmt::print(out, "from second {} on at most {:.2f} % of a second's bytes were sent again: {}\n", kFirstJudgedSecond,
             100 * worst_share(), is_good() ? "good" : "VIOLATION");
}

ColdCallers::ColdCallers(const ColdCallersShape& shape)
    : shape_(shape),
      world_(shape.seed, false),
      start_(world_.now()),
      repeated_(start_),
      think_times_(stream(shape.seed, "think times")),
      reply_(shape.reply_bytes) {
  crypto::forget_recorded_nonces();
  world_.network.set_faults(shape_.faults);
  world_.network.hide_contents();  // nobody compares hashes of so many bytes
  world_.network.add_tap([this](const Packet& packet) { repeated_.on_datagram(packet, world_.now()); });
  for (HostId id = 0; id <= shape_.callers; ++id) {
    world_.network.add_host(Address::v4(0x0a000001u + id, kPort), shape_.link);
    engine::EngineConfig config{.secret = crypto::SharedSecret::from_text(kSecret).value()};
    config.name = fmt::format("host{}", id);
    config.port = kPort;
    config.accepts = id == kServer;
    config.timeouts = shape_.timeouts;
    const SimLink::Options socket = id == kServer ? shape_.server_socket : SimLink::Options{};
    config.receive_buffer_bytes = socket.receive_buffer_bytes;
    callers_.push_back(std::make_unique<Caller>());
    hosts_.push_back(std::make_unique<Host>(world_, id, config, socket, std::nullopt, *this));
    callers_.back()->run = this;
    callers_.back()->host = hosts_.back().get();
  }
  server().set_datagram_cost(shape_.datagram_cost);
}

ColdCallers::~ColdCallers() {
  for (const auto& host : hosts_) {
    if (host->is_up()) host->crash();
  }
}

void ColdCallers::on_start(HostId host) {
  if (host != kServer) return call(*callers_[host]);
  const auto served = server().engine().serve(kWork.id(), kWork.name(), {.run = run_request, .context = this});
  WEIR_CHECK(served.has_value(), "a server that has just started serves anything");
}

void ColdCallers::on_stop(HostId host) {
  if (callers_[host]->is_calling) callers_[host]->outgoing.drop_bytes();
}

// ---- callers -------------------------------------------------------------------------------------------------------

void ColdCallers::call(Caller& caller) {
  if (is_over_) return;
  engine::Engine& engine = caller.host->engine();
  transfer::OutgoingCall& outgoing = *new (&caller.outgoing) transfer::OutgoingCall();
  outgoing.complete = &complete;
  outgoing.method = kWork.id();
  outgoing.deadline = world_.now() + shape_.timeouts.default_deadline;
  outgoing.peer = caller.host->peer(server()).value();
  outgoing.bytes = shape_.request_bytes;
  outgoing.block = engine.blocks().acquire(shape_.request_bytes);
  std::fill_n(outgoing.block->bytes(), shape_.request_bytes, std::byte{1});
  caller.called_at = world_.now();
  caller.is_calling = true;
  ++report_.calls;
  engine.submit(outgoing, world_.now());
}

void ColdCallers::complete(transfer::OutgoingCall& call, const transfer::Outcome& outcome) {
  Caller& caller = reinterpret_cast<Caller&>(call);
  caller.run->on_complete(caller, outcome);
}

void ColdCallers::on_complete(Caller& caller, const transfer::Outcome& outcome) {
  caller.is_calling = false;
  report_.longest_call = std::max<Duration>(report_.longest_call, world_.now() - caller.called_at);
  const auto second = static_cast<std::size_t>((world_.now() - start_) / 1s);
  if (outcome.failed) {
    ++report_.failed[outcome.code];
  } else {
    if (second >= report_.completed.size()) report_.completed.resize(second + 1);
    ++report_.completed[second];
  }
  const Duration pause = between(think_times_, Duration{0}, shape_.think_time);
  caller.host->run_at(world_.now() + pause, [this, &caller] { call(caller); });
}

// ---- the server ----------------------------------------------------------------------------------------------------

void ColdCallers::run_request(void* context, transfer::IncomingTransfer& request, Instant) {
  auto& run = *static_cast<ColdCallers*>(context);
  run.requests_.push_back(&request);
  if (run.requests_.size() == 1) {
    run.server().run_at(run.world_.now() + run.shape_.service_time, [&run] { run.answer(); });
  }
}

void ColdCallers::answer() {
  server().engine().reply(*requests_.front(), {}, reply_, world_.now());
  requests_.pop_front();
  if (!requests_.empty()) server().run_at(world_.now() + shape_.service_time, [this] { answer(); });
}

// ---- the run -------------------------------------------------------------------------------------------------------

void ColdCallers::count_second() {
  std::uint64_t repeated = 0;
  for (const auto& host : hosts_) repeated += host->engine().events().counters.bytes_retransmitted;
  repeated_.on_frames_repeated(repeated - std::exchange(bytes_repeated_, repeated), world_.now() - Duration{1});
}

ColdCallersReport ColdCallers::run() {
  for (const auto& host : hosts_) host->start();
  const auto seconds = static_cast<std::size_t>(shape_.length / 1s);
  for (std::size_t i = 1; i <= seconds; ++i) {
    while (world_.queue.run_next(start_ + static_cast<std::int64_t>(i) * Duration{1s})) {
    }
    count_second();
  }
  report_.seconds = repeated_.seconds();
  report_.seconds.resize(seconds);
  report_.completed.resize(seconds);
  // Calls that are under way have deadlines, too.
  is_over_ = true;
  const Instant end = world_.now() + shape_.timeouts.default_deadline;
  const auto calls = [](const auto& caller) { return caller->is_calling; };
  while (std::ranges::any_of(callers_, calls) && world_.now() < end) {
    const Instant next = std::min(end, world_.now() + Duration{10ms});
    while (world_.queue.run_next(next)) {
    }
  }
  report_.shape = shape_;
  report_.socket_drops = server().link().dropped();
  report_.server = server().engine().events().counters;
  report_.paths = report_.server.handshakes_completed;
  for (const auto& host : hosts_) {
    if (host->id() != kServer) report_.callers += host->engine().events().counters;
  }
  return report_;
}

}  // namespace weir::sim
