// Callers behind a NAT that gives them another port while they call, over real sockets: a relay on loopback stands in
// for the NAT. The server's workers share one port, so the kernel gives the packets of the new port to any of them.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "pool/pool_testing.h"

namespace weir {
namespace {

using namespace std::chrono_literals;
using namespace weir::testing;

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

int bound_socket(std::uint16_t* port = nullptr) {
  const int descriptor = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  EXPECT_GE(descriptor, 0);
  const int bytes = 4 << 20;
  setsockopt(descriptor, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
  sockaddr_in address = loopback(0);
  EXPECT_EQ(bind(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  socklen_t size = sizeof address;
  EXPECT_EQ(getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size), 0);
  if (port != nullptr) *port = ntohs(address.sin_port);
  return descriptor;
}

// Relays between the callers at its own address and one server, from one port for each caller. rebind() gives all of
// them other ports; what comes for the old ones is lost.
class Nat {
 public:
  explicit Nat(const std::string& server)
      : server_(loopback(static_cast<std::uint16_t>(std::stoi(server.substr(server.rfind(':') + 1))))),
        inside_(bound_socket(&port_)),
        thread_([this] { run(); }) {}
  ~Nat() {
    is_ending_ = true;
    thread_.join();
    for (const Mapping& mapping : mappings_) ::close(mapping.outside);
    ::close(inside_);
  }

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  void rebind() { rebinds_wanted_.fetch_add(1); }
  int rebinds() const { return rebinds_.load(); }

 private:
  struct Mapping {
    sockaddr_in caller;
    int outside;
  };

  void run() {
    std::vector<std::byte> bytes(65'536);
    while (!is_ending_) {
      if (rebinds_.load() < rebinds_wanted_.load()) {
        for (Mapping& mapping : mappings_) ::close(std::exchange(mapping.outside, bound_socket()));
        rebinds_.fetch_add(1);
      }
      std::vector<pollfd> ready{{.fd = inside_, .events = POLLIN, .revents = 0}};
      for (const Mapping& mapping : mappings_) ready.push_back({.fd = mapping.outside, .events = POLLIN, .revents = 0});
      if (::poll(ready.data(), ready.size(), 1) <= 0) continue;
      sockaddr_in from{};
      socklen_t size = sizeof from;
      for (int i = 0; i < 256; ++i) {
        const ssize_t got = recvfrom(inside_, bytes.data(), bytes.size(), 0, reinterpret_cast<sockaddr*>(&from), &size);
        if (got < 0) break;
        sendto(outside_of(from), bytes.data(), static_cast<std::size_t>(got), 0,
               reinterpret_cast<const sockaddr*>(&server_), sizeof server_);
      }
      for (const Mapping& mapping : mappings_) {
        for (int i = 0; i < 256; ++i) {
          const ssize_t got = recv(mapping.outside, bytes.data(), bytes.size(), 0);
          if (got < 0) break;
          sendto(inside_, bytes.data(), static_cast<std::size_t>(got), 0,
                 reinterpret_cast<const sockaddr*>(&mapping.caller), sizeof mapping.caller);
        }
      }
    }
  }

  int outside_of(const sockaddr_in& caller) {
    for (const Mapping& mapping : mappings_) {
      if (mapping.caller.sin_port == caller.sin_port) return mapping.outside;
    }
    mappings_.push_back({caller, bound_socket()});
    return mappings_.back().outside;
  }

  const sockaddr_in server_;
  std::uint16_t port_ = 0;
  const int inside_;
  std::vector<Mapping> mappings_;
  std::atomic<bool> is_ending_{false};
  std::atomic<int> rebinds_wanted_{0}, rebinds_{0};
  std::thread thread_;
};

Counters total(Pool& pool) {
  Counters sum;
  for (const Counters& each : pool.counters()) sum += each;
  return sum;
}

// Counts how often each request ran.
struct Runs {
  void note(std::string_view body) {
    std::lock_guard lock(mutex);
    is_twice |= !seen.insert(std::string(body)).second;
  }
  std::mutex mutex;
  std::set<std::string> seen;
  bool is_twice = false;
};

class Rebinding : public ::testing::TestWithParam<int> {};

TEST_P(Rebinding, CallsGoOnAndNothingRunsTwice) {
  const int workers = GetParam();
  Runs runs;
  Pool server = open(server_config(workers));
  ASSERT_TRUE(server.serve_inline("echo", [&](InlineRequest& request) {
    runs.note(request.text());
    request.reply(request.body());
  }));
  Nat nat(server.listen_address());
  Config config = client_config(1);
  config.timeouts.keepalive = 50ms;
  Pool client = open(config);
  Peer peer = client.peer(nat.address());
  ASSERT_TRUE(peer.unary("echo", "first", {.deadline = 60s}).get().has_value());  // the path is there
  int number = 0;
  // Until the kernel has picked another worker than the one that has the path, and ten times at least.
  const auto is_enough = [&](int rebinds) {
    return rebinds >= 10 && (workers == 1 || total(server).datagrams_forwarded > 0);
  };
  for (int rebinds = 0; !is_enough(rebinds) && rebinds < 200; ++rebinds) {
    std::vector<Call> calls;
    for (int i = 0; i < 20; ++i) {
      const std::string body = std::to_string(number++) + std::string(static_cast<std::size_t>(i) * 500, '.');
      calls.push_back(peer.unary("echo", body, {.deadline = 60s}));
      if (i == 10) nat.rebind();
    }
    for (Call& call : calls) {
      const Result<Reply> reply = call.get();
      ASSERT_TRUE(reply.has_value()) << reply.error().to_string();
    }
    await([&] { return nat.rebinds() == rebinds + 1; });
  }
  EXPECT_FALSE(runs.is_twice);
  const Counters counters = total(server);
  EXPECT_GE(counters.addresses_changed, 9u);
  EXPECT_EQ(counters.handshakes_completed, 1u) << "all on one path";
  EXPECT_TRUE(workers == 1 || counters.datagrams_forwarded > 0);
}

INSTANTIATE_TEST_SUITE_P(Workers, Rebinding, ::testing::Values(1, 4));

// The reply is made after the address changed, while the caller has nothing to say.
TEST(AddressChanges, AReplyFindsACallerThatOnlyWaits) {
  std::atomic<bool> may_answer{false};
  Pool server = open(server_config(4));
  ASSERT_TRUE(server.serve("slow", [&](Request) -> Task<Result<Reply>> {
    while (!may_answer) std::this_thread::sleep_for(1ms);
    co_return Reply("done");
  }));
  Nat nat(server.listen_address());
  Config config = client_config(1);
  config.timeouts.keepalive = 50ms;
  Pool client = open(config);
  Call call = client.peer(nat.address()).unary("slow", "x", {.deadline = 60s});
  await([&] { return total(server).requests_dispatched == 1; });
  nat.rebind();
  await([&] { return total(server).addresses_changed == 1; });
  may_answer = true;
  const Result<Reply> reply = call.get();
  EXPECT_TRUE(reply.has_value()) << reply.error().to_string();
}

}  // namespace
}  // namespace weir
