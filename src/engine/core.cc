#include "engine/core.h"

#include <algorithm>

#include "engine/footprint.h"

namespace weir::engine {

namespace {

std::uint64_t credit_capacity(const EngineConfig& config) {
  std::uint64_t capacity = config.limits.request_bytes;
  if (config.receive_buffer_bytes != 0) {
    capacity = std::min<std::uint64_t>(capacity, Bounds::inline_promise(config.receive_buffer_bytes));
  }
  // One message must always fit, or nothing would ever be granted.
  return std::max<std::uint64_t>(capacity,
                                 4 * token::request_cost(static_cast<std::uint32_t>(config.limits.inline_bytes)));
}

token::CreditLedger::Options ledger_options(const EngineConfig& config) {
  const std::uint64_t capacity = credit_capacity(config);
  return {.capacity = capacity,
          .per_path = std::min<std::uint64_t>(config.limits.request_bytes_per_peer, capacity),
          .largest_cost = token::request_cost(static_cast<std::uint32_t>(config.limits.inline_bytes)),
          .has_members = config.credentials != nullptr};
}

token::GrantLedger::Options grant_options(const EngineConfig& config) {
  const Limits& limits = config.limits;
  const bool has_members = config.credentials != nullptr;
  const std::uint64_t largest = buffer::landing_cost(limits.message_bytes);
  const auto bound = [&](std::uint64_t total, std::uint64_t per_sender) {
    // One member has at most half, as far as one largest message allows.
    if (has_members) per_sender = std::min(per_sender, std::max(total / 2, largest));
    return token::GrantLedger::Bound{.total = total, .per_sender = std::min(total, per_sender)};
  };
  return {.requests = bound(limits.large_request_bytes, limits.large_bytes_per_peer),
          .nested = bound(limits.nested_large_request_bytes, limits.large_bytes_per_peer),
          .replies = bound(limits.large_reply_bytes, limits.large_bytes_per_peer),
          .awaited = {.total = largest, .per_sender = largest},
          .by_member = has_members};
}

constexpr Duration kRegionIdle = std::chrono::seconds(2);
constexpr Duration kRegionLifetime = std::chrono::seconds(10);

}  // namespace

Core::Core(const EngineConfig& config_, crypto::Entropy& entropy_, Subscriber* subscriber, std::uint64_t seed,
           Instant now)
    : config(config_),
      entropy(entropy_),
      events(subscriber, config_.worker),
      random(seed),
      aead(crypto::Aead::create(config_.openssl_aead ? crypto::Backend::openssl : crypto::default_backend().backend)),
      wheel(schedule::TimingWheel::kDefaultTick, now),
      path_numbers(std::min(config_.limits.peers, 1u << PathNumbers::kMaxIndexBits), config_.workers_at_port,
                   config_.worker),
      paths(std::min(config_.limits.peers, 1u << PathNumbers::kMaxIndexBits)),
      peers(std::min(config_.limits.peers, 1u << 20)),
      incoming(1u << 20),
      reassemblies(1u << 18),
      writers(kMaxWriters),
      arrivals(kMaxArrivals),
      ledger(ledger_options(config_)),
      grants(grant_options(config_)),
      grant_pace(config_.nic != nullptr ? config_.nic->rate() : 0),
      regions({.max_regions = kMaxRegions, .idle_timeout = kRegionIdle, .lifetime = kRegionLifetime}),
      links(paths.max_objects(), config_.nic != nullptr ? config_.nic->rate() : 0),
      arena(new std::byte[kArenaBytes]) {
  events.set_now(now);
  link_timer.tag = static_cast<std::uint32_t>(TimerKind::link);
  pace_timer.tag = static_cast<std::uint32_t>(TimerKind::pace);
  if (config.nic != nullptr) {
    nic = std::make_unique<NicTurns>(config.nic, paths.max_objects(), static_cast<std::uint32_t>(TimerKind::nic));
  }
  incarnation = config.incarnation;
  if (incarnation == crypto::Incarnation{}) entropy.fill(incarnation);
  WEIR_CHECK(config.secret.has_value() != has_identity(), "a shared secret or a book of credentials, and not both");
  if (config.secret) shared.emplace(*aead, *config.secret);
  config.secret.reset();
  crypto::KeyBytes key;
  if (config.accepts) {
    key = config.cookie;
    if (key == crypto::KeyBytes{}) entropy.fill(key);
    cookie = std::make_unique<crypto::Prf>(*aead, key);
    exchanges = std::make_unique<Exchange[]>(kExchangeWindow);
  }
  key = config.signer;
  if (key == crypto::KeyBytes{}) {
    if (shared) {
      key = crypto::derive_signer(shared->secret());
    } else {
      entropy.fill(key);
    }
  }
  signer = std::make_unique<crypto::Prf>(*aead, key);
  crypto::wipe(config.signer);
  entropy.fill(key);  // whoever used one of these without giving it a key would use one that nobody knows
  reset_prf = std::make_unique<crypto::Prf>(*aead, key);
  scratch_mac = std::make_unique<crypto::Cmac>(*aead, key);
  scratch_key = aead->make_key(key);
  crypto::wipe(key);
  data_segments.reserve(kMaxDataSegments);
  if (config.wake) returned->set_wake(config.wake);
  completions.reserve(256);
  completing.reserve(256);
}

Core::~Core() {
  // Handlers may still hold transfers; the slab's end is theirs too. Blocks that are out outlive the pool.
  incoming.for_each([this](IncomingTransfer& transfer) {
    if (transfer.state == IncomingTransfer::State::replying && transfer.hook.queued) {
      if (Path* path = find_path(transfer.path)) path->replies.remove(transfer);
    }
    release_incoming(transfer);
  });
  arrivals.for_each([](transfer::Arrival& arrival) {
    if (arrival.header != nullptr) detail::unpin(std::exchange(arrival.header, nullptr));
  });
  while (!sent_ranges.empty()) release_sent_ranges();
  for (const Completion& done : completions) {
    if (done.landing != nullptr) detail::unpin(done.landing);  // nobody will read it
  }
  returned->leave();
}

}  // namespace weir::engine
