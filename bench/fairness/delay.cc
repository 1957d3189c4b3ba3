// A cable with a delay between two network namespaces, for kernels without netem: delay PID NAME PID NAME MICROSECONDS.
//
// In the namespace of each process it makes a TUN device of that name. What one device sends comes out of the other so
// much later. Says `{"ready":true}` once both are there, and ends with its standard input.
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "../peers/harness.h"

namespace weir::bench {
namespace {

constexpr std::size_t kPacketBytes = 1'500;
constexpr std::size_t kMostUnderWay = 8'192;  // in each direction; more wait in the device

int open_device(const std::string& process, const std::string& name) {
  const std::string path = "/proc/" + process + "/ns/net";
  const int space = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (space < 0 || setns(space, CLONE_NEWNET) != 0) fail_with_errno(path);
  close(space);
  const int device = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (device < 0) fail_with_errno("/dev/net/tun");
  ifreq request{};
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  std::strncpy(request.ifr_name, name.c_str(), IFNAMSIZ - 1);
  if (ioctl(device, TUNSETIFF, &request) != 0) fail_with_errno(name);
  return device;
}

// Packets on their way in one direction, in order.
class Way {
 public:
  Way(int from, int to, std::uint64_t delay_ns)
      : from_(from), to_(to), delay_ns_(delay_ns), packets_(std::make_unique<Packet[]>(kMostUnderWay)) {}

  bool is_full() const { return end_ - begin_ == kMostUnderWay; }
  bool is_empty() const { return begin_ == end_; }
  std::uint64_t next_ns() const { return packets_[begin_ % kMostUnderWay].at_ns; }

  void take(std::uint64_t now) {
    while (!is_full()) {
      Packet& packet = packets_[end_ % kMostUnderWay];
      const ssize_t bytes = read(from_, packet.bytes.data(), kPacketBytes);
      if (bytes <= 0) return;
      packet.size = static_cast<std::size_t>(bytes);
      packet.at_ns = now + delay_ns_;
      ++end_;
    }
  }

  void give(std::uint64_t now) {
    for (; !is_empty() && next_ns() <= now; ++begin_) {
      const Packet& packet = packets_[begin_ % kMostUnderWay];
      if (write(to_, packet.bytes.data(), packet.size) < 0 && errno != EIO)
        fail_with_errno("write");  // EIO: it is down
    }
  }

 private:
  struct Packet {
    std::uint64_t at_ns = 0;
    std::size_t size = 0;
    std::array<std::byte, kPacketBytes> bytes;
  };

  const int from_, to_;
  const std::uint64_t delay_ns_;
  const std::unique_ptr<Packet[]> packets_;
  std::size_t begin_ = 0, end_ = 0;
};

void carry(int a, int b, std::uint64_t delay_ns) {
  Way there(a, b, delay_ns), back(b, a, delay_ns);
  for (;;) {
    std::uint64_t now = now_ns();
    there.take(now);
    back.take(now);
    there.give(now);
    back.give(now);
    std::uint64_t next = UINT64_MAX;
    for (const Way* way : {&there, &back}) {
      if (!way->is_empty()) next = std::min(next, way->next_ns());
    }
    now = now_ns();
    const std::uint64_t wait = next == UINT64_MAX ? 1'000'000'000 : next > now ? next - now : 0;
    pollfd descriptors[] = {{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0},
                            {.fd = a, .events = static_cast<short>(there.is_full() ? 0 : POLLIN), .revents = 0},
                            {.fd = b, .events = static_cast<short>(back.is_full() ? 0 : POLLIN), .revents = 0}};
    const timespec timeout{.tv_sec = static_cast<time_t>(wait / 1'000'000'000),
                           .tv_nsec = static_cast<long>(wait % 1'000'000'000)};
    if (ppoll(descriptors, 3, &timeout, nullptr) < 0 && errno != EINTR) fail_with_errno("ppoll");
    if (descriptors[0].revents != 0) return;
  }
}

}  // namespace
}  // namespace weir::bench

int main(int argument_count, char** arguments) {
  using namespace weir::bench;
  if (argument_count != 6) fail("usage: delay PID NAME PID NAME MICROSECONDS");
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  const int a = open_device(arguments[1], arguments[2]);
  const int b = open_device(arguments[3], arguments[4]);
  std::puts("{\"ready\":true}");
  std::fflush(stdout);
  carry(a, b, static_cast<std::uint64_t>(parse_number("microseconds", arguments[5], 0, 1e6) * 1e3));
  return 0;
}
