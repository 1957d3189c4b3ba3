#include "link/udp_linux.h"

#include <netinet/udp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace weir::link {
namespace {

constexpr std::size_t kReceiveControlSize = 128;
constexpr std::size_t kSendControlSize = CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(std::uint16_t));

// The size of the datagrams that were coalesced into this message; 0 if it is a single one.
std::size_t coalesced_size(const msghdr& message) {
  for (cmsghdr* control = CMSG_FIRSTHDR(&message); control != nullptr;
       control = CMSG_NXTHDR(const_cast<msghdr*>(&message), control)) {
    if (control->cmsg_level != SOL_UDP || control->cmsg_type != UDP_GRO) continue;
    int size = 0;
    std::memcpy(&size, CMSG_DATA(control), sizeof size);
    return size > 0 ? static_cast<std::size_t>(size) : 0;
  }
  return 0;
}

template <class T>
std::size_t put_control(std::byte* to, int level, int type, T value) {
  cmsghdr header{};
  header.cmsg_len = CMSG_LEN(sizeof value);
  header.cmsg_level = level;
  header.cmsg_type = type;
  std::memcpy(to, &header, sizeof header);
  std::memcpy(to + CMSG_LEN(0), &value, sizeof value);
  return CMSG_SPACE(sizeof value);
}

// Points `pieces` at the first segments, two each, and returns the bytes that they are together.
std::size_t gather(std::span<const Segment> segments, std::size_t segment_size, std::span<iovec> pieces) {
  const auto piece = [](ByteSpan bytes) { return iovec{const_cast<std::byte*>(bytes.data()), bytes.size()}; };
  std::size_t total = 0;
  for (std::size_t i = 0; 2 * i < pieces.size(); ++i) {
    const std::size_t size = segments[i].size();
    // The kernel cuts by size alone: an odd one in the middle would shift every datagram behind it.
    WEIR_CHECK(size == segment_size || (size < segment_size && i + 1 == segments.size()),
               "all segments of a train but the last must be of one size");
    pieces[2 * i] = piece(segments[i].head);
    pieces[2 * i + 1] = piece(segments[i].body);
    total += size;
  }
  return total;
}

bool is_full(int error) { return UdpSocket::status_of(error) == SendStatus::would_block; }

}  // namespace

struct UdpLinux::Kernel {
  struct Receive {
    SocketAddress from;
    iovec bytes{};
    alignas(cmsghdr) std::array<std::byte, kReceiveControlSize> control;
  };
  struct Send {
    SocketAddress to;
    iovec bytes{};             // unless gathered
    std::size_t segments = 0;  // gathered ones
    std::size_t size = 0;      // all bytes, in either case
    bool is_offloaded = false;
    alignas(cmsghdr) std::array<std::byte, kSendControlSize> control{};
  };
  std::array<mmsghdr, kReceiveBuffers> receive_messages{};
  std::array<Receive, kReceiveBuffers> receives;
  std::array<mmsghdr, kMaxMessages> send_messages{};
  std::array<Send, kMaxMessages> sends;
  std::array<iovec, kMaxPieces> pieces;
};

UdpLinux::UdpLinux(UdpSocket socket, ReceiveBufferPool& pool)
    : socket_(std::move(socket)), pool_(pool), kernel_(std::make_unique<Kernel>()) {
  spare_.reserve(kReceiveBuffers);
  filled_.reserve(kMaxFilledBuffers);
  for (std::size_t i = 0; i < kReceiveBuffers; ++i) {
    msghdr& header = kernel_->receive_messages[i].msg_hdr;
    header.msg_name = &kernel_->receives[i].from.any;
    header.msg_iov = &kernel_->receives[i].bytes;
    header.msg_iovlen = 1;
    header.msg_control = kernel_->receives[i].control.data();
  }
  for (std::size_t i = 0; i < kMaxMessages; ++i) {
    msghdr& header = kernel_->send_messages[i].msg_hdr;
    header.msg_name = &kernel_->sends[i].to.any;
  }
  const int on = 1;
  receive_offload_ = setsockopt(descriptor(), SOL_UDP, UDP_GRO, &on, sizeof on) == 0;
  // Zero leaves the socket as it was and tells whether the kernel knows the option.
  const int no_default = 0;
  segmentation_offload_ = setsockopt(descriptor(), SOL_UDP, UDP_SEGMENT, &no_default, sizeof no_default) == 0;
}

UdpLinux::~UdpLinux() {
  for (ReceiveBuffer* buffer : filled_) buffer->release_ref();
  for (ReceiveBuffer* buffer : spare_) buffer->release_ref();
}

std::size_t UdpLinux::receive(std::vector<Datagram>& out) {
  if (socket_.is_in_child()) [[unlikely]]
    return 0;
  const std::size_t before = out.size();
  const std::size_t room = (out.capacity() - before) / kDatagramsPerBuffer;
  std::size_t left = std::min({kReceiveBuffers, room, kMaxFilledBuffers - filled_.size()});
  std::size_t total = 0;
  while (left > 0) {
    const std::size_t wanted = std::min(left, burst_);
    const std::size_t filled = receive_once(out, wanted);
    total += filled;
    left -= filled;
    if (filled < wanted) break;
    burst_ = std::min(kReceiveBuffers, burst_ * 2);
  }
  adapt_burst(total);
  return out.size() - before;
}

std::size_t UdpLinux::receive_once(std::vector<Datagram>& out, std::size_t wanted) {
  while (spare_.size() < wanted) {
    ReceiveBuffer* buffer = pool_.acquire();
    if (buffer == nullptr) break;
    spare_.push_back(buffer);
  }
  wanted = std::min(wanted, spare_.size());
  if (wanted == 0) {
    ++starved_receives_;
    return 0;
  }
  for (std::size_t i = 0; i < wanted; ++i) {
    const MutableByteSpan bytes = spare_[spare_.size() - 1 - i]->bytes();
    kernel_->receives[i].bytes = {bytes.data(), bytes.size()};
    msghdr& header = kernel_->receive_messages[i].msg_hdr;
    header.msg_namelen = sizeof(sockaddr_in6);
    header.msg_controllen = kReceiveControlSize;
  }
  int received = 0;
  for (int attempt = 0; attempt < kMaxStrayErrors; ++attempt) {
    received =
        recvmmsg(descriptor(), kernel_->receive_messages.data(), static_cast<unsigned>(wanted), MSG_DONTWAIT, nullptr);
    if (received >= 0 || errno == EAGAIN) break;
    if (errno != EINTR) count_stray_error();
  }
  if (received <= 0) return 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(received); ++i) {
    ReceiveBuffer* buffer = spare_.back();
    spare_.pop_back();
    filled_.push_back(buffer);
    split(out, i, buffer);
  }
  return static_cast<std::size_t>(received);
}

void UdpLinux::split(std::vector<Datagram>& out, std::size_t message, ReceiveBuffer* buffer) {
  const mmsghdr& received = kernel_->receive_messages[message];
  if ((received.msg_hdr.msg_flags & MSG_TRUNC) != 0) {
    ++truncated_datagrams_;
    return;
  }
  MutableByteSpan rest = buffer->bytes().first(received.msg_len);
  std::size_t segment = coalesced_size(received.msg_hdr);
  if (segment == 0) segment = rest.size();
  const Ecn ecn = received_ecn(received.msg_hdr);
  const Address from = kernel_->receives[message].from.address();
  for (std::size_t count = 0; count < kDatagramsPerBuffer; ++count) {
    const std::size_t size = std::min(segment, rest.size());
    out.push_back({rest.first(size), from, ecn, buffer});
    rest = rest.subspan(size);
    if (rest.empty()) return;
  }
  truncated_datagrams_ += (rest.size() + segment - 1) / segment;
}

void UdpLinux::adapt_burst(std::size_t filled) {
  if (filled * 2 > burst_ || burst_ == 1) {
    quiet_receives_ = 0;
    return;
  }
  if (++quiet_receives_ < kQuietReceives) return;
  quiet_receives_ = 0;
  burst_ /= 2;
  while (spare_.size() > burst_) {
    spare_.front()->release_ref();
    spare_.erase(spare_.begin());
  }
}

void UdpLinux::recycle() {
  while (!filled_.empty()) {
    ReceiveBuffer* buffer = filled_.back();
    filled_.pop_back();
    if (spare_.size() < burst_ && buffer->is_sole_reference()) {
      spare_.push_back(buffer);
    } else {
      buffer->release_ref();
    }
  }
}

std::size_t UdpLinux::send(std::span<Train> trains, std::span<SendStatus> statuses) {
  WEIR_CHECK(statuses.size() >= trains.size(), "give send() room for the status of every train");
  if (socket_.is_in_child()) [[unlikely]] {
    std::fill_n(statuses.begin(), trains.size(), SendStatus::failed);
    return trains.size();
  }
  std::size_t done = 0;
  int strays = 0;
  int last_error = 0;
  int same_errors = 0;
  bool refused = false;  // UDP_SEGMENT failed for trains[done]
  const auto consume = [&](SendStatus status) {
    statuses[done++] = status;
    same_errors = 0;
    refused = false;
  };
  while (done < trains.size()) {
    Train& train = trains[done];
    if (train.is_empty()) {
      consume(SendStatus::sent);
      continue;
    }
    if (train.to.is_v4() != socket_.is_v4()) {
      consume(SendStatus::failed);
      continue;
    }
    const std::size_t built = build(trains.subspan(done), refused);
    const int sent = sendmmsg(descriptor(), kernel_->send_messages.data(), static_cast<unsigned>(built), MSG_DONTWAIT);
    if (sent > 0) {
      // What goes singly though it was refused as a train was refused by the offload, not for its size.
      if (refused) segmentation_offload_ = false;
      // The kernel keeps to itself which error stopped it; it may have been one that was waiting in the queue.
      if (static_cast<std::size_t>(sent) < built) socket_.note_error();
      for (int i = 0; i < sent; ++i) {
        const Kernel::Send& message = kernel_->sends[static_cast<std::size_t>(i)];
        Train& advanced = trains[done];
        if (message.segments != 0) {
          advanced.segments = advanced.segments.subspan(message.segments);
        } else {
          advanced.bytes = advanced.bytes.subspan(message.size);
        }
        if (advanced.is_empty()) consume(SendStatus::sent);
      }
      continue;
    }
    const int error = errno;
    if (error == EINTR) continue;
    if (is_full(error)) {
      statuses[done] = SendStatus::would_block;
      break;
    }
    if ((error == EINVAL || error == EIO) && kernel_->sends[0].is_offloaded) {
      refused = true;
      ++offload_refusals_;
      continue;
    }
    // Most errors here speak of an earlier datagram and are gone when asked again. Refused connections always do.
    count_stray_error();
    if (error == ECONNREFUSED) {
      if (++strays < kMaxStrayErrors) continue;
      statuses[done] = SendStatus::would_block;
      break;
    }
    same_errors = error == last_error ? same_errors + 1 : 1;
    last_error = error;
    if (same_errors >= kMaxSameErrors) {
      stray_errors_ -= static_cast<std::uint64_t>(same_errors);  // it was about this train after all
      consume(UdpSocket::status_of(error));
    }
  }
  return done;
}

// Cuts trains into the messages of one sendmmsg, up to the first train that needs a decision of its own.
std::size_t UdpLinux::build(std::span<Train> trains, bool first_singly) {
  static_assert(kMaxPieces >= 2 * kMaxSegments, "the first message must always fit");
  std::size_t built = 0;
  std::size_t pieces_used = 0;
  for (std::size_t t = 0; t < trains.size(); ++t) {
    const Train& train = trains[t];
    if (train.is_empty() || train.to.is_v4() != socket_.is_v4()) break;
    const bool is_gathered = !train.segments.empty();
    const bool is_single = train.segment_size == 0 || train.bytes.size() <= train.segment_size;
    const std::size_t segment = is_gathered ? train.segments.front().size()
                                : is_single ? train.bytes.size()
                                            : train.segment_size;
    WEIR_CHECK(segment != 0 && (train.bytes.empty() || !is_gathered), "a train is either bytes or segments with bytes");
    std::size_t most = 1;
    if (segmentation_offload_ && !(first_singly && t == 0)) {
      most = std::clamp<std::size_t>(kMaxMessageBytes / segment, 1, kMaxSegments);
    }
    MutableByteSpan bytes = train.bytes;
    std::span<const Segment> segments = train.segments;
    while (!bytes.empty() || !segments.empty()) {
      if (built == kMaxMessages) return built;
      Kernel::Send& message = kernel_->sends[built];
      msghdr& header = kernel_->send_messages[built].msg_hdr;
      message.segments = std::min(most, segments.size());
      if (is_gathered) {
        if (kMaxPieces - pieces_used < 2 * message.segments) return built;
        const std::span<iovec> pieces = std::span{kernel_->pieces}.subspan(pieces_used, 2 * message.segments);
        message.size = gather(segments, segment, pieces);
        segments = segments.subspan(message.segments);
        header.msg_iov = pieces.data();
        header.msg_iovlen = pieces.size();
        pieces_used += pieces.size();
      } else {
        message.size = std::min(most * segment, bytes.size());
        message.bytes = {bytes.data(), message.size};
        bytes = bytes.subspan(message.size);
        header.msg_iov = &message.bytes;
        header.msg_iovlen = 1;
      }
      describe(built++, train, segment);
    }
  }
  return built;
}

// Everything about a message but its bytes.
void UdpLinux::describe(std::size_t message, const Train& train, std::size_t segment) {
  Kernel::Send& send = kernel_->sends[message];
  send.to = SocketAddress{train.to};
  send.is_offloaded = send.size > segment;
  std::size_t control_size = 0;
  if (train.ecn != Ecn::not_ect) {
    control_size += socket_.is_v4()
                        ? put_control(send.control.data(), IPPROTO_IP, IP_TOS, static_cast<int>(train.ecn))
                        : put_control(send.control.data(), IPPROTO_IPV6, IPV6_TCLASS, static_cast<int>(train.ecn));
  }
  if (send.is_offloaded) {
    control_size +=
        put_control(send.control.data() + control_size, SOL_UDP, UDP_SEGMENT, static_cast<std::uint16_t>(segment));
  }
  msghdr& header = kernel_->send_messages[message].msg_hdr;
  header.msg_namelen = send.to.size;
  header.msg_control = control_size == 0 ? nullptr : send.control.data();
  header.msg_controllen = control_size;
}

void UdpLinux::count_stray_error() {
  ++stray_errors_;
  socket_.note_error();
}

LinkReport UdpLinux::report() const {
  LinkReport report = socket_.report();
  report.kind = "udp-linux";
  report.segmentation_offload = segmentation_offload_;
  report.receive_offload = receive_offload_;
  report.starved_receives = starved_receives_;
  report.truncated_datagrams = truncated_datagrams_;
  report.stray_errors = stray_errors_;
  report.offload_refusals = offload_refusals_;
  return report;
}

}  // namespace weir::link
