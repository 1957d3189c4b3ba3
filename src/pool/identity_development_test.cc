// Pools with development identities, over real sockets.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "pool/identity_testing.h"

namespace weir {
namespace {

using testing::await;
using testing::code_of;
using testing::identity_client;
using testing::identity_server;
using testing::Listener;
using testing::open;
using testing::serve_echo;
using testing::TestDirectory;
using testing::text_of;

class DevelopmentPools : public ::testing::TestWithParam<int> {
 protected:
  int workers() const { return GetParam(); }
};

TEST_P(DevelopmentPools, OfOneUserTalk) {
  Pool server = open(identity_server(Identity::development()));
  serve_echo(server);
  Pool client = open(identity_client(Identity::development(), workers()));
  Peer peer = client.peer(server.listen_address());
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(text_of(peer.unary("echo", std::to_string(i)).get()), std::to_string(i));
  }
}

TEST_P(DevelopmentPools, OfTwoDirectoriesDoNotTrustEachOther) {
  TestDirectory ours, theirs;
  auto heard = std::make_shared<Listener>();
  Config config = identity_server(Identity::development(ours.path("identity")));
  config.subscriber = heard;
  Pool server = open(config);
  serve_echo(server);
  Pool stranger = open(identity_client(Identity::development(theirs.path("identity")), workers()));
  const Result<Reply> refused = stranger.peer(server.listen_address()).unary("echo", "x").get();
  EXPECT_EQ(code_of(refused), Code::unauthenticated) << text_of(refused);
  await([&] { return !heard->failures().empty(); });
  EXPECT_EQ(heard->failures().front().code, Code::unauthenticated);

  Pool friendly = open(identity_client(Identity::development(ours.path("identity")), workers()));
  EXPECT_EQ(text_of(friendly.peer(server.listen_address()).unary("echo", "x").get()), "x");
}

TEST_P(DevelopmentPools, ShareWorkersByTheDozen) {
  Workers crew = *Workers::open({.threads = workers()});
  std::vector<Pool> pools;
  for (int i = 0; i < 12; ++i) {
    pools.push_back(open({.listen = "127.0.0.1:0", .identity = Identity::development(), .on = &crew}));
    EXPECT_TRUE(pools.back().serve_inline("who", [i](InlineRequest& request) { request.reply(std::to_string(i)); }));
  }
  for (std::size_t i = 0; i < pools.size(); ++i) {
    for (std::size_t step = 1; step <= 3; ++step) {
      const std::size_t k = (i + step * step) % pools.size();
      EXPECT_EQ(text_of(pools[i].peer(pools[k].listen_address()).unary("who", "").get()), std::to_string(k));
    }
  }
  while (!pools.empty()) {
    EXPECT_TRUE(pools.back().close());
    pools.pop_back();
  }
}

INSTANTIATE_TEST_SUITE_P(Workers, DevelopmentPools, ::testing::Values(0, 1, 2));

TEST(ADevelopmentPool, SaysLoudlyWhatItIs) {
  auto heard = std::make_shared<Listener>();
  Config config = identity_server(Identity::development());
  config.subscriber = heard;
  Pool server = open(config);
  ASSERT_EQ(heard->degraded("development identity").size(), 1u);
  EXPECT_NE(heard->degraded("development identity")[0].find("Identity::from_files()"), std::string::npos);
}

// Runs in a process of its own: it is said once in each.
TEST(ADevelopmentPool, WithoutSubscriberSaysOnceOnStandardErrorWhatItIs) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [] {
    ::testing::internal::CaptureStderr();
    for (int i = 0; i < 3; ++i) open(identity_server(Identity::development()));
    std::string said = ::testing::internal::GetCapturedStderr();
    std::fprintf(stderr, "%zu lines: %s", static_cast<std::size_t>(std::ranges::count(said, '\n')), said.c_str());
    std::_Exit(0);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(0), "1 lines: weir: this pool has a development identity: .*from_files");
}

TEST(ADevelopmentPool, WithSubscriberSaysNothingOnStandardError) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [] {
    Config config = identity_server(Identity::development());
    config.subscriber = std::make_shared<Listener>();
    ::testing::internal::CaptureStderr();
    open(config);
    std::fprintf(stderr, "it said: \"%s\"", ::testing::internal::GetCapturedStderr().c_str());
    std::_Exit(0);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(0), "it said: \"\"");
}

}  // namespace
}  // namespace weir
