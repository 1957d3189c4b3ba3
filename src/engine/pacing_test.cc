// A path sends what its window allows at the pacer's rate, not at once, and the timing wheel makes it go on.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "engine/core.h"
#include "engine/engine_access.h"
#include "engine/engine_testing.h"

namespace weir::engine {
namespace {

using testing::EngineAccess;
using testing::Pair;
using testing::test_config;
using testing::TestCall;
using namespace std::chrono_literals;

struct Sending {
  Instant at;
  std::size_t bytes;
};

// A path of 10 ms there and back whose window has grown, and then a message that fills it at once.
class Pacing : public ::testing::Test {
 protected:
  Pacing() : pair(config_of(false), config_of(true)) {
    pair.latency = 5ms;
    pair.serve("take", [](Engine& engine, transfer::IncomingTransfer& request, Instant at) {
      engine.reply(request, {}, {}, at);
    });
    for (int i = 0; i < 12; ++i) send(4u << 20);
    EngineAccess::core(pair.client()).paths.for_each([this](Path& each) { path = &each; });
  }

  static EngineConfig config_of(bool accepts) {
    EngineConfig config = test_config(accepts, accepts ? 2222 : 1111);
    config.datagram_bytes = 1'472;
    return config;
  }

  void send(std::size_t bytes) {
    TestCall call;
    pair.call_large(call, "take", std::string(bytes, 'x'), {}, 60s);
    ASSERT_TRUE(pair.run_until([&] {
      if (path != nullptr) highest_rate = std::max(highest_rate, path->pacer.rate());
      return call.completions == 1;
    }));
    ASSERT_FALSE(call.failed) << call.reply;
  }

  static std::size_t bytes_of(const Train& train) {
    std::size_t bytes = train.bytes.size();
    for (const Segment& segment : train.segments) bytes += segment.size();
    return bytes;
  }

  Pair pair;
  Path* path = nullptr;
  std::uint64_t highest_rate = 0;
};

TEST_F(Pacing, NoTimeHasMoreBytesThanItsRateAndABurst) {
  ASSERT_NE(path, nullptr);
  std::vector<Sending> sent;
  pair.on_train = [&](int side, const Train& train) {
    if (side == 0) sent.push_back({pair.now, bytes_of(train)});
  };
  const std::uint64_t window = path->congestion.window();
  send(8u << 20);
  // A train that has begun is sent whole, and those of one turn of the loop are one burst.
  const std::uint64_t slack = schedule::Pacer::burst_at(highest_rate) + Core::kMaxTrainBytes;
  ASSERT_GT(window, 4 * slack) << "sent at once, the window would be found";
  ASSERT_GT(sent.size(), 50u);
  for (std::size_t first = 0; first < sent.size(); ++first) {
    std::uint64_t bytes = 0;
    for (std::size_t last = first; last < sent.size(); ++last) {
      bytes += sent[last].bytes;
      const double seconds = static_cast<double>((sent[last].at - sent[first].at).count()) * 1e-9;
      ASSERT_LE(static_cast<double>(bytes), static_cast<double>(highest_rate) * seconds + static_cast<double>(slack))
          << "in " << seconds * 1e6 << " us from train " << first << " to " << last;
    }
  }
}

// Nothing arrives before a round trip is over: only the pacer's timer can make the path go on.
TEST_F(Pacing, ItsTimerMakesThePathGoOn) {
  ASSERT_NE(path, nullptr);
  TestCall call;
  pair.call_large(call, "take", std::string(8u << 20, 'x'), {}, 60s);
  std::vector<Instant> sent_at;
  pair.on_train = [&](int side, const Train& train) {
    if (side == 0 && bytes_of(train) > 1'472) sent_at.push_back(pair.now);
  };
  ASSERT_TRUE(pair.run_until([&] { return !sent_at.empty(); }));  // a region was granted, if there was no token
  const Instant first = sent_at.front();
  std::size_t timers = 0;
  while (pair.now - first < 2ms) {
    pair.wire.clear();  // whatever is on its way: nothing wakes the sender from outside
    if (!pair.client().has_work()) {
      const Instant pace = path->pacer.next_send(pair.now);
      ASSERT_GT(pace.ns, pair.now.ns) << "the pacer is what holds it back";
      ASSERT_LE(pair.client().next_deadline().ns, (pace + schedule::TimingWheel::kDefaultTick).ns);
      pair.now = pair.client().next_deadline();
      ++timers;
    }
    pair.turn(0);
  }
  sent_at.erase(std::unique(sent_at.begin(), sent_at.end()), sent_at.end());
  EXPECT_GT(timers, 20u);
  EXPECT_GT(sent_at.size(), 20u);
  pair.client().close(pair.now);
  pair.client().deliver(pair.now);
}

}  // namespace
}  // namespace weir::engine
