// UDP with nothing but sendmsg and recvmsg: for every other POSIX system, and to prove that no offload is needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "link/link.h"
#include "link/udp_socket.h"

namespace weir::link {

// Owns its socket and the buffers it is filling. One thread. Datagrams are received one behind the other into a buffer,
// so small ones do not cost 64 KiB each.
class UdpPortable final : public Link {
 public:
  UdpPortable(UdpSocket socket, ReceiveBufferPool& pool);
  ~UdpPortable() override;

  std::size_t receive(std::vector<Datagram>& out) override;
  void recycle() override;
  std::size_t send(std::span<Train> trains, std::span<SendStatus> statuses) override;
  int descriptor() const override { return socket_.descriptor(); }
  Address local() const override { return socket_.local(); }
  bool take_unreachable(Unreachable& out) override { return socket_.take_unreachable(out); }
  void note_error() override { socket_.note_error(); }
  LinkReport report() const override;
  void close_in_child() override { socket_.close_in_child(); }

 private:
  static constexpr std::size_t kMaxReceives = 64;       // per call of receive()
  static constexpr std::size_t kMaxFilledBuffers = 64;  // between two calls of recycle()
  static constexpr int kMaxSameErrors = 3;              // tries per datagram before an error is believed

  enum class Taken { datagram, nothing, dropped };

  bool prepare_buffers();
  Taken receive_one(Datagram& out);
  MutableByteSpan place(std::size_t size);
  SendStatus send_one(const Address& to, Ecn ecn, const Segment& segment);
  bool mark(Ecn ecn);
  void count_stray_error();

  UdpSocket socket_;
  ReceiveBufferPool& pool_;
  ReceiveBuffer* current_ = nullptr;  // being filled, up to used_
  std::size_t used_ = 0;
  ReceiveBuffer* spill_ = nullptr;      // takes what does not fit behind used_
  std::vector<ReceiveBuffer*> filled_;  // their datagrams live until recycle()
  Ecn marked_ = Ecn::not_ect;           // what the socket marks datagrams with now
  std::uint64_t starved_receives_ = 0;
  std::uint64_t truncated_datagrams_ = 0;
  std::uint64_t stray_errors_ = 0;
};

}  // namespace weir::link
