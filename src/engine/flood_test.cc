// What a stranger can make an engine do: at most one tag check for each datagram. No derivation, no allocation, no
// answer larger than the question, a bounded number of answers. And nothing recorded ever runs again.
#include <gtest/gtest.h>

#include <string>

#include "engine/allocation_testing.h"
#include "engine/credential_testing.h"
#include "engine/hostile_testing.h"

namespace weir::engine {
namespace {

using testing::Datagram;
using testing::Net;
using testing::test_config;
using testing::TestCall;
using weir::testing::Heap;

struct Work {
  std::uint64_t tag_checks = 0;  // of packets
  std::uint64_t blocks = 0;      // of AES, for MACs and pseudorandom functions of the handshake
  std::uint64_t block_keys_set_up = 0;
  std::uint64_t keys_made = 0;
};

// What a datagram of the handshake may take instead of a tag check: the longest prefix of a `first` packet with the
// random that it is bound to, that random, and a credential's key.
constexpr std::uint64_t kMostBlocks = 18;

class CountingKey final : public crypto::AeadKey {
 public:
  CountingKey(std::unique_ptr<crypto::AeadKey> key, Work& work) : key_(std::move(key)), work_(work) {}
  void rekey(std::span<const std::byte, crypto::kKeyBytes> key) override { key_->rekey(key); }
  void seal(const crypto::Nonce& nonce, ByteSpan aad, MutableByteSpan text, std::byte* tag) override {
    key_->seal(nonce, aad, text, tag);
  }
  bool open(const crypto::Nonce& nonce, ByteSpan aad, MutableByteSpan text, const std::byte* tag) override {
    ++work_.tag_checks;
    return key_->open(nonce, aad, text, tag);
  }
  void seal_into(const crypto::Nonce& nonce, ByteSpan aad, ByteSpan from, std::byte* to, std::byte* tag) override {
    key_->seal_into(nonce, aad, from, to, tag);
  }
  bool open_into(const crypto::Nonce& nonce, ByteSpan aad, ByteSpan from, std::byte* to,
                 const std::byte* tag) override {
    ++work_.tag_checks;
    return key_->open_into(nonce, aad, from, to, tag);
  }
  void mac(const crypto::Nonce& nonce, ByteSpan aad, std::byte* tag) override { key_->mac(nonce, aad, tag); }
  bool verify_mac(const crypto::Nonce& nonce, ByteSpan aad, const std::byte* tag) override {
    ++work_.tag_checks;
    return key_->verify_mac(nonce, aad, tag);
  }

 private:
  std::unique_ptr<crypto::AeadKey> key_;
  Work& work_;
};

class CountingBlockKey final : public crypto::BlockKey {
 public:
  CountingBlockKey(std::unique_ptr<crypto::BlockKey> key, Work& work) : key_(std::move(key)), work_(work) {}
  void rekey(std::span<const std::byte, crypto::kKeyBytes> key) override {
    ++work_.block_keys_set_up;
    key_->rekey(key);
  }
  void chain(MutableByteSpan blocks) override {
    work_.blocks += blocks.size() / crypto::kBlockBytes;
    key_->chain(blocks);
  }

 private:
  std::unique_ptr<crypto::BlockKey> key_;
  Work& work_;
};

class CountingAead final : public crypto::Aead {
 public:
  CountingAead(std::unique_ptr<crypto::Aead> aead, Work& work) : aead_(std::move(aead)), work_(work) {}
  std::unique_ptr<crypto::AeadKey> make_key(std::span<const std::byte, crypto::kKeyBytes> key) override {
    ++work_.keys_made;
    return std::make_unique<CountingKey>(aead_->make_key(key), work_);
  }
  std::unique_ptr<crypto::BlockKey> make_block_key(std::span<const std::byte, crypto::kKeyBytes> key) override {
    return std::make_unique<CountingBlockKey>(aead_->make_block_key(key), work_);
  }
  crypto::BackendInfo info() const override { return aead_->info(); }

 private:
  std::unique_ptr<crypto::Aead> aead_;
  Work& work_;
};

// Before it has said anything: the key behind its randoms becomes another.
void count_work(Core& core, Work& work) {
  core.aead = std::make_unique<CountingAead>(std::move(core.aead), work);
  core.scratch_key = std::make_unique<CountingKey>(std::move(core.scratch_key), work);
  const auto counted = [&]<class T>(std::unique_ptr<T>& out, const crypto::KeyBytes& key) {
    out = std::make_unique<T>(*core.aead, key);
  };
  if (core.shared) {
    const crypto::SharedSecret secret = core.shared->secret();
    core.shared.emplace(*core.aead, secret);
    counted(core.signer, crypto::derive_signer(secret));
  } else {
    counted(core.signer, {std::byte{2}});
  }
  counted(core.scratch_mac, {});
  counted(core.reset_prf, {});
  if (core.cookie != nullptr) counted(core.cookie, {std::byte{1}});
  work = {};
}

struct Recorded {
  int to;
  Address from;
  Datagram bytes;
};

// A client and a server with a path between them, everything that they said recorded, and their work counted.
class Flood : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const bool accepts : {false, true}) {
      EngineConfig config = test_config(accepts, accepts ? 2222 : 1111);
      config.openssl_aead = openssl;
      count_work(net.core(net.add(config)), work);
    }
    net.serve_echo(kServer);
    net.on_wire = [this](int from, const Address& to, MutableByteSpan segment) {
      if (recording) {
        recorded.push_back(
            {to == net.address(kServer) ? kServer : kClient, net.address(from), {segment.begin(), segment.end()}});
      }
    };
    for (int i = 0; i < 10; ++i) {
      TestCall call;
      net.call(kClient, kServer, call, "echo", std::string(static_cast<std::size_t>(i) * 300, 'x'));
      ASSERT_TRUE(net.run_until([&] { return call.completions != 0; }));
      ASSERT_FALSE(call.failed);
    }
    net.run_for(std::chrono::milliseconds(20));
    recording = false;
    handled = net.handled;
  }

  // Gives the datagram to the engine and checks what it cost.
  void expect_cheap(int to, const Address& from, const Datagram& bytes, bool may_allocate = false) {
    copy.assign(bytes.begin(), bytes.end());
    Engine& engine = net.engine(to);
    const std::uint64_t allocations = Heap::allocations;
    const Work before = work;
    const std::size_t calls = static_cast<std::size_t>(net.handled);
    engine.on_datagram(copy, from, 0, nullptr, net.now);
    engine.deliver(net.now);
    trains.clear();
    engine.collect(trains, net.now);
    const std::uint64_t tag_checks = work.tag_checks - before.tag_checks;
    EXPECT_LE(tag_checks, 1u);
    EXPECT_LE(work.blocks - before.blocks, tag_checks == 0 ? kMostBlocks : 0u);
    EXPECT_LE(work.block_keys_set_up - before.block_keys_set_up, 1u);
    EXPECT_EQ(work.keys_made, before.keys_made);
    if (!may_allocate) {
      EXPECT_EQ(Heap::allocations - allocations, 0u);
    }
    EXPECT_EQ(static_cast<std::size_t>(net.handled), calls);
    std::size_t answered = 0;
    for (const Train& train : trains) answered += train.bytes.size();
    EXPECT_LE(answered, bytes.size());
    if (answered != 0) ++answers;
  }

  // Every kind of nonsense once. `visit` gets the host, a source address and the datagram.
  template <class Visit>
  void for_each_nonsense(Visit&& visit) {
    Random random(7);
    const Address stranger = Address::v4(0x0b000001, 99);
    for (const int to : {kClient, kServer}) {
      const std::uint32_t live = net.core(to).paths.at(0) != nullptr ? net.core(to).paths.at(0)->id : 0;
      for (int i = 0; i < 2'000; ++i) {
        Datagram bytes(static_cast<std::size_t>(random.below(i % 10 == 0 ? 9'000 : 400)));
        for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next());
        visit(to, stranger, bytes);
        if (bytes.size() >= wire::kMinPacketBytes) {  // well aimed: a path that is there, one of its keys
          wire::encode({.type = wire::PacketType::sealed,
                        .key_low = static_cast<std::uint8_t>(random.below(3)),
                        .number_low = static_cast<std::uint32_t>(random.below(1 << 24)),
                        .path = live},
                       bytes.data());
          visit(to, i % 2 == 0 ? stranger : net.address(1 - to), bytes);
        }
      }
    }
    for (const Recorded& one : recorded) {
      visit(one.to, one.from, one.bytes);
      visit(one.to, stranger, one.bytes);
      visit(1 - one.to, one.from, one.bytes);  // reflected
      for (int i = 0; i < 8; ++i) {
        Datagram bytes = one.bytes;
        bytes.resize(static_cast<std::size_t>(random.below(bytes.size())));
        visit(one.to, one.from, bytes);
        bytes = one.bytes;
        bytes[random.below(std::min<std::size_t>(bytes.size(), 64))] ^= static_cast<std::byte>(1 + random.below(255));
        visit(one.to, one.from, bytes);
        bytes = one.bytes;
        bytes[random.below(bytes.size())] ^= static_cast<std::byte>(1 + random.below(255));
        visit(one.to, one.from, bytes);
      }
    }
  }
  void replay_everything() {
    for (int round = 0; round < 3; ++round) {
      for (const Recorded& one : recorded) {
        net.inject(one.to, one.from, one.bytes);
        net.inject(1 - one.to, one.from, one.bytes);
        if (round == 2) net.step(net.now);  // one at a time, too
      }
      net.run_for(std::chrono::milliseconds(50));
    }
  }

  void expect_no_memory_for_strangers() {
    trains.reserve(64);
    copy.reserve(70'000);
    const auto spend = [&](bool may_allocate) {
      for_each_nonsense([&](int to, const Address& from, const Datagram& bytes) {
        expect_cheap(to, from, bytes, may_allocate);
        net.now = net.now + std::chrono::microseconds(1);
      });
    };
    spend(true);  // buffers for answers grow once
    const std::int64_t bytes = Heap::live_bytes;
    spend(false);
    EXPECT_EQ(Heap::live_bytes, bytes);
    EXPECT_EQ(net.engine(kServer).census().paths, 1u);
    EXPECT_EQ(net.engine(kClient).census().paths, 1u);
  }
  void expect_no_memory_for_strangers_on_idle_paths() {
    net.run_for(std::chrono::seconds(5));
    const auto idle = [&](int host) { return !net.core(host).paths.at(0)->keys.has_schedules(); };
    ASSERT_TRUE(idle(kServer) && idle(kClient));
    const std::uint64_t checks = work.tag_checks;
    expect_no_memory_for_strangers();
    EXPECT_GT(work.tag_checks, checks + 1'000);  // some did reach a key
    EXPECT_TRUE(idle(kServer) && idle(kClient));
  }

  static constexpr int kClient = 0, kServer = 1;
  bool openssl = false;
  Work work;
  Net net;
  bool recording = true;
  std::vector<Recorded> recorded;
  int handled = 0;
  std::uint64_t answers = 0;
  Datagram copy;
  std::vector<Train> trains;
};

class FloodOfOpenssl : public Flood {
 protected:
  FloodOfOpenssl() { openssl = true; }
};

TEST_F(Flood, ADatagramOfAStrangerCostsAtMostOneTagCheckAndNoMemory) { expect_no_memory_for_strangers(); }

TEST_F(Flood, ADatagramOfAStrangerCostsAnIdlePathNoMoreThanThat) { expect_no_memory_for_strangers_on_idle_paths(); }

TEST_F(FloodOfOpenssl, ADatagramOfAStrangerCostsAtMostOneTagCheckAndNoMemory) { expect_no_memory_for_strangers(); }

TEST_F(FloodOfOpenssl, ADatagramOfAStrangerCostsAnIdlePathNoMoreThanThat) {
  expect_no_memory_for_strangers_on_idle_paths();
}

TEST_F(Flood, AnIdlePathWakesForItsPeer) {
  net.run_for(std::chrono::seconds(5));
  ASSERT_FALSE(net.core(kServer).paths.at(0)->keys.has_schedules());
  TestCall call;
  net.call(kClient, kServer, call, "echo", "awake");
  ASSERT_TRUE(net.run_until([&] { return call.completions != 0; }));
  EXPECT_EQ(call.reply, "awake");
  EXPECT_TRUE(net.core(kServer).paths.at(0)->keys.has_schedules());
}

TEST_F(Flood, HellosAreAnsweredUpToALimitPerTime) {
  const Datagram* hello = nullptr;
  for (const Recorded& one : recorded) {
    if (wire::decode_header(one.bytes.data()).type == wire::PacketType::hello) hello = &one.bytes;
  }
  ASSERT_NE(hello, nullptr);
  for (int i = 0; i < 10'000; ++i) {
    expect_cheap(kServer, Address::v4(0x0b000000 + static_cast<std::uint32_t>(i), 5), *hello, true);
    net.now = net.now + std::chrono::microseconds(1);
  }
  EXPECT_LE(answers, 11u * HelloGate::kStrangers);
  EXPECT_EQ(net.engine(kServer).census().paths, 1u);
}

TEST_F(Flood, HonestCallsCompleteOnceUnderTheFlood) {
  std::vector<Recorded> nonsense;
  for_each_nonsense([&](int to, const Address& from, const Datagram& bytes) { nonsense.push_back({to, from, bytes}); });
  std::size_t next = 0;
  for (int i = 0; i < 200; ++i) {
    TestCall call;
    net.call(kClient, kServer, call, "echo", std::string(static_cast<std::size_t>(i) * 10, 'y'));
    for (int turn = 0; turn < 10'000 && call.completions == 0; ++turn) {
      for (int k = 0; k < 20; ++k, ++next) {
        const Recorded& one = nonsense[next % nonsense.size()];
        net.inject(one.to, one.from, one.bytes);
      }
      net.step();
    }
    ASSERT_EQ(call.completions, 1);
    ASSERT_FALSE(call.failed) << call.reply;
    ASSERT_EQ(call.reply.size(), static_cast<std::size_t>(i) * 10);
  }
  EXPECT_EQ(net.handled, handled + 200);
}

TEST_F(Flood, ANewClientGetsInDuringAFloodOfHellos) {
  std::vector<Recorded> hellos;
  for (const Recorded& one : recorded) {
    if (wire::decode_header(one.bytes.data()).type == wire::PacketType::hello) hellos.push_back(one);
  }
  ASSERT_FALSE(hellos.empty());
  const int late = net.add(false);
  TestCall call;
  net.call(late, kServer, call, "echo", "hello");
  // Twice what is answered.
  for (int i = 0; i < 100'000 && call.completions == 0; ++i) {
    for (std::uint32_t k = 0; k < 2 * HelloGate::kStrangers / 10; ++k) {
      net.inject(kServer, Address::v4(0x0b000000 + net.random.below(1u << 20), 5), hellos[0].bytes);
    }
    net.run_for(std::chrono::microseconds(100));
  }
  EXPECT_FALSE(call.failed) << call.reply;
  EXPECT_EQ(call.reply, "hello");
}

TEST_F(Flood, AConversationPlayedAgainRunsNothing) {
  replay_everything();
  EXPECT_EQ(net.handled, handled);
  TestCall call;  // and the path has come to no harm
  net.call(kClient, kServer, call, "echo", "still here");
  ASSERT_TRUE(net.run_until([&] { return call.completions != 0; }));
  EXPECT_EQ(call.reply, "still here");
  EXPECT_EQ(net.engine(kClient).events().counters.handshakes_started, 1u);
}

TEST_F(Flood, AConversationPlayedAgainAfterTheServersRestartRunsNothing) {
  net.restart(kServer);
  net.serve_echo(kServer);
  replay_everything();
  EXPECT_EQ(net.handled, handled);
  EXPECT_EQ(net.engine(kServer).census().paths, 0u);
}

TEST_F(Flood, AConversationPlayedAgainAfterTheClientsRestartCompletesNothing) {
  net.restart(kClient);
  replay_everything();
  EXPECT_EQ(net.handled, handled);
  // Nor while a call waits for its hello to be answered, or for its reply.
  net.restart(kClient);
  TestCall call;
  net.call(kClient, kServer, call, "echo", "fresh", std::chrono::seconds(60));
  net.loss = 1;
  for (int i = 0; i < 5; ++i) replay_everything();
  EXPECT_EQ(call.completions, 0);
  EXPECT_EQ(net.handled, handled);
  net.loss = 0;
  ASSERT_TRUE(net.run_until([&] { return call.completions != 0; }));
  EXPECT_FALSE(call.failed) << call.reply;
  EXPECT_EQ(net.handled, handled + 1);
}

TEST_F(Flood, AConversationPlayedAgainAfterBothRestartedRunsNothing) {
  net.restart(kClient);
  net.restart(kServer);
  net.serve_echo(kServer);
  replay_everything();
  EXPECT_EQ(net.handled, handled);
  EXPECT_EQ(net.engine(kServer).census().paths + net.engine(kClient).census().paths, 0u);
}

// Identity mode: who names a credential that nobody knows is answered with less than he sent, and costs no tag check.
TEST(FloodOfUnknownCredentials, CostsNeitherMemoryNorTagChecks) {
  Net net;
  testing::Book book;
  EngineConfig config = test_config(true, 2222);
  config.credentials = &book;
  config.secret.reset();
  config.incarnation.fill(std::byte{2});
  const int server = net.add(config);
  Core& core = net.core(server);
  Work work;
  count_work(core, work);
  core.next_sequence = 100;  // so that `first` packets can name one
  std::vector<Train> trains;
  trains.reserve(16);
  std::size_t answers = 0;
  for (std::uint32_t i = 0; i < 20'000; ++i) {
    net.now = net.now + std::chrono::microseconds(5);
    wire::Introduction stranger{.path = i, .port = 5};
    net.entropy.fill(stranger.random);
    wire::CredentialId credential;
    net.entropy.fill(credential);
    std::byte datagram[1'200] = {};
    std::size_t bytes = sizeof datagram;
    if (i % 2 == 0) {
      bytes = wire::encode(wire::Hello{.initiator = stranger, .credential = credential}, datagram);
    } else {
      wire::encode(wire::PacketHeader{.type = wire::PacketType::first, .path = i}, datagram);
      wire::encode(wire::FirstPrefix{.sequence = 1 + i % 99, .initiator = stranger, .credential = credential},
                   datagram + wire::kHeaderBytes);
    }
    const std::uint64_t allocations = Heap::allocations;
    const Work before = work;
    net.engine(server).on_datagram({datagram, bytes}, Address::v4(0x0b000000 + i, 5), 0, nullptr, net.now);
    trains.clear();
    net.engine(server).collect(trains, net.now);
    ASSERT_LE(work.blocks - before.blocks, kMostBlocks);
    ASSERT_LE(work.block_keys_set_up - before.block_keys_set_up, 1u);
    if (i > 100) {  // queues grow to their size once
      ASSERT_EQ(Heap::allocations - allocations, 0u);
    }
    ASSERT_LE(trains.size(), 1u);
    if (trains.empty()) continue;
    ++answers;
    EXPECT_EQ(trains[0].bytes.size(), wire::kUnknownSecretBytes);
    EXPECT_LT(trains[0].bytes.size(), bytes);
  }
  EXPECT_EQ(work.tag_checks, 0u);
  EXPECT_EQ(work.keys_made, 0u);
  EXPECT_EQ(net.engine(server).census().paths, 0u);
  EXPECT_GT(answers, 100u * 2 * HelloGate::kStrangers / 3) << "within the limit for both kinds";
  EXPECT_LE(answers, 101u * HelloGate::kStrangers);
}

}  // namespace
}  // namespace weir::engine
