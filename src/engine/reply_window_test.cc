#include "engine/reply_window.h"

#include <gtest/gtest.h>

#include <vector>

namespace weir::engine {
namespace {

using namespace std::chrono_literals;
using recovery::Bottleneck;
using transfer::OutgoingCall;

struct Window : ReplyWindow {
  explicit Window(Bottleneck::Options options = {}) : ReplyWindow(options) {}

  // As many calls as it lets out now.
  std::size_t ask(std::size_t most, std::uint64_t method = 1) {
    std::size_t asked = 0;
    for (; asked < most && may_ask(now); ++asked) {
      calls.emplace_back();
      calls.back().method = method;
      add(calls.back(), now);
    }
    return asked;
  }
  void answer_all(std::uint32_t bytes) {
    for (const OutgoingCall& call : calls) on_reply(call, bytes);
    calls.clear();
    settle(now);
  }

  Instant now{1'000'000'000};
  std::vector<OutgoingCall> calls;
};

TEST(ReplyWindow, ColdCallersAskForOneInitialWindow) {
  Window window;
  EXPECT_TRUE(window.is_free());
  const std::size_t asked = window.ask(10'000);
  EXPECT_NEAR(static_cast<double>(asked), 64.0 * 1024 / ReplyWindow::kFirstReplyBytes, 1);
  EXPECT_FALSE(window.is_free());
}

TEST(ReplyWindow, LearnsHowLargeTheRepliesOfAMethodAre) {
  Window window;
  window.ask(1, 1);
  window.answer_all(64);
  window.ask(1, 2);
  window.answer_all(16'000);
  EXPECT_EQ(window.model().in_flight(), 0u);
  window.ask(1, 1);
  EXPECT_LE(window.model().in_flight(), 128u);
  window.answer_all(64);
  window.ask(1, 2);
  EXPECT_GE(window.model().in_flight(), 16'000u);
}

TEST(ReplyWindow, CallsThatEndWithoutAReplyLeaveIt) {
  Window window;
  window.ask(10'000);
  for (const OutgoingCall& call : window.calls) window.on_end(call);
  window.settle(window.now);
  EXPECT_EQ(window.model().in_flight(), 0u);
  EXPECT_TRUE(window.is_free());
}

TEST(ReplyWindow, SlowHandlersDelayNobodyForLong) {
  Window window;
  std::size_t asked = 0;
  int waits = 0;
  for (; asked < 10'000 && waits < 100; ++waits) {
    asked += window.ask(10'000 - asked);
    if (asked == 10'000) break;
    ASSERT_GT(window.next_ask(window.now), window.now);
    ASSERT_LE(window.next_ask(window.now) - window.now, ReplyWindow::kLongestWait);
    window.now = window.next_ask(window.now);
    window.forget_old(window.now);
  }
  EXPECT_EQ(asked, 10'000u);
  EXPECT_LE(waits, 12);
  // All of them answer at last.
  window.answer_all(64);
  EXPECT_EQ(window.model().in_flight(), 0u);
}

TEST(ReplyWindow, AskingMoreThanItRemembersLeaksNothing) {
  Window window({.first_stamp = 0xffff'ff80});  // stamps wrap around on the way
  for (int i = 0; i < 3'000; ++i) {
    window.ask(1);
    window.now = window.now + 1ms;
    if (i % 3 == 0) window.forget_old(window.now);
  }
  window.answer_all(100);
  window.now = window.now + 1s;
  window.forget_old(window.now);
  EXPECT_EQ(window.model().in_flight(), 0u);
}

TEST(ReplyWindow, MissingPacketsMakeItSmallerUnlessTheyComeAfterAll) {
  const auto run = [](bool come_after_all) {
    Window window;
    for (int i = 0; i < 50; ++i) {
      window.ask(10'000);
      window.now = window.now + 200us;
      window.on_missing(10);
      if (come_after_all) window.on_missing(-10);
      window.answer_all(4'096);
      window.now = window.now + 1us;
    }
    return window.model().window();
  };
  EXPECT_LT(run(false), 64u * 1024);
  EXPECT_GT(run(true), 64u * 1024);
}

}  // namespace
}  // namespace weir::engine
