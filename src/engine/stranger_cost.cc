// What datagrams of strangers cost an engine, for tests/stranger_cost_test.py, which runs this under callgrind: only
// what `weir_measured_*` does is counted, and each call of `weir_cost_mark` ends a count. Prints one line for each.
//
//   stranger_cost <datagrams> [openssl]
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "engine/hostile_testing.h"

extern "C" {

[[gnu::noinline, gnu::used]] void weir_cost_mark() { asm volatile("" ::: "memory"); }

[[gnu::noinline, gnu::used]] void weir_measured_datagram(weir::engine::Engine* engine, std::byte* bytes,
                                                         std::size_t size, const weir::Address* from,
                                                         weir::Instant now) {
  engine->on_datagram({bytes, size}, *from, 0, nullptr, now);
}

[[gnu::noinline, gnu::used]] bool weir_measured_tag_check(weir::crypto::AeadKey* key, std::byte* bytes,
                                                          std::size_t size, std::uint64_t number) {
  using namespace weir;
  const MutableByteSpan datagram(bytes, size);
  const MutableByteSpan text = datagram.subspan(wire::kHeaderBytes, size - wire::kHeaderBytes - wire::kTagBytes);
  return key->open(crypto::make_nonce(0, number), datagram.first(wire::kHeaderBytes), text, text.data() + text.size());
}

[[gnu::noinline, gnu::used]] void weir_measured_key_setup(weir::crypto::AeadKey* key,
                                                          const weir::crypto::KeyBytes* bytes) {
  key->rekey(*bytes);
}

[[gnu::noinline, gnu::used]] void weir_measured_cookie(weir::crypto::Prf* cookie, std::uint64_t number,
                                                       std::array<std::byte, 32>* out) {
  *out = (*cookie)(number, {});
}
}

namespace weir::engine {
namespace {

using testing::Datagram;
using testing::Frames;
using testing::Net;
using testing::Puppet;
using testing::TestCall;

constexpr std::size_t kSizes[] = {25, 64, 256, 1'472};
constexpr int kTemplates = 32;

class Measurement {
 public:
  Measurement(std::size_t count, bool openssl) : count_(count), openssl_(openssl) {
    client_ = add(false);
    server_ = add(true);
    idle_client_ = add(false);
    caller_ = add(false);
    nobody_ = add(true);
    net_.serve_echo(server_);
    net_.on_wire = [this](int from, const Address& to, MutableByteSpan segment) {
      if (from == client_ && to == net_.address(server_)) recorded_.emplace_back(segment.begin(), segment.end());
    };
    exchange(idle_client_);
    net_.run_for(std::chrono::seconds(5));  // its keys are dropped
    for (int i = 0; i < 40; ++i) exchange(client_);
    net_.freeze(nobody_);
    net_.call(caller_, nobody_, unanswered_, "echo", "anybody?", std::chrono::hours(1));
    net_.turn(caller_);
    const Address from_client = net_.address(client_);
    net_.core(server_).paths.for_each([&](Path& path) { (path.remote == from_client ? live_ : idle_) = &path; });
    WEIR_CHECK(live_ != nullptr && idle_ != nullptr && live_->keys.has_schedules() && !idle_->keys.has_schedules(),
               "one path must be awake and one idle");
  }

  void run() {
    parts();
    for (const std::size_t size : kSizes) {
      tag_checks(size);
      exhaust(sealed(size, 0x12345, 0));
      strangers("random", server_, [&](int) { return random_bytes(size); });
      strangers(
          "unknown path, answered", server_, [&](int) { return sealed(size, 0x12345, 0); },
          std::chrono::microseconds(1'000 / Core::kUnknownPathsPerMillisecond + 1));
      exhaust(sealed(size, 0x12345, 0));
      strangers("unknown path, over the limit", server_, [&](int) { return sealed(size, 0x12345, 0); });
      strangers("forged, active path", server_, [&](int) { return sealed(size, live_->id, 0); });
      strangers("forged, active path, next key", server_, [&](int) { return sealed(size, live_->id, 1); });
      strangers("forged, active path, unknown key", server_, [&](int) { return sealed(size, live_->id, 7); });
      strangers("forged, idle path", server_, [&](int) { return sealed(size, idle_->id, 0); });
      WEIR_CHECK(!idle_->keys.has_schedules(), "strangers do not wake a path");
    }
    truncated();
    replayed();
    hellos();
    firsts();
    replies();
    notices();
  }

 private:
  int add(bool accepts) {
    EngineConfig config = testing::test_config(accepts, accepts ? 2222 : 1111);
    config.openssl_aead = openssl_;
    return net_.add(config);
  }
  // As many as make the engine answer no more in this millisecond.
  void exhaust(const Datagram& datagram) {
    for (int i = 0; i < 100; ++i) net_.inject(server_, net_.address(client_), datagram);
    net_.turn(server_);
  }
  void exchange(int from) {
    TestCall call;
    net_.call(from, server_, call, "echo", "hello");
    WEIR_CHECK(net_.run_until([&] { return call.completions != 0; }) && !call.failed, "a call failed");
  }
  Datagram random_bytes(std::size_t size) {
    Datagram bytes(size);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random_.next());
    return bytes;
  }
  Datagram sealed(std::size_t size, std::uint32_t path, std::uint8_t key_low) {
    Datagram bytes = random_bytes(size);
    wire::encode({.type = wire::PacketType::sealed,
                  .key_low = key_low,
                  .number_low = 1'000 + static_cast<std::uint32_t>(random_.below(1'000)),
                  .path = path},
                 bytes.data());
    return bytes;
  }

  // Once and twice as many, so that the difference has no first time in it.
  template <class Once>
  void count(const char* kind, std::size_t size, Once&& once) {
    once(0);
    weir_cost_mark();
    std::printf("- 0 0\n");
    for (const std::size_t times : {count_, 2 * count_}) {
      for (std::size_t i = 0; i < times; ++i) once(i);
      weir_cost_mark();
      std::printf("%s|%zu|%zu\n", kind, size, times);
    }
  }
  template <class Make>
  void strangers(const char* kind, int to, Make&& make, Duration interval = {}) {
    std::vector<Datagram> templates;
    for (int i = 0; i < kTemplates; ++i) templates.push_back(make(i));
    std::vector<std::byte> buffer(templates[0].size());
    const Address stranger = Address::v4(0x0b000001, 99);
    const Address& from = from_ == nullptr ? stranger : *from_;
    Engine& engine = net_.engine(to);
    std::vector<Train> trains;
    if (interval > Duration{}) net_.now = net_.now + std::chrono::milliseconds(2);  // it may answer again
    count(kind, buffer.size(), [&](std::size_t i) {
      std::copy(templates[i % kTemplates].begin(), templates[i % kTemplates].end(), buffer.begin());
      weir_measured_datagram(&engine, buffer.data(), buffer.size(), &from, net_.now);
      trains.clear();
      engine.collect(trains, net_.now);
      net_.now = net_.now + interval;
    });
  }
  // What some kinds cost on top of a tag check, each by itself.
  void parts() {
    Core& core = net_.core(server_);
    const auto key = core.aead->make_key(crypto::KeyBytes{});
    crypto::KeyBytes bytes{};
    std::array<std::byte, 32> out;
    count("key setup", 0, [&](std::size_t i) {
      store<std::uint64_t>(bytes.data(), i);
      weir_measured_key_setup(key.get(), &bytes);
    });
    count("cookie", 0, [&](std::size_t i) { weir_measured_cookie(core.cookie.get(), i, &out); });
  }
  void tag_checks(std::size_t size) {
    const auto key = net_.core(server_).aead->make_key(crypto::KeyBytes{});
    const Datagram forged = random_bytes(size);
    Datagram buffer(size);
    count("tag check", size, [&](std::size_t i) {
      std::copy(forged.begin(), forged.end(), buffer.begin());
      WEIR_CHECK(!weir_measured_tag_check(key.get(), buffer.data(), size, i), "random bytes authenticate");
    });
  }

  // Fresh packets of the real peer that lost their end on the way, and some that lost nearly all.
  void truncated() {
    Frames frames;
    frames.raw(random_bytes(1'500));
    Puppet puppet(net_, client_, server_);
    for (const std::size_t size : kSizes) {
      strangers("truncated", server_, [&](int) {
        Datagram bytes = puppet.seal(frames.bytes());
        bytes.resize(size);
        return bytes;
      });
    }
    strangers("truncated", server_, [&](int) { return random_bytes(24); });
  }
  void replayed() {
    std::vector<Datagram> packets;
    for (const Datagram& one : recorded_) {
      if (wire::decode_header(one.data()).type != wire::PacketType::sealed) continue;
      if (packets.empty() || one.size() == packets[0].size()) packets.push_back(one);
    }
    WEIR_CHECK(!packets.empty(), "nothing to replay");
    tag_checks(packets[0].size());
    strangers("replayed", server_, [&](int i) { return packets[static_cast<std::size_t>(i) % packets.size()]; });
  }
  Datagram hello() {
    Datagram bytes;
    for (const Datagram& one : recorded_) {
      if (wire::decode_header(one.data()).type == wire::PacketType::hello) bytes = one;
    }
    WEIR_CHECK(!bytes.empty(), "no hello was recorded");
    return bytes;
  }
  void hellos() {
    tag_checks(hello().size());
    strangers("hello, malformed", server_, [&](int) {
      Datagram bytes = hello();
      bytes[1] ^= std::byte{0x55};  // another version
      return bytes;
    });
    strangers(
        "hello, answered", server_, [&](int) { return hello(); }, std::chrono::microseconds(20));
    exhaust(hello());
    strangers("hello, over the limit", server_, [&](int) { return hello(); });
  }
  void firsts() {
    Datagram first;
    for (const Datagram& one : recorded_) {
      if (wire::decode_header(one.data()).type == wire::PacketType::first) first = one;
    }
    WEIR_CHECK(!first.empty(), "no first packet was recorded");
    first.resize(wire::kMinPacketBytes + 231);  // of the size of a hello
    const auto with_sequence = [&](std::uint64_t sequence, int flip) {
      Datagram bytes = first;
      store<std::uint64_t>(bytes.data() + wire::kHeaderBytes, sequence);
      bytes[100 + static_cast<std::size_t>(flip)] ^= std::byte{1};
      return bytes;
    };
    const auto sequence = load<std::uint64_t>(first.data() + wire::kHeaderBytes);
    const std::uint64_t next = net_.core(server_).next_sequence;
    strangers("first, unknown exchange", server_, [&](int i) { return with_sequence(next + 1'000, i); });
    strangers("first, unused exchange", server_, [&](int i) { return with_sequence(next - 1, i); });
    strangers("first, path of the exchange", server_, [&](int i) {
      Datagram bytes = with_sequence(sequence, i);
      wire::encode({.type = wire::PacketType::first, .number_low = 2'000, .path = 0}, bytes.data());
      return bytes;
    });
    strangers("first, replayed", server_, [&](int) { return first; });
  }
  void replies() {
    const auto hello_sent = wire::decode_hello(net_.inbox(nobody_).front().bytes);
    WEIR_CHECK(hello_sent.has_value(), "nobody was called");
    wire::HelloReply reply{.to_path = hello_sent->initiator.path, .sequence = 1};
    const auto forged = [&](int) {
      Datagram bytes(wire::kHelloBytes);
      reply.responder.random[0] ^= std::byte{1};
      reply.responder.incarnation[0] ^= std::byte{1};
      bytes.resize(wire::encode(reply, bytes.data()) + wire::kTagBytes);
      return bytes;
    };
    tag_checks(forged(0).size());
    const Address from = net_.address(nobody_);
    from_ = &from;
    strangers("hello_reply", caller_, forged);
    std::copy_n(hello_sent->initiator.random.begin(), reply.echo.size(), reply.echo.begin());
    strangers("hello_reply of one who saw the hello", caller_, forged);
    from_ = nullptr;
  }
  // To the client, in the server's name: that the server has lost the path.
  void notices() {
    Path* path = nullptr;
    net_.core(client_).paths.for_each([&](Path& one) { path = &one; });
    const Address from = net_.address(server_);
    from_ = &from;
    strangers("notice of an unknown path", client_, [&](int i) {
      Datagram bytes(wire::kUnknownPathBytes);
      wire::encode(wire::UnknownPath{.number_low = static_cast<std::uint32_t>(i), .path = path->remote_id},
                   bytes.data());
      return bytes;
    });
    strangers("notice of an unknown secret", caller_, [&](int) {
      Datagram bytes(wire::kUnknownSecretBytes);
      wire::encode(wire::UnknownSecret{.to_path = 0}, bytes.data());
      return bytes;
    });
    from_ = nullptr;
  }

  std::size_t count_;
  bool openssl_;
  Random random_{7};
  TestCall unanswered_;
  Net net_;
  std::vector<Datagram> recorded_;
  const Address* from_ = nullptr;
  Path* live_ = nullptr;
  Path* idle_ = nullptr;
  int client_ = 0, server_ = 0, idle_client_ = 0, caller_ = 0, nobody_ = 0;
};

}  // namespace
}  // namespace weir::engine

int main(int argc, char** argv) {
  const long count = argc >= 2 ? std::atol(argv[1]) : 0;
  const bool openssl = argc == 3 && std::string_view(argv[2]) == "openssl";
  if (count <= 0 || argc > 3 || (argc == 3 && !openssl)) {
    std::fprintf(stderr, "usage: stranger_cost <datagrams> [openssl]\n");
    return 2;
  }
  weir::engine::Measurement(static_cast<std::size_t>(count), openssl).run();
  return 0;
}
