// ServeOptions::admit: large requests that go elsewhere than they were sent to, before their data flows.
#include <atomic>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "pool/bulk_testing.h"

namespace weir {
namespace {

using namespace std::chrono_literals;
using testing::client_config;
using testing::is_same;
using testing::kMiB;
using testing::open;
using testing::pattern;
using testing::payload_of;
using testing::server_config;
using testing::text_of;
using testing::total;

// Every method answers with its name; "append" asks `route` first.
struct Crossing {
  explicit Crossing(int threads) : pool(open(server_config(threads))) {
    const ServeOptions routed{.admit = [this](const LargeRequest& request) -> Result<Route> {
      std::lock_guard lock(mutex);
      seen.push_back({std::string(request.method), request.pattern, request.bytes});
      return route(std::string(reinterpret_cast<const char*>(request.header.data()), request.header.size()));
    }};
    const ServeOptions never{.admit = [](const LargeRequest&) -> Result<Route> {
      ADD_FAILURE() << "where a route leads, nobody is asked";
      return {};
    }};
    EXPECT_TRUE(pool.serve("append", task("append"), routed));
    EXPECT_TRUE(pool.serve_inline("append.inline", inlined("append.inline"), routed));
    EXPECT_TRUE(pool.serve("cold.task", task("cold.task"), never));
    EXPECT_TRUE(pool.serve_inline("cold", inlined("cold"), never));
    EXPECT_TRUE(pool.serve("large", [this](Request request) {
      check(request.text());
      return Reply(request.body(), as_bytes(std::string_view("large")));
    }));
  }

  std::function<Reply(Request)> task(const std::string& name) {
    return [this, name](Request request) {
      check(request.text());
      return Reply(name, request.header_text());
    };
  }
  std::function<void(InlineRequest&)> inlined(const std::string& name) {
    return [this, name](InlineRequest& request) {
      check(request.text());
      request.reply(name, request.header_text());
    };
  }
  void check(std::string_view text) { EXPECT_TRUE(is_same(text, pattern(text.size()))); }

  struct Seen {
    std::string method;
    Pattern pattern;
    std::uint64_t bytes;
  };
  std::vector<Seen> all_seen() {
    std::lock_guard lock(mutex);
    return seen;
  }
  void go(std::function<Route(const std::string& header)> where) {
    std::lock_guard lock(mutex);
    route = std::move(where);
  }

  std::mutex mutex;
  std::vector<Seen> seen;
  std::function<Route(const std::string& header)> route = [](const std::string& header) {
    return Route{.method = header};
  };
  Pool pool;
};

TEST(Routing, ShowsThePatternAndTheMethod) {
  Crossing server(1);
  Pool client = open(client_config(1));
  const Peer to = client.peer(server.pool.listen_address());
  EXPECT_EQ(text_of(to.unary("append", pattern(kMiB)).get()), "append");
  EXPECT_EQ(text_of(to.unary("append.inline", payload_of(client, pattern(kMiB))).get()), "append.inline");
  const BroadcastOutcome outcome =
      client.broadcast(std::vector<Peer>{to, to}, "append", payload_of(client, pattern(100'000))).get();
  EXPECT_TRUE(outcome.reached()) << outcome.error()->to_string();
  const std::vector<Crossing::Seen> seen = server.all_seen();
  ASSERT_EQ(seen.size(), 4u);
  EXPECT_EQ(seen[0].method, "append");
  EXPECT_EQ(seen[0].pattern, Pattern::unary);
  EXPECT_EQ(seen[0].bytes, kMiB);
  EXPECT_EQ(seen[1].method, "append.inline");
  EXPECT_EQ(seen[1].pattern, Pattern::unary);
  for (const std::size_t i : {2, 3}) {
    EXPECT_EQ(seen[i].method, "append");
    EXPECT_EQ(seen[i].pattern, Pattern::broadcast);
    EXPECT_EQ(seen[i].bytes, 100'000u);
  }
}

TEST(Routing, RunsTheHandlerOfTheRouteAsItWasRegistered) {
  for (const int threads : {0, 1, 2}) {
    Crossing server(threads);
    Pool client = open(client_config(1));
    std::atomic<bool> done{false};
    std::thread turning([&] {
      while (threads == 0 && !done) server.pool.poll_for(1ms);
    });
    const Peer to = client.peer(server.pool.listen_address());
    for (const std::string_view from : {"append", "append.inline"}) {
      for (const std::string_view target : {"cold", "cold.task", "append", "append.inline"}) {
        for (const std::size_t bytes : {20'000ul, 300'000ul, 3 * kMiB}) {
          const Result<Reply> reply = to.unary(from, pattern(bytes), {.header = target}).get();
          ASSERT_EQ(text_of(reply), target);
          EXPECT_EQ(reply->header_text(), target);
        }
      }
      const Result<Reply> large = to.unary(from, pattern(kMiB), {.header = "large"}).get();
      ASSERT_TRUE(large) << large.error().to_string();
      EXPECT_TRUE(is_same(large->text(), pattern(kMiB)));
    }
    EXPECT_EQ(text_of(to.unary("append", pattern(100), {.header = "cold"}).get()), "append")
        << "small ones come whole, and nobody is asked";
    EXPECT_EQ(server.all_seen().size(), 2u * (4 * 3 + 1));
    done = true;
    turning.join();
  }
}

TEST(Routing, HoldsForThoseWhoHaveTokensInHand) {
  Crossing server(1);
  Pool client = open(client_config(1));
  const Peer to = client.peer(server.pool.listen_address());
  for (int i = 0; i < 30; ++i) {
    const std::string target = i % 3 == 0 ? "cold" : i % 3 == 1 ? "cold.task" : "append";
    ASSERT_EQ(text_of(to.unary("append", pattern(100'000), {.header = target}).get()), target);
  }
  EXPECT_GE(total(client).tokens_used, 10u);
  EXPECT_EQ(server.all_seen().size(), 30u);
}

TEST(Routing, ToAMethodThatNobodyServesIsAnErrorThatNamesIt) {
  Crossing server(1);
  Pool client = open(client_config(1));
  const Peer to = client.peer(server.pool.listen_address());
  const auto before = total(server.pool).payload_bytes_received;
  const Result<Reply> refused = to.unary("append", pattern(kMiB), {.header = "attic"}).get();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::unknown_method);
  EXPECT_NE(refused.error().message().find("routed there to the method \"attic\""), std::string::npos)
      << refused.error().message();
  EXPECT_FALSE(refused.error().may_have_run());
  EXPECT_LT(total(server.pool).payload_bytes_received - before, 4'096u) << "the opening, and none of the data";
}

// As with a method that was called itself.
TEST(Routing, ToAMethodThatIsServedSoonIsWaitedFor) {
  Crossing server(1);
  Pool client = open(client_config(1));
  Call call = client.peer(server.pool.listen_address())
                  .unary("append", pattern(kMiB), {.deadline = 60s, .header = "attic", .wait_for_ready = true});
  testing::await([&] { return server.all_seen().size() >= 2; });
  ASSERT_TRUE(server.pool.serve("attic", server.task("attic")));
  EXPECT_EQ(text_of(call.get()), "attic");
}

TEST(Routing, ToWhatIsNoPlaceForItIsRefused) {
  Crossing server(1);
  std::string memory(4 * kMiB, '.');
  ASSERT_TRUE(server.pool.place("shelf", Placement::memory(std::as_writable_bytes(std::span(memory)))));
  Pool client = open(client_config(1));
  const Peer to = client.peer(server.pool.listen_address());
  const auto expect_invalid = [&](const Route& route, std::string_view part_of_sentence) {
    server.go([route](const std::string&) { return route; });
    const Result<Reply> refused = to.unary("append", pattern(100'000), {.deadline = 60s, .wait_for_ready = true}).get();
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), Code::invalid_argument) << refused.error().to_string();
    EXPECT_FALSE(refused.error().may_have_run());
    EXPECT_NE(refused.error().message().find(part_of_sentence), std::string::npos) << refused.error().message();
  };
  for (const char* own : {"weir.bulk.put", "weir.bulk.get", "weir.bulk.ask", "weir.anything"}) {
    expect_invalid({.method = own}, "library's own");
  }
  for (const int node : {-2, 64, 1'000'000}) expect_invalid({.numa_node = node}, "NUMA node");
  // Nodes are a wish, as in allocate(): where there is but one, all is there.
  server.go([](const std::string&) { return Route{.method = "cold", .numa_node = 1}; });
  EXPECT_EQ(text_of(to.unary("append", pattern(100'000)).get()), "cold");
}

// With names that were made for the occasion, and are gone when the handler runs.
TEST(Routing, TakesNamesThatWereJustMade) {
  Crossing server(1);
  ASSERT_TRUE(server.pool.serve("a name too long to be kept in place", server.task("long")));
  server.go([](const std::string& header) { return Route{.method = "a name too long to be " + header}; });
  Pool client = open(client_config(1));
  const Peer to = client.peer(server.pool.listen_address());
  EXPECT_EQ(text_of(to.unary("append", pattern(100'000), {.header = "kept in place"}).get()), "long");
}

// ---- whose large requests are no method's own -----------------------------------------------------------------------

TEST(Routing, LeavesPutsAndGetsWhereTheyAre) {
  Crossing server(1);
  std::string memory(4 * kMiB, '.');
  ASSERT_TRUE(server.pool.place("shelf", Placement::memory(std::as_writable_bytes(std::span(memory)))));
  Pool client = open(client_config(1));
  const Peer to = client.peer(server.pool.listen_address());
  const std::string text = pattern(3 * kMiB);
  ASSERT_TRUE(to.put("shelf", payload_of(client, text)).get());
  EXPECT_TRUE(is_same(std::string_view(memory).substr(0, text.size()), text));
  std::string back(text.size(), '\0');
  ASSERT_TRUE(to.get("shelf", into(std::as_writable_bytes(std::span(back)))).get());
  EXPECT_TRUE(is_same(back, text));
  EXPECT_TRUE(server.all_seen().empty());
}

}  // namespace
}  // namespace weir
