// UDP with what Linux offers for speed: segmentation and receive offload, many messages per system call.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "link/link.h"
#include "link/udp_socket.h"

namespace weir::link {

// The cost of UDP is per socket buffer in the kernel, not per call, so a train travels as one (UDP_SEGMENT) and arrives
// as one (UDP_GRO). Owns its socket and the buffers it is filling. One thread.
class UdpLinux final : public Link {
 public:
  UdpLinux(UdpSocket socket, ReceiveBufferPool& pool);
  ~UdpLinux() override;

  std::size_t receive(std::vector<Datagram>& out) override;
  void recycle() override;
  std::size_t send(std::span<Train> trains, std::span<SendStatus> statuses) override;
  int descriptor() const override { return socket_.descriptor(); }
  Address local() const override { return socket_.local(); }
  bool take_unreachable(Unreachable& out) override { return socket_.take_unreachable(out); }
  void note_error() override { socket_.note_error(); }
  LinkReport report() const override;
  void close_in_child() override { socket_.close_in_child(); }

  // For tests: behave as if a device had refused UDP_SEGMENT.
  void refuse_segmentation_offload() { segmentation_offload_ = false; }

 private:
  static constexpr std::size_t kMaxMessages = 32;          // per sendmmsg
  static constexpr std::size_t kMaxSegments = 64;          // per message; older kernels take no more
  static constexpr std::size_t kMaxMessageBytes = 65'487;  // per message of several segments
  static constexpr std::size_t kMaxPieces = 512;           // of gathered segments, per sendmmsg
  static constexpr std::size_t kMaxFilledBuffers = 64;     // between two calls of recycle()
  static constexpr std::uint32_t kQuietReceives = 256;     // before a spare buffer goes back to the pool
  static constexpr int kMaxSameErrors = 3;                 // tries per train before an error is believed

  struct Kernel;  // the message headers that system calls read

  std::size_t receive_once(std::vector<Datagram>& out, std::size_t wanted);
  void split(std::vector<Datagram>& out, std::size_t message, ReceiveBuffer* buffer);
  void adapt_burst(std::size_t filled);
  std::size_t build(std::span<Train> trains, bool first_singly);
  void describe(std::size_t message, const Train& train, std::size_t segment);
  void count_stray_error();

  UdpSocket socket_;
  ReceiveBufferPool& pool_;
  std::unique_ptr<Kernel> kernel_;
  std::vector<ReceiveBuffer*> spare_;   // a stack: the warmest is on top
  std::vector<ReceiveBuffer*> filled_;  // their datagrams live until recycle()
  std::size_t burst_ = 1;               // buffers per system call: as many as lately were filled, so that hundreds of
                                        // idle links do not sit on the pool's buffers
  std::uint32_t quiet_receives_ = 0;
  bool segmentation_offload_ = false;
  bool receive_offload_ = false;
  std::uint64_t starved_receives_ = 0;
  std::uint64_t truncated_datagrams_ = 0;
  std::uint64_t stray_errors_ = 0;
  std::uint64_t offload_refusals_ = 0;
};

}  // namespace weir::link
