// A simulated socket: what a seat sees of the network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "link/link.h"
#include "sim/network.h"

namespace weir::sim {

// Bound to an address of its host from construction to destruction, unless several sockets share that (SharedPort).
class SimLink final : public link::Link, public Port {
 public:
  struct Options {
    std::size_t receive_buffer_bytes = 1u << 20;  // a socket drops what does not fit
    std::size_t datagram_overhead_bytes = 0;      // that each datagram takes of it beside its own
    std::size_t max_buffers = 256;                // receive buffers in use at once
    bool blocks = true;                           // a full queue at the sender is would_block; otherwise a silent drop
  };

  // `on_arrival` is called whenever there is something to poll for. `is_alone`: at its address.
  SimLink(Network& network, EventQueue& queue, HostId host, const Address& local, const Options& options,
          std::function<void()> on_arrival, bool is_alone = true);
  ~SimLink() override;

  // ---- link::Link ----
  std::size_t receive(std::vector<link::Datagram>& out) override;
  void recycle() override;
  std::size_t send(std::span<link::Train> trains, std::span<link::SendStatus> statuses) override;
  int descriptor() const override { return -1; }
  Address local() const override { return local_; }
  bool take_unreachable(link::Unreachable& out) override;
  void note_error() override {}
  link::LinkReport report() const override;

  // ---- Port ----
  void arrive(const Packet& packet) override;
  void arrive_unreachable(const Address& who, ByteSpan quoted) override;

  bool has_arrivals() const { return !inbox_.empty() || !unreachable_.empty(); }
  // When a send that returned would_block can go on; never() if none did since the last send.
  Instant writable_at() const { return writable_at_; }
  std::size_t buffers_in_use() const { return pool_.in_use(); }
  std::uint64_t dropped() const { return dropped_; }

 private:
  static constexpr std::size_t kMaxUnreachable = 64;
  static constexpr std::size_t kMaxDatagramBytes = 65'507;  // of UDP over IPv4

  Network& network_;
  EventQueue& queue_;
  HostId host_;
  Address local_;
  Options options_;
  std::function<void()> on_arrival_;
  const bool is_alone_;
  link::ReceiveBufferPool pool_;
  std::vector<link::ReceiveBuffer*> lent_;
  std::deque<Packet> inbox_;
  std::size_t inbox_bytes_ = 0;
  std::deque<link::Unreachable> unreachable_;
  Instant writable_at_ = Instant::never();
  std::uint64_t dropped_ = 0;
  std::uint64_t starved_ = 0;
};

}  // namespace weir::sim
