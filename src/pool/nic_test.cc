// Pools of one process that send by one network interface share its rate.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "pool/nics.h"
#include "pool/pool_testing.h"

namespace weir {
namespace {

using pool::interface_of;
using pool::join_nic;
using testing::client_config;
using testing::kSecret;
using testing::open;
using testing::server_config;
using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kBitsPerS = 400'000'000;

std::uint64_t sent_by(const Pool& pool) {
  std::uint64_t bytes = 0;
  for (const Counters& each : pool.counters()) bytes += each.bytes_sent;
  return bytes;
}

std::uint64_t waited_ns(const Pool& pool) {
  std::uint64_t ns = 0;
  for (const Counters& each : pool.counters()) ns += each.nic_wait_ns;
  return ns;
}

Config limited(Config config) {
  config.nic_bits_per_s = kBitsPerS;
  config.datagram_bytes = 1'472;
  return config;
}

// Slowness makes only the left side smaller.
TEST(Nic, PoolsOfAProcessSendNoFasterTogetherThanTheirInterface) {
  Pool server = open(server_config(1));
  ASSERT_TRUE(server.serve("take", [](Request) -> Task<Result<Reply>> { co_return Reply(); }));
  const auto start = Clock::now();
  std::vector<Pool> clients;
  for (int i = 0; i < 2; ++i) clients.push_back(open(limited(client_config(2))));
  constexpr std::size_t kBytes = 4u << 20;
  const std::string text(kBytes, 'x');
  std::vector<Call> calls;
  for (Pool& client : clients) {
    Peer peer = client.peer(server.listen_address());
    calls.push_back(peer.unary("take", text, {.deadline = std::chrono::seconds(60)}));
    calls.push_back(peer.unary("take", text, {.deadline = std::chrono::seconds(60)}));
  }
  for (Call& call : calls) {
    Result<Reply> reply = call.get();
    ASSERT_TRUE(reply) << reply.error().to_string();
  }
  const std::uint64_t sent = sent_by(clients[0]) + sent_by(clients[1]);
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  EXPECT_GE(sent, 4 * kBytes);
  constexpr double kTrain = kBitsPerS / 8.0 / 4'096;
  EXPECT_LE(static_cast<double>(sent), kBitsPerS / 8.0 * seconds + kTrain + 1'472);
  EXPECT_GT(waited_ns(clients[0]), 0u);
  EXPECT_GT(waited_ns(clients[1]), 0u);
  EXPECT_EQ(waited_ns(server), 0u);
}

TEST(Nic, TwoRatesOfOneInterfaceAreRefusedWhileBothAreInUse) {
  Config other = limited(client_config(0));
  other.nic_bits_per_s = 2 * kBitsPerS;
  {
    const Pool first = open(limited(client_config(0)));
    Result<Pool> refused = Pool::open(other);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), Code::invalid_argument);
    EXPECT_NE(refused.error().to_string().find("400000000"), std::string::npos) << refused.error().to_string();
    Config elsewhere = other;
    elsewhere.nic = "some other interface";
    EXPECT_TRUE(Pool::open(elsewhere));
    elsewhere.nic.clear();
    elsewhere.listen = "127.0.0.1:0";
    EXPECT_TRUE(Pool::open(elsewhere)) << "the loopback interface, which the first pool does not name";
  }
  EXPECT_TRUE(Pool::open(other)) << "the first pool has gone";
}

TEST(Nic, PoolsShareByInterface) {
  const Instant now{1'000'000'000};
  const auto loopback = join_nic(interface_of(Address::parse("127.0.0.1:1").value()), 8'000'000, now);
  ASSERT_TRUE(loopback);
  EXPECT_EQ(interface_of(Address::parse("127.9.9.9:2").value()), interface_of(Address::parse("127.0.0.1:1").value()));
  EXPECT_FALSE(interface_of(Address::parse("127.0.0.1:1").value()).empty());
  EXPECT_EQ(interface_of(Address::parse("0.0.0.0:1").value()), "");
  EXPECT_EQ(interface_of(Address::parse("[::]:1").value()), "");
  EXPECT_EQ(interface_of(Address::parse("192.0.2.1:1").value()), "") << "kept for documents, so nobody's";
  EXPECT_EQ(join_nic(interface_of(Address::parse("127.0.0.2:1").value()), 8'000'000, now).value(), *loopback);
  EXPECT_NE(join_nic("", 8'000'000, now).value(), *loopback);
  EXPECT_EQ((*loopback)->shaper->rate(), 1'000'000u);
}

TEST(Nic, LimitsNameTheRateAndTheInterface) {
  Config config = limited(client_config(0));
  config.nic = "ens7";
  const std::string limits = open(config).limits();
  EXPECT_NE(limits.find("nic_bits_per_s: 400000000 bits per second, for all workers and pools at ens7\n"),
            std::string::npos)
      << limits;
  EXPECT_NE(limits.find("most bytes that they send there at once: 12207 bytes"), std::string::npos) << limits;
  EXPECT_EQ(open(client_config(0)).limits().find("nic_bits_per_s"), std::string::npos);
}

TEST(Nic, RatesAndNamesThatMakeNoSenseAreRefused) {
  Config config = client_config(0);
  config.nic = "ens7";
  EXPECT_FALSE(Pool::open(config)) << "no rate";
  config.nic_bits_per_s = 7'999;
  EXPECT_FALSE(Pool::open(config));
  config.nic_bits_per_s = 1'000'000'000'001;
  EXPECT_FALSE(Pool::open(config));
  config.nic_bits_per_s = 1'000'000'000'000;
  EXPECT_TRUE(Pool::open(config));
  config.nic = std::string(65, 'x');
  EXPECT_FALSE(Pool::open(config));
}

// A child sends by interfaces of its own count: what its parent has sent says nothing to it.
TEST(Nic, AForkedChildKnowsNoneOfItsParents) {
  const auto parents = join_nic("a-name-for-a-test", 1'000'000'000, Instant{1});
  ASSERT_TRUE(parents);
  ASSERT_FALSE(join_nic("a-name-for-a-test", 2'000'000'000, Instant{1}));
  const pid_t child = fork();
  if (child == 0) {
    const auto own = join_nic("a-name-for-a-test", 2'000'000'000, Instant{1});
    _exit(own && (*own)->shaper != (*parents)->shaper ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace weir
