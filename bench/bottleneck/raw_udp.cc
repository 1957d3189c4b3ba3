// What the link itself takes: the same calls in bare UDP datagrams, from one socket to one other whatever the number of
// peers. Nothing is sent again, so the client keeps --in-flight bytes on their way at most, which fit into the router's
// queue. A call that loses a datagram fails.
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <string>
#include <thread>
#include <vector>

#include "burst.h"

namespace weir::bench {
namespace {

constexpr std::size_t kDatagramBytes = 1472;       // of an MTU of 1,500
constexpr std::size_t kHeaderBytes = 14 + 20 + 8;  // Ethernet, IP, UDP: what a queue counts with each datagram
constexpr std::size_t kBatch = 64;
constexpr int kSocketBufferBytes = 8 << 20;
constexpr std::uint64_t kSpinNs = 300'000;  // before a thread sleeps: to wake it takes a good part of a short queue
constexpr int kLookMs = 100;                // how soon a waiting thread looks whether it shall end

struct Part {
  std::uint32_t round = 0;
  std::uint32_t call = 0;
  std::uint32_t parts = 0;  // of the message
};
constexpr std::size_t kPartBytes = kDatagramBytes - sizeof(Part);

constexpr std::size_t parts_of(std::size_t bytes) { return (bytes + kPartBytes - 1) / kPartBytes; }
constexpr std::size_t bytes_in_queue(std::size_t bytes) {
  return bytes + parts_of(bytes) * (sizeof(Part) + kHeaderBytes);
}

class Socket {
 public:
  Socket() : descriptor_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    if (descriptor_ < 0) fail_with_errno("socket");
    for (const int option : {SO_RCVBUFFORCE, SO_SNDBUFFORCE}) {  // best effort: what overflows is counted
      setsockopt(descriptor_, SOL_SOCKET, option, &kSocketBufferBytes, sizeof(kSocketBufferBytes));
    }
    for (std::size_t i = 0; i < kBatch; ++i) {
      vectors_[i] = {.iov_base = buffers_[i].data(), .iov_len = kDatagramBytes};
      messages_[i].msg_hdr.msg_iov = &vectors_[i];
      messages_[i].msg_hdr.msg_iovlen = 1;
      messages_[i].msg_hdr.msg_name = &addresses_[i];
    }
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  void bind_to(const sockaddr_in& address) {
    if (bind(descriptor_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) fail_with_errno("bind");
  }

  // Appends a message's datagrams to what flush() sends.
  void send(const sockaddr_in& to, Part part, std::size_t bytes) {
    part.parts = static_cast<std::uint32_t>(parts_of(bytes));
    for (; bytes > 0; bytes -= std::min(bytes, kPartBytes)) {
      if (outgoing_.size() == kBatch) flush();
      Datagram& datagram = outgoing_.emplace_back();
      datagram.to = to;
      datagram.length = sizeof(part) + std::min(bytes, kPartBytes);
      std::memcpy(datagram.bytes.data(), &part, sizeof(part));
    }
  }

  void flush() {
    std::array<iovec, kBatch> vectors;
    std::array<mmsghdr, kBatch> messages{};
    for (std::size_t i = 0; i < outgoing_.size(); ++i) {
      vectors[i] = {.iov_base = outgoing_[i].bytes.data(), .iov_len = outgoing_[i].length};
      messages[i].msg_hdr = {.msg_name = &outgoing_[i].to,
                             .msg_namelen = sizeof(sockaddr_in),
                             .msg_iov = &vectors[i],
                             .msg_iovlen = 1,
                             .msg_control = nullptr,
                             .msg_controllen = 0,
                             .msg_flags = 0};
    }
    for (std::size_t sent = 0; sent < outgoing_.size();) {
      const int count =
          sendmmsg(descriptor_, messages.data() + sent, static_cast<unsigned>(outgoing_.size() - sent), 0);
      if (count < 0 && errno != EINTR) fail_with_errno("sendmmsg");
      sent += static_cast<std::size_t>(std::max(count, 0));
    }
    outgoing_.clear();
  }

  // Calls `take(part, from)` for each datagram that is there. Waits kLookMs at most for the first.
  template <class Take>
  void receive(Take take) {
    int count = try_receive();
    for (const std::uint64_t spins_until = now_ns() + kSpinNs; count == 0 && now_ns() < spins_until;) {
      count = try_receive();
    }
    if (count == 0) {
      pollfd input{.fd = descriptor_, .events = POLLIN, .revents = 0};
      poll(&input, 1, kLookMs);
      count = try_receive();
    }
    for (int i = 0; i < count; ++i) {
      Part part;
      if (messages_[static_cast<std::size_t>(i)].msg_len < sizeof(part)) continue;
      std::memcpy(&part, buffers_[static_cast<std::size_t>(i)].data(), sizeof(part));
      take(part, addresses_[static_cast<std::size_t>(i)]);
    }
  }

 private:
  int try_receive() {
    for (mmsghdr& message : messages_) message.msg_hdr.msg_namelen = sizeof(sockaddr_in);
    const int count = recvmmsg(descriptor_, messages_.data(), kBatch, MSG_DONTWAIT, nullptr);
    if (count < 0 && errno != EAGAIN && errno != EINTR) fail_with_errno("recvmmsg");
    return std::max(count, 0);
  }

  struct Datagram {
    sockaddr_in to;
    std::size_t length;
    std::array<std::byte, kDatagramBytes> bytes{};
  };
  const int descriptor_;  // as long as the process
  std::vector<Datagram> outgoing_;
  std::array<std::array<std::byte, kDatagramBytes>, kBatch> buffers_;
  std::array<sockaddr_in, kBatch> addresses_{};
  std::array<iovec, kBatch> vectors_{};
  std::array<mmsghdr, kBatch> messages_{};
};

// How many datagrams of each call of one caller's round have come.
class Arrivals {
 public:
  // Whether this one completes its message.
  bool add(const Part& part) {
    if (part.call >= kMaximumWindow) fail("a call that nobody made");
    if (part.round != round_) {
      round_ = part.round;
      counts_.assign(counts_.size(), 0);
    }
    if (part.call >= counts_.size()) counts_.resize(part.call + 1);
    return ++counts_[part.call] == part.parts;
  }

 private:
  std::uint32_t round_ = 0;
  std::vector<std::uint32_t> counts_;
};

void serve(const Burst& burst) {
  Socket socket;
  socket.bind_to(parse_address(burst.options.address));
  std::atomic<bool> ends = false;
  std::thread thread([&] {
    std::map<std::uint16_t, Arrivals> callers;       // by port
    while (!ends.load(std::memory_order_relaxed)) {  // nothing else is published with it
      socket.receive([&](const Part& part, const sockaddr_in& from) {
        if (callers[from.sin_port].add(part)) socket.send(from, part, burst.options.reply_bytes);
      });
      socket.flush();
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
        server_(parse_address(burst.options.address)),
        bytes_in_flight_(static_cast<std::size_t>(
            parse_number("in-flight", burst.options.other("in-flight", "16384"), 1, 1 << 30))) {}

  Round make_round() {
    Round round;
    const std::size_t calls = burst_.options.window;
    const std::size_t call_bytes = bytes_in_queue(std::max(burst_.options.request_bytes, burst_.options.reply_bytes));
    const std::size_t at_once = std::max<std::size_t>(1, bytes_in_flight_ / call_bytes);
    std::size_t sent = 0;
    ++number_;
    round.begin_ns = now_ns();
    const std::uint64_t deadline_ns = round.begin_ns + static_cast<std::uint64_t>(burst_.deadline().count());
    while (round.completed < calls && now_ns() < deadline_ns) {
      for (; sent < calls && sent - round.completed < at_once; ++sent) {
        socket_.send(server_, {.round = number_, .call = static_cast<std::uint32_t>(sent)},
                     burst_.options.request_bytes);
      }
      socket_.flush();
      socket_.receive([&](const Part& part, const sockaddr_in&) {
        if (part.round == number_ && arrivals_.add(part)) round.count_success();
      });
    }
    while (round.completed + round.failed < calls) round.count_failure("a datagram was lost");
    round.end_ns = now_ns();
    return round;
  }

 private:
  const Burst& burst_;
  const sockaddr_in server_;
  const std::size_t bytes_in_flight_;
  Socket socket_;
  Arrivals arrivals_;
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
