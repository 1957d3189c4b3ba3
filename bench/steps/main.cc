// What each step of a large message costs, in nanoseconds per byte, one after the other on one core: seal,
// authenticate, send, receive, move into place, open. The memory is as large as eight messages of 1 MiB, so that most
// of it is in no cache that is near. Sums tell what one core that played both sides could do at best; the benchmark has
// one for each. Where the processor has a time stamp counter, also in its cycles: they have one rate, whatever the
// core's own clock does meanwhile.
//
// steps [--mtu BYTES] [--seconds S] [--core C] [--json]
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "buffer/sealed.h"
#include "crypto/aead.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace weir::bench {
namespace {

constexpr std::size_t kMessageBytes = 1 << 20;
constexpr std::size_t kMessages = 8;
constexpr std::size_t kBytes = kMessageBytes * kMessages;
constexpr std::size_t kRecord = buffer::kRecordBytes;
constexpr std::size_t kFrameBytes = 40;  // what a data packet encrypts besides its slice, about
constexpr std::size_t kTrainBytes = 65'000;
constexpr std::size_t kMaxSegments = 64;
constexpr std::size_t kTrainsAtOnce = 4;  // in flight between the two sockets
constexpr int kIpAndUdpBytes = 28;
// Header, length, frames and tag of a data packet, about.
constexpr std::size_t kOverheadBytes = 8 + 2 + kFrameBytes + crypto::kTagBytes;

[[noreturn]] void fail(const std::string& sentence) {
  fmt::print(stderr, "error: {}: {}\n", sentence, std::strerror(errno));
  std::exit(1);
}

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Cycles of the time stamp counter in a nanosecond; 0: there is none.
double cycles_per_ns() {
#if defined(__x86_64__)
  constexpr std::int64_t kLongEnough = 50'000'000;
  const std::int64_t began = now_ns();
  const std::uint64_t first = __rdtsc();
  std::int64_t now = began;
  while (now - began < kLongEnough) now = now_ns();
  return static_cast<double>(__rdtsc() - first) / static_cast<double>(now - began);
#else
  return 0;
#endif
}

struct Step {
  const char* name;
  const char* side;
  double ns_per_byte = 0;
};

// Two sockets of this machine; trains go from one to the other.
class Wire {
 public:
  explicit Wire(std::size_t packet_bytes) : packet_bytes_(packet_bytes) {
    for (int* socket : {&from_, &to_}) {
      *socket = ::socket(AF_INET, SOCK_DGRAM, 0);
      if (*socket < 0) fail("socket");
      int bytes = 16 << 20;
      // The plain option would take back what the forced one gave.
      constexpr std::array<std::pair<int, int>, 2> kOptions{{{SO_RCVBUFFORCE, SO_RCVBUF}, {SO_SNDBUFFORCE, SO_SNDBUF}}};
      for (auto [forced, plain] : kOptions) {
        if (setsockopt(*socket, SOL_SOCKET, forced, &bytes, sizeof bytes) == 0) continue;
        setsockopt(*socket, SOL_SOCKET, plain, &bytes, sizeof bytes);
      }
    }
    int on = 1;
    if (setsockopt(to_, IPPROTO_UDP, UDP_GRO, &on, sizeof on) != 0) fail("UDP_GRO");
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address_;
    if (bind(to_, reinterpret_cast<sockaddr*>(&address_), length) != 0) fail("bind");
    if (getsockname(to_, reinterpret_cast<sockaddr*>(&address_), &length) != 0) fail("getsockname");
  }
  ~Wire() {
    ::close(from_);
    ::close(to_);
  }

  std::size_t train_bytes() const { return std::min(kTrainBytes / packet_bytes_, kMaxSegments) * packet_bytes_; }

  void send(std::byte* data) {
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(std::uint16_t))> control{};
    iovec vector{.iov_base = data, .iov_len = train_bytes()};
    msghdr message{};
    message.msg_name = &address_;
    message.msg_namelen = sizeof address_;
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    if (train_bytes() > packet_bytes_) {
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      cmsghdr* first = CMSG_FIRSTHDR(&message);
      first->cmsg_level = SOL_UDP;
      first->cmsg_type = UDP_SEGMENT;
      first->cmsg_len = CMSG_LEN(sizeof(std::uint16_t));
      auto size = static_cast<std::uint16_t>(packet_bytes_);
      std::memcpy(CMSG_DATA(first), &size, sizeof size);
    }
    if (sendmsg(from_, &message, 0) < 0) fail("sendmsg");
  }

  std::size_t receive(std::byte* into, std::size_t room) {
    ssize_t got = recv(to_, into, room, MSG_DONTWAIT);
    if (got < 0 && errno != EAGAIN) fail("recv");
    return got < 0 ? 0 : static_cast<std::size_t>(got);
  }

 private:
  std::size_t packet_bytes_;
  int from_ = -1, to_ = -1;
  sockaddr_in address_{};
};

class Steps {
 public:
  Steps(std::size_t packet_bytes, double seconds)
      : slice_bytes_(packet_bytes - kOverheadBytes),
        budget_ns_(static_cast<std::int64_t>(seconds * 1e9)),
        wire_(packet_bytes),
        aead_(crypto::Aead::create(crypto::default_backend().backend)),
        data_key_(aead_->make_key(crypto::KeyBytes{})),
        path_key_(aead_->make_key(crypto::KeyBytes{})) {}

  std::vector<Step> run() {
    double seal = measure([this] { seal_all(); });
    double authenticate = measure([this] { authenticate_all(); });
    send_and_receive();
    double verify = measure([this] { verify_all(); });
    double place = measure([this] { std::memcpy(place_.data(), sealed_.data(), kBytes); });
    double open = measure([this] { open_all(); }, [this] { std::memcpy(place_.data(), sealed_.data(), kBytes); });
    return {{"seal, into the buffer", "sender", seal},
            {"authenticate packets", "sender", authenticate},
            {"send, kernel", "sender", send_ns_per_byte_},
            {"receive, kernel", "receiver", receive_ns_per_byte_},
            {"verify packets", "receiver", verify},
            {"move into place", "receiver", place},
            {"open in place", "receiver", open}};
  }

 private:
  template <class Function>
  static void each_record(Function&& function) {
    for (std::size_t at = 0, record = 0; at < kBytes; at += kRecord, ++record) {
      function(record, at, std::min(kRecord, kBytes - at));
    }
  }

  // The median of as many rounds as there is time for; `before` each of them, not measured.
  double measure(const std::function<void()>& round, const std::function<void()>& before = {}) {
    std::vector<double> times;
    std::int64_t end = now_ns() + budget_ns_;
    do {
      if (before) before();
      std::int64_t began = now_ns();
      round();
      times.push_back(static_cast<double>(now_ns() - began) / kBytes);
    } while (now_ns() < end);
    return median(times);
  }

  static double median(std::vector<double>& times) {
    auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    return *middle;
  }

  // Every round has another key, so that no nonce is used twice.
  void seal_all() {
    rekey(*data_key_, ++round_);
    each_record([&](std::size_t record, std::size_t at, std::size_t bytes) {
      data_key_->seal_into(crypto::make_nonce(2, record), {}, {text_.data() + at, bytes}, sealed_.data() + at,
                           tag_of(record));
    });
  }

  void open_all() {
    each_record([&](std::size_t record, std::size_t at, std::size_t bytes) {
      if (!data_key_->open(crypto::make_nonce(2, record), {}, {place_.data() + at, bytes}, tag_of(record))) {
        fail("a record does not open");
      }
    });
  }

  void authenticate_all() {
    rekey(*path_key_, ++round_);
    std::size_t packet = 0;
    for (std::size_t at = 0; at + slice_bytes_ <= kBytes; at += slice_bytes_, ++packet) {
      frames_[packet] = {};
      path_key_->seal(crypto::make_nonce(1, packet), {sealed_.data() + at, slice_bytes_}, frames_[packet],
                      packet_tags_[packet].data());
    }
  }

  void verify_all() {
    std::array<std::byte, kFrameBytes> frame;
    std::size_t packet = 0;
    for (std::size_t at = 0; at + slice_bytes_ <= kBytes; at += slice_bytes_, ++packet) {
      frame = frames_[packet];
      if (!path_key_->open(crypto::make_nonce(1, packet), {sealed_.data() + at, slice_bytes_}, frame,
                           packet_tags_[packet].data())) {
        fail("a packet does not verify");
      }
    }
  }

  void send_and_receive() {
    std::vector<double> sends, receives;
    std::vector<std::byte> into(64 * 1024 * 2 * kTrainsAtOnce);
    std::int64_t end = now_ns() + 2 * budget_ns_;
    std::size_t train = 0;
    do {
      std::int64_t began = now_ns();
      for (std::size_t i = 0; i < kTrainsAtOnce; ++i) {
        if ((train + 1) * wire_.train_bytes() > kBytes) train = 0;
        wire_.send(sealed_.data() + train++ * wire_.train_bytes());
      }
      std::int64_t sent = now_ns();
      std::size_t got = 0;
      for (int look = 0; got < kTrainsAtOnce * wire_.train_bytes() && look < 1000; ++look) {
        got += wire_.receive(into.data() + got, 64 * 1024);
      }
      if (got < kTrainsAtOnce * wire_.train_bytes()) continue;  // lost, as datagrams may be: that waits for nothing
      sends.push_back(static_cast<double>(sent - began) / static_cast<double>(kTrainsAtOnce * wire_.train_bytes()));
      receives.push_back(static_cast<double>(now_ns() - sent) / static_cast<double>(got));
    } while (now_ns() < end);
    if (sends.empty()) fail("nothing arrived");
    send_ns_per_byte_ = median(sends);
    receive_ns_per_byte_ = median(receives);
  }

  static void rekey(crypto::AeadKey& key, std::uint64_t number) {
    crypto::KeyBytes bytes{};
    std::memcpy(bytes.data(), &number, sizeof number);
    key.rekey(bytes);
  }
  std::byte* tag_of(std::size_t record) { return record_tags_[record].data(); }

  using Tag = std::array<std::byte, crypto::kTagBytes>;

  std::size_t slice_bytes_;
  std::int64_t budget_ns_;
  Wire wire_;
  std::unique_ptr<crypto::Aead> aead_;
  std::unique_ptr<crypto::AeadKey> data_key_, path_key_;
  std::uint64_t round_ = 0;
  std::vector<std::byte> text_ = std::vector<std::byte>(kBytes), sealed_ = text_, place_ = text_;
  std::vector<Tag> record_tags_ = std::vector<Tag>(kBytes / kRecord + 1);
  std::vector<Tag> packet_tags_ = std::vector<Tag>(kBytes / slice_bytes_ + 1);
  std::vector<std::array<std::byte, kFrameBytes>> frames_ =
      std::vector<std::array<std::byte, kFrameBytes>>(kBytes / slice_bytes_ + 1);
  double send_ns_per_byte_ = 0, receive_ns_per_byte_ = 0;
};

std::string row(const char* name, const char* side, double ns_per_byte, double cycles) {
  return fmt::format("  {:<22} {:<9} {:>8.4f} ns/B{}  {:>6.1f} GB/s\n", name, side, ns_per_byte,
                     cycles == 0 ? "" : fmt::format("  {:>6.3f} cycles/B", ns_per_byte * cycles), 1 / ns_per_byte);
}

void print(const std::vector<Step>& steps, std::size_t packet_bytes, bool json) {
  const double cycles = cycles_per_ns();
  std::string rows;
  for (const Step& step : steps) {
    if (json) {
      rows += fmt::format("{}{{\"step\": \"{}\", \"side\": \"{}\", \"ns_per_byte\": {:.4f}{}}}",
                          rows.empty() ? "" : ", ", step.name, step.side, step.ns_per_byte,
                          cycles == 0 ? "" : fmt::format(", \"cycles_per_byte\": {:.4f}", step.ns_per_byte * cycles));
    } else {
      rows += row(step.name, step.side, step.ns_per_byte, cycles);
    }
  }
  if (json) {
    fmt::print("{{\"packet_bytes\": {}, \"aes\": \"{}\", \"cycles_per_ns\": {:.4f}, \"steps\": [{}]}}\n", packet_bytes,
               crypto::default_backend().detail, cycles, rows);
    return;
  }
  fmt::print("{} B packets, {}", packet_bytes, crypto::default_backend().detail);
  if (cycles != 0) fmt::print(", {:.3f} cycles/ns", cycles);
  fmt::print("\n{}", rows);
  for (const char* side : {"sender", "receiver"}) {
    double sum = 0;
    for (const Step& step : steps) {
      if (std::string_view(step.side) == side) sum += step.ns_per_byte;
    }
    fmt::print("{}", row("all of these", side, sum, cycles));
  }
}

}  // namespace
}  // namespace weir::bench

int main(int argument_count, char** arguments) {
  using namespace weir::bench;
  CLI::App app{"What each step of a large message costs"};
  std::size_t mtu = 1500;
  double seconds = 0.3;
  int core = -1;
  bool json = false;
  app.add_option("--mtu", mtu, "Of the IP layer")->check(CLI::Range(1228, 65000))->capture_default_str();
  app.add_option("--seconds", seconds, "For each step")->check(CLI::Range(0.01, 60.0))->capture_default_str();
  app.add_option("--core", core, "CPU to run on");
  app.add_flag("--json", json, "Print one JSON object");
  CLI11_PARSE(app, argument_count, arguments);
  if (core >= 0) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(static_cast<std::size_t>(core), &cores);
    if (sched_setaffinity(0, sizeof cores, &cores) != 0) fail("cannot pin to this core");
  }
  std::size_t packet_bytes = mtu - kIpAndUdpBytes;
  print(Steps(packet_bytes, seconds).run(), packet_bytes, json);
  return 0;
}
