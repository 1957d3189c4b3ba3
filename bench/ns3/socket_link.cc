#include "socket_link.h"

#include <ns3/inet-socket-address.h>
#include <ns3/ipv4.h>
#include <ns3/node.h>
#include <ns3/packet.h>
#include <ns3/udp-socket-factory.h>
#include <ns3/uinteger.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "network.h"

namespace weir::bench {
namespace {

constexpr std::uint8_t kEcnBits = 3;
constexpr std::size_t kMaxDatagramBytes = kMtu - kIpAndUdpHeaderBytes;

// The train's next datagram.
Segment first_of(const link::Train& train) {
  if (!train.segments.empty()) return train.segments.front();
  const std::size_t segment = train.segment_size == 0 ? train.bytes.size() : train.segment_size;
  return {.head = train.bytes.first(std::min(segment, train.bytes.size()))};
}

void drop_first(link::Train& train, std::size_t bytes) {
  if (train.segments.empty()) {
    train.bytes = train.bytes.subspan(bytes);
  } else {
    train.segments = train.segments.subspan(1);
  }
}

ns3::InetSocketAddress to_ns3(const Address& address) {
  const std::uint32_t ip = std::uint32_t{address.ip[12]} << 24 | std::uint32_t{address.ip[13]} << 16 |
                           std::uint32_t{address.ip[14]} << 8 | std::uint32_t{address.ip[15]};
  return {ns3::Ipv4Address(ip), address.port};
}

Address from_ns3(const ns3::Address& address) {
  const auto found = ns3::InetSocketAddress::ConvertFrom(address);
  return Address::v4(found.GetIpv4().Get(), found.GetPort());
}

}  // namespace

SocketLink::SocketLink(const ns3::Ptr<ns3::Node>& node, ns3::Ptr<ns3::QueueDisc> queue, const Options& options,
                       std::function<void()> on_arrival)
    : options_(options),
      queue_(std::move(queue)),
      socket_(ns3::Socket::CreateSocket(node, ns3::UdpSocketFactory::GetTypeId())),
      pool_({.max_buffers = kReceiveBuffers, .touched_buffers = 0}) {
  const ns3::Ipv4Address ip = node->GetObject<ns3::Ipv4>()->GetAddress(1, 0).GetLocal();
  local_ = Address::v4(ip.Get(), options_.port);
  socket_->SetAttribute("RcvBufSize", ns3::UintegerValue(options_.receive_buffer_bytes));
  const int bound = socket_->Bind(ns3::InetSocketAddress(ip, options_.port));
  WEIR_CHECK(bound == 0, "the port is free");
  socket_->SetIpRecvTos(true);
  socket_->SetRecvCallback(
      ns3::Callback<void, ns3::Ptr<ns3::Socket>>([arrived = std::move(on_arrival)](const auto&) { arrived(); }));
  socket_->TraceConnectWithoutContext("Drop", ns3::Callback<void, ns3::Ptr<const ns3::Packet>>(
                                                  [this](const ns3::Ptr<const ns3::Packet>&) { ++drops_; }));
}

SocketLink::~SocketLink() {
  socket_->SetRecvCallback(ns3::MakeNullCallback<void, ns3::Ptr<ns3::Socket>>());
  socket_->Close();
  recycle();
}

// Datagrams are packed into buffers one after the other, as a kernel that coalesces them does.
std::size_t SocketLink::receive(std::vector<link::Datagram>& out) {
  std::size_t count = 0;
  for (std::size_t used = 0; used < link::kReceiveBuffers && has_arrivals(); ++used) {
    if (out.capacity() - out.size() < link::kDatagramsPerBuffer) break;
    link::ReceiveBuffer* buffer = pool_.acquire();
    if (buffer == nullptr) {
      ++starved_;
      break;
    }
    lent_.push_back(buffer);
    MutableByteSpan room = buffer->bytes();
    for (std::size_t i = 0; i < link::kDatagramsPerBuffer && has_arrivals() && room.size() >= kMtu; ++i) {
      ns3::Address from;
      const ns3::Ptr<ns3::Packet> packet = socket_->RecvFrom(from);
      const std::size_t bytes = std::min<std::size_t>(packet->GetSize(), room.size());
      packet->CopyData(reinterpret_cast<std::uint8_t*>(room.data()), static_cast<std::uint32_t>(bytes));
      ns3::SocketIpTosTag tos;
      const std::uint8_t ecn = packet->RemovePacketTag(tos) ? tos.GetTos() & kEcnBits : 0;
      out.push_back(
          {.bytes = room.first(bytes), .from = from_ns3(from), .ecn = static_cast<link::Ecn>(ecn), .buffer = buffer});
      room = room.subspan(bytes);
      ++count;
    }
  }
  return count;
}

void SocketLink::recycle() {
  for (link::ReceiveBuffer* buffer : lent_) buffer->release_ref();
  lent_.clear();
}

std::size_t SocketLink::send(std::span<link::Train> trains, std::span<link::SendStatus> statuses) {
  for (std::size_t i = 0; i < trains.size(); ++i) {
    link::Train& train = trains[i];
    statuses[i] = link::SendStatus::sent;
    if (first_of(train).size() > kMaxDatagramBytes) {
      statuses[i] = link::SendStatus::too_big;
      continue;
    }
    while (!train.is_empty()) {
      if (queue_->GetNBytes() >= options_.send_buffer_bytes) {
        statuses[i] = link::SendStatus::would_block;
        return i;
      }
      const Segment next = first_of(train);
      send_one(next, train);
      drop_first(train, next.size());
    }
  }
  return trains.size();
}

void SocketLink::send_one(const Segment& datagram, const link::Train& train) {
  gathered_.assign(datagram.head.begin(), datagram.head.end());
  gathered_.insert(gathered_.end(), datagram.body.begin(), datagram.body.end());
  const auto packet = ns3::Create<ns3::Packet>(reinterpret_cast<const std::uint8_t*>(gathered_.data()),
                                               static_cast<std::uint32_t>(gathered_.size()));
  ns3::InetSocketAddress to = to_ns3(train.to);
  to.SetTos(static_cast<std::uint8_t>(train.ecn));
  socket_->SendTo(packet, 0, to);
}

Duration SocketLink::drain_time() const {
  // Half of the buffer: the card is never without work meanwhile.
  return Duration{static_cast<std::int64_t>(std::uint64_t{options_.send_buffer_bytes} * 4 * 1'000'000'000 /
                                            options_.bits_per_second)};
}

link::LinkReport SocketLink::report() const {
  link::LinkReport report;
  report.kind = "ns-3";
  report.receive_buffer_asked_bytes = report.receive_buffer_bytes = options_.receive_buffer_bytes;
  report.send_buffer_asked_bytes = report.send_buffer_bytes = options_.send_buffer_bytes;
  report.segmentation_offload = true;
  report.receive_offload = true;
  report.ecn_send = true;
  report.ecn_receive = true;
  report.max_datagram_bytes = kMaxDatagramBytes;
  report.starved_receives = starved_;
  return report;
}

}  // namespace weir::bench
