// Any number of engines and the wires between them, in virtual time.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine_testing.h"
#include "engine/nic_turns.h"

namespace weir::engine::testing {

inline constexpr std::uint64_t kMethod = 77;
inline constexpr Instant kStart{1'000'000'000};

// What has left one engine in one train.
struct Departure {
  Instant at;
  std::size_t engine;
  Address to;
  std::uint64_t bytes;  // with the headers below UDP's payload
  std::size_t datagrams;
  std::size_t largest;
};

// Any number of engines and the wires between them.
class Engines {
 public:
  Engine& add(bool accepts, const std::shared_ptr<schedule::NicShaper>& nic) {
    const auto number = static_cast<std::uint16_t>(engines_.size());
    EngineConfig config = test_config(accepts, static_cast<std::uint16_t>(1'000 + number));
    config.memory = &memory;
    config.datagram_bytes = 1'472;
    config.nic = nic;
    // In one network paths share a model of their link, and wait for each other there, too.
    addresses.push_back(Address::v4(0x0a000001u + (in_one_network ? 1u : 0x10000u) * number, config.port));
    wires_.emplace_back();
    engines_.push_back(std::make_unique<Engine>(config, entropy_, nullptr, number + 1, now));
    if (accepts) {
      Handler handler{.run =
                          [](void* context, transfer::IncomingTransfer& request, Instant at) {
                            auto& engine = *static_cast<Engine*>(context);
                            buffer::Landing* const landing = request.landing();
                            EXPECT_TRUE(landing == nullptr || buffer::open_all(*landing));
                            engine.reply(request, {}, {}, at);
                          },
                      .context = engines_.back().get()};
      EXPECT_TRUE(engines_.back()->serve(kMethod, "take", handler));
    }
    return *engines_.back();
  }

  void call(std::size_t from, std::size_t to, TestCall& call, std::size_t bytes, std::uint8_t priority = 3) {
    Engine& engine = *engines_[from];
    call.method = kMethod;
    call.peer = engine.connect(addresses[to]).value();
    call.deadline = now + std::chrono::seconds(60);
    call.priority = priority;
    call.bytes = static_cast<std::uint32_t>(bytes);
    if (bytes > 16'384) {
      crypto::KeyBytes key;
      entropy_.fill(key);
      const std::string text(bytes, 'x');
      call.is_large = true;
      call.block =
          transfer::load_cargo(engine.blocks(), buffer::seal(memory, weir::as_bytes(text), key, buffer::thread_key()),
                               {.bytes = bytes}, Pattern::unary, {});
      call.bytes = wire::kCargoBytes;
    } else if (bytes > TestCall::kInlineBytes) {
      call.block = engine.blocks().acquire(call.bytes);
    }
    engine.submit(call, now);
  }

  Engine& engine(std::size_t number) { return *engines_[number]; }
  // Nothing that it sends arrives any more, and nothing arrives there.
  void cut_off(std::size_t number) { wires_[number].is_cut = true; }

  template <class Done>
  bool run_until(Done&& done, int most = 1'000'000) {
    for (; most != 0 && !done(); --most) step();
    return done();
  }
  void run_for(Duration duration) {
    const Instant end = now + duration;
    run_until([&] { return now >= end; });
  }
  void step() {
    for (std::size_t i = 0; i < engines_.size(); ++i) turn(i);
    Instant next = now + std::chrono::seconds(1);
    for (const Wire& wire : wires_) {
      if (!wire.packets.empty()) next = earliest(next, wire.packets.front().at);
    }
    for (const auto& engine : engines_) next = earliest(next, engine->has_work() ? now : engine->next_deadline());
    turns_at_once = next > now ? 0 : turns_at_once + 1;
    ASSERT_LT(turns_at_once, 1'000) << "some engine spins";
    now = std::max(now, next);
  }

  // The largest excess over the rate in any interval, of packets that elicit acknowledgements.
  std::int64_t largest_burst(std::initializer_list<std::size_t> of, std::uint64_t rate) const {
    std::int64_t total = 0, least = 0, largest = 0;
    for (const Departure& each : departures) {
      if (std::ranges::find(of, each.engine) == of.end() || each.largest <= kSmallPacket) continue;
      const auto drained =
          static_cast<std::int64_t>(static_cast<unsigned __int128>((each.at - kStart).count()) * rate / 1'000'000'000u);
      least = std::min(least, total - drained);
      total += static_cast<std::int64_t>(each.bytes);
      largest = std::max(largest, total - drained - least);
    }
    return largest;
  }

  static constexpr std::size_t kSmallPacket = 100;  // acknowledgements

  // The queue that the packets to this engine go through.
  void set_rate_to(std::size_t engine, std::uint64_t bytes_per_s) { wires_[engine].bytes_per_s = bytes_per_s; }
  // The queue that all packets of this engine go through; what finds it full is dropped.
  void set_rate_from(std::size_t engine, std::uint64_t bytes_per_s, std::uint64_t queue_bytes) {
    wires_[engine].uplink = {.bytes_per_s = bytes_per_s, .queue_bytes = queue_bytes};
  }
  std::uint64_t longest_queue = 0;  // bytes, of all of them to engines
  std::uint64_t drops = 0;

  bool keeps_departures = true;
  bool in_one_network = false;
  Instant now = kStart;
  Duration latency = std::chrono::microseconds(20);
  buffer::HeapMemory memory{std::uint64_t{1} << 34};
  std::vector<Address> addresses;
  std::vector<Departure> departures;
  int turns_at_once = 0;

 private:
  struct InFlight {
    Instant at;
    Address from;
    std::vector<std::byte> bytes;
  };
  struct Uplink {
    std::uint64_t bytes_per_s = 0;  // 0: any
    std::uint64_t queue_bytes = 0;
    Instant free_at{};
  };
  struct Wire {
    Uplink uplink;
    std::deque<InFlight> packets;
    std::uint64_t bytes_per_s = 0;  // of the link to this engine; 0: any
    Instant free_at{};
    bool is_cut = false;
  };

  static Duration time_of(std::uint64_t bytes, std::uint64_t bytes_per_s) {
    return Duration{static_cast<std::int64_t>(bytes * 1'000'000'000 / bytes_per_s)};
  }
  // Through the queue of who sends it. False: it is full.
  bool pass(Uplink& uplink, InFlight& packet) {
    if (uplink.bytes_per_s == 0) return true;
    const std::uint64_t bytes = packet.bytes.size() + NicTurns::header_bytes(true);
    const Duration waits = std::max(uplink.free_at, now) - now;
    if (waits + time_of(bytes, uplink.bytes_per_s) > time_of(uplink.queue_bytes, uplink.bytes_per_s)) {
      ++drops;
      return false;
    }
    uplink.free_at = now + waits + time_of(bytes, uplink.bytes_per_s);
    packet.at = uplink.free_at + latency;
    return true;
  }
  // Through the queue in front of that link, which has room for everything.
  void transmit(std::size_t to, InFlight packet) {
    Wire& wire = wires_[to];
    if (wire.is_cut) return;
    if (wire.bytes_per_s != 0) {
      const std::uint64_t bytes = packet.bytes.size() + NicTurns::header_bytes(true);
      const Instant arrives = packet.at;
      wire.free_at = std::max(wire.free_at, arrives) + time_of(bytes, wire.bytes_per_s);
      packet.at = wire.free_at;
      const auto queued =
          static_cast<std::uint64_t>((wire.free_at - arrives).count()) * wire.bytes_per_s / 1'000'000'000;
      longest_queue = std::max(longest_queue, queued);
    }
    wire.packets.push_back(std::move(packet));
  }

  void turn(std::size_t number) {
    Engine& engine = *engines_[number];
    std::deque<InFlight>& packets = wires_[number].packets;
    const bool has_packets = !packets.empty() && packets.front().at <= now;
    if (!has_packets && !engine.has_work() && engine.next_deadline() > now) return;
    engine.on_timeout(now);
    std::deque<InFlight> mine;
    for (; !packets.empty() && packets.front().at <= now; packets.pop_front()) {
      mine.push_back(std::move(packets.front()));
      engine.on_datagram(mine.back().bytes, mine.back().from, 0, nullptr, now);
    }
    engine.deliver(now);
    if (!engine.has_work()) return;  // as a worker does: no turn of sending without work
    std::vector<Train> trains;
    engine.collect(trains, now);
    for (const Train& train : trains) {
      Departure departure{.at = now, .engine = number, .to = train.to};
      const auto send = [&](std::vector<std::byte> bytes) {
        departure.bytes += bytes.size() + NicTurns::header_bytes(true);
        departure.largest = std::max(departure.largest, bytes.size());
        ++departure.datagrams;
        if (wires_[number].is_cut) return;
        const auto to = std::ranges::find(addresses, train.to) - addresses.begin();
        InFlight packet{now + latency, addresses[number], std::move(bytes)};
        if (pass(wires_[number].uplink, packet)) transmit(static_cast<std::size_t>(to), std::move(packet));
      };
      for (std::size_t at = 0; at < train.bytes.size(); at += train.segment_size) {
        const auto part = train.bytes.subspan(at, std::min<std::size_t>(train.segment_size, train.bytes.size() - at));
        send({part.begin(), part.end()});
      }
      for (const Segment& gathered : train.segments) {
        std::vector<std::byte> both(gathered.head.begin(), gathered.head.end());
        both.insert(both.end(), gathered.body.begin(), gathered.body.end());
        send(std::move(both));
      }
      if (keeps_departures) departures.push_back(departure);
    }
    engine.deliver(now);
  }

  TestEntropy entropy_{1};
  std::vector<std::unique_ptr<Engine>> engines_;
  std::vector<Wire> wires_;
};

}  // namespace weir::engine::testing
