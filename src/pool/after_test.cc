// CallOptions::after: calls that come after others.
#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "pool/large_testing.h"
#include "pool/ties.h"

namespace weir {
namespace {

using namespace std::chrono_literals;
using testing::await;
using testing::client_config;
using testing::kMiB;
using testing::open;
using testing::pattern;
using testing::server_config;
using testing::text_of;

// Writes down what it was asked to do, and does some of it only when it is told to.
struct Recorder {
  explicit Recorder(int threads, const Config& config) : pool(open(config)), is_threadless(threads == 0) {
    EXPECT_TRUE(pool.serve_inline("do", [this](InlineRequest& request) {
      note(std::string(request.header_text()));
      request.reply(request.body().first(std::min<std::size_t>(request.body().size(), 32)));
    }));
    EXPECT_TRUE(pool.serve_inline("hang", [this](InlineRequest& request) {
      std::string what(request.header_text());
      std::lock_guard lock(mutex);  // who sees the note finds the call
      hung.push_back(request.defer());
      seen.push_back(std::move(what));
    }));
    EXPECT_TRUE(pool.serve_inline("fail", [this](InlineRequest& request) {
      note(std::string(request.header_text()));
      request.fail(Code::application, "no");
    }));
  }
  void note(std::string what) {
    std::lock_guard lock(mutex);
    seen.push_back(std::move(what));
  }
  std::vector<std::string> notes() {
    std::lock_guard lock(mutex);
    return seen;
  }
  bool has(const std::string& what) {
    const std::vector<std::string> now = notes();
    return std::find(now.begin(), now.end(), what) != now.end();
  }
  void let_go() {
    std::lock_guard lock(mutex);
    for (Responder& responder : hung) responder.reply("let go");
    hung.clear();
  }

  std::mutex mutex;
  std::vector<std::string> seen;
  std::vector<Responder> hung;
  Pool pool;
  const bool is_threadless;
};

// How many threads the calling pool has: 0, 1 or 2.
struct After : ::testing::TestWithParam<int> {
  // What is waited for may be tracked at most as long as its call.
  ~After() override {
    client = open(client_config(1));  // the old one closes
    EXPECT_EQ(pool::tracked_calls().tracked(), 0u);
    EXPECT_EQ(pool::tracked_calls().waiting(), 0u);
  }
  // Until it is so; a pool without threads is polled meanwhile.
  void until(const std::function<bool()>& condition) {
    if (GetParam() != 0) return await(condition);
    while (!condition()) client.poll();
  }
  // Long enough that what is not held back would have been seen.
  void settle() {
    const auto end = std::chrono::steady_clock::now() + 20ms;
    while (std::chrono::steady_clock::now() < end) {
      if (GetParam() == 0) client.poll();
      std::this_thread::sleep_for(100us);
    }
  }

  Recorder first{1, server_config(1)};
  Recorder second{1, server_config(1)};
  Pool client = open(client_config(GetParam()));
  Peer a = client.peer(first.pool.listen_address());
  Peer b = client.peer(second.pool.listen_address());
};
INSTANTIATE_TEST_SUITE_P(Threads, After, ::testing::Values(0, 1, 2));

TEST_P(After, WaitsForTheReplyOfAnotherPeersCall) {
  Call prepare = a.unary("hang", "x", {.header = "prepare", .tracked = true});
  Call commit = b.unary("do", "y", {.header = "commit", .after = {prepare.responded()}});
  until([&] { return first.has("prepare"); });
  settle();
  EXPECT_FALSE(second.has("commit")) << "the reply is not there";
  first.let_go();
  EXPECT_EQ(text_of(commit.get()), "y");
  EXPECT_EQ(text_of(prepare.get()), "let go");
}

TEST_P(After, GoesOnOnceTheRequestIsWithThePeer) {
  Call prepare = a.unary("hang", "x", {.header = "prepare", .tracked = true});
  Call audit = b.unary("do", "y", {.header = "audit", .after = {prepare.sent()}});
  EXPECT_EQ(text_of(audit.get()), "y") << "whose reply never comes";
  EXPECT_TRUE(first.has("prepare"));
}

TEST_P(After, FailsWithWhatItWaitsForAndNeverRuns) {
  Call prepare = a.unary("fail", "x", {.header = "prepare", .tracked = true});
  Call commit = b.unary("do", "y", {.header = "commit", .tracked = true, .after = {prepare.responded()}});
  Call after_that = b.unary("do", "z", {.header = "after that", .after = {commit.responded()}});
  Call regardless = b.unary("do", "w", {.header = "regardless", .after = {commit.responded().or_failed()}});
  const Result<Reply> got = commit.get();
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code(), Code::dependency_failed);
  EXPECT_FALSE(got.error().may_have_run());
  EXPECT_NE(got.error().message().find("\"do\" at "), std::string::npos) << got.error().message();
  EXPECT_EQ(after_that.get().error().code(), Code::dependency_failed) << "failures cascade";
  EXPECT_EQ(text_of(regardless.get()), "w");
  EXPECT_FALSE(second.has("commit"));
  EXPECT_FALSE(second.has("after that"));
}

TEST_P(After, WaitsForAllOfMany) {
  std::vector<Call> firsts;
  std::vector<Dependency> all;
  for (int i = 0; i < 300; ++i) {
    firsts.push_back((i % 2 == 0 ? a : b).unary(i == 7 ? "hang" : "do", "x", {.header = "one", .tracked = true}));
    all.push_back(i % 3 == 0 ? firsts.back().sent() : firsts.back().responded());
  }
  Call last = a.unary("do", "last", {.header = "last", .after = {all}});
  until([&] { return first.notes().size() + second.notes().size() == 300; });
  settle();
  EXPECT_FALSE(first.has("last"));
  second.let_go();
  EXPECT_EQ(text_of(last.get()), "last");
  for (Call& call : firsts) EXPECT_TRUE(call.get());
}

TEST_P(After, OneThatEndedBeforeIsKnownStill) {
  Call good = a.unary("do", "x", {.tracked = true}), bad = a.unary("fail", "x", {.tracked = true});
  EXPECT_TRUE(good.get());
  EXPECT_FALSE(bad.get());
  EXPECT_TRUE(
      b.unary("do", "y", {.after = {good.responded(), good.sent(), bad.sent(), bad.responded().or_failed()}}).get());
  EXPECT_EQ(b.unary("do", "y", {.after = {bad.responded()}}).get().error().code(), Code::dependency_failed);
}

TEST_P(After, ACallThatIsDroppedHasFailed) {
  Call prepare = a.unary("hang", "x", {.header = "prepare", .tracked = true});
  Call commit = b.unary("do", "y", {.header = "commit", .after = {prepare.responded()}});
  until([&] { return first.has("prepare"); });
  prepare.cancel();
  EXPECT_EQ(commit.get().error().code(), Code::dependency_failed);
}

TEST_P(After, ItsDeadlineRunsWhileItWaitsAndItCanBeDropped) {
  Call prepare = a.unary("hang", "x", {.header = "prepare", .tracked = true});
  Call late = b.unary("do", "y", {.deadline = 20ms, .header = "late", .after = {prepare.responded()}});
  Call dropped = b.unary("do", "y", {.header = "dropped", .after = {prepare.responded()}});
  const Result<Reply> got = late.get();
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code(), Code::timeout);
  EXPECT_NE(got.error().message().find("while it waited for calls that it comes after"), std::string::npos);
  EXPECT_FALSE(got.error().may_have_run());
  dropped.cancel();
  first.let_go();
  EXPECT_TRUE(prepare.get());
  EXPECT_EQ(text_of(b.unary("do", "next", {.header = "next"}).get()), "next");
  EXPECT_EQ(second.notes(), std::vector<std::string>{"next"});
}

TEST_P(After, WhatCannotBeWaitedForIsSaid) {
  Call untracked = a.unary("do", "x");
  const Result<Reply> got = b.unary("do", "y", {.after = {untracked.responded()}}).get();
  EXPECT_EQ(got.error().code(), Code::invalid_argument);
  Call impossible = a.unary("do", "x", {.priority = 99, .tracked = true});
  EXPECT_EQ(b.unary("do", "y", {.after = {impossible.sent()}}).get().error().code(), Code::dependency_failed);
  EXPECT_TRUE(b.unary("do", "y", {.after = {impossible.sent().or_failed()}}).get());
  EXPECT_TRUE(untracked.get());
}

TEST_P(After, BodiesOfEverySizeGoWithTies) {
  for (const std::size_t bytes : {0u, 1u, 47u, 48u, 49u, 63u, 64u, 65u, 200u, 15'000u, 20'000u, 300'000u}) {
    const std::string text = pattern(bytes);
    Call one = a.unary("do", text, {.header = "one", .tracked = true});
    Call two = b.unary("do", text, {.header = "two", .tracked = true, .after = {one.sent()}});
    Call three = a.unary("do", text, {.header = "three", .after = {two.responded(), one.responded()}});
    EXPECT_EQ(text_of(three.get()), text.substr(0, 32)) << bytes;
    EXPECT_EQ(text_of(two.get()), text.substr(0, 32)) << bytes;
    EXPECT_EQ(text_of(one.get()), text.substr(0, 32)) << bytes;
  }
}

// One payload, sealed once, in calls that have nothing in common but it.
TEST_P(After, OnePayloadGoesInCallsWithPrioritiesDeadlinesAndDependenciesOfTheirOwn) {
  Result<Buffer> page = client.allocate(kMiB).get();
  ASSERT_TRUE(page);
  std::fill(page->span().begin(), page->span().end(), std::byte{'p'});
  const Payload payload = client.seal(std::move(*page));
  Call urgent = a.unary("hang", payload, {.priority = 0, .header = "urgent", .tracked = true});
  Call hasty =
      b.unary("do", payload, {.priority = 7, .deadline = 30ms, .header = "hasty", .after = {urgent.responded()}});
  Call patient =
      b.unary("do", payload, {.priority = 5, .header = "patient", .tracked = true, .after = {urgent.responded()}});
  Call eager = a.unary("do", payload, {.header = "eager", .after = {urgent.sent()}});
  EXPECT_EQ(text_of(eager.get()), std::string(32, 'p'));
  EXPECT_TRUE(first.has("urgent")) << "all of it was there first";
  EXPECT_EQ(hasty.get().error().code(), Code::timeout);
  EXPECT_FALSE(second.has("patient"));
  const std::vector<Peer> both{a, b};
  auto everywhere = client.broadcast(both, "do", payload,
                                     {.header = "everywhere", .after = {urgent.responded(), patient.responded()}});
  std::jthread later([&] {
    std::this_thread::sleep_for(5ms);
    first.let_go();
  });
  EXPECT_TRUE(everywhere.get().reached());
  EXPECT_TRUE(urgent.get());
  EXPECT_EQ(text_of(patient.get()), std::string(32, 'p'));
  EXPECT_EQ(second.notes(), (std::vector<std::string>{"patient", "everywhere"}));
}

TEST_P(After, ThoseWhoWaitForTheSameGoInTheOrderInWhichTheyWereMade) {
  Call prepare = a.unary("hang", "x", {.header = "prepare", .tracked = true});
  std::vector<Call> calls;
  std::vector<std::string> names;
  for (int i = 0; i < 50; ++i) {
    names.push_back(std::to_string(i));
    calls.push_back(b.unary("do", "y", {.header = names.back(), .after = {prepare.responded()}}));
  }
  until([&] { return first.has("prepare"); });
  first.let_go();
  for (Call& call : calls) EXPECT_TRUE(call.get());
  EXPECT_EQ(second.notes(), names);
  EXPECT_TRUE(prepare.get());
}

// Those who wait in vain again and again do not add up, and their pool can go while what they waited for goes on.
TEST_P(After, WhatHasEndedIsNotKeptByWhatItWaitedFor) {
  Call prepare = a.unary("hang", "x", {.deadline = 60s, .header = "prepare", .tracked = true});
  until([&] { return first.has("prepare"); });
  struct Watch : Subscriber {
    std::shared_ptr<int> mark = std::make_shared<int>(0);
  };
  std::weak_ptr<int> seen;
  std::jthread([&] {  // a thread remembers pools that it called until it ends
    auto watch = std::make_shared<Watch>();
    seen = watch->mark;
    Config config = client_config(GetParam());
    config.subscriber = std::move(watch);
    const Pool other = open(std::move(config));
    const Peer peer = other.peer(second.pool.listen_address());
    for (int i = 0; i < 3'000; ++i) {
      if (i % 100 != 0) {
        peer.unary("do", "y", {.after = {prepare.responded()}}).cancel();
        continue;
      }
      const Result<Reply> late = peer.unary("do", "y", {.deadline = 1ms, .after = {prepare.responded()}}).get();
      EXPECT_EQ(late.error().code(), Code::timeout);
      // Fails for one of two, on its way or when it is there; the other one goes on.
      Call bad = peer.unary("fail", "x", {.tracked = true});
      Call torn = peer.unary("do", "y", {.after = {bad.responded(), prepare.responded()}});
      EXPECT_EQ(torn.get().error().code(), Code::dependency_failed);
    }
  })
      .join();
  EXPECT_TRUE(seen.expired()) << "the pool is gone, with everything of it";
  EXPECT_LE(pool::tracked_calls().waiting(), 2 * causality::Map::kLongList);
  first.let_go();
  EXPECT_TRUE(prepare.get());
}

TEST_P(After, OneThatIsTriedAgainIsSentWhenItIsAnswered) {
  Call prepare = a.unary("soon", "x", {.header = "prepare", .wait_for_ready = true, .tracked = true});
  Call audit = b.unary("do", "y", {.header = "audit", .after = {prepare.sent()}});
  settle();
  EXPECT_FALSE(second.has("audit")) << "nobody serves the first one yet";
  EXPECT_TRUE(first.pool.serve_inline("soon", [](InlineRequest& request) { request.reply("now"); }));
  EXPECT_EQ(text_of(audit.get()), "y");
  EXPECT_EQ(text_of(prepare.get()), "now");
}

TEST_P(After, ThoseWhoWaitEndWithTheirPool) {
  Call prepare = a.unary("hang", "x", {.header = "prepare", .tracked = true});
  Pool other = open(client_config(GetParam()));
  Call elsewhere = other.peer(second.pool.listen_address())
                       .unary("do", "y", {.header = "elsewhere", .after = {prepare.responded().or_failed()}});
  Call here = b.unary("do", "y", {.header = "here", .after = {prepare.responded()}});
  until([&] { return first.has("prepare"); });
  if (GetParam() == 0) {
    while (other.poll()) {
    }
  }
  EXPECT_FALSE(client.close(1ms));
  EXPECT_EQ(prepare.get().error().code(), Code::closed);
  const Result<Reply> ended = here.get();
  ASSERT_FALSE(ended);
  EXPECT_TRUE(ended.error().code() == Code::closed || ended.error().code() == Code::dependency_failed);
  EXPECT_EQ(text_of(elsewhere.get()), "y") << "of another pool: what it waited for has ended";
  EXPECT_FALSE(second.has("here"));
}

TEST_P(After, CoroutinesAndContinuationsNameOthersToo) {
  std::atomic<int> done{0};
  const auto work = [&]() -> Task<void> {
    Call prepare = a.unary("do", "1", {.tracked = true});
    const Result<Reply> commit = co_await b.unary("do", "2", {.after = {prepare.responded()}});
    EXPECT_EQ(text_of(commit), "2");
    EXPECT_EQ(text_of(co_await prepare), "1");
    EXPECT_TRUE(co_await b.unary("do", "3", {.after = {prepare.sent()}}));
    ++done;
  };
  for (int i = 0; i < 50; ++i) client.run(work());
  EXPECT_EQ(done, 50);
  Call prepare = a.unary("do", "1", {.tracked = true});
  const Dependency prepared = prepare.responded();
  prepare.then([&](Result<Reply>&&) { ++done; });
  b.unary("do", "2", {.after = {prepared}}).then([&](Result<Reply>&& got) { done += got ? 1 : 100; });
  until([&] { return done >= 52; });
  EXPECT_EQ(done, 52);
}

// Threads that make calls after each other's, on two workers: every chain runs in its order.
TEST(AfterThreads, ChainsRunInTheirOrderWhoeverMakesThem) {
  Recorder server(2, server_config(1)), another(2, server_config(1));
  {
    Pool client = open(client_config(2));
    std::vector<std::jthread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&, t] {
        const Peer peers[2] = {client.peer(server.pool.listen_address()), client.peer(another.pool.listen_address())};
        for (int chain = 0; chain < 40; ++chain) {
          std::vector<Call> calls;
          std::vector<std::string> names;
          for (int i = 0; i < 10; ++i) {
            names.push_back(std::to_string(t) + "." + std::to_string(chain) + "." + std::to_string(i));
            ::weir::After after;
            if (i != 0) after = {calls.back().responded()};
            calls.push_back(
                peers[(i + t) % 2].unary("do", "x", {.header = names.back(), .tracked = true, .after = after}));
          }
          EXPECT_TRUE(calls.back().get());
          for (int i = 0; i + 1 < 10; ++i) EXPECT_TRUE(calls[static_cast<std::size_t>(i)].get());
        }
      });
    }
    threads.clear();
  }
  for (Recorder* recorder : {&server, &another}) {
    std::map<std::string, int> last;
    for (const std::string& note : recorder->notes()) {
      const std::size_t dot = note.rfind('.');
      const int number = std::stoi(note.substr(dot + 1));
      const auto [at, fresh] = last.try_emplace(note.substr(0, dot), number);
      EXPECT_TRUE(fresh || at->second < number) << note;
      at->second = number;
    }
    EXPECT_EQ(last.size(), 120u);
  }
  EXPECT_EQ(pool::tracked_calls().tracked(), 0u);
}

}  // namespace
}  // namespace weir
