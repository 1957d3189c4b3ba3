// How much one member can take of the executor, over real sockets: members are certificates.
#include <gmock/gmock.h>

#include <atomic>
#include <string>
#include <vector>

#include "pool/identity_testing.h"

namespace weir {
namespace {

using namespace std::chrono_literals;
using testing::await;
using ::testing::HasSubstr;
using testing::identity_client;
using testing::identity_server;
using ::testing::Not;
using testing::open;
using testing::TestAuthority;
using testing::text_of;

class MemberPlaces : public ::testing::TestWithParam<int> {
 protected:
  static constexpr auto kDeadline = 60s;

  Pool start(int threads, int workers = 1) {
    Config config = identity_server(authority.identity({"server.test"}), workers);
    config.executor_threads = threads;
    Pool server = open(config);
    EXPECT_TRUE(server.serve("block", [this](Request) {
      ++inside;
      await([this] { return is_open.load(); });
      return Reply("late");
    }));
    EXPECT_TRUE(server.serve("task", [](Request request) { return Reply(request.body()); }));
    return server;
  }
  Pool client(const char* name, int workers = 1) { return open(identity_client(authority.identity({name}), workers)); }

  TestAuthority authority;
  std::atomic<int> inside{0};
  std::atomic<bool> is_open{false};
};

TEST_P(MemberPlaces, OneThatBlocksAllHandlersItCanLeavesHalfOfThem) {
  const int threads = GetParam();
  Pool server = start(threads, 2);
  Pool hostile = client("hostile.test", 2), honest = client("honest.test");
  std::vector<Call> blocked;
  for (int i = 0; i < 50; ++i) {
    blocked.push_back(hostile.peer(server.listen_address(), {.name = "server.test"})
                          .unary("block", "", {.priority = 0, .deadline = kDeadline}));
  }
  await([&] { return inside >= (threads + 1) / 2; });
  const Peer to = honest.peer(server.listen_address(), {.name = "server.test"});
  for (int i = 0; i < 20; ++i) {
    const std::string text = text_of(to.unary("task", "hello", {.priority = 7, .deadline = kDeadline}).get());
    EXPECT_EQ(text, "hello");
    if (text != "hello") break;  // each would wait until its deadline
  }
  EXPECT_EQ(inside, (threads + 1) / 2);
  is_open = true;
  for (Call& call : blocked) EXPECT_EQ(text_of(call.get()), "late");
}

INSTANTIATE_TEST_SUITE_P(Threads, MemberPlaces, ::testing::Values(2, 3, 4));

// Several pools with one certificate are one member.
TEST_F(MemberPlaces, AreOfTheCertificateAndNotOfThePath) {
  Pool server = start(4);
  const Identity shared = authority.identity({"hostile.test"});
  std::vector<Pool> clients;
  std::vector<Call> blocked;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(open(identity_client(shared)));
    for (int each = 0; each < 4; ++each) {
      blocked.push_back(clients.back()
                            .peer(server.listen_address(), {.name = "server.test"})
                            .unary("block", "", {.deadline = kDeadline}));
    }
  }
  await([&] { return server.counters()[0].requests_dispatched == blocked.size(); });
  Pool honest = client("honest.test");
  EXPECT_EQ(text_of(honest.peer(server.listen_address(), {.name = "server.test"})
                        .unary("task", "x", {.deadline = kDeadline})
                        .get()),
            "x");
  EXPECT_EQ(inside, 2);
  is_open = true;
  for (Call& call : blocked) EXPECT_EQ(text_of(call.get()), "late");
}

TEST_F(MemberPlaces, AreSaidInLimits) {
  EXPECT_THAT(start(4).limits(), HasSubstr("executor threads for handlers of one member (a certificate): 2 of 4"));
  EXPECT_THAT(start(1).limits(), HasSubstr("executor threads for handlers of one member (a certificate): 1 of 1"));
  EXPECT_THAT(open(testing::server_config(2)).limits(), HasSubstr("one member (a path, with a shared secret): 1 of 1"));
  EXPECT_THAT(start(0).limits(), Not(HasSubstr("executor threads")));
}

}  // namespace
}  // namespace weir
