// Waiting for many descriptors, with whatever this build waits with.
#include "worker/poller.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <vector>

#include "worker/doorbell.h"

namespace weir::worker {
namespace {

using namespace std::chrono_literals;

// A descriptor that becomes readable when it is told to.
struct Source : Doorbell {
  void make_readable() {
    static_cast<void>(lie_down());
    ring();
  }
};

TEST(Poller, ReportsTheTagsOfThoseThatAreReadable) {
  Poller poller;
  Source quiet, loud;
  poller.add(quiet.descriptor(), &quiet);
  poller.add(loud.descriptor(), &loud);
  EXPECT_EQ(poller.wait(Duration::zero()), 0u);
  loud.make_readable();
  ASSERT_EQ(poller.wait(Duration::max()), 1u);
  EXPECT_EQ(poller.ready(0).tag, &loud);
  EXPECT_FALSE(poller.ready(0).error);
  EXPECT_EQ(poller.wait(Duration::zero()), 1u) << "until it was read";
  loud.clear_descriptor();
  EXPECT_EQ(poller.wait(1ms), 0u);
}

TEST(Poller, ReportsOnlyWhatIsWanted) {
  Poller poller;
  Source source;
  poller.add(source.descriptor(), &source);
  source.make_readable();
  poller.want(source.descriptor(), &source, {.read = false});
  EXPECT_EQ(poller.wait(Duration::zero()), 0u);
  poller.want(source.descriptor(), &source, {.read = true});
  EXPECT_EQ(poller.wait(Duration::zero()), 1u);
  poller.remove(source.descriptor());
  EXPECT_EQ(poller.wait(Duration::zero()), 0u);
}

TEST(Poller, ThoseThatRemainKeepTheirTags) {
  Poller poller;
  Source sources[3];
  for (Source& source : sources) {
    poller.add(source.descriptor(), &source);
    source.make_readable();
  }
  poller.remove(sources[1].descriptor());
  std::set<void*> seen;
  for (std::size_t i = poller.wait(Duration::zero()); i-- > 0;) seen.insert(poller.ready(i).tag);
  EXPECT_EQ(seen, (std::set<void*>{&sources[0], &sources[2]}));
}

// All of them ready all of the time: one wait() cannot report them all, but none is left out for ever.
TEST(Poller, WithMoreThanOneWaitReportsEachHasItsTurn) {
  Poller poller;
  std::vector<std::unique_ptr<Source>> sources;
  for (std::size_t i = 0; i < 2 * Poller::kMaxReady + 10; ++i) {
    sources.push_back(std::make_unique<Source>());
    sources.back()->make_readable();
    poller.add(sources.back()->descriptor(), sources.back().get());
  }
  std::set<void*> seen;
  for (int waits = 0; waits < 4; ++waits) {
    const std::size_t count = poller.wait(Duration::zero());
    EXPECT_EQ(count, Poller::kMaxReady);
    for (std::size_t i = 0; i < count; ++i) seen.insert(poller.ready(i).tag);
  }
  EXPECT_EQ(seen.size(), sources.size());
}

TEST(Doorbell, ManyRingsAreOneAndLeaveNothingToRead) {
  Poller poller;
  Doorbell bell;
  poller.add(bell.descriptor(), nullptr);
  for (int i = 0; i < 100; ++i) {
    static_cast<void>(bell.lie_down());
    bell.ring();  // each writes: nobody got up
  }
  EXPECT_TRUE(bell.answer());
  EXPECT_FALSE(bell.answer());
  bell.clear_descriptor();
  EXPECT_EQ(poller.wait(Duration::zero()), 0u);
}

}  // namespace
}  // namespace weir::worker
