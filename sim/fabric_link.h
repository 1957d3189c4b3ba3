// A host's socket in a fabric: what its seat sees of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "link/link.h"
#include "sim/fabric.h"

namespace weir::sim {

// One per host. Datagrams are received where they lie: their buffers are the fabric's.
class FabricLink final : public link::Link {
 public:
  FabricLink(Fabric& fabric, HostId host, std::size_t receive_buffer_bytes)
      : fabric_(fabric), host_(host), receive_buffer_bytes_(receive_buffer_bytes) {}
  ~FabricLink() override { recycle(); }

  // ---- link::Link ----
  std::size_t receive(std::vector<link::Datagram>& out) override;
  void recycle() override;
  std::size_t send(std::span<link::Train> trains, std::span<link::SendStatus> statuses) override;
  int descriptor() const override { return -1; }
  Address local() const override { return Fabric::address_of(host_); }
  bool take_unreachable(link::Unreachable&) override { return false; }
  void note_error() override {}
  link::LinkReport report() const override;

  // When a send that returned would_block can go on; never() if none did since the last send.
  Instant writable_at() const { return writable_at_; }
  // Of the trains that were handed over since start_counting().
  std::uint32_t largest_train_bytes() const { return largest_train_bytes_; }
  // Of datagrams that the engine says are for control only: it tells their number, and they are the smallest.
  std::uint64_t control_ip_bytes() const { return control_ip_bytes_; }
  void count_control(std::uint64_t packets);
  void start_counting();

 private:
  bool send_train(link::Train& train);

  Fabric& fabric_;
  const HostId host_;
  const std::size_t receive_buffer_bytes_;
  std::vector<FabricPacket*> taken_;
  std::vector<std::uint32_t> sent_sizes_;  // since the last count_control()
  Instant writable_at_ = Instant::never();
  std::uint32_t largest_train_bytes_ = 0;
  std::uint64_t control_ip_bytes_ = 0;
};

}  // namespace weir::sim
