// The floor for large messages: plain UDP with GSO and GRO, unencrypted, with next to no bookkeeping.
//
// A message of --size bytes is a train of equal datagrams (--segment bytes each); the server counts what arrives of it
// and answers the last byte with --reply bytes. --peers N: as many servers, at consecutive ports, all of them in one
// thread of the server process; a call is then one message to each of them, complete when all have answered.
// What got lost is sent again as a whole, after a while, and counted.
#include <netinet/udp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <span>

#include "harness.h"

namespace weir::bench {
namespace {

constexpr std::uint32_t kMaximumMessage = 64 << 20;
constexpr std::size_t kMaximumTrain = 65'000;
constexpr std::size_t kMaximumSegments = 128;  // the kernel's
constexpr std::size_t kReceiveBytes = 65'536;
constexpr std::uint64_t kLostAfterNs = 200'000'000;

// In front of each datagram.
struct Piece {
  Header header;
  std::uint32_t message_bytes = 0;
  std::uint32_t payload_bytes = 0;
};
static_assert(sizeof(Piece) == 16);

int open_socket() {
  int descriptor = ::socket(AF_INET, SOCK_DGRAM, 0);
  if (descriptor < 0) fail_with_errno("socket");
  int bytes = 64 << 20;
  for (int option : {SO_RCVBUFFORCE, SO_SNDBUFFORCE}) {
    if (setsockopt(descriptor, SOL_SOCKET, option, &bytes, sizeof(bytes)) == 0) continue;
    setsockopt(descriptor, SOL_SOCKET, option == SO_RCVBUFFORCE ? SO_RCVBUF : SO_SNDBUF, &bytes, sizeof(bytes));
  }
  int on = 1;
  if (setsockopt(descriptor, IPPROTO_UDP, UDP_GRO, &on, sizeof(on)) != 0) fail_with_errno("UDP_GRO");
  return descriptor;
}

sockaddr_in next_port(sockaddr_in address, std::size_t index) {
  address.sin_port = htons(static_cast<std::uint16_t>(ntohs(address.sin_port) + index));
  return address;
}

// Takes one train that has arrived and hands on each datagram. False: there was none.
template <typename Handler>  // void(const sockaddr_in&, std::span<const std::byte>)
bool receive(int descriptor, std::span<std::byte> memory, Handler&& handler) {
  sockaddr_in from{};
  iovec vector{.iov_base = memory.data(), .iov_len = memory.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control;
  msghdr message{};
  message.msg_name = &from;
  message.msg_namelen = sizeof(from);
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t got = recvmsg(descriptor, &message, MSG_DONTWAIT);
  if (got < 0) {
    if (errno == EAGAIN || errno == EINTR || errno == ECONNREFUSED) return false;
    fail_with_errno("recvmsg");
  }
  std::span<const std::byte> bytes = memory.first(static_cast<std::size_t>(got));
  std::size_t segment = bytes.size();
  for (cmsghdr* each = CMSG_FIRSTHDR(&message); each != nullptr; each = CMSG_NXTHDR(&message, each)) {
    int size = 0;
    if (each->cmsg_level != SOL_UDP || each->cmsg_type != UDP_GRO) continue;
    std::memcpy(&size, CMSG_DATA(each), sizeof(size));
    if (size > 0) segment = static_cast<std::size_t>(size);
  }
  while (!bytes.empty()) {
    std::span<const std::byte> datagram = bytes.first(std::min(segment, bytes.size()));
    handler(from, datagram);
    bytes = bytes.subspan(datagram.size());
  }
  return true;
}

// Sends a message as trains. The payload is read where it lies; only the pieces' headers are made.
class Sender {
 public:
  Sender(int descriptor, std::size_t segment_bytes)
      : descriptor_(descriptor),
        segment_bytes_(segment_bytes),
        per_train_(std::clamp<std::size_t>(kMaximumTrain / segment_bytes, 1, kMaximumSegments)) {}

  void send(const sockaddr_in& to, const Header& header, std::span<std::byte> message) {
    const std::size_t payload = segment_bytes_ - sizeof(Piece);
    const auto whole = static_cast<std::uint32_t>(message.size());
    while (!message.empty()) {
      std::size_t count = 0;
      for (; count < per_train_ && !message.empty(); ++count) {
        std::size_t bytes = std::min(payload, message.size());
        pieces_[count] = {header, whole, static_cast<std::uint32_t>(bytes)};
        vectors_[2 * count] = {.iov_base = &pieces_[count], .iov_len = sizeof(Piece)};
        vectors_[2 * count + 1] = {.iov_base = message.data(), .iov_len = bytes};
        message = message.subspan(bytes);
      }
      send_train(to, count);
    }
  }

 private:
  void send_train(sockaddr_in to, std::size_t count) {
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(std::uint16_t))> control{};
    msghdr message{};
    message.msg_name = &to;
    message.msg_namelen = sizeof(to);
    message.msg_iov = vectors_.data();
    message.msg_iovlen = 2 * count;
    if (count > 1) {
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      cmsghdr* first = CMSG_FIRSTHDR(&message);
      first->cmsg_level = SOL_UDP;
      first->cmsg_type = UDP_SEGMENT;
      first->cmsg_len = CMSG_LEN(sizeof(std::uint16_t));
      auto size = static_cast<std::uint16_t>(segment_bytes_);
      std::memcpy(CMSG_DATA(first), &size, sizeof(size));
    }
    while (sendmsg(descriptor_, &message, 0) < 0) {
      if (errno == ECONNREFUSED || errno == ENOBUFS) return;  // lost, as datagrams may be
      if (errno != EINTR && errno != EAGAIN) fail_with_errno("sendmsg");
    }
  }

  int descriptor_;
  std::size_t segment_bytes_;
  std::size_t per_train_;
  std::array<Piece, kMaximumSegments> pieces_{};
  std::array<iovec, 2 * kMaximumSegments> vectors_{};
};

[[noreturn]] void serve(const Options& options, std::size_t peers) {
  struct Arrival {
    std::uint16_t generation = 0;
    std::uint64_t bytes = 0;
  };
  struct Server {
    int descriptor = -1;
    std::vector<Arrival> arrivals = std::vector<Arrival>(kMaximumWindow + 1);
  };
  std::vector<Server> servers(peers);
  for (std::size_t i = 0; i < peers; i++) {
    servers[i].descriptor = open_socket();
    sockaddr_in address = next_port(parse_address(options.address), i);
    if (bind(servers[i].descriptor, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
      fail_with_errno("cannot listen at port " + std::to_string(ntohs(address.sin_port)));
    }
  }
  std::vector<std::byte> memory(kReceiveBytes), place(kMaximumMessage), reply(kMaximumBody);
  for (;;) {
    for (Server& server : servers) {
      // A few trains at a time, so that no server starves.
      for (int turn = 0; turn < 16; turn++) {
        bool some =
            receive(server.descriptor, memory, [&](const sockaddr_in& from, std::span<const std::byte> datagram) {
              Piece piece;
              if (datagram.size() < sizeof(piece)) return;
              std::memcpy(&piece, datagram.data(), sizeof(piece));
              Arrival& arrival = server.arrivals[piece.header.slot];
              if (piece.payload_bytes != datagram.size() - sizeof(piece) || piece.message_bytes > place.size() ||
                  piece.header.reply_bytes > reply.size() || piece.header.reply_bytes < sizeof(Header)) {
                return;
              }
              if (arrival.generation != piece.header.generation) arrival = {piece.header.generation, 0};
              if (arrival.bytes + piece.payload_bytes > piece.message_bytes) return;
              // Into place, as any receiver must; which place does not matter here.
              std::memcpy(place.data() + arrival.bytes, datagram.data() + sizeof(piece), piece.payload_bytes);
              arrival.bytes += piece.payload_bytes;
              if (arrival.bytes != piece.message_bytes) return;
              std::memcpy(reply.data(), &piece.header, sizeof(Header));
              sendto(server.descriptor, reply.data(), piece.header.reply_bytes, 0,
                     reinterpret_cast<const sockaddr*>(&from), sizeof(from));
            });
        if (!some) break;
      }
    }
  }
}

int call(const Options& options, std::size_t peers, std::size_t segment_bytes) {
  struct Call {
    std::uint64_t sent_ns = 0;
    std::uint16_t generation = 0;
    std::size_t answers = 0;
  };
  int descriptor = open_socket();
  sockaddr_in address = parse_address(options.address);
  std::vector<std::byte> message(options.request_bytes), memory(kReceiveBytes);
  std::vector<Call> calls(options.window);
  auto sender = std::make_unique<Sender>(descriptor, segment_bytes);
  auto measurement = std::make_unique<Measurement>(options);
  auto send = [&](std::size_t slot) {
    Call& call = calls[slot];
    call.sent_ns = now_ns();
    call.generation++;
    call.answers = 0;
    Header header{static_cast<std::uint16_t>(slot), call.generation, options.reply_bytes};
    for (std::size_t peer = 0; peer < peers; peer++) sender->send(next_port(address, peer), header, message);
  };
  std::uint64_t begin_ns = now_ns();
  for (std::size_t slot = 0; slot < calls.size(); slot++) send(slot);
  for (std::uint64_t now = begin_ns; !measurement->is_over(now); now = now_ns()) {
    if (!measurement->is_connected() && now - begin_ns > 3'000'000'000) fail("no answer from " + options.address);
    bool some = receive(descriptor, memory, [&](const sockaddr_in&, std::span<const std::byte> reply) {
      Header header;
      if (reply.size() != options.reply_bytes) return measurement->failed();
      std::memcpy(&header, reply.data(), sizeof(header));
      if (header.slot >= calls.size() || calls[header.slot].generation != header.generation) return;
      if (++calls[header.slot].answers != peers) return;
      std::uint64_t answered_ns = now_ns();
      measurement->connected(answered_ns);
      measurement->completed(calls[header.slot].sent_ns, answered_ns);
      send(header.slot);
    });
    if (some) continue;
    for (std::size_t slot = 0; slot < calls.size(); slot++) {
      if (now < calls[slot].sent_ns + kLostAfterNs) continue;
      measurement->lost();
      send(slot);
    }
  }
  return measurement->print(",\"mode\":\"spinning\",\"peers\":" + std::to_string(peers));
}

}  // namespace
}  // namespace weir::bench

int main(int argument_count, char** arguments) {
  using namespace weir::bench;
  Options options = parse_options(argument_count, arguments, {"peers", "segment"}, kMaximumMessage);
  auto peers = static_cast<std::size_t>(parse_number("peers", options.other("peers", "1"), 1, 1024));
  auto segment = static_cast<std::size_t>(parse_number("segment", options.other("segment", "1472"), 64, kMaximumTrain));
  if (options.reply_bytes > kMaximumBody) fail("--reply must fit into one datagram");
  prepare_process(options);
  if (options.is_server) serve(options, peers);
  return call(options, peers, segment);
}
