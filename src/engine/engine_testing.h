// Two engines and a wire between them, in virtual time. For tests and benchmarks of the engine alone.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "buffer/heap_memory.h"
#include "buffer/open.h"
#include "buffer/seal.h"
#include "crypto/nonce_ledger.h"
#include "engine/engine.h"
#include "weir/body.h"

namespace weir::engine::testing {

// Repeatable; for tests only. A new one starts a world of its own, in which the keys of an earlier one come again.
class TestEntropy final : public crypto::Entropy {
 public:
  explicit TestEntropy(std::uint64_t seed) : random_(seed) { crypto::forget_recorded_nonces(); }
  void fill(MutableByteSpan out) override {
    for (std::byte& byte : out) byte = static_cast<std::byte>(random_.next());
  }

 private:
  Random random_;
};

inline EngineConfig test_config(bool accepts, std::uint16_t port, std::string_view secret = "a secret for tests only") {
  EngineConfig config{.secret = crypto::SharedSecret::from_text(secret).value(), .name = accepts ? "server" : "client"};
  config.port = port;
  config.accepts = accepts;
  return config;
}

struct TestCall : transfer::OutgoingCall {
  int completions = 0;
  bool failed = false;
  Code code{};
  bool may_have_run = false;
  bool opened = true;  // a large reply
  std::string reply;
  std::string header;
  std::function<void(TestCall&)> then;

  TestCall() {
    complete = [](transfer::OutgoingCall& base, const transfer::Outcome& outcome) {
      auto& call = static_cast<TestCall&>(base);
      ++call.completions;
      call.failed = outcome.failed;
      call.code = outcome.code;
      call.may_have_run = outcome.may_have_run;
      const std::string all(reinterpret_cast<const char*>(outcome.bytes.data()), outcome.bytes.size());
      call.header = all.substr(0, outcome.header_bytes);
      call.reply = outcome.failed && all.empty() ? outcome.sentence : all.substr(outcome.header_bytes);
      if (outcome.landing != nullptr) {
        call.opened = buffer::open_all(*outcome.landing);
        call.reply.assign(reinterpret_cast<const char*>(outcome.landing->body), outcome.landing->bytes);
      }
      if (call.then) call.then(call);
    };
  }
};

class Pair {
 public:
  struct InFlight {
    Instant at;
    int to;
    Address from;
    std::vector<std::byte> bytes;
    std::uint8_t ecn;
  };

  explicit Pair(const EngineConfig& client = test_config(false, 1111),
                const EngineConfig& server = test_config(true, 2222), std::uint64_t seed = 1)
      : configs{client, server}, entropy(seed), random(seed) {
    addresses[0] = Address::v4(0x0a000001, client.port);
    addresses[1] = Address::v4(0x0a000002, server.port);
    for (EngineConfig& config : configs) config.memory = &memory;
    for (int i = 0; i < 2; ++i) start(i);
  }

  void start(int side) {
    engines[side] = std::make_unique<Engine>(configs[side], entropy, subscribers[side], random.next(), now);
    if (side == 0) peer = engines[0]->connect(addresses[1]).value();
  }

  Engine& client() { return *engines[0]; }
  Engine& server() { return *engines[1]; }

  void call(TestCall& call, std::string_view method, std::string_view body, std::string_view header = {},
            Duration deadline = std::chrono::seconds(5)) {
    call.method = std::hash<std::string_view>{}(method) | 1;
    call.peer = peer;
    call.deadline = now + deadline;
    call.bytes = static_cast<std::uint32_t>(header.size() + body.size());
    call.header_bytes = static_cast<std::uint16_t>(header.size());
    std::byte* to = call.inline_bytes;
    if (call.bytes > TestCall::kInlineBytes) {
      call.block = client().blocks().acquire(call.bytes);
      to = call.block->bytes();
    }
    std::copy(header.begin(), header.end(), reinterpret_cast<char*>(to));
    std::copy(body.begin(), body.end(), reinterpret_cast<char*>(to) + header.size());
    client().submit(call, now);
  }

  buffer::Sealed* seal(std::string_view text) {
    crypto::KeyBytes key;
    entropy.fill(key);
    return buffer::seal(memory, weir::as_bytes(text), key, buffer::thread_key());
  }
  void call_large(TestCall& call, std::string_view method, buffer::Sealed* sealed, transfer::CargoRange range,
                  std::string_view header = {}, Duration deadline = std::chrono::seconds(5)) {
    call.method = std::hash<std::string_view>{}(method) | 1;
    call.peer = peer;
    call.deadline = now + deadline;
    call.is_large = true;
    call.block = transfer::load_cargo(client().blocks(), sealed, range, call_pattern, weir::as_bytes(header));
    call.bytes = static_cast<std::uint32_t>(wire::kCargoBytes + header.size());
    call.header_bytes = 0;
    client().submit(call, now);
  }
  void call_large(TestCall& call, std::string_view method, std::string_view text, std::string_view header = {},
                  Duration deadline = std::chrono::seconds(5)) {
    call_large(call, method, seal(text), {.bytes = text.size()}, header, deadline);
  }

  using ServeFunction = std::function<void(Engine&, transfer::IncomingTransfer&, Instant)>;
  void serve(std::string_view method, ServeFunction function, bool takes_records = false) {
    served.push_back(std::make_unique<Served>(Served{this, std::move(function)}));
    const Handler handler{.run =
                              [](void* context, transfer::IncomingTransfer& request, Instant at) {
                                auto* one = static_cast<Served*>(context);
                                one->function(one->pair->server(), request, at);
                              },
                          .context = served.back().get(),
                          .takes_records = takes_records};
    (void)server().serve(std::hash<std::string_view>{}(method) | 1, method, handler);
  }
  void serve_echo() {
    serve("echo", [this](Engine& engine, transfer::IncomingTransfer& request, Instant at) {
      ++handled;
      engine.reply(request, {request.delivery.request, request.header_bytes},
                   {request.delivery.request + request.header_bytes, request.bytes - request.header_bytes}, at);
    });
  }

  // Answers with the request, which may be large.
  void serve_large_echo() {
    serve("echo", [this](Engine& engine, transfer::IncomingTransfer& request, Instant at) {
      ++handled;
      buffer::Landing* const landing = request.landing();
      if (landing == nullptr) return engine.reply(request, {}, {request.delivery.request, request.bytes}, at);
      if (!buffer::open_all(*landing)) return engine.fail(request, Code::unauthenticated, "does not open", at);
      const std::string_view text(reinterpret_cast<const char*>(landing->body), landing->bytes);
      engine.reply_large(request, seal(text), {.bytes = text.size()}, Pattern::unary, landing->header(), at);
    });
  }

  // One turn of both engines, and of time to the next interesting instant, at most `latest`. False if nothing will ever
  // happen again.
  bool step(Instant latest = Instant::never()) {
    for (int side = 0; side < 2; ++side) turn(side);
    Instant next = earliest(engines[0]->next_deadline(), engines[1]->next_deadline());
    for (const InFlight& datagram : wire) next = earliest(next, datagram.at);
    if (engines[0]->has_work() || engines[1]->has_work()) next = earliest(next, now);
    if (next.is_never()) return false;
    next = earliest(next, latest);
    if (next > now) now = next;
    return true;
  }

  void turn(int side) {
    Engine& engine = *engines[side];
    for (std::size_t i = 0; i < wire.size();) {
      if (wire[i].to == side && wire[i].at <= now) {
        InFlight datagram = std::move(wire[i]);
        wire.erase(wire.begin() + static_cast<std::ptrdiff_t>(i));
        received.push_back(std::move(datagram.bytes));
        engine.on_datagram(received.back(), datagram.from, datagram.ecn, nullptr, now);
      } else {
        ++i;
      }
    }
    engine.on_timeout(now);
    engine.deliver(now);
    received.clear();
    std::vector<Train> trains;
    engine.collect(trains, now);
    for (const Train& train : trains) {
      if (on_train) on_train(side, train);
      for (std::size_t at = 0; at < train.bytes.size(); at += train.segment_size) {
        send(side, train, train.bytes.subspan(at, std::min<std::size_t>(train.segment_size, train.bytes.size() - at)));
      }
      for (const Segment& gathered : train.segments) {
        std::vector<std::byte> both(gathered.head.begin(), gathered.head.end());
        both.insert(both.end(), gathered.body.begin(), gathered.body.end());
        send(side, train, both);
      }
    }
    engine.deliver(now);
  }

  void send(int side, const Train& train, MutableByteSpan datagram) {
    std::uint8_t ecn = train.ecn;
    if (on_wire) on_wire(side, datagram);
    if (mark) ecn = mark(side, ecn);
    if (datagram.size() > mtu || random.chance(loss)) return;
    if (std::ranges::find(dead, train.to) != dead.end()) return;
    const int to = train.to == addresses[0] ? 0 : 1;
    wire.push_back({now + latency, to, addresses[side], {datagram.begin(), datagram.end()}, ecn});
  }

  template <class Done>
  bool run_until(Done&& done, int steps = 200'000) {
    for (int i = 0; i < steps; ++i) {
      if (done()) return true;
      if (!step()) return done();
    }
    return done();
  }
  void run_for(Duration duration) {
    const Instant end = now + duration;
    while (now < end && step()) {
    }
  }

  Instant now{1'000'000'000};
  Pattern call_pattern = Pattern::unary;  // that call_large() says
  Duration latency = std::chrono::microseconds(10);
  double loss = 0;
  std::size_t mtu = 65'507;
  int handled = 0;
  std::function<void(int from, MutableByteSpan)> on_wire;
  std::function<void(int side, const Train& train)> on_train;
  std::function<std::uint8_t(int from, std::uint8_t ecn)> mark;  // what becomes of a packet's ECN bits on the way
  buffer::HeapMemory memory{std::uint64_t{1} << 34};
  EngineConfig configs[2];
  Subscriber* subscribers[2] = {};  // of the engines that are started from now on
  Address addresses[2];
  TestEntropy entropy;
  Random random;
  std::uint32_t peer = 0;
  std::deque<InFlight> wire;
  std::vector<Address> dead;  // what is sent to these is lost

 private:
  struct Served {
    Pair* pair;
    ServeFunction function;
  };
  std::unique_ptr<Engine> engines[2];
  std::vector<std::unique_ptr<Served>> served;
  std::deque<std::vector<std::byte>> received;
};

}  // namespace weir::engine::testing
