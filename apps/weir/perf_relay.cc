#include "apps/weir/perf_relay.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#if defined(__linux__)
#include <linux/sock_diag.h>
#include <sys/prctl.h>
#endif

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <limits>
#include <map>
#include <memory>
#include <queue>
#include <span>
#include <utility>
#include <vector>

#include "apps/weir/command.h"
#include "apps/weir/format.h"
#include "apps/weir/json.h"
#include "apps/weir/process.h"
#include "base/address.h"
#include "base/random.h"
#include "link/link.h"
#include "link/open.h"
#include "link/receive_buffer.h"

namespace weir::command {

namespace {

constexpr std::size_t kMaxHeld = 1u << 16;  // datagrams under way; more are dropped
constexpr std::size_t kMaxClients = 1'024;  // datagrams of others are dropped
constexpr std::size_t kReceiveBuffersEach = 256;
constexpr std::size_t kSocketBufferBytes = 16u << 20;
constexpr std::int64_t kAwakeNs = 100'000;  // before a datagram's time the relay does not sleep
constexpr std::int64_t kLongestSleepNs =
    50'000'000;                             // a signal ends a sleep, but one that comes just before it does not
constexpr std::int64_t kTardyNs = 500'000;  // a datagram that leaves so much after its time is counted

// A datagram under way.
struct Held {
  std::int64_t at_ns = 0;
  std::uint64_t order = 0;
  link::Link* out = nullptr;
  Address to;
  link::Ecn ecn{};
  std::vector<std::byte> bytes;

  bool operator<(const Held& other) const {  // the queue's top is the largest
    return std::pair(other.at_ns, other.order) < std::pair(at_ns, order);
  }
};

// Datagrams that found the socket's buffer full; 0 where the system does not tell.
std::uint64_t overflows_of(const link::Link& link) {
#if defined(SO_MEMINFO)
  std::array<std::uint32_t, SK_MEMINFO_VARS> memory{};
  socklen_t bytes = sizeof(memory);
  if (getsockopt(link.descriptor(), SOL_SOCKET, SO_MEMINFO, memory.data(), &bytes) == 0)
    return memory[SK_MEMINFO_DROPS];
#endif
  return 0;
}

// One socket that clients know, and one for each client, from which its datagrams go to the server.
class Relay {
 public:
  explicit Relay(const PerfRelayOptions& options)
      : options_(options), random_(options.seed), server_(value_or_fail(Address::parse(options.to))) {
    front_ = open(value_or_fail(Address::parse(options.listen)));
    arrived_.reserve(link::kReceiveBurst);
  }

  std::string address() const { return front_.link->local().to_string(); }

  void turn() {
    arrivals_ = 0;
    receive(front_, [this](const link::Datagram& datagram) { hold(client(datagram.from), server_, datagram); });
    for (auto& [address, side] : clients_) {
      receive(side, [this, to = address](const link::Datagram& datagram) { hold(front_.link.get(), to, datagram); });
    }
    const std::int64_t now = now_ns();
    for (; !held_.empty() && held_.top().at_ns <= now; held_.pop()) send(held_.top(), now);
    if (arrivals_ == 0) sleep(now);
  }

  void print() const {
    std::uint64_t overflows = overflows_of(*front_.link);
    for (const auto& [address, side] : clients_) overflows += overflows_of(*side.link);
    if (options_.json) {
      fmt::print("{}\n", JsonObject()
                             .add("passed_on", passed_)
                             .add("reordered", reordered_)
                             .add("lost_on_purpose", lost_)
                             .add("lost_in_full_sockets", overflows)
                             .add("lost_otherwise", unfit_)
                             .add("tardy", tardy_)
                             .add("most_tardy_ms", static_cast<double>(most_tardy_ns_) * 1e-6)
                             .text());
      return;
    }
    fmt::print("passed on {} datagrams, {} of them later than the others; dropped {} on purpose\n",
               with_commas(passed_), with_commas(reordered_), with_commas(lost_));
    fmt::print(
        "against its purpose: dropped {} in full sockets and {} otherwise; {} left more than {} ms after their time, "
        "the last of them {:.1f} ms\n",
        with_commas(overflows), with_commas(unfit_), with_commas(tardy_), static_cast<double>(kTardyNs) * 1e-6,
        static_cast<double>(most_tardy_ns_) * 1e-6);
  }

 private:
  struct Side {
    std::unique_ptr<link::ReceiveBufferPool> pool;
    std::unique_ptr<link::Link> link;
  };

  static Side open(const Address& bind) {
    Side side;
    side.pool = std::make_unique<link::ReceiveBufferPool>(
        link::ReceiveBufferPool::Options{.max_buffers = kReceiveBuffersEach, .touched_buffers = 0});
    side.link = value_or_fail(link::open_udp({.bind = bind,
                                              .receive_buffer_bytes = kSocketBufferBytes,
                                              .send_buffer_bytes = kSocketBufferBytes,
                                              .force_buffers = true},
                                             *side.pool));
    return side;
  }

  // Null: there are too many.
  link::Link* client(const Address& from) {
    const auto known = clients_.find(from);
    if (known != clients_.end()) return known->second.link.get();
    if (clients_.size() == kMaxClients) return nullptr;
    Address any = server_;
    any.ip = front_.link->local().ip;
    any.port = 0;
    return clients_.emplace(from, open(any)).first->second.link.get();
  }

  template <class Take>
  void receive(Side& side, Take&& take) {
    arrived_.clear();
    arrivals_ += side.link->receive(arrived_);
    for (const link::Datagram& datagram : arrived_) take(datagram);
    side.link->recycle();
    for (link::Unreachable report; side.link->take_unreachable(report);) {
    }
  }

  void hold(link::Link* out, const Address& to, const link::Datagram& datagram) {
    if (out == nullptr || held_.size() == kMaxHeld) {
      ++unfit_;
      return;
    }
    if (random_.chance(options_.loss)) {
      ++lost_;
      return;
    }
    double delay_ms = options_.delay_ms + options_.jitter_ms * random_.fraction();
    if (random_.chance(options_.reorder)) {
      ++reordered_;
      delay_ms += options_.reorder_ms * random_.fraction();
    }
    held_.push({.at_ns = now_ns() + static_cast<std::int64_t>(delay_ms * 1e6),
                .order = ++order_,
                .out = out,
                .to = to,
                .ecn = datagram.ecn,
                .bytes = {datagram.bytes.begin(), datagram.bytes.end()}});
  }

  // What the socket does not take is lost.
  void send(const Held& held, std::int64_t now) {
    if (now - held.at_ns > kTardyNs) ++tardy_;
    most_tardy_ns_ = std::max(most_tardy_ns_, now - held.at_ns);
    bytes_.assign(held.bytes.begin(), held.bytes.end());
    link::Train train{.to = held.to, .ecn = held.ecn, .bytes = bytes_, .segment_size = 0};
    link::SendStatus status{};
    const bool is_sent = held.out->send({&train, 1}, {&status, 1}) == 1 && status == link::SendStatus::sent;
    ++(is_sent ? passed_ : unfit_);
  }

  // Until something arrives, or the next datagram's time is near: a relay that spun would take the processor from those
  // whom it stands between.
  void sleep(std::int64_t now) {
    const std::int64_t time_left = held_.empty() ? kLongestSleepNs : held_.top().at_ns - now;
    const std::int64_t limit = std::min(time_left - kAwakeNs, kLongestSleepNs);
    if (limit <= 0) return;
    polled_.assign(1, {.fd = front_.link->descriptor(), .events = POLLIN, .revents = 0});
    for (const auto& [address, side] : clients_) {
      polled_.push_back({.fd = side.link->descriptor(), .events = POLLIN, .revents = 0});
    }
    wait_for(polled_, limit);
  }

  static void wait_for(std::span<pollfd> descriptors, std::int64_t at_most_ns) {
#if defined(__linux__)
    constexpr std::int64_t kNsPerS = 1'000'000'000;
    const timespec limit{.tv_sec = static_cast<time_t>(at_most_ns / kNsPerS),
                         .tv_nsec = static_cast<long>(at_most_ns % kNsPerS)};
    ppoll(descriptors.data(), descriptors.size(), &limit, nullptr);
#else
    ::poll(descriptors.data(), static_cast<nfds_t>(descriptors.size()), static_cast<int>(at_most_ns / 1'000'000));
#endif
  }

  PerfRelayOptions options_;
  Random random_;
  Address server_;
  Side front_;
  std::map<Address, Side> clients_;
  std::vector<link::Datagram> arrived_;  // scratch
  std::vector<std::byte> bytes_;         // the same
  std::vector<pollfd> polled_;           // the same
  std::priority_queue<Held> held_;
  std::size_t arrivals_ = 0;  // of this turn
  std::uint64_t order_ = 0, passed_ = 0, reordered_ = 0;
  std::uint64_t lost_ = 0;   // as it was asked for
  std::uint64_t unfit_ = 0;  // too many under way, too many clients, or refused by the socket
  std::uint64_t tardy_ = 0;
  std::int64_t most_tardy_ns_ = 0;
};

}  // namespace

void run_perf_relay(const PerfRelayOptions& options) {
  catch_stop_signals();
#if defined(__linux__)
  prctl(PR_SET_TIMERSLACK, 1UL);  // sleeps end when they shall
#endif
  Relay relay(options);
  fmt::print("listening on {}\n", relay.address());
  std::fflush(stdout);
  const std::int64_t end_ns = options.seconds > 0 ? now_ns() + static_cast<std::int64_t>(options.seconds * 1e9)
                                                  : std::numeric_limits<std::int64_t>::max();
  while (!stop_requested() && now_ns() < end_ns) relay.turn();
  relay.print();
}

}  // namespace weir::command
