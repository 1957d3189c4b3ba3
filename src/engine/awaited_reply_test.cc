// The memory for a reply that is awaited while other replies take all of theirs (docs/protocol.md, rule G-3).
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <utility>

#include "engine/engine_access.h"
#include "engine/engine_testing.h"

namespace weir::engine {
namespace {

using testing::EngineAccess;
using testing::Pair;
using testing::TestCall;

constexpr std::size_t kBytes = 1u << 20;

// Whose application keeps the reply until it lets go.
struct KeptCall : TestCall {
  buffer::Landing* kept = nullptr;

  KeptCall() {
    complete = [](transfer::OutgoingCall& base, const transfer::Outcome& outcome) {
      auto& call = static_cast<KeptCall&>(base);
      ++call.completions;
      call.failed = outcome.failed;
      if (outcome.landing == nullptr) return;
      detail::pin(outcome.landing);
      call.kept = outcome.landing;
    };
  }
  void let_go() {
    if (kept != nullptr) detail::unpin(std::exchange(kept, nullptr));
  }
};

// All calls are awaited, and there is memory for one reply beside the one for awaited replies.
EngineConfig caller() {
  EngineConfig config = testing::test_config(false, 1111);
  config.limits.message_bytes = kBytes;
  config.limits.large_reply_bytes = config.limits.large_bytes_per_peer = kBytes + kBytes / 2;
  config.is_awaited = [](const transfer::OutgoingCall&) { return true; };
  return config;
}

TEST(AwaitedReply, ThatLostItsMemoryMayHaveThatOfOtherReplies) {
  Pair pair{caller(), testing::test_config(true, 2222)};
  const std::string text(kBytes, 'x');
  pair.serve("give", [&](Engine& engine, transfer::IncomingTransfer& request, Instant now) {
    engine.reply_large(request, pair.seal(text), {.bytes = kBytes}, Pattern::unary, {}, now);
  });
  std::array<KeptCall, 3> calls;
  for (KeptCall& call : calls) pair.call(call, "give", "", {}, std::chrono::seconds(60));
  Core& client = EngineAccess::core(pair.client());
  ASSERT_TRUE(pair.run_until(
      [&] { return client.grants.used(token::kAwaitedPurse) != 0 && client.grants.waiting(token::kReplyPurse) == 1; }));
  // The second reply loses its memory, and the third one has that next, until its application lets go.
  ASSERT_EQ(EngineAccess::revoke_regions(
                pair.client(), pair.now,
                [](const token::Region& region) { return region.landing->purse == token::kAwaitedPurse; }),
            1u);
  ASSERT_TRUE(pair.run_until([&] { return calls[0].completions + calls[2].completions == 2; }));
  ASSERT_NE(client.grants.used(token::kAwaitedPurse), 0u);
  EXPECT_EQ(calls[1].completions, 0);
  calls[0].let_go();
  EXPECT_TRUE(pair.run_until([&] { return calls[1].completions != 0; }));
  for (KeptCall& call : calls) {
    EXPECT_FALSE(call.failed);
    call.let_go();
  }
  pair.run_for(std::chrono::hours(1));
  EXPECT_EQ(pair.client().census().large_bytes, 0u);
}

}  // namespace
}  // namespace weir::engine
