// What datagrams of strangers cost an engine, for tests/stranger_cost_test.py, which runs this under callgrind: only
// what `weir_measured_*` does is counted, and each call of `weir_cost_mark` ends a count. Prints one line for each.
//
//   stranger_cost <datagrams> [openssl]
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "engine/book_testing.h"
#include "engine/hostile_testing.h"
#include "peer/secret_map.h"

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

[[gnu::noinline, gnu::used]] void weir_measured_mac_key(weir::crypto::Cmac* mac, const weir::crypto::KeyBytes* bytes) {
  mac->rekey(*bytes);
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

// So much apart, a hello that is repeated is answered each time (HelloGate).
constexpr Duration kAnsweredInterval = std::chrono::microseconds(600);

constexpr std::size_t kSizes[] = {25, 64, 256, 1'472};
constexpr int kTemplates = 32;

// Looks credentials up as pools do.
class MappedBook final : public CredentialBook {
 public:
  void add(const testing::Agreed& agreed, Instant now) {
    peer::Credential credential{.id = agreed.ours.id, .secret = agreed.theirs.secret.secret()};
    credential.hello_key = agreed.theirs.hello_key;
    credential.answer_key = agreed.theirs.answer_key;
    credential.may_call = true;
    credential.expires_ns = Instant::never().ns;
    WEIR_CHECK(map_.install(credential, now), "a credential was there already");
  }
  bool find(const CredentialId& id, Instant now, KnownCredential& out) const override {
    return map_.find_caller(id, now, out);
  }
  transfer::ProvenNames names_of(const CredentialId&) const override { return nullptr; }
  void on_shown(const CredentialId&) override {}
  bool may_greet(const Address&, bool, Instant) override { return true; }
  void on_answer(const Address&, Instant) override {}

 private:
  peer::SecretMap map_{{}};
};

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
      if (from == known_client_) known_recorded_.emplace_back(segment.begin(), segment.end());
    };
    exchange(idle_client_);
    net_.run_for(std::chrono::seconds(5));  // its keys are dropped
    for (int i = 0; i < 40; ++i) exchange(client_);
    net_.freeze(nobody_);
    net_.call(caller_, nobody_, unanswered_, "echo", "anybody?", std::chrono::hours(1));
    net_.turn(caller_);
    known_client_ = add(false, &book_);
    known_server_ = add(true, &book_);
    known_caller_ = add(false, &book_);
    known_nobody_ = add(true, &book_);
    net_.serve_echo(known_server_);
    net_.freeze(known_nobody_);
    TestCall known;
    call_with_credential(1, known_client_, known_server_, known);
    WEIR_CHECK(net_.run_until([&] { return known.completions != 0; }) && !known.failed, "a call failed");
    call_with_credential(2, known_caller_, known_nobody_, known_unanswered_);
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
    credentials();
  }

 private:
  int add(bool accepts, CredentialBook* book = nullptr) {
    EngineConfig config = testing::test_config(accepts, accepts ? 2222 : 1111);
    if (book != nullptr) {
      config.credentials = book;
      config.secret.reset();
      config.signer = testing::kTestSigner;
    }
    config.openssl_aead = openssl_;
    return net_.add(config);
  }
  // As many as make the engine answer no more in this millisecond.
  void exhaust(const Datagram& datagram) {
    for (int i = 0; i < 100; ++i) net_.inject(server_, net_.address(client_), datagram);
    net_.turn(server_);
  }
  void call_with_credential(std::uint8_t number, int from, int to, TestCall& call) {
    const testing::Agreed agreed = testing::agree(number, net_.address(to));
    book_.add(agreed, net_.now);
    net_.call(from, to, call, "echo", "hello", std::chrono::hours(1));
    net_.engine(from).install(call.peer, agreed.ours, net_.now);
    net_.turn(from);
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
    count("mac key", 0, [&](std::size_t i) {
      store<std::uint64_t>(bytes.data(), i);
      weir_measured_mac_key(core.scratch_mac.get(), &bytes);
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
  // The last one of its type.
  static Datagram find(const std::vector<Datagram>& packets, wire::PacketType type) {
    Datagram bytes;
    for (const Datagram& one : packets) {
      if (wire::decode_header(one.data()).type == type) bytes = one;
    }
    WEIR_CHECK(!bytes.empty(), "no such packet was recorded");
    return bytes;
  }
  Datagram hello() { return find(recorded_, wire::PacketType::hello); }
  void hellos() {
    tag_checks(hello().size());
    strangers("hello, malformed", server_, [&](int) {
      Datagram bytes = hello();
      bytes[1] ^= std::byte{0x55};  // another version
      return bytes;
    });
    strangers(
        "hello, answered", server_, [&](int) { return hello(); }, kAnsweredInterval);
    exhaust(hello());
    strangers("hello, over the limit", server_, [&](int) { return hello(); });
  }
  void firsts() {
    Datagram first = find(recorded_, wire::PacketType::first);
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
    const Address from = net_.address(nobody_);
    from_ = &from;
    replies("hello_reply", caller_, nobody_);
    from_ = nullptr;
  }
  void replies(const std::string& kind, int to, int in_the_name_of) {
    const auto hello_sent = wire::decode_hello(net_.inbox(in_the_name_of).front().bytes);
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
    strangers(kind.c_str(), to, forged);
    std::copy_n(hello_sent->initiator.random.begin(), reply.echo.size(), reply.echo.begin());
    strangers((kind + " of one who saw the hello").c_str(), to, forged);
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

  // The same with identities: datagrams that name a credential, one that is known and one that is not.
  void credentials() {
    const Datagram hello = find(known_recorded_, wire::PacketType::hello);
    Datagram first = find(known_recorded_, wire::PacketType::first);
    first.resize(hello.size());
    store<std::uint64_t>(first.data() + wire::kHeaderBytes, net_.core(known_server_).next_sequence - 1);
    Core& core = net_.core(known_server_);
    core.exchanges[(core.next_sequence - 1) % Core::kExchangeWindow].path = kNoPath;  // as if its answer had been lost
    const auto credential = wire::decode_hello(hello)->credential;
    const auto with = [&](const Datagram& original, bool is_known, int flip) {
      Datagram bytes = original;
      const auto named = std::ranges::search(bytes, credential).begin();
      if (!is_known) *named ^= static_cast<std::byte>(flip + 1);
      *(named + credential.size()) ^= static_cast<std::byte>(flip + 1);  // padding, or the nonce
      return bytes;
    };
    const Duration interval = kAnsweredInterval;
    for (const bool is_known : {true, false}) {
      const std::string known = is_known ? "known" : "unknown";
      strangers((known + " credential, first").c_str(), known_server_, [&](int i) { return with(first, is_known, i); },
                interval);
    }
    for (const bool is_known : {true, false}) {
      const std::string known = is_known ? "known" : "unknown";
      strangers((known + " credential, hello").c_str(), known_server_, [&](int i) { return with(hello, is_known, i); },
                interval);
    }
    const Address from = net_.address(known_nobody_);
    from_ = &from;
    replies("known credential, hello_reply", known_caller_, known_nobody_);
    const auto hello_sent = wire::decode_hello(net_.inbox(known_nobody_).front().bytes);
    wire::UnknownSecret notice{.to_path = hello_sent->initiator.path, .credential = hello_sent->credential};
    std::copy_n(hello_sent->initiator.random.begin(), notice.echo.size(), notice.echo.begin());
    tag_checks(wire::kUnknownSecretBytes);
    strangers("known credential, notice of one who saw the hello", known_caller_, [&](int) {
      Datagram bytes(wire::kUnknownSecretBytes);
      wire::encode(notice, bytes.data());
      return bytes;
    });
    from_ = nullptr;
  }

  std::size_t count_;
  bool openssl_;
  Random random_{7};
  TestCall unanswered_, known_unanswered_;
  MappedBook book_;
  Net net_;
  std::vector<Datagram> recorded_, known_recorded_;
  const Address* from_ = nullptr;
  Path* live_ = nullptr;
  Path* idle_ = nullptr;
  int client_ = 0, server_ = 0, idle_client_ = 0, caller_ = 0, nobody_ = 0;
  int known_client_ = -1, known_server_ = 0, known_caller_ = 0, known_nobody_ = 0;
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
