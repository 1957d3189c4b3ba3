// Large messages that are opened as they come (EngineConfig::opens_arrivals): the same bytes, whatever the network and
// the peer do, and nothing left to open for those that came whole and in order.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "buffer/work.h"
#include "engine/engine_testing.h"
#include "engine/large_hostile_testing.h"

namespace weir::engine {
namespace {

using testing::LargeHostileSender;
using testing::Pair;
using testing::pattern;
using testing::test_config;
using testing::TestCall;

EngineConfig opening_config(bool accepts, std::uint16_t port) {
  EngineConfig config = test_config(accepts, port);
  config.opens_arrivals = true;
  return config;
}

struct OpenedAhead : ::testing::Test {
  Pair pair{test_config(false, 1111), opening_config(true, 2222)};
  std::uint64_t opened_records = 0, records = 0;

  void serve(bool takes_records = false) {
    pair.serve(
        "look",
        [this](Engine& engine, transfer::IncomingTransfer& request, Instant now) {
          buffer::Landing* const landing = request.landing();
          opened_records = landing->opened_records;
          records = landing->records();
          const bool opened = buffer::open_all(*landing);
          engine.reply(request, {}, opened ? ByteSpan{landing->body, landing->bytes}.first(10) : ByteSpan{}, now);
        },
        takes_records);
  }
  std::uint64_t moved_by_a_call(const std::string& text) {
    const std::uint64_t before = buffer::work.moved_bytes;
    TestCall call;
    pair.call_large(call, "look", text);
    EXPECT_TRUE(pair.run_until([&] { return call.completions != 0; }));
    EXPECT_FALSE(call.failed) << call.reply;
    EXPECT_EQ(call.reply, text.substr(0, 10));
    return buffer::work.moved_bytes - before;
  }
};

TEST_F(OpenedAhead, ARecordThatComesInOnePacketIsOpenedFromThere) {
  serve();
  const std::string text = pattern(1'000'000);
  moved_by_a_call(text);  // finds the path's MTU
  pair.run_for(std::chrono::seconds(1));
  EXPECT_EQ(moved_by_a_call(text), 0u);
  EXPECT_EQ(records, 17u);
  EXPECT_EQ(opened_records, records);
}

TEST_F(OpenedAhead, ARecordThatComesInPartsIsOpenedWithTheLastOfThem) {
  pair.mtu = 1'472;
  serve();
  const std::string text = pattern(1'000'000);
  EXPECT_EQ(moved_by_a_call(text), text.size());
  EXPECT_EQ(opened_records, 17u);
}

TEST_F(OpenedAhead, WhoeverTakesRecordsOneByOneOpensThemItself) {
  serve(/*takes_records=*/true);
  pair.call_pattern = Pattern::put;
  EXPECT_EQ(moved_by_a_call(pattern(1'000'000)), 1'000'000u);
  EXPECT_EQ(opened_records, 0u);
}

TEST(OpenedAheadByBoth, MessagesSurviveLossAndDelay) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    Pair pair(opening_config(false, 1111), opening_config(true, 2222), seed);
    if (seed % 2 == 0) pair.mtu = 1'472;
    pair.loss = 0.04 * static_cast<double>(seed);
    pair.serve_large_echo();
    std::vector<std::unique_ptr<TestCall>> calls;
    std::vector<std::string> texts;
    for (std::uint64_t i = 0; i < 8; ++i) {
      texts.push_back(pattern(20'000 + i * 67'777, i));
      calls.push_back(std::make_unique<TestCall>());
      pair.call_large(*calls.back(), "echo", texts.back(), {}, std::chrono::seconds(60));
    }
    ASSERT_TRUE(pair.run_until([&] { return std::ranges::all_of(calls, [](auto& call) { return call->completions; }); },
                               2'000'000));
    for (std::size_t i = 0; i < calls.size(); ++i) {
      EXPECT_FALSE(calls[i]->failed) << calls[i]->reply;
      EXPECT_TRUE(calls[i]->reply == texts[i]) << seed << ", " << i;
    }
  }
}

class HostileSenderOfWhatIsOpenedAhead : public LargeHostileSender {
 protected:
  void SetUp() override {
    opens_arrivals = true;
    LargeHostileSender::SetUp();
  }
};

TEST_F(HostileSenderOfWhatIsOpenedAhead, CannotChangeWhatIsOpen) {
  const std::string text = pattern(150'000);
  const buffer::Sealed& payload = seal(text);
  const std::uint64_t region = open_and_listen(id(1), testing::cargo_of(payload));
  ASSERT_NE(region, 0u);
  const std::string other(61'440, 'X');
  write(region, 0, 0, payload.at(0), payload.tag_of(0));  // whole
  write(region, 1, 0, payload.at(61'440).first(40'000));  // in parts
  write(region, 1, 40'000, payload.at(101'440), payload.tag_of(1));
  for (const std::uint32_t record : {0u, 1u}) {
    write(region, record, 0, as_bytes(other), payload.tag_of(0));
    write(region, record, 1'000, as_bytes(other).first(10));
    write(region, record, 0, payload.at(record * 61'440ull), payload.tag_of(record));  // as it was
  }
  write(region, 2, 0, payload.at(122'880), payload.tag_of(2));
  net->turn(server);
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_TRUE(opened);
  EXPECT_TRUE(taken[0] == text);
}

// Before it is open a record is its sender's to change: what does not fit is not opened, and nobody reads it.
TEST_F(HostileSenderOfWhatIsOpenedAhead, ForgedRecordsAreZeros) {
  for (const bool in_parts : {false, true}) {
    const std::string text = pattern(150'000);
    const buffer::Sealed& payload = seal(text);
    const std::uint64_t region = open_and_listen(id(in_parts ? 2 : 1), testing::cargo_of(payload));
    ASSERT_NE(region, 0u);
    std::string changed(reinterpret_cast<const char*>(payload.at(0).data()), 61'440);
    changed[500] ^= 1;
    if (in_parts) {
      write(region, 0, 0, as_bytes(changed).first(30'000));
      write(region, 0, 30'000, as_bytes(changed).subspan(30'000), payload.tag_of(0));
    } else {
      write(region, 0, 0, as_bytes(changed), payload.tag_of(0));
    }
    write(region, 1, 0, payload.at(61'440), payload.tag_of(1));
    write(region, 2, 0, payload.at(122'880), payload.tag_of(2));
    net->turn(server);
    EXPECT_FALSE(opened);
    ASSERT_FALSE(taken.empty());
    EXPECT_EQ(taken.back().substr(0, 61'440), std::string(61'440, '\0'));
  }
}

// Slices may overtake the opening that says what they are slices of.
TEST_F(HostileSenderOfWhatIsOpenedAhead, RecordsInAnyOrderAreOpenedInTheEnd) {
  const std::string text = pattern(200'000);
  const buffer::Sealed& payload = seal(text);
  const std::uint64_t region = open_and_listen(id(1), testing::cargo_of(payload));
  for (const std::uint32_t record : {2u, 3u, 1u, 0u}) {
    write(region, record, 0, payload.at(record * 61'440ull), payload.tag_of(record));
  }
  net->turn(server);
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_TRUE(opened);
  EXPECT_TRUE(taken[0] == text);
}

}  // namespace
}  // namespace weir::engine
