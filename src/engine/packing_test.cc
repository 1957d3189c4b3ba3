// What messages cost in bytes beyond themselves and their headers, whatever their size and the MTU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/core.h"
#include "engine/engine_testing.h"
#include "engine/train_plan.h"

namespace weir::engine {
namespace {

using testing::Pair;
using testing::test_config;
using testing::TestCall;

constexpr std::size_t kIpAndUdp = 28;
constexpr std::size_t kInlineBytes = 16 * 1024;
constexpr std::size_t kPacketOverhead = wire::kHeaderBytes + wire::kTagBytes;

EngineConfig config_of(bool accepts, std::size_t mtu) {
  EngineConfig config = test_config(accepts, accepts ? 2222 : 1111);
  config.datagram_bytes = std::min<std::size_t>(mtu - kIpAndUdp, 65'507);
  return config;
}

// Bytes of a message and its headers, in packets that are full.
std::uint64_t needed(std::size_t message, std::size_t fixed, std::size_t datagram) {
  const std::size_t room = datagram - kPacketOverhead;
  if (message <= kInlineBytes) {
    const std::size_t frame = message + fixed;
    return frame + (frame * kPacketOverhead + room - 1) / room + wire::kFragmentBytes * (frame / room);
  }
  const std::size_t head = kPacketOverhead + wire::kTextLengthBytes + wire::kSliceBytes;
  const std::size_t records = buffer::records_of(message);
  const std::size_t whole = message / buffer::kRecordBytes;
  const std::size_t per_record =
      (buffer::kRecordBytes + wire::kSliceTagBytes + datagram - head - 1) / (datagram - head);
  const std::size_t rest = message % buffer::kRecordBytes;
  const std::size_t packets = whole * per_record + (rest == 0 ? 0 : (rest + datagram - 1) / (datagram - head));
  return message + packets * head + records * wire::kSliceTagBytes + fixed + wire::kCargoBytes;
}

struct Sent {
  std::uint64_t bytes = 0;
  std::uint64_t packets = 0;
  std::uint64_t trains = 0;
};

// Keeps calls outstanding and counts what one side sends meanwhile.
struct Traffic {
  explicit Traffic(std::size_t mtu) : pair(config_of(false, mtu), config_of(true, mtu)) {
    pair.serve_echo();
    pair.serve("eat", [](Engine& engine, transfer::IncomingTransfer& request, Instant at) {
      engine.reply(request, {}, {}, at);
    });
    pair.serve("give", [this](Engine& engine, transfer::IncomingTransfer& request, Instant at) {
      engine.reply(request, {}, weir::as_bytes(reply), at);
    });
    pair.serve("give large", [this](Engine& engine, transfer::IncomingTransfer& request, Instant at) {
      engine.reply_large(request, pair.seal(reply), {.bytes = reply.size()}, Pattern::unary, {}, at);
    });
  }
  ~Traffic() {
    pair.client().close(pair.now);
    pair.client().deliver(pair.now);
  }

  // One call after another, of these sizes in turn.
  void run(std::string_view method, const std::vector<std::size_t>& sizes, std::size_t count, std::size_t outstanding) {
    std::vector<std::unique_ptr<TestCall>> calls;
    std::size_t finished = 0;
    while (finished < count) {
      while (calls.size() < count && calls.size() - finished < outstanding) {
        calls.push_back(std::make_unique<TestCall>());
        calls.back()->then = [&](TestCall& call) {
          EXPECT_FALSE(call.failed) << call.reply;
          ++finished;
        };
        const std::size_t size = sizes[calls.size() % sizes.size()];
        if (size > kInlineBytes) {
          pair.call_large(*calls.back(), method, std::string(size, 'x'));
        } else {
          pair.call(*calls.back(), method, std::string(size, 'x'));
        }
      }
      const std::size_t before = finished;
      ASSERT_TRUE(pair.run_until([&] { return finished != before; }));
    }
  }

  // What `side` sends for so many messages, once the path's MTU and window have grown.
  Sent measure(int side, const std::vector<std::size_t>& sizes, std::size_t count, std::size_t outstanding) {
    const bool is_large = sizes.front() > kInlineBytes;
    if (side == 1) reply.assign(sizes.front(), 'y');
    const char* const method = side == 0 ? "eat" : is_large ? "give large" : "give";
    const std::vector<std::size_t> requests = side == 0 ? sizes : std::vector<std::size_t>{4};
    run("echo", {4'096}, 1'500, 64);
    run(method, requests, count / 2 + 1, outstanding);
    Sent sent;
    pair.on_train = [&](int from, const Train& train) {
      if (from != side) return;
      ++sent.trains;
      sent.bytes += train.bytes.size();
      sent.packets += train.bytes.empty() ? 0 : (train.bytes.size() + train.segment_size - 1) / train.segment_size;
      for (const Segment& segment : train.segments) sent.bytes += segment.size();
      sent.packets += train.segments.size();
    };
    run(method, requests, count, outstanding);
    pair.on_train = nullptr;
    return sent;
  }

  Pair pair;
  std::string reply;
};

constexpr std::size_t kMtus[] = {1'500, 9'000, 65'535};

// At most 5 % more than messages and headers. Acknowledgements of the other direction are in it, too.
Sent expect_no_waste(int side, std::size_t size, std::size_t mtu, std::size_t outstanding) {
  const std::size_t count = std::clamp<std::size_t>(4'000'000 / (size + 32), 16, 2'000);
  Traffic traffic(mtu);
  const Sent sent = traffic.measure(side, {size}, count, outstanding);
  const std::size_t fixed = side == 0 ? wire::kRequestBytes : wire::kReplyBytes;
  const std::uint64_t least = count * needed(size, fixed, traffic.pair.configs[0].datagram_bytes);
  EXPECT_LE(sent.bytes * 100, least * 105)
      << size << " B " << (side == 0 ? "requests" : "replies") << " at MTU " << mtu << ", " << outstanding
      << " outstanding: " << sent.bytes << " bytes in " << sent.packets << " packets, " << sent.trains << " trains; "
      << least << " needed";
  return sent;
}

std::vector<std::size_t> inline_sizes() {
  std::vector<std::size_t> sizes{32,  64,  100,   200,   300,   400,   480,   511,   512,   600,   700,   725,   750,
                                 800, 900, 1'000, 1'200, 1'390, 1'420, 1'424, 1'425, 1'448, 1'500, 2'000, 3'000, 4'096};
  for (std::size_t size = 4'600; size < kInlineBytes; size += 900) sizes.push_back(size);
  sizes.insert(sizes.end(), {8'192, 8'900, 8'924, 8'948, 13'080, 16'000, kInlineBytes - 24, kInlineBytes});
  return sizes;
}

TEST(Packing, WastesNothingOnRequestsOfAnySize) {
  for (const std::size_t mtu : kMtus) {
    for (const std::size_t size : inline_sizes()) expect_no_waste(0, size, mtu, 64);
  }
}

TEST(Packing, WastesNothingOnRepliesOfAnySize) {
  for (const std::size_t mtu : kMtus) {
    for (const std::size_t size : inline_sizes()) expect_no_waste(1, size, mtu, 64);
  }
}

TEST(Packing, WastesNothingOnLargeMessagesOfAnySize) {
  for (const std::size_t mtu : kMtus) {
    for (const std::size_t size :
         {kInlineBytes + 1, std::size_t{17'500}, std::size_t{18'500}, std::size_t{20'480}, std::size_t{22'700},
          std::size_t{24'576}, std::size_t{28'000}, std::size_t{31'000}, std::size_t{32'768}, std::size_t{40'000},
          std::size_t{48'000}, std::size_t{57'000}, std::size_t{61'440}, std::size_t{65'536}, std::size_t{80'000},
          std::size_t{100'000}, std::size_t{131'072}, std::size_t{200'000}, std::size_t{1} << 20}) {
      for (const int side : {0, 1}) {
        const Sent sent = expect_no_waste(side, size, mtu, 16);
        // Nor are there trains of few packets instead. Some bring acknowledgements alone, or open messages.
        if (mtu == 1'500) {
          EXPECT_LE(sent.trains * 10, sent.bytes * 17 / Core::kMaxTrainBytes) << size << " B";
        }
      }
    }
  }
}

// Messages of all sizes beside each other: most packets have a rest into which the next message does not fit.
TEST(Packing, SplitsMessagesOfMixedSizesRatherThanPad) {
  const std::vector<std::size_t> sizes{1'300, 700, 1'400, 900, 1'100, 2'500, 600, 1'000, 6'000, 1'200};
  Traffic traffic(1'500);
  const Sent sent = traffic.measure(0, sizes, 3'000, 64);
  std::uint64_t least = 0;
  for (const std::size_t size : sizes) least += 300 * needed(size, wire::kRequestBytes, 1'472);
  EXPECT_LE(sent.bytes * 100, least * 105) << sent.bytes << " of " << least;
  EXPECT_LE(sent.trains * 16, sent.packets) << "padding is not to be avoided by trains of few packets";
}

TEST(Packing, PadsOrEndsTrainsWhereMessagesAreTooSmallToBeSplit) {
  const std::vector<std::size_t> sizes{300, 500, 120, 450, 32, 510, 400, 250, 64, 380};
  Traffic traffic(1'500);
  const Sent sent = traffic.measure(0, sizes, 3'000, 256);
  std::uint64_t least = 0;
  for (const std::size_t size : sizes) least += 300 * needed(size, wire::kRequestBytes, 1'472);
  EXPECT_LE(sent.bytes * 100, least * 115) << sent.bytes << " of " << least;
  EXPECT_LE(sent.trains * 4, sent.packets);
}

// Whatever is split, and whatever of it is lost.
TEST(Packing, LeavesMessagesAsTheyAre) {
  const std::vector<std::size_t> sizes{1'300, 511, 1'400, 512, 40, 1'100, 6'000, 900, 16'384, 1'423, 3, 700};
  for (const double loss : {0.0, 0.02, 0.05}) {
    Traffic traffic(1'500);
    traffic.pair.loss = loss;
    for (int round = 0; round < 6; ++round) {
      std::vector<std::unique_ptr<TestCall>> calls;
      std::vector<std::string> bodies;
      for (std::size_t i = 0; i < 5 * sizes.size(); ++i) {
        calls.push_back(std::make_unique<TestCall>());
        bodies.emplace_back();
        while (bodies.back().size() < sizes[i % sizes.size()]) {
          bodies.back() += static_cast<char>(traffic.pair.random.next());
        }
        traffic.pair.call(*calls.back(), "echo", bodies.back(), {}, std::chrono::seconds(60));
      }
      ASSERT_TRUE(traffic.pair.run_until(
          [&] { return std::ranges::all_of(calls, [](auto& call) { return call->completions == 1; }); }, 2'000'000))
          << loss << " " << round << " at " << traffic.pair.now.ns << " "
          << std::ranges::count_if(calls, [](auto& call) { return call->completions == 1; });
      for (std::size_t i = 0; i < calls.size(); ++i) {
        EXPECT_FALSE(calls[i]->failed) << calls[i]->reply;
        EXPECT_TRUE(calls[i]->reply == bodies[i]) << bodies[i].size() << " bytes, loss " << loss;
      }
    }
  }
}

}  // namespace
}  // namespace weir::engine
