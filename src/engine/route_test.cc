// What the opening of a large request says of it, and where it goes: decided once, before there is memory for it.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "buffer/numa.h"
#include "buffer/open.h"
#include "engine/core.h"
#include "engine/engine_access.h"
#include "engine/engine_testing.h"

namespace weir::engine {
namespace {

using testing::Pair;
using testing::TestCall;

constexpr auto kFirstStream = static_cast<Pattern>(4);

std::uint64_t id_of(std::string_view method) { return std::hash<std::string_view>{}(method) | 1; }
Route to(const std::string& method) { return {.method = id_of(method), .name = method}; }

// A server whose methods say who they are, and send what comes to "front" wherever `route` says.
struct Routed : ::testing::Test {
  struct Seen {
    Pattern pattern;
    std::string header;
    std::uint64_t bytes;
  };
  struct Method {
    Routed* test;
    std::string name;
    int asked = 0;
    int run = 0;
  };

  void serve(const std::string& name, bool takes_records = false) {
    Method& method = methods[name];
    method.test = this;
    method.name = name;
    const Handler handler{
        .run =
            [](void* context, transfer::IncomingTransfer& request, Instant now) {
              Method& self = *static_cast<Method*>(context);
              ++self.run;
              buffer::Landing& landing = *request.landing();
              EXPECT_TRUE(buffer::open_all(landing));
              self.test->texts.emplace_back(reinterpret_cast<const char*>(landing.body), landing.bytes);
              self.test->pair.server().reply(request, landing.header(), as_bytes(self.name), now);
            },
        .context = &method,
        .admit = [](void* context, const transfer::IncomingTransfer&, const Opening& opening) -> Result<Route> {
          Method& self = *static_cast<Method*>(context);
          ++self.asked;
          const std::string header(reinterpret_cast<const char*>(opening.header.data()), opening.header.size());
          self.test->seen.push_back({opening.pattern, header, opening.bytes});
          return self.test->route(header);
        },
        .takes_records = takes_records};
    ASSERT_TRUE(pair.server().serve(id_of(name), name, handler));
  }
  void SetUp() override { serve_all(); }
  void serve_all() {
    for (const char* name : {"front", "warm", "cold"}) serve(name);
    serve("put", /*takes_records=*/true);
  }
  // Whose handler answered, or the error.
  std::string answer(std::string_view method, std::string_view header = {}, std::size_t bytes = 100'000) {
    TestCall call;
    pair.call_large(call, method, std::string(bytes, 'x'), header, std::chrono::seconds(30));
    EXPECT_TRUE(pair.run_until([&] { return call.completions != 0; }));
    if (call.failed) {
      EXPECT_FALSE(call.may_have_run);
      code = call.code;
    } else {
      EXPECT_EQ(call.header, header);
    }
    return call.reply;
  }
  void expect_refused(std::string_view method, Code expected, std::string_view part_of_sentence) {
    const std::uint64_t before = pair.server().events().counters.payload_bytes_received;
    const std::string sentence = answer(method);
    EXPECT_EQ(code, expected);
    EXPECT_NE(sentence.find(part_of_sentence), std::string::npos) << sentence;
    EXPECT_LT(pair.server().events().counters.payload_bytes_received - before, 1'000u) << "its opening, and no data";
  }
  void expect_nothing_left() {
    pair.run_for(std::chrono::seconds(30));
    for (Engine* engine : {&pair.client(), &pair.server()}) {
      const Census census = engine->census();
      EXPECT_EQ(census.writers + census.arrivals + census.regions + census.blocks + census.incoming, 0u);
      EXPECT_EQ(census.large_bytes, 0u);
    }
  }
  void TearDown() override { expect_nothing_left(); }

  Pair pair;
  std::map<std::string, Method> methods;
  std::vector<Seen> seen;
  std::vector<std::string> texts;
  std::function<Result<Route>(const std::string& header)> route = [](const std::string&) { return Route{}; };
  Code code{};
};

TEST_F(Routed, TheOpeningTellsThePattern) {
  for (const Pattern pattern : {Pattern::unary, Pattern::broadcast}) {
    pair.call_pattern = pattern;
    EXPECT_EQ(answer("front", "shelf 7"), "front");
    EXPECT_EQ(seen.back().pattern, pattern);
    EXPECT_EQ(seen.back().header, "shelf 7");
    EXPECT_EQ(seen.back().bytes, 100'000u);
  }
  pair.call_pattern = Pattern::put;
  EXPECT_EQ(answer("put"), "put");
  EXPECT_EQ(seen.back().pattern, Pattern::put);
}

TEST_F(Routed, APatternThatIsNotForTheMethodIsRefusedAndNobodyIsAsked) {
  for (const Pattern pattern : {Pattern::put, Pattern::get, kFirstStream, wire::kLastPattern}) {
    pair.call_pattern = pattern;
    expect_refused("front", Code::invalid_argument, "pattern");
  }
  for (const Pattern pattern : {Pattern::unary, Pattern::broadcast, Pattern::get, kFirstStream}) {
    pair.call_pattern = pattern;
    expect_refused("put", Code::invalid_argument, "pattern");
  }
  EXPECT_TRUE(seen.empty());
  EXPECT_TRUE(texts.empty());
}

TEST_F(Routed, TheHandlerOfTheRouteRunsAndItsOwnRulesAreNotAsked) {
  route = [](const std::string& header) { return header.empty() ? Route{} : to(header); };
  EXPECT_EQ(answer("front", "cold"), "cold");
  EXPECT_EQ(answer("front", "warm"), "warm");
  EXPECT_EQ(answer("front", "front"), "front") << "a route to where it is";
  EXPECT_EQ(answer("front"), "front");
  EXPECT_EQ(answer("cold", "warm"), "warm") << "and cold sends what comes to itself on";
  EXPECT_EQ(methods["front"].asked, 4);
  EXPECT_EQ(methods["front"].run, 2);
  EXPECT_EQ(methods["cold"].asked, 1) << "no route is followed by another";
  EXPECT_EQ(methods["cold"].run, 1);
  EXPECT_EQ(methods["warm"].asked, 0);
  EXPECT_EQ(methods["warm"].run, 2);
  for (const std::string& text : texts) EXPECT_TRUE(text == std::string(100'000, 'x'));
}

TEST_F(Routed, EachIsAskedAboutOnceWhateverIsLost) {
  // A second question would be answered otherwise.
  std::map<std::string, int> asked;
  route = [&](const std::string& header) { return to(++asked[header] == 1 ? "cold" : "warm"); };
  pair.loss = 0.25;
  pair.mtu = 1'472;
  for (int i = 0; i < 40; ++i) EXPECT_EQ(answer("front", "call " + std::to_string(i), 30'000), "cold");
  EXPECT_EQ(asked.size(), 40u);
  for (const auto& [header, times] : asked) EXPECT_EQ(times, 1) << header;
  pair.loss = 0;
}

TEST_F(Routed, WhatComesWithATokenIsRoutedToo) {
  route = [](const std::string& header) { return to(header); };
  for (int i = 0; i < 40; ++i) {
    const std::string name = i % 3 == 0 ? "cold" : "warm";
    EXPECT_EQ(answer("front", name, 64 * 1024), name);
  }
  EXPECT_GE(pair.client().events().counters.tokens_used, 25u);
  EXPECT_EQ(methods["front"].run, 0);
}

TEST_F(Routed, ARouteThatNobodyServesIsAnErrorThatNamesIt) {
  route = [](const std::string&) { return to("attic"); };
  expect_refused("front", Code::unknown_method, "routed there to the method \"attic\", which nobody serves");
  serve("attic");
  EXPECT_EQ(answer("front"), "attic");
}

TEST_F(Routed, PartsOfPutsAreRoutedNowhereAndNothingIsRoutedToThem) {
  route = [](const std::string&) { return to("put"); };
  expect_refused("front", Code::invalid_argument, "put");
  route = [](const std::string&) { return to("front"); };
  pair.call_pattern = Pattern::put;
  expect_refused("put", Code::invalid_argument, "put");
  EXPECT_TRUE(texts.empty());
}

// ---- where the memory is --------------------------------------------------------------------------------------------

struct RoutedMemory : Routed {
  struct Recording final : buffer::Memory {
    buffer::Piece take(std::size_t bytes, int numa_node) override {
      nodes.push_back(numa_node);
      return inner.take(bytes, numa_node);
    }
    void give_back(const buffer::Piece& piece) noexcept override { inner.give_back(piece); }
    buffer::HeapMemory inner{std::uint64_t{1} << 30};
    std::vector<int> nodes;
  };

  void SetUp() override {
    pair.configs[1].memory = &memory;
    pair.configs[1].numa_node = 5;
    pair.start(1);
    serve_all();
  }
  std::vector<int> nodes_of_a_call(std::size_t bytes = 100'000) {
    memory.nodes.clear();
    EXPECT_EQ(answer("front", {}, bytes), "front");
    return memory.nodes;
  }
  ~RoutedMemory() override { pair.start(1); }  // before its memory goes

  Recording memory;
};

TEST_F(RoutedMemory, IsOnTheNodeOfTheRoute) {
  const std::vector<int> own = nodes_of_a_call(3'000'000);
  ASSERT_FALSE(own.empty());
  EXPECT_EQ(std::ranges::count(own, 5), std::ssize(own));
  route = [](const std::string&) { return Route{.numa_node = 2}; };
  const std::vector<int> routed = nodes_of_a_call(3'000'000);
  ASSERT_FALSE(routed.empty());
  EXPECT_EQ(std::ranges::count(routed, 2), std::ssize(routed));
}

TEST_F(RoutedMemory, OfATokenIsWhereItWasAndTheNextOneIsOnTheNode) {
  for (int i = 0; i < 30; ++i) nodes_of_a_call(64 * 1024);
  const std::uint64_t used = pair.client().events().counters.tokens_used;
  EXPECT_GE(used, 25u);
  route = [](const std::string&) { return Route{.numa_node = 2}; };
  // The first finds memory that is there already; what is taken now is for those to come.
  std::ptrdiff_t taken = 0;
  for (int i = 0; i < 10; ++i) {
    const std::vector<int> nodes = nodes_of_a_call(64 * 1024);
    EXPECT_EQ(std::ranges::count(nodes, 2), std::ssize(nodes));
    taken += std::ssize(nodes);
  }
  EXPECT_GT(taken, 5);
  EXPECT_GT(pair.client().events().counters.tokens_used, used + 5);
}

// It has to be written again, into other memory.
TEST_F(RoutedMemory, ThatIsTakenBackComesAgainFromTheSameNode) {
  route = [](const std::string&) { return Route{.numa_node = 2}; };
  TestCall call;
  pair.mtu = 1'472;
  pair.call_large(call, "front", std::string(3'000'000, 'x'), {}, std::chrono::seconds(30));
  Core& core = testing::EngineAccess::core(pair.server());
  int revoked = 0;
  const auto revoke = [&] {
    core.paths.for_each([&](Path& path) {
      if (path.large == nullptr) return;
      core.regions.for_each_of_path(path.large->regions, [&](token::Region& region) {
        if (region.is_bound() && region.coverage.bytes() != 0) {
          core.revoke_region(path, region, pair.now);
          ++revoked;
        }
      });
    });
    return revoked != 0;
  };
  ASSERT_TRUE(pair.run_until(revoke));
  ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
  EXPECT_FALSE(call.failed) << call.reply;
  EXPECT_GE(memory.nodes.size(), 2u);
  EXPECT_EQ(std::ranges::count(memory.nodes, 2), std::ssize(memory.nodes));
}

TEST_F(RoutedMemory, OnANodeThatNoMachineHasIsAnInvalidArgument) {
  for (const int node : {-2, -1'000'000, buffer::kMaxNumaNodes, 1'000'000}) {
    route = [node](const std::string&) { return Route{.numa_node = node}; };
    expect_refused("front", Code::invalid_argument, "NUMA node");
  }
  EXPECT_TRUE(memory.nodes.empty());
  route = [](const std::string&) { return Route{.numa_node = buffer::kMaxNumaNodes - 1}; };
  EXPECT_FALSE(nodes_of_a_call().empty()) << "a wish";
}

}  // namespace
}  // namespace weir::engine
