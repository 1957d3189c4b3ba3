// The floor: a plain, unencrypted UDP echo with sendmmsg and recvmmsg and next to no bookkeeping.
//
// --mode spinning polls the socket, --mode blocking sleeps in recvmmsg. --segment on hands the kernel trains of equal
// datagrams (UDP_SEGMENT, UDP_GRO). --batch is the number of datagrams asked for in one recvmmsg: 1 saves the second,
// empty look at the socket when only one call is outstanding.
#include <netinet/udp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <span>

#include "harness.h"

namespace weir::bench {
namespace {

constexpr std::size_t kMaximumBatch = 64;
constexpr std::size_t kMaximumSegments = 64;
// One datagram with its headers fits in 64 KiB; the odd lines keep the buffers from sharing cache sets.
constexpr std::size_t kBufferStride = 65'536 + 5 * 64;
constexpr std::uint64_t kLostAfterNs = 50'000'000;
constexpr std::uint64_t kLossCheckEveryNs = 10'000'000;

struct Settings {
  bool spinning = true;
  bool segment = false;
  std::size_t batch = kMaximumBatch;
};

int open_socket(const Settings& settings) {
  int descriptor = ::socket(AF_INET, SOCK_DGRAM, 0);
  if (descriptor < 0) fail_with_errno("socket");
  int bytes = 16 << 20;
  for (int option : {SO_RCVBUFFORCE, SO_SNDBUFFORCE}) {
    if (setsockopt(descriptor, SOL_SOCKET, option, &bytes, sizeof(bytes)) == 0) continue;
    setsockopt(descriptor, SOL_SOCKET, option == SO_RCVBUFFORCE ? SO_RCVBUF : SO_SNDBUF, &bytes, sizeof(bytes));
  }
  int on = 1;
  if (settings.segment && setsockopt(descriptor, IPPROTO_UDP, UDP_GRO, &on, sizeof(on)) != 0) {
    fail_with_errno("UDP_GRO");
  }
  if (!settings.spinning) {
    timeval timeout{.tv_sec = 0, .tv_usec = 20'000};  // so that a client whose datagrams all got lost sends again
    setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  }
  return descriptor;
}

using ControlBuffer = std::array<char, CMSG_SPACE(sizeof(int))>;

// Collects datagrams and sends them in one system call. Without --segment each is a message of its own; with it, equal
// ones to the same address join a train.
class Sender {
 public:
  Sender(int descriptor, bool connected, bool segment)
      : descriptor_(descriptor),
        connected_(connected),
        segment_(segment),
        buffers_(new std::byte[kMaximumBatch * kBufferStride]()) {}

  // Room for one datagram, its body not cleared. Sends first if all is full.
  std::byte* add(const sockaddr_in& address, std::size_t size) {
    if (count_ > 0 && segment_) {
      Train& last = trains_[count_ - 1];
      bool joins = last.segment_size == size && last.segments < kMaximumSegments &&
                   last.length + size <= kMaximumBody && last.address.sin_port == address.sin_port &&
                   last.address.sin_addr.s_addr == address.sin_addr.s_addr;
      if (joins) {
        std::byte* place = buffer(count_ - 1) + last.length;
        last.segments++;
        last.length += size;
        return place;
      }
    }
    if (count_ == kMaximumBatch) flush();
    trains_[count_] = {.address = address, .length = size, .segment_size = size, .segments = 1};
    return buffer(count_++);
  }

  void flush() {
    for (std::size_t i = 0; i < count_; i++) describe(i);
    std::size_t sent = 0;
    while (sent < count_) {
      int result = sendmmsg(descriptor_, &messages_[sent], static_cast<unsigned>(count_ - sent), 0);
      if (result > 0) {
        sent += static_cast<std::size_t>(result);
      } else if (errno == ECONNREFUSED || errno == ENOBUFS) {
        sent++;  // lost, as datagrams may be; the client counts it
      } else if (errno != EINTR && errno != EAGAIN) {
        fail_with_errno("sendmmsg");
      }
    }
    count_ = 0;
  }

 private:
  struct Train {
    sockaddr_in address{};
    std::size_t length = 0;
    std::size_t segment_size = 0;
    std::size_t segments = 0;
  };

  std::byte* buffer(std::size_t index) { return buffers_.get() + index * kBufferStride; }

  void describe(std::size_t index) {
    Train& train = trains_[index];
    vectors_[index] = {.iov_base = buffer(index), .iov_len = train.length};
    msghdr& header = messages_[index].msg_hdr;
    header = {};
    if (!connected_) {
      header.msg_name = &train.address;
      header.msg_namelen = sizeof(train.address);
    }
    header.msg_iov = &vectors_[index];
    header.msg_iovlen = 1;
    if (train.segments < 2) return;
    header.msg_control = controls_[index].data();
    header.msg_controllen = CMSG_SPACE(sizeof(std::uint16_t));
    cmsghdr* control = CMSG_FIRSTHDR(&header);
    control->cmsg_level = SOL_UDP;
    control->cmsg_type = UDP_SEGMENT;
    control->cmsg_len = CMSG_LEN(sizeof(std::uint16_t));
    auto size = static_cast<std::uint16_t>(train.segment_size);
    std::memcpy(CMSG_DATA(control), &size, sizeof(size));
  }

  int descriptor_;
  bool connected_;
  bool segment_;
  std::unique_ptr<std::byte[]> buffers_;
  std::size_t count_ = 0;
  std::array<Train, kMaximumBatch> trains_{};
  std::array<mmsghdr, kMaximumBatch> messages_{};
  std::array<iovec, kMaximumBatch> vectors_{};
  alignas(cmsghdr) std::array<ControlBuffer, kMaximumBatch> controls_{};
};

// Takes what has arrived and hands on each datagram, trains taken apart.
class Receiver {
 public:
  Receiver(int descriptor, const Settings& settings)
      : descriptor_(descriptor), settings_(settings), buffers_(new std::byte[kMaximumBatch * kBufferStride]()) {
    for (std::size_t i = 0; i < kMaximumBatch; i++) {
      vectors_[i] = {.iov_base = buffers_.get() + i * kBufferStride, .iov_len = 65'536};
      msghdr& header = messages_[i].msg_hdr;
      header.msg_name = &addresses_[i];
      header.msg_iov = &vectors_[i];
      header.msg_iovlen = 1;
      header.msg_control = settings.segment ? controls_[i].data() : nullptr;
    }
  }

  template <typename Handler>  // void(const sockaddr_in&, std::span<const std::byte>)
  void receive(std::size_t at_most, Handler&& handler) {
    at_most = std::min(at_most, settings_.batch);
    for (std::size_t i = 0; i < at_most; i++) {
      messages_[i].msg_hdr.msg_namelen = sizeof(sockaddr_in);
      messages_[i].msg_hdr.msg_controllen = settings_.segment ? sizeof(ControlBuffer) : 0;
    }
    int flags = settings_.spinning ? MSG_DONTWAIT : MSG_WAITFORONE;
    int result = recvmmsg(descriptor_, messages_.data(), static_cast<unsigned>(at_most), flags, nullptr);
    if (result < 0) {
      if (errno == EAGAIN || errno == EINTR || errno == ECONNREFUSED) return;
      fail_with_errno("recvmmsg");
    }
    for (std::size_t i = 0; i < static_cast<std::size_t>(result); i++) {
      std::span<const std::byte> bytes(buffers_.get() + i * kBufferStride, messages_[i].msg_len);
      std::size_t segment_size = segment_size_of(messages_[i].msg_hdr, bytes.size());
      while (!bytes.empty()) {
        std::size_t size = std::min(segment_size, bytes.size());
        handler(addresses_[i], bytes.first(size));
        bytes = bytes.subspan(size);
      }
    }
  }

 private:
  static std::size_t segment_size_of(msghdr& header, std::size_t whole) {
    if (header.msg_controllen == 0) return whole;
    for (cmsghdr* control = CMSG_FIRSTHDR(&header); control != nullptr; control = CMSG_NXTHDR(&header, control)) {
      if (control->cmsg_level != SOL_UDP || control->cmsg_type != UDP_GRO) continue;
      int size = 0;
      std::memcpy(&size, CMSG_DATA(control), sizeof(size));
      if (size > 0) return static_cast<std::size_t>(size);
    }
    return whole;
  }

  int descriptor_;
  Settings settings_;
  std::unique_ptr<std::byte[]> buffers_;
  std::array<mmsghdr, kMaximumBatch> messages_{};
  std::array<iovec, kMaximumBatch> vectors_{};
  std::array<sockaddr_in, kMaximumBatch> addresses_{};
  alignas(cmsghdr) std::array<ControlBuffer, kMaximumBatch> controls_{};
};

[[noreturn]] void serve(const Options& options, const Settings& settings) {
  int descriptor = open_socket(settings);
  sockaddr_in address = parse_address(options.address);
  if (bind(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    fail_with_errno("cannot listen at " + options.address);
  }
  auto sender = std::make_unique<Sender>(descriptor, false, settings.segment);
  auto receiver = std::make_unique<Receiver>(descriptor, settings);
  for (;;) {
    receiver->receive(kMaximumBatch, [&](const sockaddr_in& from, std::span<const std::byte> request) {
      Header header;
      if (request.size() < sizeof(header)) return;
      std::memcpy(&header, request.data(), sizeof(header));
      if (header.reply_bytes < sizeof(header) || header.reply_bytes > kMaximumBody) return;
      std::memcpy(sender->add(from, header.reply_bytes), &header, sizeof(header));
    });
    sender->flush();
  }
}

int call(const Options& options, const Settings& settings) {
  int descriptor = open_socket(settings);
  sockaddr_in address = parse_address(options.address);
  if (connect(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) fail_with_errno("connect");

  struct Call {
    std::uint64_t sent_ns = 0;
    std::uint16_t generation = 0;
    bool outstanding = false;
  };
  std::vector<Call> calls(options.window);
  std::vector<std::uint16_t> idle;
  for (std::uint32_t slot = options.window; slot > 0; slot--) idle.push_back(static_cast<std::uint16_t>(slot - 1));

  auto sender = std::make_unique<Sender>(descriptor, true, settings.segment);
  auto receiver = std::make_unique<Receiver>(descriptor, settings);
  auto measurement = std::make_unique<Measurement>(options);
  std::uint64_t begin_ns = now_ns();
  std::uint64_t next_loss_check_ns = begin_ns + kLossCheckEveryNs;
  std::uint64_t now = begin_ns;
  while (!measurement->is_over(now)) {
    if (!measurement->is_connected() && now - begin_ns > 3'000'000'000) fail("no answer from " + options.address);
    if (!idle.empty()) {
      now = now_ns();
      for (std::uint16_t slot : idle) {
        Call& call = calls[slot];
        call.sent_ns = now;
        call.outstanding = true;
        Header header{.slot = slot, .generation = ++call.generation, .reply_bytes = options.reply_bytes};
        std::memcpy(sender->add(address, options.request_bytes), &header, sizeof(header));
      }
      idle.clear();
      sender->flush();
    }
    bool clock_read = false;
    receiver->receive(options.window, [&](const sockaddr_in&, std::span<const std::byte> reply) {
      if (!clock_read) now = now_ns();
      clock_read = true;
      Header header;
      if (reply.size() != options.reply_bytes) return measurement->failed();
      std::memcpy(&header, reply.data(), sizeof(header));
      if (header.slot >= calls.size()) return measurement->failed();
      Call& call = calls[header.slot];
      if (!call.outstanding || call.generation != header.generation) return;  // late: already counted as lost
      measurement->connected(now);
      measurement->completed(call.sent_ns, now);
      call.outstanding = false;
      idle.push_back(header.slot);
    });
    if (!clock_read) now = now_ns();
    if (now < next_loss_check_ns) continue;
    next_loss_check_ns = now + kLossCheckEveryNs;
    for (std::size_t slot = 0; slot < calls.size(); slot++) {
      if (!calls[slot].outstanding || now - calls[slot].sent_ns < kLostAfterNs) continue;
      measurement->lost();
      calls[slot].outstanding = false;
      idle.push_back(static_cast<std::uint16_t>(slot));
    }
  }
  return measurement->print(std::string(",\"mode\":\"") + (settings.spinning ? "spinning" : "blocking") +
                            "\",\"segment\":" + (settings.segment ? "true" : "false"));
}

}  // namespace
}  // namespace weir::bench

int main(int argument_count, char** arguments) {
  using namespace weir::bench;
  Options options = parse_options(argument_count, arguments, {"mode", "segment", "batch"});
  Settings settings;
  std::string mode = options.other("mode", "spinning");
  if (mode != "spinning" && mode != "blocking") fail("--mode must be 'spinning' or 'blocking'");
  std::string segment = options.other("segment", "off");
  if (segment != "on" && segment != "off") fail("--segment must be 'on' or 'off'");
  settings.spinning = mode == "spinning";
  settings.segment = segment == "on";
  settings.batch = static_cast<std::size_t>(
      parse_number("batch", options.other("batch", std::to_string(kMaximumBatch)), 1, kMaximumBatch));
  prepare_process(options);
  if (options.is_server) serve(options, settings);
  return call(options, settings);
}
