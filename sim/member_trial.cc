#include "sim/member_trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "engine/engine_access.h"
#include "sim/journal.h"
#include "sim/random_stream.h"

namespace weir::sim {
namespace {

using engine::testing::EngineAccess;

constexpr Method kKeep = "sim.keep";
constexpr HostId kServer = 0;
constexpr std::uint8_t kMostUrgent = 0, kLeastUrgent = 7;

}  // namespace

struct MemberTrial::Call {
  transfer::OutgoingCall outgoing;
  MemberTrial* trial = nullptr;
  HostId host = 0;
  Instant submitted{};
  bool ended = false;
};

MemberTrial::MemberTrial(World& world, Checker& checker, Application& application, const MemberShape& shape)
    : world_(world),
      checker_(checker),
      application_(application),
      shape_(shape),
      choices_(stream(world.seed, "member trial")),
      since_(shape.honest + 2, Instant::never()),
      was_answered_(shape.honest + 2),
      started_(world.now()) {}

MemberTrial::~MemberTrial() = default;

std::size_t MemberTrial::member_of(HostId host) const {
  if (shape_.is_hostile(host)) return 0;
  return host == shape_.newcomer() ? shape_.honest + 1 : host;
}

std::uint64_t MemberTrial::cost_of_request() const {
  return shape_.is_large ? buffer::landing_cost(shape_.bytes)
                         : token::request_cost(static_cast<std::uint32_t>(shape_.bytes));
}

std::uint64_t MemberTrial::room() const {
  engine::Core& core = EngineAccess::core(hosts_[kServer]->engine());
  return shape_.is_large ? core.grants.bound(token::request_purse(0)).total : core.ledger.capacity();
}

void MemberTrial::on_start(HostId host) {
  application_.on_start(host);
  if (host == kServer) {
    const auto served = hosts_[host]->engine().serve(kKeep.id(), kKeep.name(), {.run = run_keep, .context = this});
    if (!served) checker_.violation(fmt::format("the server cannot serve: {}", served.error().message()));
    if (!is_stopped_) hosts_[host]->run_at(world_.now() + kLook, [this] { look(); });
    return;
  }
  const Duration after = host == shape_.newcomer() ? shape_.newcomer_after : between(choices_, Duration{0}, kLook);
  if (!is_stopped_) hosts_[host]->run_at(world_.now() + after, [this, host] { begin(host); });
}

void MemberTrial::on_stop(HostId host) {
  if (host == kServer) {
    for (auto& [key, kept] : kept_) {
      if (kept.pin != nullptr) detail::unpin(kept.pin);
    }
    kept_.clear();
  }
  for (const auto& call : calls_) {
    if (call->host == host && !call->ended) call->outgoing.drop_bytes();
  }
  std::erase_if(calls_, [host](const auto& call) { return call->host == host; });
  application_.on_stop(host);
}

// ---- callers -------------------------------------------------------------------------------------------------------

void MemberTrial::begin(HostId host) {
  since_[member_of(host)] = std::min(since_[member_of(host)], world_.now());
  for (std::uint32_t i = 0; i < shape_.window; ++i) call(host);
  if (shape_.is_hostile(host)) ping(host);
}

void MemberTrial::call(HostId host) {
  if (is_stopped_) return;
  const auto peer = hosts_[host]->peer(*hosts_[kServer]);
  if (!peer) return checker_.violation(fmt::format("host {} cannot call: {}", host, peer.error().message()));
  auto& call = *calls_.emplace_back(std::make_unique<Call>());
  call.trial = this;
  call.host = host;
  call.submitted = world_.now();
  transfer::OutgoingCall& outgoing = call.outgoing;
  outgoing.complete = &complete;
  outgoing.method = kKeep.id();
  outgoing.deadline = world_.now() + std::chrono::seconds(60);
  outgoing.peer = *peer;
  outgoing.priority = shape_.is_hostile(host) ? kMostUrgent : kLeastUrgent;
  transfer::BlockPool& blocks = hosts_[host]->engine().blocks();
  if (shape_.is_large) {
    const std::vector<std::byte> text(shape_.bytes, std::byte{1});
    outgoing.is_large = true;
    outgoing.block =
        transfer::load_cargo(blocks, hosts_[host]->seal(text, 0), {.bytes = text.size()}, Pattern::unary, {});
    outgoing.bytes = static_cast<std::uint32_t>(wire::kCargoBytes);
  } else {
    outgoing.bytes = static_cast<std::uint32_t>(shape_.bytes);
    outgoing.block = blocks.acquire(shape_.bytes);
    std::ranges::fill(std::span(outgoing.block->bytes(), shape_.bytes), std::byte{1});
  }
  hosts_[host]->engine().submit(outgoing, world_.now());
  hosts_[host]->wake();
}

void MemberTrial::complete(transfer::OutgoingCall& outgoing, const transfer::Outcome& outcome) {
  // The call is the first member of what it belongs to.
  Call& call = reinterpret_cast<Call&>(outgoing);
  call.ended = true;
  call.trial->on_answered(call, outcome.failed);
}

void MemberTrial::on_answered(const Call& call, bool failed) {
  const HostId host = call.host;
  const std::size_t member = member_of(host);
  world_.journal.note(world_.now(), "kept-call host failed", {host, failed});
  // Those of the hostile member that find no path are refused.
  if (failed && !shape_.is_hostile(host) && !is_stopped_) {
    checker_.violation(fmt::format("a call of host {} failed", host));
  }
  if (host == shape_.newcomer() && !was_answered_[member] && !is_stopped_) {
    const Duration handshake = hosts_[host]->handshaker()->stats().first_handshake;
    // One turn of the line, in which those before it are answered, and its own time in the server.
    const Duration allowed = handshake + kRoundTrips * shape_.round_trip + 3 * shape_.service;
    const Duration took = world_.now() - since_[member];
    world_.journal.note(world_.now(), "newcomer served after allowed",
                        {static_cast<std::uint64_t>(took.count()), static_cast<std::uint64_t>(allowed.count())});
    if (took > allowed) {
      checker_.violation(fmt::format(
          "the newcomer's first call took {} us; a handshake of {} us, {} round trips and its turn make {} us",
          took.count() / 1'000, handshake.count() / 1'000, kRoundTrips, allowed.count() / 1'000));
    }
  }
  was_answered_[member] = true;
  const Duration pause = failed ? std::chrono::milliseconds(10) : Duration{0};
  hosts_[host]->run_at(world_.now() + pause, [this, host] {
    std::erase_if(calls_, [](const auto& each) { return each->ended; });
    this->call(host);
  });
}

// What it calls keeps its paths alive in any case; this is for those that have none outstanding.
void MemberTrial::ping(HostId host) {
  if (is_stopped_) return;
  engine::Core& core = EngineAccess::core(hosts_[host]->engine());
  core.paths.for_each([&](engine::Path& path) {
    if (path.state != engine::Path::State::open) return;
    path.ping_owed = true;
    core.touch(path);
  });
  hosts_[host]->wake();
  hosts_[host]->run_at(world_.now() + kPing, [this, host] { ping(host); });
}

// ---- the server ----------------------------------------------------------------------------------------------------

void MemberTrial::run_keep(void* context, transfer::IncomingTransfer& request, Instant) {
  static_cast<MemberTrial*>(context)->keep(request);
}

void MemberTrial::keep(transfer::IncomingTransfer& request) {
  engine::Core& core = EngineAccess::core(hosts_[kServer]->engine());
  const HostId from = *world_.network.find(core.find_path(request.path)->remote);
  const std::size_t member = member_of(from);
  bucket()[member].taken += cost_of_request();
  detail::Pin* const pin = shape_.is_large ? request.delivery.pin : nullptr;
  if (pin != nullptr) detail::pin(pin);
  const std::uint64_t key = next_key_++;
  kept_[key] = {.transfer = &request, .pin = pin, .member = member, .bytes = cost_of_request()};
  const Duration time = is_stopped_ ? Duration{0} : shape_.is_hostile(from) ? shape_.holding : shape_.service;
  hosts_[kServer]->run_at(world_.now() + time, [this, key] { answer(key); });
}

void MemberTrial::answer(std::uint64_t key) {
  const auto found = kept_.find(key);
  if (found == kept_.end()) return;
  const Kept kept = found->second;
  kept_.erase(found);
  hosts_[kServer]->engine().reply(*kept.transfer, {}, {}, world_.now());
  if (kept.pin != nullptr) detail::unpin(kept.pin);
  hosts_[kServer]->wake();
}

std::vector<MemberTrial::Bucket>& MemberTrial::bucket() {
  const auto at = static_cast<std::size_t>((world_.now() - started_) / kBucket);
  if (buckets_.size() <= at) buckets_.resize(at + 1, std::vector<Bucket>(shape_.honest + 2));
  return buckets_[at];
}

void MemberTrial::stop() {
  is_stopped_ = true;
  stopped_ = world_.now();
  while (!kept_.empty()) answer(kept_.begin()->first);
}

// ---- what must hold ------------------------------------------------------------------------------------------------

// At this instant.
void MemberTrial::look() {
  if (is_stopped_) return;
  hosts_[kServer]->run_at(world_.now() + kLook, [this] { look(); });
  engine::Core& core = EngineAccess::core(hosts_[kServer]->engine());
  std::vector<std::uint64_t> held(shape_.honest + 2), paths(shape_.honest + 2);
  core.paths.for_each([&](engine::Path& path) {
    if (path.initiator) return;
    const std::size_t member = member_of(*world_.network.find(path.remote));
    const token::CreditAccount& account = path.accounts[0];
    ++paths[member];
    if (!shape_.is_large) held[member] += account.limit() - account.received() + account.unanswered();
  });
  for (const auto& [key, kept] : kept_) held[kept.member] += shape_.is_large ? kept.bytes : 0;
  for (std::size_t member = 0; member < held.size(); ++member) {
    bucket()[member].held += held[member];
    if (held[member] > std::max(room() / 2, cost_of_request()) && !std::exchange(is_told_of_room_, true)) {
      checker_.violation(fmt::format("member {} holds {} bytes of {}", member, held[member], room()));
    }
    if (paths[member] > core.config.limits.peers / 2 && !std::exchange(is_told_of_paths_, true)) {
      checker_.violation(fmt::format("member {} has {} paths of {}", member, paths[member], core.config.limits.peers));
    }
  }
}

// Of the second that begins with this bucket.
void MemberTrial::check_second(std::size_t first) {
  constexpr Duration kSettled{300'000'000};  // after a member's first call
  const Instant begins = started_ + static_cast<std::int64_t>(first) * kBucket;
  const Instant ends = begins + static_cast<std::int64_t>(kBucketsOfASecond) * kBucket;
  std::vector<Bucket> sums(shape_.honest + 2);
  for (std::size_t i = first; i < first + kBucketsOfASecond; ++i) {
    for (std::size_t member = 0; member < sums.size(); ++member) sums[member] += buckets_[i][member];
  }
  std::uint64_t all = 0, honest = 0;
  for (std::size_t member = 0; member < sums.size(); ++member) {
    all += sums[member].taken;
    honest += member != 0 && since_[member] < ends ? 1 : 0;
  }
  const std::uint64_t parts = 2 * (honest + 1);
  const std::uint64_t part = room() / parts;
  // What a member's part of the room takes in within a second: a request is there while it is under way and while it is
  // kept, and then it takes a round trip until the next one comes. Room for a fraction of a request is of use to nobody
  // who has room for a whole one.
  const std::uint64_t turns =
      static_cast<std::uint64_t>(std::chrono::seconds(1) / (shape_.service + 2 * shape_.round_trip));
  const std::uint64_t usable = part < cost_of_request() ? part : part - part % cost_of_request();
  const std::uint64_t due = std::max(all / parts, usable * turns);
  for (std::size_t member = 1; member < sums.size(); ++member) {
    if (since_[member] + kSettled > begins) continue;
    const auto complain = [&](std::string_view what, std::uint64_t has, std::uint64_t of) {
      checker_.violation(
          fmt::format("member {} {} {} bytes in the second from {} ms on; with {} honest ones it is due {}", member,
                      what, has, (begins - started_).count() / 1'000'000, honest, of));
    };
    if (sums[member].taken + 2 * cost_of_request() < due) complain("had requests of", sums[member].taken, due);
    if (shape_.is_large) continue;
    const std::uint64_t held = sums[member].held / static_cast<std::uint64_t>(std::chrono::seconds(1) / kLook);
    if (held < part) complain("held", held, part);
  }
}

void MemberTrial::check_end() {
  if (!std::ranges::all_of(was_answered_, [](bool was) { return was; })) {
    checker_.violation("a member was never answered");
  }
  const std::size_t buckets = static_cast<std::size_t>((stopped_ - started_) / kBucket);
  bucket();  // those that nothing has happened in are there, too
  for (std::size_t first = 0; first + kBucketsOfASecond <= buckets; ++first) check_second(first);
  if (!std::ranges::all_of(calls_, [](const auto& call) { return call->ended; })) {
    checker_.violation("a call to the server never completed");
  }
}

}  // namespace weir::sim
