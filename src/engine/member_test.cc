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
  Path* path_from(int host, int server) {
    Path* found = nullptr;
    net.core(server).paths.for_each([&](Path& path) {
      if (!path.initiator && path.remote == net.address(host)) found = &path;
    });
    return found;
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

// Whoever waits makes no call. When its turn has come it needs a round trip to make use of it, and may not be taken for
// idle until then.
TEST_F(MemberQuota, APathWhoseTurnHasComeIsNotClosedForTheNextInLine) {
  EngineConfig config = testing::test_config(true, 999);
  config.receive_buffer_bytes = kSmallSocket;
  const int server = add_server(config);
  for (const std::uint64_t certificate : {kHostile, kHonest}) {
    const int caller = add_caller(certificate);
    for (int i = 0; i < 2; ++i) call(caller, server, "hold", 16'000);
    net.run_for(std::chrono::milliseconds(10));
  }
  ASSERT_EQ(held.size(), 4u) << "there is no room for more";
  const int first = add_caller(kHonest + 1), second = add_caller(kHonest + 2);
  call(first, server, "hold", 16'000);
  net.run_for(std::chrono::milliseconds(1));
  call(second, server, "hold", 16'000);
  net.run_for(std::chrono::milliseconds(100));
  const Path* const served = path_from(first, server);
  ASSERT_NE(served, nullptr);
  const std::uint64_t serial = served->serial;
  net.engine(server).reply(*held.back(), {}, {}, net.now);
  held.clear();
  ASSERT_GE(served->accounts.outermost().limit(), 16'064u) << "its turn has come";
  net.core(server).on_blocked(*path_from(second, server), {.level = 0, .priority = 0, .needed = 16'064}, net.now);
  net.run_for(std::chrono::milliseconds(1));
  ASSERT_EQ(held.size(), 1u);
  EXPECT_EQ(held.front()->path, path_from(first, server)->id);
  EXPECT_EQ(path_from(first, server)->serial, serial) << "it had to connect again";
}

// Only what a member at its bound holds itself is in its way.
TEST_F(MemberQuota, AMemberAtItsBoundHasNoPathOfAnotherClosed) {
  EngineConfig config = testing::test_config(true, 999);
  config.receive_buffer_bytes = kSmallSocket;
  const int server = add_server(config);
  const int idle = add_caller(kHonest);
  for (int i = 0; i < 50; ++i) call(idle, server, "echo", 16'000);  // its window grows
  net.run_for(std::chrono::milliseconds(10));
  call(add_caller(kHonest), server, "hold", 8'000);
  const int holding = add_caller(kHostile), complaining = add_caller(kHostile);
  for (int i = 0; i < 2; ++i) call(holding, server, "hold", 16'000);
  net.run_for(std::chrono::milliseconds(20));
  call(complaining, server, "hold", 16'000);
  net.run_for(std::chrono::milliseconds(1));
  const token::CreditLedger& ledger = net.core(server).ledger;
  ASSERT_GT(member(server, kHostile)->held(0) + 16'064, ledger.per_member(0));
  ASSERT_GE(member(server, kHonest)->held(0), member(server, kHostile)->held(0));
  ASSERT_TRUE(path_from(idle, server)->accounts.outermost().holds_unused());
  for (int i = 0; i < 100; ++i) {
    Path& path = *path_from(complaining, server);
    net.core(server).on_blocked(path, {.level = 0, .needed = path.accounts[0].received() + 16'064}, net.now);
    net.run_for(std::chrono::milliseconds(1));
    ASSERT_NE(path_from(idle, server), nullptr) << "closed after " << i << " ms";
  }
}

// However many paths a member has requests waiting on, it is looked at once.
TEST_F(MemberQuota, AMemberWithManyPathsDoesNotHoldUpTheRequestsOfOthersThatFindRoomForTheirAnswers) {
  EngineConfig config = testing::test_config(true, 999);
  config.limits.answer_bytes = token::AnswerRoom::least(answer_bytes_of(config.limits.inline_bytes + 2));
  constexpr std::uint32_t kPaths = 40;
  const int server = add_server(config);
  Core& core = net.core(server);
  for (std::uint32_t i = 0; i < kPaths; ++i) call(add_caller(kHostile), server, "hold", 100);
  net.run_for(std::chrono::milliseconds(50));
  ASSERT_EQ(core.requests_waiting, kPaths - 1);
  ASSERT_FALSE(core.answers.is_full(0));
  EXPECT_EQ(core.answer_lines[0].size(), 1u) << "one list for each member and priority";
  core.answer_lines[0].forget_seen();  // as if room had been given back
  const int honest = add_caller(kHonest);
  const std::size_t waiting = core.requests_waiting;
  const TestCall& wanted = call(honest, server, "echo", 100);
  for (int i = 0; i < 10'000 && path_from(honest, server) == nullptr; ++i) net.run_for(std::chrono::microseconds(1));
  net.run_for(std::chrono::milliseconds(1));
  EXPECT_EQ(wanted.completions, 1);
  EXPECT_EQ(core.requests_waiting, waiting);
}

// Room for one answer comes back. The first in line has its share already, so it is the second one's.
TEST_F(MemberQuota, AMemberThatHasItsShareHoldsUpNobodyBehindItInTheLineForAnswers) {
  EngineConfig config = testing::test_config(true, 999);
  config.limits.answer_bytes = token::AnswerRoom::least(answer_bytes_of(config.limits.inline_bytes + 2));
  const int server = add_server(config);
  Core& core = net.core(server);
  const int hostile = add_caller(kHostile), honest = add_caller(kHonest), other = add_caller(kHonest + 1);
  for (const int host : {hostile, other, hostile}) {
    call(host, server, "hold", 100);
    net.run_for(std::chrono::milliseconds(10));
  }
  const TestCall& wanted = call(honest, server, "echo", 100);
  net.run_for(std::chrono::milliseconds(10));
  ASSERT_EQ(held.size(), 2u);
  ASSERT_EQ(core.requests_waiting, 2u);
  ASSERT_TRUE(core.answers.is_full(0));
  net.engine(server).reply(*held[1], {}, {}, net.now);
  net.run_for(std::chrono::milliseconds(1));
  EXPECT_EQ(wanted.completions, 1);
  EXPECT_EQ(core.requests_waiting, 1u);
}

TEST_F(MemberQuota, TheLimitsSayWhatOneMemberMayHold) {
  EngineConfig config = testing::test_config(true, 999);
  config.receive_buffer_bytes = kSmallSocket;
  config.limits.peers = 10;
  const int server = add_server(config);
  const std::string text = net.engine(server).describe_limits();
  const auto has = [&](const std::string& line) { return ("\n" + text).find("\n" + line + "\n") != std::string::npos; };
  const Core& core = net.core(server);
  const auto bytes = [](std::uint64_t value) { return std::to_string(value); };
  EXPECT_EQ(core.ledger.per_member(0), core.ledger.capacity() / 2);
  EXPECT_TRUE(has("paths that one member may make: 5"));
  EXPECT_TRUE(has("requests received and unanswered, one member, bytes: " + bytes(core.ledger.per_member(0))));
  EXPECT_TRUE(has("nested requests received and unanswered, one member, each level, bytes: " +
                  bytes(core.ledger.per_member(1))));
  EXPECT_TRUE(has("answers due or not acknowledged, one member, bytes: " + bytes(core.answers.capacity() / 2)));
  const auto& large = core.grants.bound(token::request_purse(0));
  EXPECT_TRUE(has("large requests under way or held, one member, bytes: " + bytes(large.per_sender)));
  EXPECT_LE(large.per_sender, large.total / 2);
}

TEST(SharedSecretMember, TheLimitsSayWhatOnePathMayHold) {
  Net net(1);
  EngineConfig config = testing::test_config(true, 999);
  config.receive_buffer_bytes = kSmallSocket;
  const int server = net.add(config);
  const Core& core = net.core(server);
  const std::string line = "one member, bytes: " + std::to_string(core.ledger.capacity()) + "\n";
  EXPECT_NE(net.engine(server).describe_limits().find("requests received and unanswered, " + line), std::string::npos)
      << "one path may have all of it";
}

// A process has a path for each of its workers. Idle ones keep what they were promised, until others want it.
TEST_F(MemberQuota, AMemberAtItsBoundHasItsOwnIdlePathsClosed) {
  EngineConfig config = testing::test_config(true, 999);
  config.receive_buffer_bytes = kSmallSocket;
  const int server = add_server(config);
  const int idle = add_caller(kHonest), wanting = add_caller(kHonest);
  for (int i = 0; i < 50; ++i) call(idle, server, "echo", 16'000);
  net.run_for(std::chrono::milliseconds(20));
  call(wanting, server, "hold", 8'000);
  net.run_for(std::chrono::milliseconds(20));
  ASSERT_GT(member(server, kHonest)->held(0) + 16'064, net.core(server).ledger.per_member(0));
  const TestCall& wanted = call(wanting, server, "echo", 16'000);
  net.run_for(std::chrono::milliseconds(100));
  EXPECT_EQ(wanted.completions, 1);
}

// Each was given credit for a call that it cancelled before it was sent, and wants more than that for the next.
TEST_F(MemberQuota, PathsOfOneMemberThatHoldPartsOfMessagesDoNotWaitForEachOther) {
  EngineConfig config = testing::test_config(true, 999);
  config.receive_buffer_bytes = kSmallSocket;
  const int server = add_server(config);
  std::vector<int> hosts;
  for (int i = 0; i < 8; ++i) hosts.push_back(add_caller(kHonest));
  for (const int host : hosts) call(host, server, "echo", 10);
  net.run_for(std::chrono::milliseconds(1));
  for (const int host : hosts) {
    Path& path = *path_from(host, server);
    net.core(server).on_blocked(path, {.level = 0, .needed = path.accounts[0].received() + 4'000}, net.now);
  }
  ASSERT_GT(member(server, kHonest)->held(0) + 16'064 - 4'000, net.core(server).ledger.per_member(0));
  std::vector<TestCall*> wanted;
  for (const int host : hosts) wanted.push_back(&call(host, server, "echo", 16'000));
  net.run_for(std::chrono::seconds(1));
  for (const TestCall* each : wanted) EXPECT_EQ(each->completions, 1);
}

// Each of the honest ones keeps a part of a message from its first call. The hostile one takes what is left, and has
// its request kept for ever.
TEST_F(MemberQuota, MembersThatHoldPartsOfMessagesDoNotWaitForEachOther) {
  EngineConfig config = testing::test_config(true, 999);
  config.receive_buffer_bytes = kSmallSocket;
  const int server = add_server(config);
  std::vector<int> honest;
  for (std::uint64_t i = 0; i < 10; ++i) honest.push_back(add_caller(kHonest + i));
  for (const int host : honest) call(host, server, "echo", 100);
  net.run_for(std::chrono::milliseconds(1));
  const int hostile = add_caller(kHostile);
  for (int i = 0; i < 4; ++i) call(hostile, server, "hold", 16'000);
  net.run_for(std::chrono::milliseconds(1));
  ASSERT_GE(held.size(), 1u);
  std::vector<TestCall*> wanted;
  for (const int host : honest) wanted.push_back(&call(host, server, "echo", 16'000));
  net.run_for(std::chrono::seconds(1));
  for (const TestCall* each : wanted) {
    EXPECT_EQ(each->completions, 1);
    EXPECT_FALSE(each->failed) << each->reply;
  }
}

}  // namespace
}  // namespace weir::engine
