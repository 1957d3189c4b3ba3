// Gathering: what a broadcast does with results that come after it is decided.
#include "pool/gathering.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

namespace weir::pool {
namespace {

struct Reported {
  std::vector<std::size_t> peers;
  StragglerReport report() {
    return {.function = [](void* context, std::size_t peer,
                           const Result<Reply>&) { static_cast<Reported*>(context)->peers.push_back(peer); },
            .context = this};
  }
};

// Three peers and a quorum of one. Two replies come when the outcome has been taken, before the rest is cancelled.
std::vector<std::size_t> reported_with(Stragglers stragglers) {
  Reported reported;
  auto* const gathering = new Gathering(3, 1, reported.report());
  const auto reply = [&](std::size_t peer) { Gathering::Arrive{gathering, peer}(Reply{"reply"}); };
  reply(0);
  EXPECT_TRUE(gathering->is_raised());
  const BroadcastOutcome::Results results = gathering->take(stragglers);
  EXPECT_TRUE(results[0]);
  EXPECT_FALSE(results[1]);
  reply(1);
  reply(2);
  if (stragglers == Stragglers::cancel) gathering->cancel_rest();
  gathering->release();
  return reported.peers;
}

TEST(Gathering, AReplyBetweenTheOutcomeAndTheCancellationIsNotReported) {
  EXPECT_EQ(reported_with(Stragglers::cancel), std::vector<std::size_t>{});
}

TEST(Gathering, StragglersThatFinishAreReported) {
  EXPECT_EQ(reported_with(Stragglers::finish), (std::vector<std::size_t>{1, 2}));
}

}  // namespace
}  // namespace weir::pool
