// Fabric: hosts below leaf switches, and spine switches above these, all joined by cables of one rate. For thousands of
// hosts in one run: a packet takes one event per switch on its way and is copied once, from its sender's memory.
//
// Every port sends first come, first served. Because nothing overtakes in it, the time at which a packet leaves is
// known when it comes, and the bytes that wait are those which the port has not sent by then. No event tells of
// departures.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/address.h"
#include "base/bytes.h"
#include "base/random.h"
#include "base/time.h"
#include "link/receive_buffer.h"
#include "sim/agenda.h"
#include "sim/histogram.h"
#include "sim/journal.h"

namespace weir::sim {

using HostId = std::uint32_t;

struct FabricShape {
  // Headers of UDP and IPv4; and of Ethernet with checksum, preamble and gap.
  static constexpr std::uint32_t kIpBytes = 28;
  static constexpr std::uint32_t kEthernetBytes = 38;

  std::uint32_t hosts = 300;
  std::uint32_t hosts_per_leaf = 20;
  std::uint32_t spines = 20;  // each has one cable to every leaf
  std::uint64_t bits_per_second = 25'000'000'000;
  Duration latency{5'000};                  // of a cable
  std::uint32_t buffer_bytes = 128 * 1024;  // of a switch, for each of its ports
  double shared_part = 0;                   // 0: a port has its own buffer only. Otherwise the ports of a switch share
                                            // all of it, and one takes at most so many times what is free
  std::uint32_t ecn_threshold_bytes = 32'768;  // a longer queue marks; 0: none does
  std::uint32_t nic_bytes = 65'536;            // that wait in a host's own interface: then its socket blocks
  std::uint32_t mtu = 1'500;
  bool tells_rate = true;                  // hosts know what their interface carries (Config::nic_bits_per_s)
  double loss = 0;                         // chance of every packet to get lost, on its first cable
  std::uint64_t flow_bits_per_second = 0;  // of one host to one other; 0: no cap
  std::uint64_t seed = 1;

  std::uint32_t leaves() const { return (hosts + hosts_per_leaf - 1) / hosts_per_leaf; }
  std::uint32_t datagram_bytes() const { return mtu - kIpBytes; }
};

// Where a port is. Queues of one kind are shown together.
enum class PortKind : std::uint8_t { host, leaf_up, spine_down, leaf_down, cap };
inline constexpr std::size_t kPortKinds = 5;
std::string_view name_of(PortKind kind);

struct FabricCounts {
  std::uint64_t packets = 0, ip_bytes = 0;  // that hosts sent
  std::uint64_t delivered = 0, delivered_ip_bytes = 0;
  std::uint64_t tail_drops = 0, cap_drops = 0, lost = 0, marked = 0;
};

// What one port has had since the counts were last cleared.
struct PortReport {
  PortKind kind = PortKind::host;
  std::uint32_t from = 0, to = 0;  // hosts, leaves or spines
  std::uint64_t packets = 0, bytes = 0, drops = 0, marks = 0;
  std::uint64_t largest = 0, p99 = 0;  // of its queue in bytes, as each packet found it
};

// Told when something is on its way to a host.
class FabricReceiver {
 public:
  virtual ~FabricReceiver() = default;
  virtual void expect(Instant arrival) = 0;
};

// A datagram inside the fabric; its bytes lie in a buffer that it shares with others.
struct FabricPacket {
  FabricPacket* next = nullptr;
  Instant arrival{};  // at the end of the cable that it is on
  HostId from = 0;
  HostId to = 0;
  std::uint32_t bytes = 0;
  std::uint8_t ecn = 0;
  link::ReceiveBuffer* buffer = nullptr;
  std::byte* data = nullptr;

  std::uint32_t ip_bytes() const { return bytes + FabricShape::kIpBytes; }
  std::uint32_t wire_bytes() const { return ip_bytes() + FabricShape::kEthernetBytes; }
};

// One per run.
class Fabric {
 public:
  static constexpr std::uint16_t kUdpPort = 4433;

  explicit Fabric(const FabricShape& shape);
  ~Fabric();
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

  const FabricShape& shape() const { return shape_; }
  static Address address_of(HostId host) { return Address::v4(kFirstIp + host, kUdpPort); }
  HostId host_of(const Address& address) const;
  void attach(HostId host, FabricReceiver* receiver) { receivers_[host] = receiver; }

  // ---- hosts ----
  Instant now() const { return now_; }
  // When the host's interface has room for one more datagram of this size; now or earlier if it has.
  Instant room_at(HostId host, std::uint32_t bytes) const;
  // The datagram is `head` followed by `body`; there is room for it.
  void transmit(HostId from, HostId to, std::uint8_t ecn, ByteSpan head, ByteSpan body);
  // What has arrived and was not taken yet; null: nothing.
  FabricPacket* take(HostId host);
  // When the next one arrives, of those that no switch can hold up any more.
  Instant next_arrival(HostId host) const;
  // Its bytes stay as long as its buffer is held.
  void release(FabricPacket* packet);

  // ---- time ----
  // Parts 0 and up are for whoever runs the hosts, one for each; the fabric's own follow.
  Agenda& agenda() { return agenda_; }
  // Runs what is first. The host whose turn it is; kNobody: it was the fabric's own, or nothing was due by `until`.
  static constexpr HostId kNobody = ~HostId{0};
  HostId run_next(Instant until);
  std::uint64_t events_run() const { return events_run_; }
  std::size_t packets_inside() const { return packets_inside_; }

  // ---- what is measured ----
  void start_counting();
  const FabricCounts& counts() const { return counts_; }
  std::vector<PortReport> ports() const;
  // Of the queues of one kind, in bytes, as each packet found them.
  const TimeSeries& depth_of(PortKind kind) const { return depths_[static_cast<std::size_t>(kind)]; }
  const LogHistogram& depths_of(PortKind kind) const { return all_depths_[static_cast<std::size_t>(kind)]; }
  const TimeSeries& delivered_bytes() const { return delivered_; }
  const TimeSeries& dropped_packets() const { return dropped_; }
  const TimeSeries& marked_packets() const { return marked_; }
  std::uint64_t hash() const { return hash_.value(); }

  // ---- what could be reached at best ----
  // The time that the busiest cable needs for these bytes of IP packets and what Ethernet adds: of host to host, by
  // wherever flows go.
  class Load;

 private:
  static constexpr std::uint32_t kFirstIp = 0x0a000001;
  static constexpr std::uint32_t kNoSwitch = ~std::uint32_t{0};

  struct Port {
    std::int64_t free_at_ps = 0;  // when all of it is sent; picoseconds, because a byte takes less than a nanosecond
    std::int64_t ps_per_byte = 0;
    FabricPacket* first = nullptr;  // in its queue or on its cable
    FabricPacket* last = nullptr;
    std::uint32_t buffer_bytes = 0;
    std::uint32_t ecn_threshold = 0;
    std::uint32_t at_switch = kNoSwitch;
    Agenda::Part part = 0;  // none for those whose cables end at a host
    PortKind kind = PortKind::host;
    std::uint32_t from = 0, to = 0;
    std::uint64_t packets = 0, bytes = 0, drops = 0, marks = 0;
    LogHistogram depths;
  };
  struct Switch {
    std::uint32_t first_port = 0, ports = 0;  // neighbours, so that what they all hold is soon summed up
    std::uint64_t buffer_bytes = 0;
  };

  void add_port(PortKind kind, std::uint32_t from, std::uint32_t to, std::uint32_t at_switch);
  void add_ports();
  std::uint32_t leaf_of(HostId host) const { return host / shape_.hosts_per_leaf; }
  std::uint32_t down_port(HostId host) const;
  std::uint32_t up_port(std::uint32_t leaf, std::uint32_t spine) const;
  std::uint32_t spine_port(std::uint32_t spine, std::uint32_t leaf) const;
  std::uint32_t spine_of(HostId from, HostId to) const;
  std::uint32_t cap_port(HostId from, HostId to);
  std::uint64_t waiting_bytes(const Port& port) const;
  std::uint64_t limit_of(const Port& port) const;
  void enter_leaf(FabricPacket* packet);
  void arrive(std::uint32_t port);
  void enqueue(std::uint32_t port, FabricPacket* packet);
  void drop(FabricPacket* packet);
  link::ReceiveBuffer* buffer_for(std::uint32_t bytes);

  const FabricShape shape_;
  Agenda agenda_;
  Instant now_{1'000'000'000};
  std::uint64_t events_run_ = 0;
  std::vector<Port> ports_;
  std::vector<std::uint32_t> port_of_part_;  // less the hosts' parts
  std::vector<Switch> switches_;             // leaves, then spines
  std::vector<FabricReceiver*> receivers_;
  std::map<std::pair<HostId, HostId>, std::uint32_t> caps_;
  Random loss_;
  link::ReceiveBufferPool buffers_;
  link::ReceiveBuffer* filling_ = nullptr;
  std::size_t filled_ = 0;
  std::vector<std::unique_ptr<FabricPacket[]>> packet_chunks_;
  FabricPacket* free_packets_ = nullptr;
  std::size_t packets_inside_ = 0;
  FabricCounts counts_;
  TimeSeries depths_[kPortKinds];
  LogHistogram all_depths_[kPortKinds];
  TimeSeries delivered_, dropped_, marked_;
  EventHash hash_;
};

// Adds up what the cables carry at least.
class Fabric::Load {
 public:
  explicit Load(const Fabric& fabric) : fabric_(fabric), bytes_(fabric.ports_.size()) {}
  void add(HostId from, HostId to, std::uint64_t wire_bytes);
  // Of the busiest cable, and which it is.
  Duration time() const;
  std::pair<PortKind, std::uint64_t> busiest() const;

 private:
  std::size_t busiest_port() const;

  const Fabric& fabric_;
  std::vector<std::uint64_t> bytes_;
};

}  // namespace weir::sim
