// SocketLink: a UDP socket of ns-3 as the link of a seat.
#pragma once

#include <ns3/queue-disc.h>
#include <ns3/socket.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/time.h"
#include "link/link.h"

namespace weir::bench {

// One per host. Every packet carries the bytes that the engine sealed, and its ECN bits are those of the IP header.
class SocketLink final : public link::Link {
 public:
  struct Options {
    std::uint16_t port = 0;
    std::uint32_t receive_buffer_bytes = 0;  // the socket drops what does not fit
    std::uint32_t send_buffer_bytes = 0;     // so much may wait at the network card; then sends would block
    std::uint64_t bits_per_second = 0;       // of that
  };

  // `queue` is that of the node's network card. `on_arrival` is told that there is something to receive.
  SocketLink(const ns3::Ptr<ns3::Node>& node, ns3::Ptr<ns3::QueueDisc> queue, const Options& options,
             std::function<void()> on_arrival);
  ~SocketLink() override;

  // ---- link::Link ----
  std::size_t receive(std::vector<link::Datagram>& out) override;
  void recycle() override;
  std::size_t send(std::span<link::Train> trains, std::span<link::SendStatus> statuses) override;
  int descriptor() const override { return -1; }
  Address local() const override { return local_; }
  bool take_unreachable(link::Unreachable&) override { return false; }
  void note_error() override {}
  link::LinkReport report() const override;

  bool has_arrivals() const { return socket_->GetRxAvailable() != 0; }
  // After a send that would block: how long to wait before the next one.
  Duration drain_time() const;
  std::uint64_t drops() const { return drops_; }

 private:
  static constexpr std::size_t kReceiveBuffers = 256;

  void send_one(const Segment& datagram, const link::Train& train);

  Options options_;
  ns3::Ptr<ns3::QueueDisc> queue_;
  ns3::Ptr<ns3::Socket> socket_;
  Address local_;
  link::ReceiveBufferPool pool_;
  std::vector<link::ReceiveBuffer*> lent_;
  std::vector<std::byte> gathered_;  // one datagram that was in two pieces
  std::uint64_t starved_ = 0;
  std::uint64_t drops_ = 0;
};

}  // namespace weir::bench
