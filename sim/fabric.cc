#include "sim/fabric.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "sim/random_stream.h"

namespace weir::sim {
namespace {

constexpr std::uint8_t kNotEct = 0;
constexpr std::uint8_t kCongestionExperienced = 3;
constexpr std::int64_t kPsPerNs = 1'000;
constexpr std::size_t kPacketsPerChunk = 4'096;
constexpr std::size_t kMaxBuffers = 1u << 18;  // 16 GiB, which no run comes near
constexpr std::size_t kAlignment = 16;

constexpr std::int64_t ps(Instant when) { return when.ns * kPsPerNs; }

}  // namespace

std::string_view name_of(PortKind kind) {
  switch (kind) {
    case PortKind::host:
      return "host interface";
    case PortKind::leaf_up:
      return "leaf to spine";
    case PortKind::spine_down:
      return "spine to leaf";
    case PortKind::leaf_down:
      return "leaf to host";
    case PortKind::cap:
      return "cap of a flow";
  }
  return "";
}

// Ports are numbered by kind: of hosts, leaves to hosts, leaves to spines, spines to leaves. Those of a leaf are in two
// runs, which is why leaves count as two switches where buffers are not shared; see limit_of().
Fabric::Fabric(const FabricShape& shape)
    : shape_(shape),
      receivers_(shape.hosts),
      loss_(stream(shape.seed, "fabric loss")),
      buffers_({.max_buffers = kMaxBuffers, .touched_buffers = 0}) {
  WEIR_CHECK(shape.hosts > 1 && shape.hosts_per_leaf > 0 && shape.spines > 0, "a fabric has hosts and switches");
  for (HostId host = 0; host < shape.hosts; ++host) agenda_.add();
  add_ports();
  start_counting();
}

Fabric::~Fabric() {
  for (Port& port : ports_) {
    while (port.first != nullptr) {
      FabricPacket* const packet = port.first;
      port.first = packet->next;
      release(packet);
    }
  }
  if (filling_ != nullptr) filling_->release_ref();
}

void Fabric::add_port(PortKind kind, std::uint32_t from, std::uint32_t to, std::uint32_t at_switch) {
  const std::uint64_t rate = kind == PortKind::cap ? shape_.flow_bits_per_second : shape_.bits_per_second;
  Port port;
  port.ps_per_byte = static_cast<std::int64_t>(8'000'000'000'000 / rate);
  port.buffer_bytes = kind == PortKind::host ? shape_.nic_bytes : shape_.buffer_bytes;
  port.ecn_threshold = at_switch == kNoSwitch ? 0 : shape_.ecn_threshold_bytes;
  port.at_switch = at_switch;
  port.kind = kind;
  port.from = from;
  port.to = to;
  if (kind != PortKind::leaf_down) {
    port.part = agenda_.add();
    port_of_part_.push_back(static_cast<std::uint32_t>(ports_.size()));
  }
  ports_.push_back(std::move(port));
}

void Fabric::add_ports() {
  const std::uint32_t leaves = shape_.leaves();
  for (HostId host = 0; host < shape_.hosts; ++host) add_port(PortKind::host, host, leaf_of(host), kNoSwitch);
  for (std::uint32_t leaf = 0; leaf < leaves; ++leaf) {
    const auto first = static_cast<std::uint32_t>(ports_.size());
    const HostId begin = leaf * shape_.hosts_per_leaf, end = std::min(begin + shape_.hosts_per_leaf, shape_.hosts);
    for (HostId host = begin; host < end; ++host) add_port(PortKind::leaf_down, leaf, host, leaf);
    for (std::uint32_t spine = 0; spine < shape_.spines; ++spine) add_port(PortKind::leaf_up, leaf, spine, leaf);
    const auto count = static_cast<std::uint32_t>(ports_.size()) - first;
    switches_.push_back(
        {.first_port = first, .ports = count, .buffer_bytes = std::uint64_t{count} * shape_.buffer_bytes});
  }
  for (std::uint32_t spine = 0; spine < shape_.spines; ++spine) {
    const auto first = static_cast<std::uint32_t>(ports_.size());
    for (std::uint32_t leaf = 0; leaf < leaves; ++leaf) add_port(PortKind::spine_down, spine, leaf, leaves + spine);
    switches_.push_back(
        {.first_port = first, .ports = leaves, .buffer_bytes = std::uint64_t{leaves} * shape_.buffer_bytes});
  }
}

// All leaves but the last have as many hosts.
std::uint32_t Fabric::down_port(HostId host) const {
  return switches_[leaf_of(host)].first_port + host % shape_.hosts_per_leaf;
}

std::uint32_t Fabric::up_port(std::uint32_t leaf, std::uint32_t spine) const {
  return switches_[leaf].first_port + switches_[leaf].ports - shape_.spines + spine;
}

std::uint32_t Fabric::spine_port(std::uint32_t spine, std::uint32_t leaf) const {
  return switches_[shape_.leaves() + spine].first_port + leaf;
}

// Equal-cost multipath: all packets of one host to one other take the same way.
std::uint32_t Fabric::spine_of(HostId from, HostId to) const {
  std::uint64_t h = (std::uint64_t{from} << 32 | to) ^ (shape_.seed * 0x9e3779b97f4a7c15ULL);
  h = (h ^ (h >> 33)) * 0xff51afd7ed558ccdULL;
  h = (h ^ (h >> 33)) * 0xc4ceb9fe1a85ec53ULL;
  h ^= h >> 33;
  return static_cast<std::uint32_t>(((h & 0xffffffffu) * shape_.spines) >> 32);
}

std::uint32_t Fabric::cap_port(HostId from, HostId to) {
  const auto [found, is_new] = caps_.try_emplace({from, to}, static_cast<std::uint32_t>(ports_.size()));
  if (is_new) add_port(PortKind::cap, from, to, kNoSwitch);
  return found->second;
}

HostId Fabric::host_of(const Address& address) const {
  std::uint32_t ip = 0;
  for (std::size_t i = 12; i < 16; ++i) ip = ip << 8 | address.ip[i];
  const HostId host = ip - kFirstIp;
  WEIR_CHECK(address.is_v4() && host < shape_.hosts, "an address of this fabric");
  return host;
}

// ---- ports ---------------------------------------------------------------------------------------------------------

std::uint64_t Fabric::waiting_bytes(const Port& port) const {
  const std::int64_t ahead = port.free_at_ps - ps(now_);
  return ahead <= 0 ? 0 : static_cast<std::uint64_t>(ahead / port.ps_per_byte);
}

// As switches do that share a buffer: no port may have more than a part of what is free.
std::uint64_t Fabric::limit_of(const Port& port) const {
  if (shape_.shared_part == 0 || port.at_switch == kNoSwitch) return port.buffer_bytes;
  const Switch& home = switches_[port.at_switch];
  std::uint64_t used = 0;
  for (std::uint32_t i = 0; i < home.ports; ++i) used += waiting_bytes(ports_[home.first_port + i]);
  const std::uint64_t free = home.buffer_bytes - std::min(home.buffer_bytes, used);
  return std::min(free + waiting_bytes(port),
                  static_cast<std::uint64_t>(static_cast<double>(free) * shape_.shared_part));
}

void Fabric::enqueue(std::uint32_t index, FabricPacket* packet) {
  Port& port = ports_[index];
  const std::uint64_t waiting = waiting_bytes(port);
  const auto kind = static_cast<std::size_t>(port.kind);
  depths_[kind].add(now_, waiting);
  all_depths_[kind].add(waiting);
  port.depths.add(waiting);
  if (waiting + packet->wire_bytes() > limit_of(port) && waiting != 0) {
    ++port.drops;
    ++(port.kind == PortKind::cap ? counts_.cap_drops : counts_.tail_drops);
    dropped_.add(now_, 1);
    return drop(packet);
  }
  if (port.ecn_threshold != 0 && waiting > port.ecn_threshold && packet->ecn != kNotEct) {
    packet->ecn = kCongestionExperienced;
    ++port.marks;
    ++counts_.marked;
    marked_.add(now_, 1);
  }
  ++port.packets;
  port.bytes += packet->wire_bytes();
  port.free_at_ps = std::max(port.free_at_ps, ps(now_)) + packet->wire_bytes() * port.ps_per_byte;
  packet->arrival = Instant{(port.free_at_ps + kPsPerNs - 1) / kPsPerNs} + shape_.latency;
  packet->next = nullptr;
  const bool was_empty = port.first == nullptr;
  (was_empty ? port.first : port.last->next) = packet;
  port.last = packet;
  if (port.kind == PortKind::leaf_down) {
    receivers_[port.to]->expect(packet->arrival);
  } else if (was_empty) {
    agenda_.set(port.part, packet->arrival);
  }
}

// The first packet on this port's cable has come to its end.
void Fabric::arrive(std::uint32_t index) {
  Port& port = ports_[index];
  FabricPacket* const packet = port.first;
  port.first = packet->next;
  agenda_.set(port.part, port.first == nullptr ? Instant::never() : port.first->arrival);
  switch (port.kind) {
    case PortKind::host:
      if (shape_.loss > 0 && loss_.chance(shape_.loss)) {
        ++counts_.lost;
        return drop(packet);
      }
      if (shape_.flow_bits_per_second != 0) return enqueue(cap_port(packet->from, packet->to), packet);
      return enter_leaf(packet);
    case PortKind::cap:
      return enter_leaf(packet);
    case PortKind::leaf_up:
      return enqueue(spine_port(port.to, leaf_of(packet->to)), packet);
    case PortKind::spine_down:
      return enqueue(down_port(packet->to), packet);
    case PortKind::leaf_down:
      break;
  }
}

void Fabric::enter_leaf(FabricPacket* packet) {
  const std::uint32_t leaf = leaf_of(packet->from);
  const bool stays = leaf == leaf_of(packet->to);
  enqueue(stays ? down_port(packet->to) : up_port(leaf, spine_of(packet->from, packet->to)), packet);
}

// ---- hosts ---------------------------------------------------------------------------------------------------------

Instant Fabric::room_at(HostId host, std::uint32_t bytes) const {
  const Port& port = ports_[host];
  const std::uint32_t on_wire = bytes + FabricShape::kIpBytes + FabricShape::kEthernetBytes;
  const std::uint32_t allowed = port.buffer_bytes > on_wire ? port.buffer_bytes - on_wire : 0;
  return Instant{(port.free_at_ps - std::int64_t{allowed} * port.ps_per_byte + kPsPerNs - 1) / kPsPerNs};
}

link::ReceiveBuffer* Fabric::buffer_for(std::uint32_t bytes) {
  if (filling_ == nullptr || filled_ + bytes > link::ReceiveBuffer::kCapacity) {
    if (filling_ != nullptr) filling_->release_ref();
    filling_ = buffers_.acquire();
    filled_ = 0;
    WEIR_CHECK(filling_ != nullptr, "there is memory for the packets inside a fabric");
  }
  return filling_;
}

void Fabric::transmit(HostId from, HostId to, std::uint8_t ecn, ByteSpan head, ByteSpan body) {
  const auto bytes = static_cast<std::uint32_t>(head.size() + body.size());
  if (free_packets_ == nullptr) {
    packet_chunks_.push_back(std::make_unique<FabricPacket[]>(kPacketsPerChunk));
    for (std::size_t i = 0; i < kPacketsPerChunk; ++i) {
      packet_chunks_.back()[i].next = free_packets_;
      free_packets_ = &packet_chunks_.back()[i];
    }
  }
  FabricPacket* const packet = free_packets_;
  free_packets_ = packet->next;
  ++packets_inside_;
  packet->from = from;
  packet->to = to;
  packet->ecn = ecn;
  packet->bytes = bytes;
  packet->buffer = buffer_for(bytes);
  packet->buffer->add_ref();
  packet->data = packet->buffer->bytes().data() + filled_;
  filled_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  std::memcpy(packet->data, head.data(), head.size());
  if (!body.empty()) std::memcpy(packet->data + head.size(), body.data(), body.size());
  ++counts_.packets;
  counts_.ip_bytes += packet->ip_bytes();
  hash_.mix(static_cast<std::uint64_t>(now_.ns) << 16 ^ (std::uint64_t{from} << 32 | bytes));
  hash_.mix(to);
  enqueue(from, packet);
}

FabricPacket* Fabric::take(HostId host) {
  Port& port = ports_[down_port(host)];
  FabricPacket* const packet = port.first;
  if (packet == nullptr || packet->arrival > now_) return nullptr;
  port.first = packet->next;
  ++counts_.delivered;
  counts_.delivered_ip_bytes += packet->ip_bytes();
  delivered_.add(now_, packet->ip_bytes());
  return packet;
}

Instant Fabric::next_arrival(HostId host) const {
  const Port& port = ports_[down_port(host)];
  return port.first == nullptr ? Instant::never() : port.first->arrival;
}

void Fabric::release(FabricPacket* packet) {
  packet->buffer->release_ref();
  packet->buffer = nullptr;
  packet->next = free_packets_;
  free_packets_ = packet;
  --packets_inside_;
}

void Fabric::drop(FabricPacket* packet) { release(packet); }

HostId Fabric::run_next(Instant until) {
  if (agenda_.next() > until) {
    now_ = std::max(now_, until);
    return kNobody;
  }
  const Agenda::Part part = agenda_.first();
  now_ = std::max(now_, agenda_.next());
  ++events_run_;
  if (part < shape_.hosts) {
    agenda_.set(part, Instant::never());
    return part;
  }
  arrive(port_of_part_[part - shape_.hosts]);
  return kNobody;
}

// ---- what is measured ----------------------------------------------------------------------------------------------

void Fabric::start_counting() {
  counts_ = {};
  for (TimeSeries& series : depths_) series.start(now_);
  for (LogHistogram& histogram : all_depths_) histogram.clear();
  for (TimeSeries* series : {&delivered_, &dropped_, &marked_}) series->start(now_);
  for (Port& port : ports_) {
    port.packets = port.bytes = port.drops = port.marks = 0;
    port.depths.clear();
  }
}

std::vector<PortReport> Fabric::ports() const {
  std::vector<PortReport> reports;
  reports.reserve(ports_.size());
  for (const Port& port : ports_) {
    reports.push_back({.kind = port.kind,
                       .from = port.from,
                       .to = port.to,
                       .packets = port.packets,
                       .bytes = port.bytes,
                       .drops = port.drops,
                       .marks = port.marks,
                       .largest = port.depths.largest(),
                       .p99 = port.depths.quantile(0.99)});
  }
  return reports;
}

void Fabric::Load::add(HostId from, HostId to, std::uint64_t wire_bytes) {
  const std::uint32_t leaf = fabric_.leaf_of(from), other = fabric_.leaf_of(to);
  bytes_[from] += wire_bytes;
  bytes_[fabric_.down_port(to)] += wire_bytes;
  if (leaf == other) return;
  const std::uint32_t spine = fabric_.spine_of(from, to);
  bytes_[fabric_.up_port(leaf, spine)] += wire_bytes;
  bytes_[fabric_.spine_port(spine, other)] += wire_bytes;
}

std::size_t Fabric::Load::busiest_port() const {
  return static_cast<std::size_t>(std::ranges::max_element(bytes_) - bytes_.begin());
}

Duration Fabric::Load::time() const {
  const std::size_t port = busiest_port();
  return Duration{static_cast<std::int64_t>(bytes_[port]) * fabric_.ports_[port].ps_per_byte / kPsPerNs};
}

std::pair<PortKind, std::uint64_t> Fabric::Load::busiest() const {
  const std::size_t port = busiest_port();
  return {fabric_.ports_[port].kind, bytes_[port]};
}

}  // namespace weir::sim
