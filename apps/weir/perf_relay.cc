#include "apps/weir/perf_relay.h"

#include <fmt/format.h>

#include <algorithm>
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
    receive(front_, [this](const link::Datagram& datagram) { hold(client(datagram.from), server_, datagram); });
    for (auto& [address, side] : clients_) {
      receive(side, [this, to = address](const link::Datagram& datagram) { hold(front_.link.get(), to, datagram); });
    }
    for (const std::int64_t now = now_ns(); !held_.empty() && held_.top().at_ns <= now; held_.pop()) send(held_.top());
  }

  void print() const {
    fmt::print("passed on {} datagrams, {} of them late; dropped {}\n", with_commas(passed_), with_commas(late_),
               with_commas(dropped_));
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
    side.link = value_or_fail(link::open_udp({.bind = bind}, *side.pool));
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
    side.link->receive(arrived_);
    for (const link::Datagram& datagram : arrived_) take(datagram);
    side.link->recycle();
    for (link::Unreachable report; side.link->take_unreachable(report);) {
    }
  }

  void hold(link::Link* out, const Address& to, const link::Datagram& datagram) {
    if (out == nullptr || held_.size() == kMaxHeld || random_.chance(options_.loss)) {
      ++dropped_;
      return;
    }
    double delay_ms = options_.delay_ms + options_.jitter_ms * random_.fraction();
    if (random_.chance(options_.reorder)) {
      ++late_;
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
  void send(const Held& held) {
    bytes_.assign(held.bytes.begin(), held.bytes.end());
    link::Train train{.to = held.to, .ecn = held.ecn, .bytes = bytes_, .segment_size = 0};
    link::SendStatus status{};
    const bool is_sent = held.out->send({&train, 1}, {&status, 1}) == 1 && status == link::SendStatus::sent;
    ++(is_sent ? passed_ : dropped_);
  }

  PerfRelayOptions options_;
  Random random_;
  Address server_;
  Side front_;
  std::map<Address, Side> clients_;
  std::vector<link::Datagram> arrived_;  // scratch
  std::vector<std::byte> bytes_;         // the same
  std::priority_queue<Held> held_;
  std::uint64_t order_ = 0, passed_ = 0, late_ = 0, dropped_ = 0;
};

}  // namespace

void run_perf_relay(const PerfRelayOptions& options) {
  catch_stop_signals();
  Relay relay(options);
  fmt::print("listening on {}\n", relay.address());
  std::fflush(stdout);
  const std::int64_t end_ns = options.seconds > 0 ? now_ns() + static_cast<std::int64_t>(options.seconds * 1e9)
                                                  : std::numeric_limits<std::int64_t>::max();
  while (!stop_requested() && now_ns() < end_ns) relay.turn();
  relay.print();
}

}  // namespace weir::command
