// How much one member can take of an engine (docs/security.md, "How much one member can take").
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engine/identities_testing.h"
#include "engine/members.h"

namespace weir::engine {
namespace {

using testing::Identities;
using testing::Net;
using testing::TestCall;
using transfer::IncomingTransfer;

constexpr auto kForEver = std::chrono::hours(1);
constexpr std::size_t kSmallSocket = 212'992;
constexpr std::uint64_t kHostile = 7, kHonest = 9;  // certificates

class MemberQuota : public ::testing::Test {
 protected:
  int add_server(EngineConfig config) {
    const int host = identities.add(net, config);
    net.serve_echo(host);
    net.serve(host, "hold", [this](Engine&, IncomingTransfer& request, Instant) { held.push_back(&request); });
    return host;
  }
  int add_caller(std::uint64_t certificate) {
    const int host = identities.add(net, testing::test_config(false, static_cast<std::uint16_t>(1'000 + callers++)));
    identities.certificate_of[host] = certificate;
    calling_hosts.push_back(host);
    return host;
  }
  // Calls that nobody answers end with their engines, which give their memory back.
  void TearDown() override {
    for (const int host : calling_hosts) net.engine(host).close(net.now);
    net.run_for(std::chrono::milliseconds(1));
  }
  TestCall& call(int from, int to, std::string_view method, std::size_t bytes) {
    calls.push_back(std::make_unique<TestCall>());
    net.call_peer(from, identities.connect(net, from, to), *calls.back(), method, std::string(bytes, 'x'), kForEver);
    return *calls.back();
  }
  Member* member(int host, std::uint64_t certificate) {
    return net.core(host).members.find(member_of_certificate(certificate));
  }

  Identities identities;
  Net net{1};
  std::vector<IncomingTransfer*> held;
  std::vector<std::unique_ptr<TestCall>> calls;
  std::vector<int> calling_hosts;
  int callers = 0;
};

TEST_F(MemberQuota, RequestsOfOneCertificateAreOneMembers) {
  const int server = add_server(testing::test_config(true, 999));
  for (const std::uint64_t certificate : {kHostile, kHostile, kHonest})
    call(add_caller(certificate), server, "hold", 1);
  net.run_for(std::chrono::milliseconds(10));
  ASSERT_EQ(held.size(), 3u);
  std::set<std::uint64_t> members;
  for (const IncomingTransfer* request : held) members.insert(request->caller->member());
  EXPECT_EQ(members, (std::set{member_of_certificate(kHostile), member_of_certificate(kHonest)}));
}

TEST(SharedSecretMember, EachPathIsAMemberOfItsOwn) {
  Net net(1);
  const int server = net.add(true);
  std::vector<std::uint64_t> members;
  net.serve(server, "hold",
            [&](Engine&, IncomingTransfer& request, Instant) { members.push_back(request.caller->member()); });
  TestCall calls[2];
  for (TestCall& each : calls) net.call(net.add(false), server, each, "hold", "x", kForEver);
  net.run_for(std::chrono::milliseconds(10));
  ASSERT_EQ(members.size(), 2u);
  EXPECT_NE(members[0], members[1]);
}

// The path is never silent for ten milliseconds, and makes no call.
TEST(PingingPath, KeepsNoCreditFromOthers) {
  Net net(1);
  EngineConfig config = testing::test_config(true, 999);
  config.receive_buffer_bytes = kSmallSocket;
  const int server = net.add(config);
  net.serve_echo(server);
  const int pinging = net.add(false);
  std::vector<std::unique_ptr<TestCall>> calls;
  for (int i = 0; i < 200; ++i) {
    calls.push_back(std::make_unique<TestCall>());
    net.call(pinging, server, *calls.back(), "echo", std::string(16'000, 'x'), kForEver);
  }
  ASSERT_TRUE(net.run_until([&] { return calls.back()->completions != 0; }));
  const int honest = net.add(false);
  TestCall call;
  net.call(honest, server, call, "echo", std::string(16'000, 'x'), kForEver);
  Core& core = net.core(pinging);
  for (int i = 0; i < 20 && call.completions == 0; ++i) {
    core.paths.for_each([&](Path& path) {
      path.ping_owed = true;
      core.touch(path);
    });
    net.run_for(std::chrono::milliseconds(9));
  }
  EXPECT_EQ(call.completions, 1);
  EXPECT_FALSE(call.failed) << call.reply;
}

TEST_F(MemberQuota, OneCertificateHasAtMostHalfOfThePathsOfAWorker) {
  EngineConfig config = testing::test_config(true, 999);
  config.limits.peers = 8;
  const int server = add_server(config);
  for (int i = 0; i < 8; ++i) call(add_caller(kHostile), server, "hold", 100);
  net.run_for(std::chrono::milliseconds(10));  // those that are refused have not tried again yet
  ASSERT_NE(member(server, kHostile), nullptr);
  EXPECT_EQ(member(server, kHostile)->paths, 4u);
  EXPECT_EQ(held.size(), 4u);
  TestCall& honest = call(add_caller(kHonest), server, "echo", 100);
  net.run_for(std::chrono::milliseconds(10));
  EXPECT_EQ(honest.completions, 1);
  EXPECT_FALSE(honest.failed) << honest.reply;
}

TEST_F(MemberQuota, TheCreditOfAllPathsOfACertificateIsAtMostHalf) {
  EngineConfig config = testing::test_config(true, 999);
  config.receive_buffer_bytes = kSmallSocket;
  const int server = add_server(config);
  const std::uint64_t capacity = net.core(server).ledger.capacity();
  for (int host = 0; host < 6; ++host) {
    const int caller = add_caller(kHostile);
    for (int i = 0; i < 10; ++i) call(caller, server, "hold", 16'000);
  }
  for (int i = 0; i < 100; ++i) {
    net.run_for(std::chrono::milliseconds(2));
    ASSERT_LE(member(server, kHostile)->held(0), capacity / 2);
  }
  ASSERT_GE(held.size(), 1u);
  TestCall& honest = call(add_caller(kHonest), server, "echo", 16'000);
  net.run_for(std::chrono::milliseconds(10));
  EXPECT_EQ(honest.completions, 1);
  EXPECT_FALSE(honest.failed) << honest.reply;
}

// What handlers hold of a path that has gone still counts against its member.
TEST_F(MemberQuota, AMemberThatConnectsAgainHasNoMoreThanBefore) {
  EngineConfig config = testing::test_config(true, 999);
  config.receive_buffer_bytes = kSmallSocket;
  const int server = add_server(config);
  const std::uint64_t capacity = net.core(server).ledger.capacity();
  for (int round = 0; round < 6; ++round) {
    const int caller = add_caller(kHostile);
    for (int i = 0; i < 10; ++i) call(caller, server, "hold", 16'000);
    net.run_for(std::chrono::milliseconds(20));
    ASSERT_LE(member(server, kHostile)->held(0), capacity / 2);
    net.engine(caller).close(net.now);
    net.run_for(std::chrono::milliseconds(20));
  }
  for (IncomingTransfer* request : held) net.engine(server).reply(*request, {}, {}, net.now);
  net.run_for(std::chrono::milliseconds(20));
  EXPECT_EQ(member(server, kHostile), nullptr) << "nothing of it is left";
  EXPECT_EQ(net.core(server).ledger.promised(), 0u);
}

}  // namespace
}  // namespace weir::engine
