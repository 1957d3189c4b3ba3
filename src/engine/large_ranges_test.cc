// Ranges of a large message: the sender's memory goes back as its receiver says how far it has it (docs/protocol.md,
// rule G-12), and what was freed is never read again.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "buffer/buffer_pool.h"
#include "buffer/holds.h"
#include "engine/engine_access.h"
#include "engine/engine_testing.h"

namespace weir::engine {
namespace {

using testing::EngineAccess;
using testing::Pair;
using testing::TestCall;

constexpr std::uint64_t kMega = 1u << 20;
constexpr std::uint64_t kBytes = 16 * kMega;
constexpr std::uint64_t kPiece = 8 * std::uint64_t{buffer::kRecordBytes};

std::string pattern(std::size_t bytes) {
  Random random(7);
  std::string text(bytes, 0);
  for (std::size_t i = 0; i < bytes; i += 512) text[i] = static_cast<char>(random.next());
  return text;
}

class LargeRanges : public ::testing::Test {
 protected:
  void SetUp() override {
    pair.serve("take", [this](Engine& engine, transfer::IncomingTransfer& request, Instant now) {
      buffer::Landing* const landing = request.landing();
      if (landing == nullptr || !buffer::open_all(*landing)) {
        return engine.fail(request, Code::unauthenticated, "does not open", now);
      }
      ++runs;
      EXPECT_TRUE(std::string_view(reinterpret_cast<const char*>(landing->body), landing->bytes) == text);
      engine.reply(request, {}, as_bytes(std::string_view("taken")), now);
    });
    pair.serve("give", [this](Engine& engine, transfer::IncomingTransfer& request, Instant now) {
      engine.reply_large(request, seal(), {.bytes = kBytes}, Pattern::unary, {}, now);
    });
  }
  void TearDown() override {
    kept = Payload();
    pair.run_for(std::chrono::hours(1));
    for (Engine* engine : {&pair.client(), &pair.server()}) {
      const Census census = engine->census();
      EXPECT_EQ(census.writers + census.arrivals + census.regions + census.incoming + census.blocks + census.paths, 0u);
      EXPECT_EQ(census.large_bytes, 0u);
    }
    EXPECT_EQ(payloads->taken_bytes(), 0u);
    EXPECT_EQ(pair.memory.taken_bytes(), 0u);
  }
  // That nobody but its message has.
  buffer::Sealed* seal(std::uint64_t piece_bytes = kPiece) {
    crypto::KeyBytes key;
    pair.entropy.fill(key);
    return buffer::seal(*payloads, as_bytes(text), key, buffer::thread_key(), buffer::kRecordBytes, piece_bytes);
  }
  // That we have, too.
  buffer::Sealed* seal_and_keep() {
    Buffer room = *buffers->try_allocate(kBytes, {.piece_bytes = kPiece});
    crypto::KeyBytes key;
    pair.entropy.fill(key);
    kept = *buffer::seal_into(std::move(room), as_bytes(text), key, buffer::thread_key());
    return buffer::lend(*kept.sealed(), buffer::pieces_of(*kept.sealed(), 0, kBytes));
  }
  void send(TestCall& call, buffer::Sealed* sealed, Duration deadline = std::chrono::seconds(60)) {
    pair.call_large(call, "take", sealed, {.bytes = kBytes}, {}, deadline);
  }
  bool run_until_half_is_free(const TestCall& call) {
    return pair.run_until([&] { return call.completions != 0 || payloads->taken_bytes() < kBytes / 2; }) &&
           call.completions == 0;
  }
  // Its receiver, as far as we know.
  static bool has_half(const TestCall& call) {
    const transfer::Writer* const writer = transfer::Cargo::of(call.block).writer;
    return writer != nullptr && writer->cargo->acknowledged > kBytes / 2;
  }
  std::uint32_t revoke(Engine& engine) {
    return EngineAccess::revoke_regions(engine, pair.now,
                                        [](const token::Region& region) { return region.is_bound(); });
  }

  const std::string text = pattern(kBytes);
  std::shared_ptr<buffer::HeapMemory> payloads = std::make_shared<buffer::HeapMemory>(std::uint64_t{1} << 30);
  std::shared_ptr<buffer::BufferPool> buffers = buffer::BufferPool::create(payloads, {.bytes = 2 * kBytes});
  Pair pair{testing::test_config(false, 1111), [] {
              EngineConfig config = testing::test_config(true, 2222);  // has memory for one at a time
              config.limits.message_bytes = config.limits.large_request_bytes = config.limits.large_bytes_per_peer =
                  kBytes + kBytes / 2;
              return config;
            }()};
  Payload kept;
  int runs = 0;
};

TEST_F(LargeRanges, AreFreedWhileTheRestIsOnItsWay) {
  TestCall call;
  send(call, seal());
  EXPECT_GT(payloads->taken_bytes(), kBytes);
  ASSERT_TRUE(run_until_half_is_free(call));
  EXPECT_EQ(runs, 0);
  ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
  EXPECT_EQ(call.reply, "taken");
  EXPECT_EQ(runs, 1);
}

// Each piece goes back on its own, which takes its time: others' messages do not wait for thousands of them.
TEST_F(LargeRanges, AreFreedSoManyPiecesInOneTurn) {
  constexpr std::uint64_t kPieces = 3 * Core::kMaxReleasedPieces;
  crypto::KeyBytes key;
  pair.entropy.fill(key);
  constexpr std::uint32_t kRecord = 4'096;
  const ByteSpan bytes = as_bytes(text).first(kPieces * kRecord);
  TestCall call;
  buffer::Sealed* const sealed = buffer::seal(*payloads, bytes, key, buffer::thread_key(), kRecord, kRecord);
  ASSERT_EQ(sealed->parts.size(), kPieces);
  pair.call_large(call, "take", sealed, {.bytes = bytes.size()}, {}, std::chrono::seconds(60));
  const std::uint64_t all = payloads->taken_bytes();
  pair.client().cancel(call, pair.now);  // all of them at once
  std::vector<Train> out;
  int turns = 0;
  for (std::uint64_t before = all; before != 0 && turns < 10; ++turns) {
    out.clear();
    pair.client().collect(out, pair.now);
    const std::uint64_t now = payloads->taken_bytes();
    EXPECT_LE(before - now, (Core::kMaxReleasedPieces + 2) * (kRecord + 64)) << turns;
    EXPECT_TRUE(now == 0 || pair.client().has_work());
    before = now;
  }
  EXPECT_EQ(turns, 3);
  ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));  // it is told that it was cancelled
}

TEST_F(LargeRanges, OfRepliesAreFreedToo) {
  TestCall call;
  pair.call(call, "give", "x", {}, std::chrono::seconds(60));
  ASSERT_TRUE(pair.run_until([&] { return payloads->taken_bytes() > kBytes; }));
  ASSERT_TRUE(run_until_half_is_free(call));
  ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
  EXPECT_FALSE(call.failed);
  EXPECT_TRUE(call.reply == text);
}

TEST_F(LargeRanges, AreKeptForWhoHasAHandle) {
  TestCall call;
  send(call, seal_and_keep());
  ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
  EXPECT_EQ(call.reply, "taken");
  EXPECT_GT(payloads->taken_bytes(), kBytes);
  EXPECT_GT(buffers->used_bytes(), kBytes);
}

TEST_F(LargeRanges, ThatAreFreeWhenTheRegionIsTakenBackEndTheCall) {
  TestCall call;
  send(call, seal());
  ASSERT_TRUE(run_until_half_is_free(call));
  ASSERT_EQ(revoke(pair.server()), 1u);
  ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
  EXPECT_TRUE(call.failed);
  EXPECT_EQ(call.code, Code::overloaded);
  EXPECT_FALSE(call.may_have_run);
  EXPECT_TRUE(call.reply.starts_with("the peer took its memory back, and some of the payload is free")) << call.reply;
  EXPECT_EQ(payloads->taken_bytes(), 0u);
  pair.run_for(std::chrono::milliseconds(10));
  EXPECT_EQ(pair.server().census().arrivals, 0u) << "the peer was told";
  EXPECT_EQ(runs, 0);
}

TEST_F(LargeRanges, OfARepliesRegionThatIsTakenBackEndTheCall) {
  TestCall call;
  pair.call(call, "give", "x", {}, std::chrono::seconds(60));
  ASSERT_TRUE(pair.run_until([&] { return payloads->taken_bytes() > kBytes; }));
  ASSERT_TRUE(run_until_half_is_free(call));
  ASSERT_EQ(revoke(pair.client()), 1u);
  ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
  EXPECT_TRUE(call.failed);
  EXPECT_EQ(call.code, Code::reset);
  EXPECT_TRUE(call.may_have_run);
  EXPECT_EQ(payloads->taken_bytes(), 0u);
}

// Nothing arrives for longer than a region may be idle. As long as nobody else wants the memory, what its sender may
// have freed stays.
TEST_F(LargeRanges, ThatWereToldOutliveASilenceUnlessOthersWait) {
  for (const bool others_wait : {false, true}) {
    TestCall call, other;
    send(call, seal());
    if (others_wait) send(other, seal());
    ASSERT_TRUE(pair.run_until([&] { return has_half(call); }));
    Core& server = EngineAccess::core(pair.server());
    ASSERT_EQ(server.grants.waiting(0), others_wait ? 1u : 0u);
    pair.loss = 1;
    pair.run_for(server.regions.options().idle_timeout + std::chrono::milliseconds(500));
    pair.loss = 0;
    ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
    EXPECT_EQ(call.failed, others_wait) << call.reply;
    EXPECT_EQ(pair.server().events().counters.regions_revoked, others_wait ? 1u : 0u);
    if (!others_wait) continue;
    ASSERT_TRUE(pair.run_until([&] { return other.completions != 0; }));
  }
  EXPECT_EQ(runs, 2);
}

// As long as anybody has all of it, it is written again and nobody notices; also if that one lets go right then.
TEST_F(LargeRanges, ThatSomebodyHasAreWrittenAgain) {
  TestCall call;
  send(call, seal_and_keep());
  ASSERT_TRUE(pair.run_until([&] { return has_half(call); }));
  ASSERT_EQ(revoke(pair.server()), 1u);
  ASSERT_TRUE(pair.run_until([&] { return pair.client().events().counters.regions_lost == 1; }));
  kept = Payload();
  EXPECT_GT(payloads->taken_bytes(), kBytes);
  ASSERT_TRUE(run_until_half_is_free(call));
  ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
  EXPECT_EQ(call.reply, "taken");
  EXPECT_EQ(runs, 1);
}

// Of one piece nothing is freed; but what the receiver has said that it has is not sent again, either.
TEST_F(LargeRanges, OfOnePieceAreRememberedToo) {
  pair.mtu = 9'000;
  TestCall call;
  send(call, seal(kBytes));
  ASSERT_TRUE(pair.run_until([&] { return call.completions != 0 || has_half(call); }));
  ASSERT_EQ(call.completions, 0) << "it was never known that half of it is there";
  EXPECT_GT(payloads->taken_bytes(), kBytes);
  ASSERT_EQ(revoke(pair.server()), 1u);
  ASSERT_TRUE(pair.run_until([&] { return pair.client().events().counters.regions_lost == 1; }));
  EXPECT_FALSE(has_half(call)) << "it is all to be written again";
  ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
  EXPECT_EQ(call.reply, "taken");
  EXPECT_EQ(runs, 1);
}

TEST_F(LargeRanges, OfAPayloadForTwoAreFreedWhenBothHaveThem) {
  TestCall one, other;
  buffer::Sealed* const sealed = seal_and_keep();
  send(one, sealed);
  ASSERT_TRUE(pair.run_until([&] { return one.completions != 0; }));
  send(other, buffer::lend(*kept.sealed(), buffer::pieces_of(*kept.sealed(), 0, kBytes)));
  kept = Payload();
  EXPECT_GT(payloads->taken_bytes(), kBytes);
  ASSERT_TRUE(run_until_half_is_free(other));
  ASSERT_TRUE(pair.run_until([&] { return other.completions != 0; }));
  EXPECT_EQ(other.reply, "taken");
}

TEST_F(LargeRanges, AreFreedWhateverBecomesOfTheCall) {
  for (const bool cancel : {false, true}) {
    TestCall call;
    send(call, seal(), std::chrono::milliseconds(cancel ? 60'000 : 20));
    ASSERT_TRUE(run_until_half_is_free(call));
    if (cancel) {
      pair.client().cancel(call, pair.now);
    } else {
      pair.loss = 1;
    }
    ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
    EXPECT_EQ(call.code, cancel ? Code::cancelled : Code::timeout);
    pair.run_until([&] { return payloads->taken_bytes() == 0; }, 100);
    EXPECT_EQ(payloads->taken_bytes(), 0u);
    pair.loss = 0;
  }
}

// What arrived late or twice is asked for again and again by the loss detector; none of it is read once it is free.
TEST_F(LargeRanges, ThatAreFreeAreNotSentAgain) {
  pair.mtu = 9'000;
  for (const double loss : {0.02, 0.1}) {
    pair.loss = loss;
    TestCall call;
    send(call, seal(), std::chrono::hours(1));
    ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }, 2'000'000));
    EXPECT_EQ(call.reply, "taken") << loss;
  }
  pair.loss = 0;
  EXPECT_EQ(runs, 2);
}

}  // namespace
}  // namespace weir::engine
