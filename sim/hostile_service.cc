#include "sim/hostile_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
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

std::byte mark_of(unsigned sender, Random& random) {
  return kMark | static_cast<std::byte>(sender << kSenderShift) | static_cast<std::byte>(random.below(4));
}

bool is_marked(ByteSpan bytes, unsigned sender) {
  const std::byte mark = kMark | static_cast<std::byte>(sender << kSenderShift);
  return std::ranges::all_of(bytes, [mark](std::byte b) { return (b & kMarkMask) == mark; });
}

HostileService::HostileService(World& world, Checker& checker, Application& application, Sabotage sabotage)
    : world_(world),
      checker_(checker),
      application_(application),
      sabotage_(sabotage),
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
}

void HostileService::on_stop(HostId host) {
  for (auto& [key, kept] : sites_[host].kept) {
    if (kept.pin != nullptr) detail::unpin(kept.pin);
  }
  sites_[host].kept.clear();
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
    if (sabotage_ == Sabotage::shows_old_memory) landing->body[landing->bytes / 2] = std::byte{'N'};
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
  engine.reply_large(request, host_of(host).seal(text, 0), {.bytes = text.size()}, {}, world_.now());
}

// ---- bounds --------------------------------------------------------------------------------------------------------

void HostileService::check_bounds() {
  for (Host* host : hosts_) {
    if (host->is_up()) check_bounds(*host);
  }
}

void HostileService::check_bounds(Host& host) {
  const Limits& limits = host.config().limits;
  engine::Core& core = EngineAccess::core(host.engine());
  const auto bound_of = [&](std::uint8_t purse) {
    if (purse == token::kReplyPurse) return limits.large_reply_bytes;
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
    const std::uint64_t largest = *std::ranges::max_element(path.large->account.bytes);
    if (largest > limits.large_bytes_per_peer) {
      checker_.violation(fmt::format("{} has {} bytes of large messages at host {}; its share is {}",
                                     path.remote.to_string(), largest, host.id(), limits.large_bytes_per_peer));
    }
  });
}

}  // namespace weir::sim
