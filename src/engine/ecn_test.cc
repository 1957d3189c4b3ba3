// Congestion marks from one engine to the other and back.
#include <gtest/gtest.h>

#include "engine/engine_testing.h"

namespace weir::engine {
namespace {

using testing::Pair;
using testing::TestCall;

constexpr std::uint8_t kNotCapable = 0, kCapable = 2, kCongestion = 3;  // as IP writes them

struct Windows final : Subscriber {
  void on(const event::CongestionChanged& e) override {
    if (e.by_ecn) by_ecn.push_back(e.window_bytes);
  }
  std::vector<std::uint64_t> by_ecn;
};

class CongestionMarks : public ::testing::Test {
 protected:
  CongestionMarks() {
    pair.subscribers[0] = &windows;
    pair.start(0);
    pair.serve_echo();
    pair.mark = [this](int from, std::uint8_t ecn) {
      ++sent[from][ecn];
      return on_the_way && ecn != kNotCapable ? on_the_way(ecn) : ecn;
    };
  }
  void call(int count) {
    for (int i = 0; i < count; ++i) {
      TestCall one;
      pair.call(one, "echo", std::string(8'000, 'x'));
      ASSERT_TRUE(pair.run_until([&] { return one.completions != 0; }));
      EXPECT_FALSE(one.failed) << one.reply;
    }
  }

  Windows windows;
  Pair pair;
  std::uint64_t sent[2][4] = {};  // by side and mark
  std::function<std::uint8_t(std::uint8_t)> on_the_way;
};

TEST_F(CongestionMarks, PacketsSayThatTheyMayBeMarked) {
  call(20);
  for (const int side : {0, 1}) {
    EXPECT_GT(sent[side][kCapable], 20u);
    EXPECT_EQ(sent[side][1], 0u);
    EXPECT_EQ(sent[side][kCongestion], 0u) << "only the network says that it is congested";
  }
  EXPECT_EQ(pair.server().events().counters.ecn_marks, 0u);
  EXPECT_TRUE(windows.by_ecn.empty());
}

TEST_F(CongestionMarks, AMarkedPacketIsReportedAndShrinksTheSendersWindow) {
  call(20);
  std::uint64_t marked = 0;
  on_the_way = [&](std::uint8_t) {
    ++marked;
    return kCongestion;
  };
  call(1);
  on_the_way = nullptr;
  pair.run_for(std::chrono::milliseconds(10));
  EXPECT_GT(pair.server().events().counters.ecn_marks, 0u);
  EXPECT_EQ(pair.server().events().counters.ecn_marks + pair.client().events().counters.ecn_marks, marked);
  ASSERT_FALSE(windows.by_ecn.empty());
  const std::uint64_t first = windows.by_ecn[0];
  call(20);
  on_the_way = [](std::uint8_t) { return kCongestion; };
  call(20);
  EXPECT_LT(windows.by_ecn.back(), first) << "one that is marked for long is made smaller and smaller";
  EXPECT_GT(sent[0][kCapable], 0u);
}

TEST_F(CongestionMarks, AreNotSentWhereTheyAreWipedOff) {
  on_the_way = [](std::uint8_t) { return kNotCapable; };
  call(50);
  const std::uint64_t capable = sent[0][kCapable];
  EXPECT_GT(capable, 0u);
  call(50);
  EXPECT_EQ(sent[0][kCapable], capable) << "it goes on marking although nothing of it arrives";
  EXPECT_GT(sent[0][kNotCapable], 50u);
  EXPECT_TRUE(windows.by_ecn.empty());
}

TEST_F(CongestionMarks, EndWhenAnotherRouteWipesThemOff) {
  call(50);
  on_the_way = [](std::uint8_t) { return kNotCapable; };
  call(5);
  const std::uint64_t capable = sent[0][kCapable];
  EXPECT_GT(capable, 50u);
  call(50);
  EXPECT_EQ(sent[0][kCapable], capable);
}

}  // namespace
}  // namespace weir::engine
