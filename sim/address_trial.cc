#include "sim/address_trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "engine/bounds.h"
#include "engine/engine_access.h"
#include "sim/random_stream.h"
#include "wire/packet.h"

namespace weir::sim {
namespace {

using engine::Bounds;
using engine::testing::EngineAccess;

constexpr std::uint32_t kFirstAddress = 0xcb007100u;  // 203.0.113.0
constexpr std::uint32_t kAddressesPerCaller = 8;
constexpr std::uint16_t kFirstPort = 10'000;
constexpr Duration kSearchInterval{500'000};
constexpr Duration kFirstProbeTimeout{16'000'000};  // before the first sample of a round-trip time
// Sealed packets to an address that is not validated are challenges and closing packets (P-12, L-7).
constexpr std::size_t kLargestWord = std::max(Bounds::kChallengePacketBytes, sizeof(engine::Core::Farewell::packet));

}  // namespace

AddressTrial::AddressTrial(World& world, Checker& checker, const AddressShape& shape, Sabotage sabotage,
                           const std::vector<std::unique_ptr<Host>>& hosts)
    : world_(world),
      checker_(checker),
      shape_(shape),
      sabotage_(sabotage),
      hosts_(hosts),
      copier_(world, shape.copier),
      random_(stream(world.seed, "addresses")) {
  for (const HostId caller : shape_.callers) former_[caller] = {world_.network.address_of(caller)};
  world_.network.add_tap([this](const Packet& packet) { on_switch(packet); });
  world_.network.add_delivery_tap([this](const Packet& packet) { on_delivered(packet); });
}

bool AddressTrial::is_caller(HostId host) const { return former_.contains(host); }

// ---- changes -------------------------------------------------------------------------------------------------------

void AddressTrial::start() {
  if (shape_.interval.count() == 0) return;
  for (const HostId caller : shape_.callers) plan_change(caller);
}

void AddressTrial::stop() {
  is_stopped_ = true;
  copier_.stop();
}

void AddressTrial::plan_change(HostId caller) {
  world_.queue.after(between(random_, shape_.interval / 2, shape_.interval * 3 / 2), [this, caller] {
    if (is_stopped_) return;
    change(caller);
    plan_change(caller);
  });
}

Address AddressTrial::next_address(HostId caller) {
  const std::vector<Address>& former = former_.at(caller);
  if (former.size() > 1 && random_.chance(shape_.back)) return former[random_.below(former.size() - 1)];
  Address next = former.back();
  if (random_.chance(shape_.host)) {
    const std::uint64_t which = caller * kAddressesPerCaller + random_.below(kAddressesPerCaller);
    next = Address::v4(kFirstAddress + static_cast<std::uint32_t>(which), next.port);
  }
  next.port = static_cast<std::uint16_t>(kFirstPort + random_.below(50'000));
  return next;
}

void AddressTrial::change(HostId caller) {
  const Address next = next_address(caller);
  std::vector<Address>& former = former_.at(caller);
  if (next == former.back()) return;
  former.push_back(next);
  world_.network.rebind(former.front(), next);
  ++changes_;
  search(caller, ++last_change_[caller], world_.now());
}

// ---- is the caller found again? ------------------------------------------------------------------------------------

Duration AddressTrial::continues_within(HostId caller) const {
  const Timeouts& timeouts = hosts_[caller]->config().timeouts;
  const Duration keepalive = std::min<Duration>(timeouts.keepalive, timeouts.silence / 4);
  const LinkShape& link = world_.network.shape_of(caller);
  const auto queueing = static_cast<std::int64_t>(link.queue_bytes * 1'000'000'000 / link.bytes_per_second);
  const Duration round_trip = 4 * (link.latency + Duration{queueing});
  const Duration probe_timeout = std::max(kFirstProbeTimeout, 4 * round_trip);
  return 2 * keepalive + Bounds::kAddressChangeInterval + 2 * probe_timeout + 2 * round_trip;
}

// Of each path that has been waiting for replies since then: whether its callee sends to the caller's present address.
bool AddressTrial::is_found(HostId caller, Instant since) const {
  const Address& present = world_.network.outside_of(former_.at(caller).front());
  engine::Core& core = EngineAccess::core(hosts_[caller]->engine());
  bool found = true;
  core.paths.for_each([&](const engine::Path& path) {
    if (path.state == engine::Path::State::hello || path.outstanding == 0 || path.waiting_since > since) return;
    bool is_here = false;
    for (const auto& host : hosts_) {
      if (is_caller(host->id())) continue;
      EngineAccess::core(host->engine()).paths.for_each([&](const engine::Path& other) {
        is_here |= !other.initiator && other.remote_id == path.id && other.remote_incarnation == core.incarnation &&
                   other.remote == present;
      });
    }
    found &= is_here;
  });
  return found;
}

void AddressTrial::search(HostId caller, std::uint64_t change, Instant since) {
  if (last_change_[caller] != change) return;
  const Duration searched = world_.now() - since;
  if (is_found(caller, since)) {
    longest_search_ = std::max(longest_search_, searched);
    return;
  }
  const Duration allowed = continues_within(caller);
  if (searched > allowed) {
    checker_.violation(
        fmt::format("host {} waits for replies, and was not found at its new address within {} ms of its last change",
                    caller, allowed.count() / 1'000'000));
    return;
  }
  world_.queue.after(kSearchInterval, [this, caller, change, since] { search(caller, change, since); });
}

// ---- what goes to addresses that are not validated -----------------------------------------------------------------

void AddressTrial::on_switch(const Packet& packet) {
  const auto from = world_.network.find(packet.source);
  if (!from) return;
  if (is_caller(*from)) return on_sent(*from, packet);
  if (copier_.owns(packet.destination)) copier_.on_received(packet);
  judge_reply(*from, packet);
  if (sabotage_ == Sabotage::moves_at_once || sabotage_ == Sabotage::never_moves) sabotage(*from);
}

void AddressTrial::on_sent(HostId caller, const Packet& packet) {
  const auto callee = world_.network.find(packet.destination);
  const Address& present = world_.network.outside_of(former_.at(caller).front());
  if (!callee || packet.source != present || packet.bytes.size() < wire::kMinPacketBytes) return;
  for (const Address& address : former_.at(caller)) {
    const auto found = accounts_.find({*callee, address});
    if (found == accounts_.end() || found->second.reached_at.is_never()) continue;
    found->second.is_valid |= found->second.reached_at + world_.network.shape_of(caller).latency <= world_.now();
  }
  copier_.on_sent(packet);
}

void AddressTrial::judge_reply(HostId callee, const Packet& packet) {
  const bool is_copiers = copier_.owns(packet.destination);
  const auto to = world_.network.find(packet.destination);
  if (packet.source.port != kDataPort || (!is_copiers && (!to || !is_caller(*to)))) return;
  Account& account = accounts_[{callee, packet.destination}];
  account.sent += packet.bytes.size();
  if (!account.is_valid && account.sent > Bounds::kAmplification * account.received) {
    checker_.violation(
        fmt::format("host {} has sent {} bytes to {}, which is not validated, for {} bytes that came "
                    "from there",
                    callee, account.sent, packet.destination.to_string(), account.received));
  }
  const bool is_sealed = packet.bytes.size() >= wire::kMinPacketBytes &&
                         wire::decode_header(packet.bytes.data()).type == wire::PacketType::sealed;
  if (is_copiers && is_sealed && packet.bytes.size() > kLargestWord) {
    checker_.violation(
        fmt::format("host {} has sent {} sealed bytes to somebody who copies packets", callee, packet.bytes.size()));
  }
}

void AddressTrial::on_delivered(const Packet& packet) {
  const auto from = world_.network.find(packet.source);
  const auto to = world_.network.find(packet.destination);
  if (!to) return;
  if (is_caller(*to)) {
    if (!from || packet.bytes.size() < wire::kHeaderBytes) return;
    Account& account = accounts_[{*from, packet.destination}];
    if (account.reached_at.is_never()) account.reached_at = world_.now();
    const bool is_answer = wire::decode_header(packet.bytes.data()).type == wire::PacketType::hello_reply;
    if (is_answer && !is_stopped_ && random_.chance(shape_.at_hello)) change(*to);
    return;
  }
  accounts_[{*to, packet.source}].received += packet.bytes.size();
}

// ---- breaking the rules --------------------------------------------------------------------------------------------

void AddressTrial::sabotage(HostId callee) {
  engine::Core& core = EngineAccess::core(hosts_[callee]->engine());
  core.paths.for_each([&](engine::Path& path) {
    engine::AddressChange* const change = core.change_of(path);
    if (change == nullptr || change->is_resting) return;
    if (sabotage_ == Sabotage::never_moves) {
      change->rest();
    } else {
      core.move_path(path, change->candidates[0].at, world_.now());
      hosts_[callee]->wake();
    }
  });
}

void AddressTrial::check_end() {
  if (shape_.interval.count() != 0 && changes_ == 0) checker_.violation("no address changed in a run that is about it");
}

}  // namespace weir::sim
