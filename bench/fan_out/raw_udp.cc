// What a fan-out takes at least: each call is one bare UDP datagram to one of --peers sockets in another process, and
// each reply is one, sent and received with sendmmsg and recvmmsg, without segmentation by the kernel. Nothing is sent
// again; a call that loses a datagram fails. At most --in-flight calls are under way, so that buffers do not overflow.
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "../bottleneck/burst.h"

namespace weir::bench {
namespace {

constexpr std::size_t kBatch = 64;
constexpr std::size_t kDatagramBytes = 16'384;
constexpr int kSocketBufferBytes = 8 << 20;
constexpr int kLookMs = 100;  // how soon a waiting thread looks whether it shall end

struct Call {
  std::uint32_t round = 0;
  std::uint32_t number = 0;
};

class Socket {
 public:
  Socket() : descriptor_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    if (descriptor_ < 0) fail_with_errno("socket");
    for (const int option : {SO_RCVBUFFORCE, SO_SNDBUFFORCE}) {  // best effort: what overflows is a failed call
      setsockopt(descriptor_, SOL_SOCKET, option, &kSocketBufferBytes, sizeof(kSocketBufferBytes));
    }
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  int descriptor() const { return descriptor_; }
  void bind_to(const sockaddr_in& address) const {
    if (bind(descriptor_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) fail_with_errno("bind");
  }

 private:
  const int descriptor_;  // as long as the process
};

// Messages of one system call. One for each direction and process.
class Batch {
 public:
  Batch() {
    for (std::size_t i = 0; i < kBatch; ++i) {
      vectors_[i] = {.iov_base = buffers_.get() + i * kDatagramBytes, .iov_len = kDatagramBytes};
      messages_[i].msg_hdr.msg_iov = &vectors_[i];
      messages_[i].msg_hdr.msg_iovlen = 1;
      messages_[i].msg_hdr.msg_name = &addresses_[i];
      messages_[i].msg_hdr.msg_namelen = sizeof(sockaddr_in);
    }
  }

  void send(const Socket& from, const sockaddr_in& to, const Call& call, std::size_t bytes) {
    std::memcpy(vectors_[count_].iov_base, &call, sizeof(call));
    vectors_[count_].iov_len = bytes;
    addresses_[count_] = to;
    if (++count_ == kBatch) flush(from);
  }
  void flush(const Socket& from) {
    for (std::size_t sent = 0; sent < count_;) {
      const int done = sendmmsg(from.descriptor(), messages_.data() + sent, static_cast<unsigned>(count_ - sent), 0);
      if (done < 0 && errno != EINTR) fail_with_errno("sendmmsg");
      sent += static_cast<std::size_t>(std::max(done, 0));
    }
    count_ = 0;
  }

  // Calls `take(call, from)` for each datagram that is there, up to kBatch. How many there were.
  template <class Take>
  int receive(const Socket& at, Take&& take) {
    for (std::size_t i = 0; i < kBatch; ++i) {
      vectors_[i].iov_len = kDatagramBytes;
      messages_[i].msg_hdr.msg_namelen = sizeof(sockaddr_in);
    }
    const int count = recvmmsg(at.descriptor(), messages_.data(), kBatch, MSG_DONTWAIT, nullptr);
    if (count < 0 && errno != EAGAIN && errno != EINTR) fail_with_errno("recvmmsg");
    for (int i = 0; i < count; ++i) {
      if (messages_[static_cast<std::size_t>(i)].msg_len < sizeof(Call)) continue;
      Call call;
      std::memcpy(&call, vectors_[static_cast<std::size_t>(i)].iov_base, sizeof(call));
      take(call, addresses_[static_cast<std::size_t>(i)]);
    }
    return count;
  }

 private:
  const std::unique_ptr<std::byte[]> buffers_{new std::byte[kBatch * kDatagramBytes]()};
  std::size_t count_ = 0;
  std::array<iovec, kBatch> vectors_{};
  std::array<mmsghdr, kBatch> messages_{};
  std::array<sockaddr_in, kBatch> addresses_{};
};

void serve(const Burst& burst) {
  std::vector<std::unique_ptr<Socket>> sockets;
  const int ready = epoll_create1(EPOLL_CLOEXEC);
  for (unsigned k = 0; k < burst.peers; ++k) {
    sockets.push_back(std::make_unique<Socket>());
    sockets.back()->bind_to(parse_address(burst.address_of(k)));
    epoll_event event{.events = EPOLLIN, .data = {.u32 = k}};
    if (epoll_ctl(ready, EPOLL_CTL_ADD, sockets.back()->descriptor(), &event) != 0) fail_with_errno("epoll_ctl");
  }
  std::atomic<bool> ends = false;
  std::thread thread([&] {
    Batch in, out;
    std::array<epoll_event, kBatch> events;
    while (!ends.load(std::memory_order_relaxed)) {  // nothing else is published with it
      const int count = epoll_wait(ready, events.data(), static_cast<int>(events.size()), kLookMs);
      for (int i = 0; i < count; ++i) {
        const Socket& socket = *sockets[events[static_cast<std::size_t>(i)].data.u32];
        in.receive(socket, [&](const Call& call, const sockaddr_in& from) {
          out.send(socket, from, call, burst.options.reply_bytes);
        });
        out.flush(socket);
      }
    }
  });
  answer_as_server();
  ends.store(true, std::memory_order_relaxed);
  thread.join();
}

class Client {
 public:
  explicit Client(const Burst& burst)
      : burst_(burst),
        at_once_(
            static_cast<std::size_t>(parse_number("in-flight", burst.options.other("in-flight", "4096"), 1, 1 << 20))) {
    for (unsigned k = 0; k < burst.peers; ++k) servers_.push_back(parse_address(burst.address_of(k)));
  }

  Round make_round() {
    Round round;
    const std::size_t calls = burst_.options.window;
    std::size_t sent = 0;
    ++number_;
    round.begin_ns = now_ns();
    const std::uint64_t deadline_ns = round.begin_ns + static_cast<std::uint64_t>(burst_.deadline().count());
    while (round.completed < calls && now_ns() < deadline_ns) {
      for (std::size_t i = 0; i < kBatch && sent < calls && sent - round.completed < at_once_; ++i, ++sent) {
        out_.send(socket_, servers_[sent % servers_.size()],
                  {.round = number_, .number = static_cast<std::uint32_t>(sent)}, burst_.options.request_bytes);
      }
      out_.flush(socket_);
      in_.receive(socket_, [&](const Call& call, const sockaddr_in&) {
        if (call.round == number_) round.count_success();
      });
    }
    while (round.completed + round.failed < calls) round.count_failure("a datagram was lost");
    round.end_ns = now_ns();
    return round;
  }

 private:
  const Burst& burst_;
  const std::size_t at_once_;
  std::vector<sockaddr_in> servers_;
  Socket socket_;
  Batch in_, out_;
  std::uint32_t number_ = 0;
};

}  // namespace
}  // namespace weir::bench

int main(int argument_count, char** arguments) {
  using namespace weir::bench;
  const Burst burst(argument_count, arguments, {"in-flight"});
  if (burst.options.is_server) {
    serve(burst);
  } else {
    Client client(burst);
    answer_as_client([&] { return client.make_round(); });
  }
  return 0;
}
