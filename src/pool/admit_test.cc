// ServeOptions::admit: large requests that are refused before their data flows.
#include <atomic>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>

#include "pool/large_testing.h"

namespace weir {
namespace {

using namespace std::chrono_literals;
using testing::client_config;
using testing::kMiB;
using testing::open;
using testing::pattern;
using testing::server_config;
using testing::text_of;
using testing::total;

struct Gatekeeper {
  explicit Gatekeeper(int threads) : pool(open(server_config(threads))) {
    const ServeOptions options{.admit = [this](const LargeRequest& request) -> Result<Route> {
      std::lock_guard lock(mutex);
      ++asked;
      seen_header = std::string(reinterpret_cast<const char*>(request.header.data()), request.header.size());
      seen_bytes = request.bytes;
      seen_priority = request.priority;
      seen_name = request.caller.name;
      if (seen_header == "throw") throw std::runtime_error("the gatekeeper has left");
      if (request.bytes > 2 * kMiB)
        return std::unexpected(Error(Code::overloaded, "the shelf is full: " + seen_header));
      return {};
    }};
    const auto take = [this](Request request) {
      ++run;
      return Reply(std::to_string(request.body().size()));
    };
    EXPECT_TRUE(pool.serve("put", take, options));
    EXPECT_TRUE(pool.serve_inline(
        "put_inline",
        [this](InlineRequest& request) {
          ++run;
          request.reply(std::to_string(request.body().size()));
        },
        options));
  }

  std::mutex mutex;
  int asked = 0;
  std::string seen_header, seen_name;
  std::uint64_t seen_bytes = 0;
  int seen_priority = -1;
  std::atomic<int> run{0};
  Pool pool;
};

TEST(Admission, RefusesALargeRequestBeforeItsDataFlows) {
  Gatekeeper server(1);
  Config config = client_config(1);
  config.name = "caller";
  Pool client = open(config);
  const Peer to = client.peer(server.pool.listen_address());
  for (const std::string_view method : {"put", "put_inline"}) {
    const auto before = total(server.pool).payload_bytes_received;
    const Result<Reply> refused =
        to.unary(method, pattern(3 * kMiB), {.priority = 5, .deadline = 60s, .header = "shelf 7"}).get();
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), Code::overloaded);
    EXPECT_NE(refused.error().message().find("the shelf is full: shelf 7"), std::string::npos)
        << refused.error().message();
    EXPECT_FALSE(refused.error().may_have_run());
    EXPECT_LT(total(server.pool).payload_bytes_received - before, 4'096u) << "the opening, and none of the data";
    EXPECT_EQ(server.run, 0);
    EXPECT_EQ(server.seen_bytes, 3 * kMiB);
    EXPECT_EQ(server.seen_priority, 5);
    EXPECT_EQ(server.seen_name, "caller");
  }
}

TEST(Admission, LetsOthersPassAndIsNotAskedAboutSmallOnes) {
  Gatekeeper server(1);
  Pool client = open(client_config(1));
  const Peer to = client.peer(server.pool.listen_address());
  EXPECT_EQ(text_of(to.unary("put", "small").get()), "5");
  EXPECT_EQ(server.asked, 0);
  EXPECT_EQ(text_of(to.unary("put", pattern(2 * kMiB), {.header = "shelf 8"}).get()), std::to_string(2 * kMiB));
  EXPECT_EQ(text_of(to.unary("put_inline", pattern(kMiB)).get()), std::to_string(kMiB));
  EXPECT_EQ(server.asked, 2);
  EXPECT_EQ(server.run, 3);
}

TEST(Admission, ThatThrowsIsARefusal) {
  Gatekeeper server(1);
  Pool client = open(client_config(1));
  const Result<Reply> refused =
      client.peer(server.pool.listen_address()).unary("put", pattern(kMiB), {.header = "throw"}).get();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::application);
  EXPECT_EQ(refused.error().message().find("the gatekeeper has left"), std::string::npos);
  EXPECT_EQ(server.pool.counters().at(0).handlers_threw, 1u);
}

TEST(Admission, CutsALongSentenceAndLeavesNothingBehind) {
  Pool server = open(server_config(1));
  const std::string sentence(5'000, 'x');
  ASSERT_TRUE(server.serve("put", [](Request) { return Reply(); }, {.admit = [&](const LargeRequest&) -> Result<Route> {
                             return std::unexpected(Error(Code::refused, sentence));
                           }}));
  Pool client = open(client_config(1));
  const Peer to = client.peer(server.listen_address());
  for (int i = 0; i < 200; ++i) {
    const Result<Reply> refused = to.unary("put", pattern(100'000)).get();
    ASSERT_FALSE(refused);
    ASSERT_EQ(refused.error().code(), Code::refused);
    ASSERT_NE(refused.error().message().find(std::string(256, 'x')), std::string::npos);
    ASSERT_EQ(refused.error().message().find(std::string(257, 'x')), std::string::npos);
  }
}

// Codes that a peer gives which is not up yet are final when the application gives them.
TEST(Admission, IsNotAskedAgainByThoseWhoWaitUntilThePeerIsReady) {
  Gatekeeper server(1);
  Pool client = open(client_config(1));
  const Result<Reply> refused = client.peer(server.pool.listen_address())
                                    .unary("put", pattern(3 * kMiB), {.deadline = 60s, .wait_for_ready = true})
                                    .get();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::overloaded) << refused.error().to_string();
  EXPECT_FALSE(refused.error().may_have_run());
  EXPECT_EQ(server.asked, 1);
}

TEST(Admission, WithoutACodeRefusesToo) {
  Pool server = open(server_config(1));
  std::atomic<int> run{0};
  const ServeOptions never{
      .admit = [](const LargeRequest&) -> Result<Route> { return std::unexpected(Error(Code{}, "just no")); }};
  ASSERT_TRUE(server.serve_inline(
      "put",
      [&](InlineRequest& request) {
        ++run;
        request.reply("");
      },
      never));
  Pool client = open(client_config(1));
  const Result<Reply> refused = client.peer(server.listen_address()).unary("put", pattern(kMiB)).get();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::application);
  EXPECT_EQ(run, 0);
}

TEST(Admission, WorksWithoutThreadsAndWithSeveral) {
  for (const int threads : {0, 2}) {
    Gatekeeper server(threads);
    Pool client = open(client_config(1));
    std::atomic<bool> done{false};
    std::thread turning([&] {
      while (threads == 0 && !done) server.pool.poll_for(1ms);
    });
    const Peer to = client.peer(server.pool.listen_address());
    for (int i = 0; i < 8; ++i) {  // also with tokens in hand
      EXPECT_EQ(text_of(to.unary("put", pattern(600'000)).get()), "600000");
      const Result<Reply> refused = to.unary("put", pattern(600'000), {.header = "throw"}).get();
      EXPECT_FALSE(refused);
    }
    EXPECT_EQ(server.run, 8);
    done = true;
    turning.join();
  }
}

}  // namespace
}  // namespace weir
