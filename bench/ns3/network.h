// Network: hosts and switches of ns-3, the links between them, and what is counted at their ports.
#pragma once

#include <ns3/node.h>
#include <ns3/point-to-point-net-device.h>
#include <ns3/queue-disc.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "routes.h"

namespace weir::bench {

inline constexpr std::uint32_t kMtu = 1'500;
inline constexpr std::uint32_t kLinkHeaderBytes = 2;  // of PPP: what ns-3's point-to-point links add to each packet
inline constexpr std::uint32_t kIpAndUdpHeaderBytes = 28;

struct PortShape {
  std::uint64_t bits_per_second = 0;
  std::uint32_t queue_bytes = 0;
  // A queue that is longer marks packets that can be marked and drops the others; 0: a plain drop-tail queue.
  std::uint32_t mark_bytes = 0;
};

// Counts what one queue drops, and how long it is when packets come.
class PortWatch {
 public:
  void watch(const ns3::Ptr<ns3::QueueDisc>& queue);
  // Forgets how long the queue was so far. The counts go on.
  void restart_depth();

  std::uint64_t arrived() const { return enqueued_ + dropped_; }
  std::uint64_t dropped() const { return dropped_; }
  std::uint64_t marked() const { return marked_; }
  std::uint32_t longest_bytes() const { return longest_bytes_; }
  // This share of the packets that came found, with themselves, at most so much. Rounded up by less than kBucketBytes.
  std::uint32_t depth_bytes(double share) const;

 private:
  static constexpr std::uint32_t kBucketBytes = 256;

  void on_arrival();

  std::uint64_t enqueued_ = 0, dropped_ = 0, marked_ = 0;
  std::uint32_t bytes_ = 0, longest_bytes_ = 0;
  std::vector<std::uint64_t> arrivals_;  // by the queue's length, in buckets
};

// A packet flow of a round, for the bound.
struct Flow {
  HostId from = 0;
  HostId to = 0;
  std::uint64_t payload_bytes = 0;
};

// One per run. Hosts first, then switches, then links, then finish().
class Network {
 public:
  using NodeId = std::uint32_t;

  NodeId add_host();
  NodeId add_switch();
  // The port at `a` sends towards `b`, and the other one back.
  void connect(NodeId a, NodeId b, std::int64_t delay_ns, const PortShape& at_a, const PortShape& at_b);
  // Fills the routes.
  void finish();

  std::uint32_t hosts() const { return hosts_; }
  const ns3::Ptr<ns3::Node>& node(NodeId node) const { return nodes_[node].node; }
  // The queue of a host's only port, and how fast that empties.
  const ns3::Ptr<ns3::QueueDisc>& host_queue(HostId host) const { return ports_[nodes_[host].ports.front()].queue; }
  std::uint64_t host_rate(HostId host) const { return ports_[nodes_[host].ports.front()].bits_per_second; }
  PortWatch& port(NodeId from, NodeId to);
  std::vector<PortWatch*> switch_ports();
  std::vector<PortWatch*> host_ports();

  // IP packets and bytes that all hosts have sent.
  std::uint64_t packets_sent() const { return packets_sent_; }
  std::uint64_t bytes_sent() const { return bytes_sent_; }
  // Packets that were lost anywhere but in the queue of a port.
  std::uint64_t lost_elsewhere() const { return lost_elsewhere_; }

  // The least time that these flows take in full UDP packets: that of the link with most to carry.
  double bound_s(const std::vector<Flow>& flows) const;

 private:
  struct Port {  // sends from one node to another
    NodeId to = 0;
    std::uint32_t interface = 0;
    std::uint64_t bits_per_second = 0;
    ns3::Ptr<ns3::QueueDisc> queue;
    std::unique_ptr<PortWatch> watch;
  };
  struct Node {
    ns3::Ptr<ns3::Node> node;
    ns3::Ptr<Routes> routes;
    std::vector<std::size_t> ports;  // indices of ports_
  };

  NodeId add_node();
  void add_port(NodeId from, NodeId to, const ns3::Ptr<ns3::PointToPointNetDevice>& device, const PortShape& shape);
  void find_routes(HostId to);
  std::vector<PortWatch*> ports_of(NodeId first, NodeId end);

  std::vector<Node> nodes_;
  std::vector<Port> ports_;
  std::uint32_t hosts_ = 0;
  std::uint32_t switch_addresses_ = 0;
  std::uint64_t packets_sent_ = 0, bytes_sent_ = 0, lost_elsewhere_ = 0;
};

}  // namespace weir::bench
