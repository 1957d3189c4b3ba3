// CallOptions::max_reply, in every form of call: a reply of that size arrives, a larger one is `too_large`, wherever
// its handler runs.
#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "pool/bulk_testing.h"

namespace weir {
namespace {

using namespace std::chrono_literals;
using testing::await;
using testing::bytes_of;
using testing::client_config;
using testing::open;
using testing::payload_of;
using testing::server_config;
using testing::text_of;

struct Workers {
  int server;
  int client;
};
constexpr Workers kWaysToRun[] = {{1, 1}, {1, 0}, {0, 1}};

// A server whose handlers answer with as many bytes as the request says: inline, on the executor, later, sealed before.
struct Giving {
  explicit Giving(const Workers& workers)
      : server(open(server_config(workers.server))), client(open(client_config(workers.client))) {
    EXPECT_TRUE(server.serve_inline("inline", [](InlineRequest& request) {
      const std::string reply(std::stoul(std::string(request.text())), 'i');
      request.reply(reply);
    }));
    EXPECT_TRUE(server.serve_inline("with header", [](InlineRequest& request) {
      const std::string header(std::stoul(std::string(request.text())), 'h');
      request.reply(as_bytes("b"), as_bytes(header));
    }));
    EXPECT_TRUE(server.serve(
        "task", [](Request request) { return Reply{std::string(std::stoul(std::string(request.text())), 't')}; }));
    EXPECT_TRUE(server.serve("payload", [this](Request request) {
      return Reply{payload_of(server, std::string(std::stoul(std::string(request.text())), 'p'))};
    }));
    if (workers.server == 0)
      loop = std::thread([this] {
        while (!is_over) server.poll_for(1ms);
      });
    to.emplace(client.peer(server.listen_address()));
  }
  ~Giving() {
    is_over = true;
    if (loop.joinable()) loop.join();
  }

  std::atomic<bool> is_over{false};
  Pool server, client;
  std::thread loop;
  std::optional<Peer> to;
};

void expect_too_large(const Result<Reply>& result, std::size_t bytes, std::size_t bound) {
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), Code::too_large);
  EXPECT_TRUE(result.error().may_have_run());
  const std::string text = result.error().to_string();
  EXPECT_NE(text.find(std::to_string(bytes) + " bytes and the call accepts " + std::to_string(bound)),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("raise CallOptions::max_reply"), std::string::npos) << text;
}

TEST(MaxReply, BoundsRepliesOfEveryHandlerInEveryWayToRun) {
  for (const Workers& workers : kWaysToRun) {
    Giving giving(workers);
    for (const char* method : {"inline", "task", "payload"}) {
      for (const std::size_t bound : {std::size_t{1}, std::size_t{64}, std::size_t{3'000}, std::size_t{100'000}}) {
        SCOPED_TRACE(std::string(method) + ", " + std::to_string(bound));
        const auto call = [&](std::size_t bytes) {
          return giving.to->unary(method, std::to_string(bytes), {.deadline = 60s, .max_reply = bound});
        };
        Result<Reply> fits = call(bound).get();
        ASSERT_TRUE(fits) << fits.error().to_string();
        EXPECT_EQ(fits->body().size(), bound);
        expect_too_large(call(bound + 1).get(), bound + 1, bound);
      }
    }
    const auto with_header = giving.to->unary("with header", "63", {.deadline = 60s, .max_reply = 64}).get();
    EXPECT_EQ(text_of(with_header), "b");
    expect_too_large(giving.to->unary("with header", "64", {.deadline = 60s, .max_reply = 64}).get(), 65, 64);
  }
}

TEST(MaxReply, ZeroAndHugeBoundsAcceptAnyReply) {
  Giving giving({1, 1});
  for (const std::uint64_t bound : {std::uint64_t{0}, std::uint64_t{1} << 32, ~std::uint64_t{0}}) {
    EXPECT_EQ(text_of(giving.to->unary("task", "200000", {.deadline = 60s, .max_reply = bound}).get()).size(),
              200'000u);
  }
}

TEST(MaxReply, BoundsContinuationsAndCoroutines) {
  for (const Workers& workers : kWaysToRun) {
    Giving giving(workers);
    int right = 0;
    const auto awaiting = [&]() -> Task<void> {
      Result<Reply> fits = co_await giving.to->unary("inline", "64", {.deadline = 60s, .max_reply = 64});
      right += fits && fits->body().size() == 64;
      Result<Reply> refused = co_await giving.to->unary("inline", "65", {.deadline = 60s, .max_reply = 64});
      expect_too_large(refused, 65, 64);
      ++right;
    };
    giving.client.run(awaiting());
    EXPECT_EQ(right, 2);
    std::atomic<int> ended{0};
    giving.to->unary("inline", "65", {.deadline = 60s, .max_reply = 64}).then([&](const Result<Reply>& result) {
      expect_too_large(result, 65, 64);
      ++ended;
    });
    while (ended == 0) workers.client == 0 ? static_cast<void>(giving.client.poll_for(1ms)) : std::this_thread::yield();
  }
}

TEST(MaxReply, BoundsEachReplyToABroadcast) {
  Giving giving({1, 1});
  const std::vector<Peer> peers(1, *giving.to);
  const Payload payload = payload_of(giving.client, "65");
  for (const std::uint64_t bound : {64, 65}) {
    const BroadcastOutcome outcome =
        giving.client.broadcast(peers, "task", payload, {.deadline = 60s, .max_reply = bound}).get();
    EXPECT_EQ(outcome.reached(), bound == 65);
    if (bound == 64) expect_too_large(*outcome[0], 65, 64);
  }
}

// What a part of a get asks for bounds its reply by itself.
TEST(MaxReply, OfAGetIsWhatItAsksFor) {
  Giving giving({1, 1});
  std::string there(200'000, 'g');
  ASSERT_TRUE(giving.server.place("memory", Placement::memory(bytes_of(there))));
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{64}, std::size_t{20'000}, there.size()}) {
    std::string here(bytes, '\0');
    const Result<GetReport> report = giving.to->get("memory", into(bytes_of(here))).get();
    ASSERT_TRUE(report) << report.error().to_string();
    EXPECT_EQ(here, there.substr(0, bytes));
  }
}

}  // namespace
}  // namespace weir
