// A network of hosts around one switch: each host has a link to it with latency, bandwidth and a queue each way. What
// can go wrong goes wrong at the switch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/address.h"
#include "base/bytes.h"
#include "base/random.h"
#include "base/time.h"
#include "sim/event_queue.h"
#include "sim/journal.h"

namespace weir::sim {

using HostId = std::uint32_t;

// A host's own cable. Sizes are those of UDP datagrams; kOverheadBytes more are on the wire.
struct LinkShape {
  static constexpr std::size_t kOverheadBytes = 46;

  Duration latency{10'000};  // between host and switch
  std::uint64_t bytes_per_second = 1'250'000'000;
  std::size_t queue_bytes = 512 * 1024;  // at each end
  std::size_t ecn_threshold_bytes = 0;   // a longer queue marks; 0: never marks
  std::size_t datagram_bytes = 1'472;    // larger ones the interface refuses, and says so
};

// Chances per datagram, for one direction between two hosts.
struct Faults {
  double loss = 0;
  double duplicate = 0;
  double reorder = 0;
  Duration reorder_delay{0};  // at most
  Duration jitter{0};         // each is late by up to so much, so that they overtake each other
  double corrupt = 0;
};

struct Packet {
  Address source;
  Address destination;
  std::uint8_t ecn = 0;
  std::vector<std::byte> bytes;
};

// Where the packets to one address come out. Null while its process is down.
class Port {
 public:
  virtual ~Port() = default;
  virtual void arrive(const Packet& packet) = 0;
  // An ICMP report about a datagram that was sent to `who`.
  virtual void arrive_unreachable(const Address& who, ByteSpan quoted) = 0;
};

struct NetworkCounts {
  std::uint64_t sent = 0, delivered = 0, lost = 0, duplicated = 0, reordered = 0, corrupted = 0, marked = 0;
  std::uint64_t queue_drops = 0, too_big_drops = 0, partition_drops = 0, nobody_there = 0, injected = 0;
};

// One per run.
class Network {
 public:
  Network(EventQueue& queue, Journal& journal, std::uint64_t seed);

  HostId add_host(const Address& address, const LinkShape& shape);
  std::size_t host_count() const { return hosts_.size(); }
  // The first one that it was given.
  const Address& address_of(HostId host) const { return hosts_[host].address; }
  // One more, on the same cable.
  void add_address(HostId host, const Address& address);
  // Of all hosts, in the order in which they were given.
  const std::vector<Address>& addresses() const { return addresses_; }
  const LinkShape& shape_of(HostId host) const { return hosts_[host].shape; }
  std::optional<HostId> find(const Address& address) const;
  void plug(const Address& address, Port* port) { ports_[address] = port; }
  // A NAT: from now on others see what is sent from `inside` as sent from `outside`, and what they send there arrives.
  // What they send to the outside address before it is lost.
  void rebind(const Address& inside, const Address& outside);
  // As others see it now.
  const Address& outside_of(const Address& inside) const;

  // ---- what goes wrong ----
  void set_faults(const Faults& faults) { faults_ = faults; }
  void set_faults(HostId from, HostId to, const Faults& faults) { pair_faults_[{from, to}] = faults; }
  // For all datagrams to this port, whoever sends them.
  void set_port_faults(std::uint16_t port, const Faults& faults) { port_faults_[port] = faults; }
  void cut(HostId from, HostId to, Instant start, Instant end);
  // A router on this way drops larger datagrams without a word; 0: none does.
  void set_path_datagram_bytes(HostId from, HostId to, std::size_t bytes) { path_datagram_bytes_[{from, to}] = bytes; }
  void set_datagram_bytes(HostId host, std::size_t bytes) { hosts_[host].shape.datagram_bytes = bytes; }
  void report_closed_ports(bool yes) { reports_closed_ports_ = yes; }
  // From now on everything arrives, in order and unharmed. Path limits stay: they are no fault.
  void heal();

  // ---- packets ----
  // When the host's own queue has room for a datagram of this size; now or earlier if it has.
  Instant room_at(HostId from, std::size_t bytes) const;
  void transmit(HostId from, Packet packet);
  // Appears at the switch from nowhere, with any source; neither lost nor recorded.
  void inject(Packet packet);
  void inject_unreachable(const Address& victim, const Address& who, ByteSpan quoted);
  // Sees every packet that reaches the switch.
  void add_tap(std::function<void(const Packet&)> tap) { taps_.push_back(std::move(tap)); }
  // Sees every packet that comes out at a port.
  void add_delivery_tap(std::function<void(const Packet&)> tap) { delivery_taps_.push_back(std::move(tap)); }
  // Takes what reaches the switch, if it says so: that goes no further.
  void set_interceptor(std::function<bool(const Packet&)> takes) { interceptor_ = std::move(takes); }
  // The journal says how long datagrams are and when they arrive, not what is in them.
  void hide_contents() { contents_are_hidden_ = true; }

  const NetworkCounts& counts() const { return counts_; }

 private:
  struct Lane {
    Instant free_at{};
  };
  struct HostState {
    Address address;
    LinkShape shape;
    Lane up;
    Lane down;
  };
  struct Cut {
    HostId from;
    HostId to;
    Instant start;
    Instant end;
  };

  static std::size_t backlog(const HostState& host, const Lane& lane, Instant now);
  // When the last bit has left, or nothing if the queue is full.
  std::optional<Instant> enqueue(HostState& host, Lane& lane, std::size_t bytes) const;
  Port* port_at(const Address& address) const;
  Port* port_behind(const Address& address) const;
  const Faults& faults_of(HostId from, HostId to, const Packet& packet) const;
  bool is_cut(HostId from, HostId to) const;
  void at_switch(HostId from, Packet packet);
  void forward(HostId to, Packet packet);
  void deliver(HostId to, const Packet& packet);
  void corrupt(Packet& packet);

  EventQueue& queue_;
  Journal& journal_;
  std::vector<HostState> hosts_;
  std::vector<Address> addresses_;
  std::map<Address, HostId> by_address_;
  std::map<Address, Port*> ports_;
  std::map<Address, Address> outsides_, insides_;  // of hosts behind a NAT, by the other one
  Faults faults_;
  std::map<std::pair<HostId, HostId>, Faults> pair_faults_;
  std::map<std::uint16_t, Faults> port_faults_;
  std::map<std::pair<HostId, HostId>, std::size_t> path_datagram_bytes_;
  std::vector<Cut> cuts_;
  bool reports_closed_ports_ = false;
  std::vector<std::function<void(const Packet&)>> taps_;
  std::vector<std::function<void(const Packet&)>> delivery_taps_;
  std::function<bool(const Packet&)> interceptor_;
  bool contents_are_hidden_ = false;
  NetworkCounts counts_;
  Random loss_;
  Random duplication_;
  Random reordering_;
  Random corruption_;
  Random jitter_;
};

}  // namespace weir::sim
