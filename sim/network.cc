#include "sim/network.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "sim/random_stream.h"

namespace weir::sim {
namespace {

constexpr std::uint8_t kNotEct = 0;
constexpr std::uint8_t kCongestionExperienced = 3;
constexpr std::size_t kQuotedBytes = 32;  // of the datagram, in an ICMP report

}  // namespace

Network::Network(EventQueue& queue, Journal& journal, std::uint64_t seed)
    : queue_(queue),
      journal_(journal),
      loss_(stream(seed, "loss")),
      duplication_(stream(seed, "duplication")),
      reordering_(stream(seed, "reordering")),
      corruption_(stream(seed, "corruption")),
      jitter_(stream(seed, "jitter")) {}

HostId Network::add_host(const Address& address, const LinkShape& shape) {
  const auto id = static_cast<HostId>(hosts_.size());
  hosts_.push_back({.address = address, .shape = shape});
  add_address(id, address);
  return id;
}

void Network::add_address(HostId host, const Address& address) {
  addresses_.push_back(address);
  WEIR_CHECK(by_address_.emplace(address, host).second, "two simulated hosts have the same address");
}

Port* Network::port_at(const Address& address) const {
  const auto found = ports_.find(address);
  return found == ports_.end() ? nullptr : found->second;
}

void Network::rebind(const Address& inside, const Address& outside) {
  const auto [mapping, is_new] = outsides_.try_emplace(inside, outside);
  if (!is_new) insides_.erase(std::exchange(mapping->second, outside));
  insides_[outside] = inside;
  by_address_[outside] = by_address_.at(inside);
  journal_.note(queue_.now(), "rebind host port", {by_address_.at(inside), outside.port});
}

const Address& Network::outside_of(const Address& inside) const {
  const auto found = outsides_.find(inside);
  return found == outsides_.end() ? inside : found->second;
}

// Nobody who sends from elsewhere receives at an address behind a NAT.
Port* Network::port_behind(const Address& address) const {
  const auto found = insides_.find(address);
  if (found != insides_.end()) return port_at(found->second);
  return outsides_.contains(address) ? nullptr : port_at(address);
}

std::optional<HostId> Network::find(const Address& address) const {
  const auto found = by_address_.find(address);
  if (found == by_address_.end()) return std::nullopt;
  return found->second;
}

void Network::cut(HostId from, HostId to, Instant start, Instant end) { cuts_.push_back({from, to, start, end}); }

void Network::heal() {
  faults_ = {};
  pair_faults_.clear();
  port_faults_.clear();
  cuts_.clear();
}

std::size_t Network::backlog(const HostState& host, const Lane& lane, Instant now) {
  if (lane.free_at <= now) return 0;
  const double seconds = static_cast<double>((lane.free_at - now).count()) * 1e-9;
  return static_cast<std::size_t>(seconds * static_cast<double>(host.shape.bytes_per_second));
}

std::optional<Instant> Network::enqueue(HostState& host, Lane& lane, std::size_t bytes) const {
  const std::size_t on_wire = bytes + LinkShape::kOverheadBytes;
  const std::size_t waiting = backlog(host, lane, queue_.now());
  // An empty queue takes any datagram, however small it was configured.
  if (waiting != 0 && waiting + on_wire > host.shape.queue_bytes) return std::nullopt;
  const auto nanoseconds = static_cast<std::int64_t>(on_wire * 1'000'000'000 / host.shape.bytes_per_second);
  lane.free_at = std::max(lane.free_at, queue_.now()) + Duration{nanoseconds};
  return lane.free_at;
}

Instant Network::room_at(HostId from, std::size_t bytes) const {
  const HostState& host = hosts_[from];
  const std::size_t on_wire = bytes + LinkShape::kOverheadBytes;
  const std::size_t allowed = host.shape.queue_bytes > on_wire ? host.shape.queue_bytes - on_wire : 0;
  const auto drained = static_cast<std::int64_t>(allowed * 1'000'000'000 / host.shape.bytes_per_second);
  return host.up.free_at - Duration{drained};
}

const Faults& Network::faults_of(HostId from, HostId to, const Packet& packet) const {
  const auto of_port = port_faults_.find(packet.destination.port);
  if (of_port != port_faults_.end()) return of_port->second;
  const auto found = pair_faults_.find({from, to});
  return found == pair_faults_.end() ? faults_ : found->second;
}

bool Network::is_cut(HostId from, HostId to) const {
  return std::ranges::any_of(cuts_, [&](const Cut& cut) {
    return cut.from == from && cut.to == to && cut.start <= queue_.now() && queue_.now() < cut.end;
  });
}

void Network::transmit(HostId from, Packet packet) {
  HostState& host = hosts_[from];
  ++counts_.sent;
  const auto left = enqueue(host, host.up, packet.bytes.size());
  if (!left) {
    ++counts_.queue_drops;
    journal_.note(queue_.now(), "drop-at-sender host bytes", {from, packet.bytes.size()});
    return;
  }
  queue_.at(*left + host.shape.latency,
            [this, from, p = std::move(packet)]() mutable { at_switch(from, std::move(p)); });
}

void Network::inject(Packet packet) {
  ++counts_.injected;
  if (const auto to = find(packet.destination)) forward(*to, std::move(packet));
}

void Network::inject_unreachable(const Address& victim, const Address& who, ByteSpan quoted) {
  if (Port* port = port_behind(victim))
    port->arrive_unreachable(who, quoted.first(std::min(quoted.size(), kQuotedBytes)));
}

void Network::at_switch(HostId from, Packet packet) {
  packet.source = outside_of(packet.source);
  for (const auto& tap : taps_) tap(packet);
  if (interceptor_ && interceptor_(packet)) return;
  const auto to = find(packet.destination);
  if (!to) {
    ++counts_.nobody_there;
    return;
  }
  if (is_cut(from, *to)) {
    ++counts_.partition_drops;
    journal_.note(queue_.now(), "drop-partition from to", {from, *to});
    return;
  }
  const auto limit = path_datagram_bytes_.find({from, *to});
  if (limit != path_datagram_bytes_.end() && limit->second != 0 && packet.bytes.size() > limit->second) {
    ++counts_.too_big_drops;
    journal_.note(queue_.now(), "drop-too-big from to bytes", {from, *to, packet.bytes.size()});
    return;
  }
  const Faults& faults = faults_of(from, *to, packet);
  // Every die is rolled for every packet, whatever the others showed.
  const bool lost = loss_.chance(faults.loss);
  const bool doubled = duplication_.chance(faults.duplicate);
  const bool late = reordering_.chance(faults.reorder);
  const bool bent = corruption_.chance(faults.corrupt);
  if (lost) {
    ++counts_.lost;
    journal_.note(queue_.now(), "drop-loss from to bytes", {from, *to, packet.bytes.size()});
    return;
  }
  if (doubled) {
    ++counts_.duplicated;
    Packet copy = packet;
    const Duration delay = between(duplication_, Duration{0}, Duration{2'000'000});
    queue_.after(delay, [this, target = *to, p = std::move(copy)]() mutable { forward(target, std::move(p)); });
  }
  if (bent) corrupt(packet);
  Duration delay = between(jitter_, Duration{0}, faults.jitter);
  if (late) {
    ++counts_.reordered;
    delay += between(reordering_, Duration{0}, faults.reorder_delay);
  }
  if (delay.count() != 0) {
    queue_.after(delay, [this, target = *to, p = std::move(packet)]() mutable { forward(target, std::move(p)); });
    return;
  }
  forward(*to, std::move(packet));
}

void Network::corrupt(Packet& packet) {
  if (packet.bytes.empty()) return;
  ++counts_.corrupted;
  const std::uint64_t flips = between(corruption_, 1, 8);
  for (std::uint64_t i = 0; i < flips; ++i) {
    const std::uint64_t bit = corruption_.below(packet.bytes.size() * 8);
    packet.bytes[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
  }
  if (corruption_.chance(0.1)) packet.bytes.resize(corruption_.below(packet.bytes.size()) + 1);
}

void Network::forward(HostId to, Packet packet) {
  HostState& host = hosts_[to];
  const std::size_t waiting = backlog(host, host.down, queue_.now());
  const auto left = enqueue(host, host.down, packet.bytes.size());
  if (!left) {
    ++counts_.queue_drops;
    journal_.note(queue_.now(), "drop-queue to bytes", {to, packet.bytes.size()});
    return;
  }
  if (host.shape.ecn_threshold_bytes != 0 && waiting > host.shape.ecn_threshold_bytes && packet.ecn != kNotEct) {
    ++counts_.marked;
    packet.ecn = kCongestionExperienced;
  }
  queue_.at(*left + host.shape.latency, [this, to, p = std::move(packet)] { deliver(to, p); });
}

void Network::deliver(HostId to, const Packet& packet) {
  Port* port = port_behind(packet.destination);
  if (port != nullptr) {
    ++counts_.delivered;
    journal_.note(queue_.now(), "deliver to bytes ecn hash",
                  {to, packet.bytes.size(), packet.ecn, contents_are_hidden_ ? 0 : hash_of(packet.bytes)});
    for (const auto& tap : delivery_taps_) tap(packet);
    port->arrive(packet);
    return;
  }
  ++counts_.nobody_there;
  journal_.note(queue_.now(), "nobody-there to bytes", {to, packet.bytes.size()});
  if (!reports_closed_ports_) return;
  const auto from = find(packet.source);
  if (!from) return;
  std::vector<std::byte> quoted(packet.bytes.begin(), packet.bytes.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                                                 packet.bytes.size(), kQuotedBytes)));
  const Duration back = hosts_[to].shape.latency + hosts_[*from].shape.latency;
  queue_.after(back, [this, victim = packet.source, who = packet.destination, q = std::move(quoted)] {
    inject_unreachable(victim, who, q);
  });
}

}  // namespace weir::sim
