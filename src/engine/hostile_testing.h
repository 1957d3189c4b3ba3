// Any number of engines on one wire in virtual time, and a Puppet: the far end of a real path whose owner says whatever
// a test makes it say, sealed with the real keys. For tests and fuzzing of the engine alone.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "crypto/nonce.h"
#include "engine/core.h"
#include "engine/engine_access.h"
#include "engine/engine_testing.h"

namespace weir::engine::testing {

using Datagram = std::vector<std::byte>;

inline std::uint64_t method_id(std::string_view method) { return std::hash<std::string_view>{}(method) | 1; }

// Hosts are numbered from 0. A frozen host is not run any more; what is sent to it stays in its inbox.
class Net {
 public:
  struct InFlight {
    Instant at;
    Address from;
    Datagram bytes;
    std::uint8_t ecn = 0;
  };
  using Serve = std::function<void(Engine&, transfer::IncomingTransfer&, Instant)>;

  explicit Net(std::uint64_t seed = 1) : entropy(seed), random(seed) {}

  int add(const EngineConfig& config) {
    const auto address = Address::v4(0x0a000001 + static_cast<std::uint32_t>(hosts_.size()), config.port);
    hosts_.push_back(std::make_unique<Host>(Host{.address = address, .config = config}));
    const int index = static_cast<int>(hosts_.size()) - 1;
    restart(index);
    return index;
  }
  int add(bool accepts) { return add(test_config(accepts, static_cast<std::uint16_t>(1000 + hosts_.size()))); }

  // The process died and came back: nothing of its engine is left, what is on the wire stays there.
  void restart(int index) {
    Host& host = *hosts_[static_cast<std::size_t>(index)];
    host.served.clear();
    host.engine.reset();
    host.engine = std::make_unique<Engine>(host.config, entropy, nullptr, random.next(), now);
  }

  Engine& engine(int host) { return *hosts_[static_cast<std::size_t>(host)]->engine; }
  Core& core(int host) { return EngineAccess::core(engine(host)); }
  const Address& address(int host) const { return hosts_[static_cast<std::size_t>(host)]->address; }
  std::deque<InFlight>& inbox(int host) { return hosts_[static_cast<std::size_t>(host)]->inbox; }
  void freeze(int host) { hosts_[static_cast<std::size_t>(host)]->frozen = true; }

  void call(int from, int to, TestCall& call, std::string_view method, std::string_view body,
            Duration deadline = std::chrono::seconds(5), std::uint8_t depth = 0) {
    call_peer(from, engine(from).connect(address(to)).value(), call, method, body, deadline, depth);
  }
  void call_peer(int from, std::uint32_t peer, TestCall& call, std::string_view method, std::string_view body,
                 Duration deadline, std::uint8_t depth = 0) {
    Engine& caller = engine(from);
    call.method = method_id(method);
    call.peer = peer;
    call.deadline = now + deadline;
    call.depth = depth;
    call.bytes = static_cast<std::uint32_t>(body.size());
    call.header_bytes = 0;
    std::byte* bytes = call.inline_bytes;
    if (call.bytes > TestCall::kInlineBytes) {
      call.block = caller.blocks().acquire(call.bytes);
      bytes = call.block->bytes();
    }
    if (!body.empty()) std::memcpy(bytes, body.data(), body.size());
    caller.submit(call, now);
  }

  void serve(int at, std::string_view method, Serve function) {
    Host& host = *hosts_[static_cast<std::size_t>(at)];
    host.served.push_back(std::make_unique<Served>(Served{&host, std::move(function)}));
    const Handler handler{[](void* context, transfer::IncomingTransfer& request, Instant time) {
                            auto* one = static_cast<Served*>(context);
                            one->function(*one->host->engine, request, time);
                          },
                          host.served.back().get()};
    (void)host.engine->serve(method_id(method), method, handler);
  }
  void serve_echo(int at) {
    serve(at, "echo", [this](Engine& engine, transfer::IncomingTransfer& request, Instant time) {
      ++handled;
      engine.reply(request, {}, {request.delivery.request, request.bytes}, time);
    });
  }

  // It arrives now, after what has arrived already.
  void inject(int to, const Address& from, Datagram bytes) {
    auto& box = inbox(to);
    const auto later = std::find_if(box.begin(), box.end(), [this](const InFlight& one) { return one.at > now; });
    box.insert(later, {now, from, std::move(bytes), 0});
  }

  void turn(int index) {
    Host& host = *hosts_[static_cast<std::size_t>(index)];
    if (host.frozen) return;
    while (!host.inbox.empty() && host.inbox.front().at <= now) {
      received_.push_back(std::move(host.inbox.front()));
      host.inbox.pop_front();
      host.engine->on_datagram(received_.back().bytes, received_.back().from, received_.back().ecn, nullptr, now);
    }
    host.engine->on_timeout(now);
    host.engine->deliver(now);
    received_.clear();
    trains_.clear();
    host.engine->collect(trains_, now);
    for (const Train& train : trains_) {
      for (std::size_t at = 0; at < train.bytes.size(); at += train.segment_size) {
        send(index, train, train.bytes.subspan(at, std::min<std::size_t>(train.segment_size, train.bytes.size() - at)));
      }
      for (const Segment& gathered : train.segments) {
        Datagram both(gathered.head.begin(), gathered.head.end());
        both.insert(both.end(), gathered.body.begin(), gathered.body.end());
        send(index, train, both);
      }
    }
    host.engine->deliver(now);
    if (after_turn) after_turn(index);
  }

  void send(int index, const Train& train, MutableByteSpan datagram) {
    if (on_wire) on_wire(index, train.to, datagram);
    if (datagram.size() > mtu || random.chance(loss)) return;
    for (auto& other : hosts_) {
      if (other->address != train.to) continue;
      other->inbox.push_back({now + latency, address(index), {datagram.begin(), datagram.end()}, train.ecn});
    }
  }

  // False if nothing will ever happen again.
  bool step(Instant until = Instant::never()) {
    for (int i = 0; i < static_cast<int>(hosts_.size()); ++i) turn(i);
    Instant next = Instant::never();
    for (auto& host : hosts_) {
      if (host->frozen) continue;
      next = earliest(next, host->engine->has_work() ? now : host->engine->next_deadline());
      if (!host->inbox.empty()) next = earliest(next, host->inbox.front().at);
    }
    if (next.is_never()) return false;
    now = std::max(now, earliest(next, until));
    return true;
  }
  template <class Done>
  bool run_until(Done&& done, int steps = 200'000) {
    for (int i = 0; i < steps; ++i) {
      if (done()) return true;
      if (!step()) return done();
    }
    return done();
  }
  // Time passes even if nothing happens.
  void run_for(Duration duration) {
    const Instant end = now + duration;
    while (now < end && step(end)) {
    }
    now = std::max(now, end);
    for (int i = 0; i < static_cast<int>(hosts_.size()); ++i) turn(i);
  }

  Instant now{1'000'000'000};
  Duration latency = std::chrono::microseconds(10);
  double loss = 0;
  std::size_t mtu = 65'507;
  int handled = 0;
  std::function<void(int from, const Address& to, MutableByteSpan)> on_wire;
  std::function<void(int host)> after_turn;
  TestEntropy entropy;
  Random random;

 private:
  struct Host;
  struct Served {
    Host* host;
    Serve function;
  };
  struct Host {
    Address address;
    EngineConfig config;
    std::vector<std::unique_ptr<Served>> served{};
    std::unique_ptr<Engine> engine{};
    std::deque<InFlight> inbox{};
    bool frozen = false;
  };
  std::vector<std::unique_ptr<Host>> hosts_;
  std::deque<InFlight> received_;
  std::vector<Train> trains_;
};

// Frames of one packet, written by hand.
class Frames {
 public:
  Frames& raw(ByteSpan bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  Frames& request(wire::TransferId id, std::string_view method, std::string_view body, std::uint16_t total = 0,
                  std::uint16_t offset = 0, std::uint8_t depth = 0, std::uint8_t priority = 3) {
    return put(wire::RequestFrame{.part = part(id, body, total, offset),
                                  .method = method_id(method),
                                  .time_left_us = 1'000'000,
                                  .priority = priority,
                                  .depth = depth});
  }
  Frames& reply(wire::TransferId id, std::string_view body, std::uint16_t total = 0, std::uint16_t offset = 0,
                bool failed = false) {
    return put(wire::ReplyFrame{.part = part(id, body, total, offset), .failed = failed});
  }
  Frames& cancel(wire::TransferId id, std::uint8_t level = 0, std::uint16_t total = 0) {
    return put(wire::CancelFrame{.id = id, .level = level, .total = total});
  }
  Frames& ack(std::uint64_t first, std::uint64_t last) {
    wire::AckFrame frame;
    frame.largest = last;
    frame.count = 1;
    frame.ranges[0] = {first, last};
    return put(frame);
  }
  Frames& level(wire::FrameType type, std::uint8_t which, std::uint64_t value) {
    return grow([&](std::byte* to) { return wire::encode_level(type, which, value, to); });
  }
  Frames& u64(wire::FrameType type, std::uint64_t value) {
    return grow([&](std::byte* to) { return wire::encode_u64(type, value, to); });
  }
  Frames& path(std::uint32_t number) {
    return grow([&](std::byte* to) { return wire::encode(wire::PathFrame{.path = number}, to); });
  }
  Frames& close(std::uint8_t reason, std::uint64_t seen = 0) {
    return grow([&](std::byte* to) { return wire::encode_level(wire::FrameType::close, reason, seen, to); });
  }
  Frames& ping() {
    return grow([&](std::byte* to) { return wire::encode_bare(wire::FrameType::ping, to); });
  }
  const Datagram& bytes() const { return bytes_; }
  bool empty() const { return bytes_.empty(); }

 private:
  static wire::MessagePart part(wire::TransferId id, std::string_view body, std::uint16_t total, std::uint16_t offset) {
    return {.id = id,
            .bytes = as_bytes(body),
            .total = total == 0 ? static_cast<std::uint16_t>(body.size()) : total,
            .offset = offset};
  }
  template <class Frame>
  Frames& put(const Frame& frame) {
    return grow([&](std::byte* to) { return wire::encode(frame, to); });
  }
  template <class Encode>
  Frames& grow(Encode&& encode) {
    std::vector<std::byte> scratch(70'000);
    std::byte* const end = encode(scratch.data());
    bytes_.insert(bytes_.end(), scratch.data(), end);
    return *this;
  }
  Datagram bytes_;
};

// The far end of an open path. Its host is frozen, so its engine neither answers nor acknowledges on its own.
class Puppet {
 public:
  // `host` has an open path with `victim`, in either role.
  Puppet(Net& net, int host, int victim) : net_(net), host_(host), victim_(victim) {
    net.core(host).paths.for_each([&](Path& path) {
      if (path.remote == net.address(victim) && path.state == Path::State::open) path_ = &path;
    });
    WEIR_CHECK(path_ != nullptr, "a puppet needs an open path");
    net.freeze(host);
    net.inbox(host).clear();
  }

  Path& path() { return *path_; }
  // The victim's own view of the path; null once it has ended.
  Path* victims_path() { return net_.core(victim_).find_path(path_->remote_id); }

  Datagram seal(ByteSpan frames) {
    Datagram packet(wire::kHeaderBytes + frames.size() + wire::kTagBytes);
    const std::uint64_t number = path_->next_number++;
    wire::encode({.type = wire::PacketType::sealed,
                  .key_low = static_cast<std::uint8_t>(path_->keys.send_id() & ((1u << wire::kKeyIdBits) - 1)),
                  .number_low = static_cast<std::uint32_t>(number & ((1u << wire::kNumberBits) - 1)),
                  .path = path_->remote_id},
                 packet.data());
    std::byte* const text = packet.data() + wire::kHeaderBytes;
    std::copy(frames.begin(), frames.end(), text);
    path_->keys.send_key().seal(crypto::make_nonce(0, number), {packet.data(), wire::kHeaderBytes},
                                {text, frames.size()}, text + frames.size());
    return packet;
  }
  void send(const Frames& frames) { net_.inject(victim_, net_.address(host_), seal(frames.bytes())); }
  // Sends and lets the victim have a turn.
  void say(const Frames& frames) {
    send(frames);
    net_.turn(victim_);
  }

  // Opens what the victim sent since the last time. Plaintexts of sealed packets, oldest first.
  std::vector<Datagram> listen() {
    std::vector<Datagram> heard;
    for (auto& datagram : std::exchange(net_.inbox(host_), {})) {
      MutableByteSpan bytes(datagram.bytes);
      if (bytes.size() < wire::kMinPacketBytes) continue;
      const wire::PacketHeader header = wire::decode_header(bytes.data());
      if (header.type != wire::PacketType::sealed || header.path != path_->id) continue;
      const auto which = path_->keys.recognise(header.key_low);
      if (which == PathKeys::Which::unknown) continue;
      const std::uint64_t number = peer::expand(header.number_low, path_->replay.largest());
      const MutableByteSpan text =
          bytes.subspan(wire::kHeaderBytes, bytes.size() - wire::kHeaderBytes - wire::kTagBytes);
      if (!path_->keys.receive_key(which).open(crypto::make_nonce(0, number), bytes.first(wire::kHeaderBytes), text,
                                               text.data() + text.size())) {
        continue;
      }
      path_->replay.mark(number, net_.now);
      path_->keys.on_opened(which);
      largest_heard = std::max(largest_heard, number);
      heard.emplace_back(text.begin(), text.end());
    }
    return heard;
  }
  // Whether the victim has said that we broke the protocol.
  bool was_thrown_out() {
    for (const Datagram& frames : listen()) {
      if (frames.size() >= 2 && frames[0] == static_cast<std::byte>(wire::FrameType::close) &&
          frames[1] == static_cast<std::byte>(wire::CloseReason::violation)) {
        return true;
      }
    }
    return false;
  }

  std::uint64_t largest_heard = 0;

 private:
  Net& net_;
  int host_;
  int victim_;
  Path* path_ = nullptr;
};

}  // namespace weir::engine::testing
