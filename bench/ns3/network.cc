#include "network.h"

#include <ns3/boolean.h>
#include <ns3/data-rate.h>
#include <ns3/double.h>
#include <ns3/internet-stack-helper.h>
#include <ns3/ipv4-l3-protocol.h>
#include <ns3/ipv4-static-routing-helper.h>
#include <ns3/point-to-point-helper.h>
#include <ns3/queue-size.h>
#include <ns3/simulator.h>
#include <ns3/string.h>
#include <ns3/traffic-control-helper.h>
#include <ns3/uinteger.h>

#include <algorithm>
#include <limits>
#include <string>

#include "base/check.h"

namespace weir::bench {
namespace {

constexpr std::uint32_t kFirstSwitchAddress = 0xc0a80001;  // of its ports; nothing is sent there

std::string in_bytes(std::uint32_t bytes) { return std::to_string(bytes) + "B"; }

// With marks: a step at the threshold, as DCTCP wants it. RED does that if it looks at the queue's length as it is.
ns3::TrafficControlHelper queue_of(const PortShape& shape) {
  ns3::TrafficControlHelper helper;
  const ns3::StringValue size(in_bytes(shape.queue_bytes));
  if (shape.mark_bytes == 0) {
    helper.SetRootQueueDisc("ns3::FifoQueueDisc", "MaxSize", size);
    return helper;
  }
  helper.SetRootQueueDisc("ns3::RedQueueDisc", "MaxSize", size, "MinTh", ns3::DoubleValue(shape.mark_bytes), "MaxTh",
                          ns3::DoubleValue(shape.mark_bytes + 1), "QW", ns3::DoubleValue(1), "Gentle",
                          ns3::BooleanValue(false), "UseEcn", ns3::BooleanValue(true), "UseHardDrop",
                          ns3::BooleanValue(false), "MeanPktSize", ns3::UintegerValue(kMtu));
  return helper;
}

}  // namespace

// ---- PortWatch -----------------------------------------------------------------------------------------------------

void PortWatch::watch(const ns3::Ptr<ns3::QueueDisc>& queue) {
  using Item = ns3::Ptr<const ns3::QueueDiscItem>;
  queue->TraceConnectWithoutContext("Enqueue", ns3::Callback<void, Item>([this](const Item&) {
                                      ++enqueued_;
                                      on_arrival();
                                    }));
  queue->TraceConnectWithoutContext("Drop", ns3::Callback<void, Item>([this](const Item&) {
                                      ++dropped_;
                                      on_arrival();
                                    }));
  queue->TraceConnectWithoutContext(
      "Mark", ns3::Callback<void, Item, const char*>([this](const Item&, const char*) { ++marked_; }));
  queue->TraceConnectWithoutContext("BytesInQueue",
                                    ns3::Callback<void, std::uint32_t, std::uint32_t>(
                                        [this](std::uint32_t, std::uint32_t bytes) { bytes_ = bytes; }));
}

void PortWatch::on_arrival() {
  longest_bytes_ = std::max(longest_bytes_, bytes_);
  const std::size_t bucket = (bytes_ + kBucketBytes - 1) / kBucketBytes;
  if (bucket >= arrivals_.size()) arrivals_.resize(bucket + 1);
  ++arrivals_[bucket];
}

void PortWatch::restart_depth() {
  arrivals_.clear();
  longest_bytes_ = 0;
}

std::uint32_t PortWatch::depth_bytes(double share) const {
  std::uint64_t all = 0;
  for (const std::uint64_t part : arrivals_) all += part;
  std::uint64_t sum = 0;
  for (std::size_t bucket = 0; bucket < arrivals_.size(); ++bucket) {
    sum += arrivals_[bucket];
    if (static_cast<double>(sum) >= share * static_cast<double>(all)) {
      return std::min(static_cast<std::uint32_t>(bucket) * kBucketBytes, longest_bytes_);
    }
  }
  return 0;
}

// ---- Network -------------------------------------------------------------------------------------------------------

Network::NodeId Network::add_node() {
  Node made{.node = ns3::CreateObject<ns3::Node>(), .routes = ns3::CreateObject<Routes>(), .ports = {}};
  ns3::InternetStackHelper stack;
  stack.SetIpv6StackInstall(false);
  stack.SetRoutingHelper(ns3::Ipv4StaticRoutingHelper());
  stack.Install(made.node);
  made.node->GetObject<ns3::Ipv4>()->SetRoutingProtocol(made.routes);
  const auto protocol = made.node->GetObject<ns3::Ipv4L3Protocol>();
  protocol->TraceConnectWithoutContext(
      "Drop", ns3::Callback<void, const ns3::Ipv4Header&, ns3::Ptr<const ns3::Packet>, ns3::Ipv4L3Protocol::DropReason,
                            ns3::Ptr<ns3::Ipv4>, std::uint32_t>([this](const auto&...) { ++lost_elsewhere_; }));
  nodes_.push_back(std::move(made));
  return static_cast<NodeId>(nodes_.size() - 1);
}

Network::NodeId Network::add_host() {
  const NodeId host = add_node();
  WEIR_CHECK(host == hosts_, "hosts come before switches");
  ++hosts_;
  nodes_[host].node->GetObject<ns3::Ipv4L3Protocol>()->TraceConnectWithoutContext(
      "Tx", ns3::Callback<void, ns3::Ptr<const ns3::Packet>, ns3::Ptr<ns3::Ipv4>, std::uint32_t>(
                [this](const ns3::Ptr<const ns3::Packet>& packet, const ns3::Ptr<ns3::Ipv4>&, std::uint32_t) {
                  ++packets_sent_;
                  bytes_sent_ += packet->GetSize();
                }));
  return host;
}

Network::NodeId Network::add_switch() { return add_node(); }

void Network::connect(NodeId a, NodeId b, std::int64_t delay_ns, const PortShape& at_a, const PortShape& at_b) {
  ns3::PointToPointHelper helper;
  // Packets wait in the queue that is watched: the device behind it takes one when it has sent one.
  helper.SetQueue("ns3::DropTailQueue", "MaxSize", ns3::StringValue("1p"));
  helper.SetChannelAttribute("Delay", ns3::TimeValue(ns3::NanoSeconds(delay_ns)));
  const ns3::NetDeviceContainer devices = helper.Install(nodes_[a].node, nodes_[b].node);
  add_port(a, b, ns3::DynamicCast<ns3::PointToPointNetDevice>(devices.Get(0)), at_a);
  add_port(b, a, ns3::DynamicCast<ns3::PointToPointNetDevice>(devices.Get(1)), at_b);
}

void Network::add_port(NodeId from, NodeId to, const ns3::Ptr<ns3::PointToPointNetDevice>& device,
                       const PortShape& shape) {
  device->SetMtu(kMtu);
  device->SetDataRate(ns3::DataRate(shape.bits_per_second));
  Node& node = nodes_[from];
  Port port{.to = to, .bits_per_second = shape.bits_per_second, .watch = std::make_unique<PortWatch>()};
  port.queue = queue_of(shape).Install(device).Get(0);
  port.watch->watch(port.queue);
  const auto ipv4 = node.node->GetObject<ns3::Ipv4>();
  port.interface = ipv4->AddInterface(device);
  const ns3::Ipv4Address address =
      from < hosts_ ? address_of(from) : ns3::Ipv4Address(kFirstSwitchAddress + switch_addresses_++);
  ipv4->AddAddress(port.interface, ns3::Ipv4InterfaceAddress(address, ns3::Ipv4Mask::GetOnes()));
  ipv4->SetUp(port.interface);
  node.ports.push_back(ports_.size());
  ports_.push_back(std::move(port));
}

void Network::finish() {
  for (HostId to = 0; to < hosts_; ++to) find_routes(to);
}

// Breadth first from the host: each node learns of all its neighbours that are one step nearer.
void Network::find_routes(HostId to) {
  constexpr std::uint32_t kFar = std::numeric_limits<std::uint32_t>::max();
  std::vector<std::uint32_t> steps(nodes_.size(), kFar);
  steps[to] = 0;
  std::vector<NodeId> reached{to};
  for (std::size_t next = 0; next < reached.size(); ++next) {
    for (const std::size_t port : nodes_[reached[next]].ports) {
      if (steps[ports_[port].to] != kFar) continue;
      steps[ports_[port].to] = steps[reached[next]] + 1;
      reached.push_back(ports_[port].to);
    }
  }
  for (const NodeId from : reached) {
    if (from == to) continue;
    for (const std::size_t port : nodes_[from].ports) {
      if (steps[ports_[port].to] + 1 == steps[from]) nodes_[from].routes->add(to, ports_[port].interface);
    }
  }
}

PortWatch& Network::port(NodeId from, NodeId to) {
  for (const std::size_t port : nodes_[from].ports) {
    if (ports_[port].to == to) return *ports_[port].watch;
  }
  WEIR_CHECK(false, "there is a link between these two");
  __builtin_unreachable();
}

std::vector<PortWatch*> Network::ports_of(NodeId first, NodeId end) {
  std::vector<PortWatch*> found;
  for (NodeId node = first; node < end; ++node) {
    for (const std::size_t port : nodes_[node].ports) found.push_back(ports_[port].watch.get());
  }
  return found;
}

std::vector<PortWatch*> Network::switch_ports() { return ports_of(hosts_, static_cast<NodeId>(nodes_.size())); }
std::vector<PortWatch*> Network::host_ports() { return ports_of(0, hosts_); }

double Network::bound_s(const std::vector<Flow>& flows) const {
  std::vector<double> bytes(ports_.size());
  for (const Flow& flow : flows) {
    const auto payload = static_cast<double>(flow.payload_bytes);
    const double packets = payload / (kMtu - kIpAndUdpHeaderBytes);
    for (NodeId at = flow.from; at != flow.to;) {
      const std::uint32_t interface = nodes_[at].routes->interface_to(flow.to, flow.from);
      const auto port =
          std::ranges::find_if(nodes_[at].ports, [&](std::size_t i) { return ports_[i].interface == interface; });
      WEIR_CHECK(port != nodes_[at].ports.end(), "every host is reachable");
      bytes[*port] += payload + packets * (kIpAndUdpHeaderBytes + kLinkHeaderBytes);
      at = ports_[*port].to;
    }
  }
  double longest_s = 0;
  for (std::size_t i = 0; i < ports_.size(); ++i) {
    longest_s = std::max(longest_s, 8 * bytes[i] / static_cast<double>(ports_[i].bits_per_second));
  }
  return longest_s;
}

}  // namespace weir::bench
