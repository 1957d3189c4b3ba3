#include "sim/hostile_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "buffer/open.h"
#include "engine/engine_access.h"
#include "sim/journal.h"
#include "sim/random_stream.h"

namespace weir::sim {
namespace {

using engine::testing::EngineAccess;

constexpr std::byte kMark{0xe0};
constexpr std::byte kMarkMask{0xfc};
constexpr unsigned kSenderShift = 2;

bool shows_plaintext(ByteSpan bytes) {
  return memmem(bytes.data(), bytes.size(), kPlaintextMarker.data(), kPlaintextMarker.size()) != nullptr;
}

}  // namespace

void mark(MutableByteSpan bytes, unsigned sender, Random& random) {
  const std::byte mark = kMark | static_cast<std::byte>(sender << kSenderShift);
  for (std::size_t at = 0; at < bytes.size();) {
    std::uint64_t word = random.next();
    for (; word != 0 && at < bytes.size(); word >>= 8) bytes[at++] = mark | (static_cast<std::byte>(word) & ~kMarkMask);
  }
}

bool is_marked(ByteSpan bytes, unsigned sender) {
  const std::byte mark = kMark | static_cast<std::byte>(sender << kSenderShift);
  return std::ranges::all_of(bytes, [mark](std::byte b) { return (b & kMarkMask) == mark; });
}

// To a hostile host.
struct HostileService::Call {
  transfer::OutgoingCall outgoing;
  HostileService* service = nullptr;
  HostId host = 0;
  unsigned sender = 0;
  Instant deadline{};
  bool ended = false;
};

HostileService::HostileService(World& world, Checker& checker, Application& application, const Options& options)
    : world_(world),
      checker_(checker),
      application_(application),
      options_(options),
      choices_(stream(world.seed, "hostile service")) {}

HostileService::~HostileService() = default;

Host& HostileService::host_of(HostId host) const {
  return **std::ranges::find(hosts_, host, [](const Host* one) { return one->id(); });
}

void HostileService::on_start(HostId host) {
  application_.on_start(host);
  Site& site = sites_[host];
  site.serving = std::make_unique<Serving>(Serving{this, host});
  const auto served =
      host_of(host).engine().serve(kTake.id(), kTake.name(), {.run = run_take, .context = site.serving.get()});
  if (!served) checker_.violation(fmt::format("host {} cannot serve: {}", host, served.error().message()));
  host_of(host).run_at(world_.now() + between(choices_, Duration{0}, options_.call_interval),
                       [this, host] { call(host); });
}

void HostileService::on_stop(HostId host) {
  for (auto& [key, kept] : sites_[host].kept) {
    if (kept.pin != nullptr) detail::unpin(kept.pin);
  }
  sites_[host].kept.clear();
  for (const auto& call : sites_[host].calls) {
    if (!call->ended) call->outgoing.drop_bytes();
  }
  sites_[host].calls.clear();
  application_.on_stop(host);
}

void HostileService::run_take(void* context, transfer::IncomingTransfer& request, Instant) {
  auto& serving = *static_cast<Serving*>(context);
  serving.service->on_take(serving.host, request);
}

bool HostileService::judge(HostId host, transfer::IncomingTransfer& request, ByteSpan& message) {
  ++totals_.taken;
  message = {request.delivery.request, request.bytes};
  if (buffer::Landing* const landing = request.landing()) {
    ++totals_.large;
    if (!buffer::open_all(*landing)) {
      // Nobody is shown any of it. What is in it is the sender's own, all the same.
      ++totals_.unopened;
      if (shows_plaintext(landing->whole())) {
        checker_.violation(fmt::format(
            "host {} has words of others in a hostile message of {} bytes that does not open", host, landing->bytes));
      }
      host_of(host).engine().fail(request, Code::unauthenticated, "a record does not verify", world_.now(), false);
      return false;
    }
    message = landing->whole();
    if (options_.sabotage == Sabotage::shows_old_memory) landing->body[landing->bytes / 2] = std::byte{'N'};
  }
  engine::Core& core = EngineAccess::core(host_of(host).engine());
  const engine::Path* const path = core.find_path(request.path);
  for (unsigned sender = 0; sender < senders_.size(); ++sender) {
    const bool is_its = path == nullptr || path->remote == world_.network.address_of(senders_[sender]->id());
    if (is_its && is_marked(message, sender)) return true;
  }
  checker_.violation(fmt::format("host {} ran a hostile message of {} bytes, some of which its sender never wrote",
                                 host, message.size()));
  return true;
}

void HostileService::on_take(HostId host, transfer::IncomingTransfer& request) {
  world_.journal.note(world_.now(), "take host bytes", {host, request.bytes});
  ByteSpan message;
  if (!judge(host, request, message)) return;
  Site& site = sites_[host];
  if (request.landing() == nullptr || site.kept.size() >= kMaxKept || !choices_.chance(0.3)) {
    return answer(host, request);
  }
  detail::pin(request.delivery.pin);
  const std::uint64_t key = next_key_++;
  site.kept[key] = {.transfer = &request, .pin = request.delivery.pin, .message = message, .hash = hash_of(message)};
  const Duration delay = between(choices_, Duration{0}, Duration{choices_.chance(0.1) ? 500'000'000 : 5'000'000});
  host_of(host).run_at(world_.now() + delay, [this, host, key] { answer_kept(host, key); });
}

void HostileService::answer_kept(HostId host, std::uint64_t key) {
  Site& site = sites_[host];
  const auto found = site.kept.find(key);
  if (found == site.kept.end()) return;
  const Kept kept = found->second;
  site.kept.erase(found);
  ++totals_.outlived;
  if (hash_of(kept.message) != kept.hash) {
    checker_.violation(
        fmt::format("a hostile message of {} bytes changed while host {} kept it", kept.message.size(), host));
  }
  answer(host, *kept.transfer);
  detail::unpin(kept.pin);
}

void HostileService::answer(HostId host, transfer::IncomingTransfer& request) {
  engine::Engine& engine = host_of(host).engine();
  const std::uint64_t die = choices_.below(10);
  if (die == 0) return engine.fail(request, Code::application, "no", world_.now());
  if (die > 3) return engine.reply(request, {}, {}, world_.now());
  std::vector<std::byte> text(between(choices_, 17 * 1024, 60'000));
  for (std::size_t at = 0; at < text.size(); ++at) {
    text[at] = static_cast<std::byte>(kPlaintextMarker[at % kPlaintextMarker.size()]);
  }
  engine.reply_large(request, host_of(host).seal(text, 0), {.bytes = text.size()}, Pattern::unary, {}, world_.now());
}

// ---- calls to hostile hosts ----------------------------------------------------------------------------------------

void HostileService::call(HostId host) {
  if (is_stopped_) return;
  host_of(host).run_at(world_.now() + between(choices_, Duration{0}, options_.call_interval * 2),
                       [this, host] { call(host); });
  const auto sender = static_cast<unsigned>(choices_.below(senders_.size()));
  const auto peer = host_of(host).peer(*senders_[sender]);
  if (!peer) return;
  ++totals_.calls;
  std::erase_if(sites_[host].calls, [](const auto& call) { return call->ended; });
  auto& call = *sites_[host].calls.emplace_back(std::make_unique<Call>());
  call.service = this;
  call.host = host;
  call.sender = sender;
  call.deadline = world_.now() + between(choices_, Duration{10'000'000}, Duration{3'000'000'000});
  transfer::OutgoingCall& outgoing = call.outgoing;
  outgoing.complete = &complete;
  outgoing.method = kGive.id();
  outgoing.deadline = call.deadline;
  outgoing.peer = *peer;
  outgoing.priority = static_cast<std::uint8_t>(choices_.below(8));
  outgoing.bytes = 16;
  std::ranges::fill(std::span(outgoing.inline_bytes).first(outgoing.bytes), std::byte{1});
  host_of(host).engine().submit(outgoing, world_.now());
}

void HostileService::complete(transfer::OutgoingCall& outgoing, const transfer::Outcome& outcome) {
  // The call is the first member of what it belongs to.
  Call& call = reinterpret_cast<Call&>(outgoing);
  call.service->on_reply(call, outcome);
  call.ended = true;
}

void HostileService::on_reply(const Call& call, const transfer::Outcome& outcome) {
  constexpr Duration kSlack{2'000'000};
  world_.journal.note(world_.now(), "given host failed bytes", {call.host, outcome.failed, outcome.bytes.size()});
  if (call.ended) checker_.violation(fmt::format("a call of host {} to a hostile one completed again", call.host));
  if (world_.now() > call.deadline + kSlack) {
    checker_.violation(fmt::format("a call of host {} to a hostile one ended after its deadline", call.host));
  }
  if (outcome.failed) return;
  ++totals_.replies;
  ByteSpan reply = outcome.bytes;
  if (outcome.landing != nullptr) {
    reply = outcome.landing->whole();
    if (!buffer::open_all(*outcome.landing)) {
      ++totals_.unopened_replies;
      if (shows_plaintext(reply))
        checker_.violation(fmt::format("host {} has words of others in a hostile reply", call.host));
      return;
    }
  }
  if (!is_marked(reply, call.sender)) {
    checker_.violation(fmt::format("host {} got a hostile reply of {} bytes, some of which its sender never wrote",
                                   call.host, reply.size()));
  }
}

void HostileService::check_end() {
  for (Host* host : hosts_) {
    const auto& refused = EngineAccess::core(host->engine()).regions.counters().refused;
    const std::uint64_t writes = std::accumulate(refused.begin(), refused.end(), std::uint64_t{0});
    const std::uint64_t counted = host->engine().events().counters.writes_refused;
    if (writes == counted) continue;
    checker_.violation(fmt::format("host {} refused {} writes, but counted {}", host->id(), writes, counted));
  }
  for (const auto& [host, site] : sites_) {
    if (!std::ranges::all_of(site.calls, [](const auto& call) { return call->ended; })) {
      checker_.violation(fmt::format("a call of host {} to a hostile one never completed", host));
    }
  }
}

// ---- bounds --------------------------------------------------------------------------------------------------------

void HostileService::check_bounds() {
  const bool looks_closely = ++looks_ % kCloseLook == 0;
  for (Host* host : hosts_) {
    if (!host->is_up()) continue;
    check_bounds(*host);
    if (looks_closely) verify_ledger(*host);
  }
}

void HostileService::check_bounds(Host& host) {
  const Limits& limits = options_.limits;
  engine::Core& core = EngineAccess::core(host.engine());
  const auto bound_of = [&](std::uint8_t purse) {
    if (purse == token::kReplyPurse) return limits.large_reply_bytes;
    if (purse == token::kAwaitedPurse) return std::size_t{0};  // no host says what is awaited
    return purse == 0 ? limits.large_request_bytes : limits.nested_large_request_bytes;
  };
  std::uint64_t accounted = 0;
  for (std::uint8_t purse = 0; purse < token::kPurses; ++purse) {
    const std::uint64_t used = core.grants.used(purse);
    accounted += used;
    if (used > bound_of(purse)) {
      checker_.violation(fmt::format("host {} has {} bytes of large messages of kind {}; its limit is {}", host.id(),
                                     used, purse, bound_of(purse)));
    }
  }
  if (host.landings().taken_bytes() > buffer::landing_memory(accounted)) {
    checker_.violation(
        fmt::format("host {} has {} bytes of memory for large messages, of which only {} are accounted for", host.id(),
                    host.landings().taken_bytes(), accounted));
  }
  core.paths.for_each([&](engine::Path& path) {
    if (path.again.size() > kMaxOwedFrames) {
      checker_.violation(
          fmt::format("host {} owes {} frames to {}", host.id(), path.again.size(), path.remote.to_string()));
    }
    if (path.large == nullptr) return;
    check_starving(host, path);
    const std::uint64_t largest = *std::ranges::max_element(path.large->account().bytes);
    if (largest > limits.large_bytes_per_peer) {
      checker_.violation(fmt::format("{} has {} bytes of large messages at host {}; its share is {}",
                                     path.remote.to_string(), largest, host.id(), limits.large_bytes_per_peer));
    }
  });
}

// What each sender has and waits for, one by one, is what the ledger says in sum; or the run stops here.
void HostileService::verify_ledger(Host& host) {
  engine::Core& core = EngineAccess::core(host.engine());
  std::vector<const token::SenderAccount*> accounts;
  core.paths.for_each([&](engine::Path& path) {
    if (path.large != nullptr && path.large->own.open) accounts.push_back(&path.large->own);
  });
  core.members.for_each([&](const engine::Member& member) {
    if (member.large != nullptr) accounts.push_back(member.large.get());
  });
  core.grants.verify(accounts.data(), accounts.size());
}

bool HostileService::is_hostile(const Address& address) const {
  return std::ranges::any_of(senders_,
                             [&](const Host* sender) { return world_.network.address_of(sender->id()) == address; });
}

// An honest sender whose request waits for memory and that has none. Whoever is in line is served in turn, and whoever
// keeps memory without going on loses it to those who wait (G-3, G-9).
void HostileService::check_starving(const Host& host, const engine::Path& path) {
  if (is_hostile(path.remote)) return;
  const token::SenderAccount& account = path.large->account();
  bool waits = false;
  for (const token::Ask* line = account.lines; line != nullptr; line = line->next_line) waits |= line->purse == 0;
  const std::pair key{host.id(), path.serial};
  if (!waits || account.bytes[0] != 0) {
    starving_.erase(key);
    return;
  }
  const Duration starved = world_.now() - starving_.try_emplace(key, world_.now()).first->second;
  totals_.longest_starving = std::max(totals_.longest_starving, starved);
  if (options_.longest_starving.count() != 0 && starved > options_.longest_starving) {
    checker_.violation(fmt::format("{} has waited for memory at host {} for {:.3f} s", path.remote.to_string(),
                                   host.id(), static_cast<double>(starved.count()) * 1e-9));
    starving_.erase(key);
  }
}

}  // namespace weir::sim
