#include "link/udp_portable.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace weir::link {

UdpPortable::UdpPortable(UdpSocket socket, ReceiveBufferPool& pool) : socket_(std::move(socket)), pool_(pool) {
  filled_.reserve(kMaxFilledBuffers);
}

UdpPortable::~UdpPortable() {
  for (ReceiveBuffer* buffer : filled_) buffer->release_ref();
  if (current_ != nullptr) current_->release_ref();
  if (spill_ != nullptr) spill_->release_ref();
}

std::size_t UdpPortable::receive(std::vector<Datagram>& out) {
  if (socket_.is_in_child()) [[unlikely]]
    return 0;
  const std::size_t wanted = std::min(kMaxReceives, out.capacity() - out.size());
  std::size_t received = 0;
  for (std::size_t attempt = 0; attempt < wanted; ++attempt) {
    if (!prepare_buffers()) break;
    Datagram datagram;
    const Taken taken = receive_one(datagram);
    if (taken == Taken::nothing) break;
    if (taken == Taken::dropped) continue;
    out.push_back(datagram);
    ++received;
  }
  return received;
}

// A datagram of any size fits if the current buffer is empty or there is a second one behind it.
bool UdpPortable::prepare_buffers() {
  if (filled_.size() == kMaxFilledBuffers) return false;
  if (current_ == nullptr) {
    current_ = std::exchange(spill_, nullptr);
    if (current_ == nullptr) current_ = pool_.acquire();
    used_ = 0;
  }
  if (current_ != nullptr && used_ > 0 && spill_ == nullptr) spill_ = pool_.acquire();
  if (current_ != nullptr && (used_ == 0 || spill_ != nullptr)) return true;
  ++starved_receives_;
  return false;
}

UdpPortable::Taken UdpPortable::receive_one(Datagram& out) {
  SocketAddress from;
  alignas(cmsghdr) std::byte control[128];
  const MutableByteSpan rest = current_->bytes().subspan(used_);
  iovec parts[2] = {{rest.data(), rest.size()}, {nullptr, 0}};
  if (used_ > 0) parts[1] = {spill_->bytes().data(), ReceiveBuffer::kCapacity};
  msghdr message{};
  ssize_t size = -1;
  for (int attempt = 0; attempt < kMaxStrayErrors; ++attempt) {
    message.msg_name = &from.any;
    message.msg_namelen = sizeof from.v6;
    message.msg_iov = parts;
    message.msg_iovlen = used_ > 0 ? 2 : 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    size = recvmsg(descriptor(), &message, MSG_DONTWAIT);
    if (size >= 0 || errno == EAGAIN) break;
    if (errno != EINTR) count_stray_error();
  }
  if (size < 0) return Taken::nothing;
  if ((message.msg_flags & MSG_TRUNC) != 0 || static_cast<std::size_t>(size) > ReceiveBuffer::kCapacity) {
    ++truncated_datagrams_;
    return Taken::dropped;
  }
  out.bytes = place(static_cast<std::size_t>(size));
  out.from = from.address();
  out.ecn = received_ecn(message);
  out.buffer = current_;
  return Taken::datagram;
}

// The bytes of a datagram just received, in one piece.
MutableByteSpan UdpPortable::place(std::size_t size) {
  const std::size_t room = ReceiveBuffer::kCapacity - used_;
  if (size > room) {
    std::byte* whole = spill_->bytes().data();
    std::memmove(whole + room, whole, size - room);
    std::memcpy(whole, current_->bytes().data() + used_, room);
    filled_.push_back(current_);
    current_ = std::exchange(spill_, nullptr);
    used_ = 0;
  }
  const MutableByteSpan bytes = current_->bytes().subspan(used_, size);
  // Datagrams begin at multiples of 16, as a cipher working in place likes it.
  used_ = std::min(ReceiveBuffer::kCapacity, (used_ + size + 15) / 16 * 16);
  return bytes;
}

void UdpPortable::recycle() {
  // One that is still referred to is filled further behind those bytes.
  if (current_ != nullptr && current_->is_sole_reference()) used_ = 0;
  while (!filled_.empty()) {
    ReceiveBuffer* buffer = filled_.back();
    filled_.pop_back();
    buffer->release_ref();
  }
  // An idle link holds one buffer only.
  if (used_ == 0 && spill_ != nullptr) std::exchange(spill_, nullptr)->release_ref();
}

std::size_t UdpPortable::send(std::span<Train> trains, std::span<SendStatus> statuses) {
  WEIR_CHECK(statuses.size() >= trains.size(), "give send() room for the status of every train");
  if (socket_.is_in_child()) [[unlikely]] {
    std::fill_n(statuses.begin(), trains.size(), SendStatus::failed);
    return trains.size();
  }
  for (std::size_t done = 0; done < trains.size(); ++done) {
    Train& train = trains[done];
    statuses[done] = SendStatus::sent;
    while (!train.is_empty()) {
      const bool is_gathered = !train.segments.empty();
      const std::size_t segment = train.segment_size == 0 ? train.bytes.size() : train.segment_size;
      const std::size_t size = std::min(segment, train.bytes.size());
      const Segment next = is_gathered ? train.segments.front() : Segment{.head = train.bytes.first(size)};
      WEIR_CHECK(next.size() != 0 && (train.bytes.empty() || !is_gathered),
                 "a train is either bytes or segments with bytes");
      statuses[done] = send_one(train.to, train.ecn, next);
      if (statuses[done] == SendStatus::would_block) return done;
      if (statuses[done] != SendStatus::sent) break;
      if (is_gathered) {
        train.segments = train.segments.subspan(1);
      } else {
        train.bytes = train.bytes.subspan(size);
      }
    }
  }
  return trains.size();
}

SendStatus UdpPortable::send_one(const Address& to, Ecn ecn, const Segment& segment) {
  if (to.is_v4() != socket_.is_v4()) return SendStatus::failed;
  if (ecn != marked_ && mark(ecn)) marked_ = ecn;
  SocketAddress destination{to};
  const auto piece = [](ByteSpan bytes) { return iovec{const_cast<std::byte*>(bytes.data()), bytes.size()}; };
  iovec pieces[2] = {piece(segment.head), piece(segment.body)};
  msghdr message{};
  message.msg_name = &destination.any;
  message.msg_namelen = destination.size;
  message.msg_iov = pieces;
  message.msg_iovlen = segment.body.empty() ? 1 : 2;
  int same_errors = 0;
  int last_error = 0;
  for (int attempt = 0; attempt < kMaxStrayErrors; ++attempt) {
    if (sendmsg(descriptor(), &message, MSG_DONTWAIT) >= 0) return SendStatus::sent;
    const int error = errno;
    if (error == EINTR) continue;
    const SendStatus status = UdpSocket::status_of(error);
    if (status == SendStatus::would_block) return status;
    // Most errors here speak of an earlier datagram and are gone when asked again. Refused connections always do.
    count_stray_error();
    if (error == ECONNREFUSED) continue;
    same_errors = error == last_error ? same_errors + 1 : 1;
    last_error = error;
    if (same_errors >= kMaxSameErrors) {
      stray_errors_ -= static_cast<std::uint64_t>(same_errors);  // it was about this datagram after all
      return status;
    }
  }
  return SendStatus::would_block;
}

bool UdpPortable::mark(Ecn ecn) {
  const int value = static_cast<int>(ecn);
  if (socket_.is_v4()) {
#if defined(IP_TOS)
    return setsockopt(descriptor(), IPPROTO_IP, IP_TOS, &value, sizeof value) == 0;
#endif
  } else {
#if defined(IPV6_TCLASS)
    return setsockopt(descriptor(), IPPROTO_IPV6, IPV6_TCLASS, &value, sizeof value) == 0;
#endif
  }
  return false;
}

void UdpPortable::count_stray_error() {
  ++stray_errors_;
  socket_.note_error();
}

LinkReport UdpPortable::report() const {
  LinkReport report = socket_.report();
  report.kind = "udp-portable";
  report.starved_receives = starved_receives_;
  report.truncated_datagrams = truncated_datagrams_;
  report.stray_errors = stray_errors_;
  return report;
}

}  // namespace weir::link
