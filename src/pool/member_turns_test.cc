// Whose request runs next, in virtual time: threads that run handlers of known lengths.
#include "pool/member_turns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "engine/members.h"
#include "pool/places.h"

namespace weir::pool {
namespace {

constexpr std::int64_t kMicrosecond = 1'000, kMillisecond = 1'000'000, kSecond = 1'000'000'000;
constexpr std::int64_t kForEver = 1'000'000 * kSecond;

std::uint64_t certified(std::uint64_t number) { return engine::member_of_certificate(number); }

// A member that always has requests waiting.
struct Load {
  std::uint64_t member = 0;
  std::uint8_t priority = 0;
  std::int64_t handler_ns = 0;
  int waiting = 4;
};

class Threads {
 public:
  Threads(std::size_t count, std::vector<Load> loads, MemberTurns::Options options)
      : turns_(options), loads_(std::move(loads)), running_(count) {
    for (const Load& load : loads_) {
      for (int i = 0; i < load.waiting; ++i) push(load);
    }
  }
  Threads(std::size_t count, std::vector<Load> loads)
      : Threads(count, std::move(loads),
                {.places = 1'000, .most_running = static_cast<std::uint32_t>((count + 1) / 2)}) {}

  void run_until(std::int64_t end) {
    for (;;) {
      for (Running& each : running_) {
        if (each.load == nullptr) begin(each);
      }
      Running* first = nullptr;
      for (Running& each : running_) {
        if (each.load != nullptr && (first == nullptr || each.ends < first->ends)) first = &each;
      }
      if (first == nullptr || first->ends > end) break;
      now_ = first->ends;
      used[first->load->member] += first->load->handler_ns;
      turns_.end(first->turn, first->load->handler_ns);
      push(*std::exchange(first->load, nullptr));
    }
    now_ = end;
  }
  int running(std::uint64_t member) const {
    return static_cast<int>(
        std::ranges::count_if(running_, [&](const Running& each) { return each.load && each.load->member == member; }));
  }

  std::map<std::uint64_t, std::int64_t> used;  // by handlers that have returned

 private:
  struct Running {
    const Load* load = nullptr;
    std::int64_t ends = 0;
    MemberTurns::Turn turn;
  };

  void push(const Load& load) {
    if (free_.empty()) free_.push_back(records_.emplace_back(std::make_unique<IncomingRecord>()).get());
    IncomingRecord* const record = free_.back();
    free_.pop_back();
    record->priority = load.priority;
    record->depth = static_cast<std::uint8_t>(&load - loads_.data());
    ASSERT_TRUE(turns_.push(*record, load.member, 1));
  }
  void begin(Running& thread) {
    MemberTurns::Freed freed;
    IncomingRecord* const record = turns_.pop(thread.turn, freed);
    if (record == nullptr) return;
    thread.load = &loads_[record->depth];
    free_.push_back(record);
    thread.ends = now_ + thread.load->handler_ns;
  }

  MemberTurns turns_;
  const std::vector<Load> loads_;
  std::vector<Running> running_;
  std::vector<std::unique_ptr<IncomingRecord>> records_;
  std::vector<IncomingRecord*> free_;
  std::int64_t now_ = 0;
};

// ---- shares --------------------------------------------------------------------------------------------------------

// Honest members name the least urgent priority, the hostile one the most urgent; its handlers take as long as it
// likes.
void expect_shares(std::size_t threads, std::uint64_t honest, std::int64_t hostile_ns, std::int64_t honest_ns,
                   bool has_certificates) {
  SCOPED_TRACE(std::to_string(threads) + " threads, " + std::to_string(honest) + " honest members, " +
               std::to_string(hostile_ns) + " and " + std::to_string(honest_ns) + " ns, " +
               (has_certificates ? "certificates" : "paths"));
  const auto member = [&](std::uint64_t number) { return has_certificates ? certified(number) : number; };
  std::vector<Load> loads{{.member = member(1), .priority = 0, .handler_ns = hostile_ns, .waiting = 200}};
  for (std::uint64_t i = 0; i < honest; ++i) {
    loads.push_back({.member = member(2 + i), .priority = 7, .handler_ns = honest_ns, .waiting = 8});
  }
  Threads sim(threads, loads);
  sim.run_until(kSecond / 10);  // until times are known
  for (int second = 0; second < 3; ++second) {
    sim.used.clear();
    sim.run_until(kSecond / 10 + (second + 1) * kSecond);
    const auto all = static_cast<std::int64_t>(threads) * kSecond;
    for (std::uint64_t i = 0; i < honest; ++i) {
      // A handler that runs when the second begins or ends counts where it ends.
      const std::int64_t slack = 2 * static_cast<std::int64_t>(threads) * std::max(hostile_ns, honest_ns);
      EXPECT_GE(sim.used[member(2 + i)] + slack, all / static_cast<std::int64_t>(2 * (honest + 1)));
    }
  }
}

TEST(MemberTurns, EachHonestMemberGetsItsShareOfEverySecond) {
  for (const bool has_certificates : {true, false}) {
    for (const std::size_t threads : {1u, 2u, 4u}) {
      for (const std::uint64_t honest : {1u, 2u, 7u}) {
        for (const std::int64_t hostile_ns : {20 * kMicrosecond, kMillisecond, 10 * kMillisecond}) {
          expect_shares(threads, honest, hostile_ns, 100 * kMicrosecond, has_certificates);
        }
      }
    }
  }
}

TEST(MemberTurns, ManyMembersShareFewThreads) { expect_shares(2, 100, kMillisecond, 200 * kMicrosecond, true); }

// Whoever comes is served before those who have been served all the time, whatever these have waiting.
TEST(MemberTurns, ANewcomerIsServedNextOrAfterThat) {
  MemberTurns turns({.places = 1'000, .most_running = 1});
  std::vector<IncomingRecord> records(1'000);
  for (std::size_t i = 0; i < 900; ++i) ASSERT_TRUE(turns.push(records[i], 1 + i % 3, 1));
  MemberTurns::Turn turn;
  MemberTurns::Freed freed;
  for (int i = 0; i < 50; ++i) {
    ASSERT_NE(turns.pop(turn, freed), nullptr);
    turns.end(turn, kMillisecond);
  }
  for (std::size_t i = 0; i < 20; ++i) {
    IncomingRecord& record = records[900 + i];
    record.priority = 7;
    ASSERT_TRUE(turns.push(record, 100 + i, 1));
    int taken = 1;
    while (turns.pop(turn, freed) != &record) {
      turns.end(turn, kMillisecond);
      ASSERT_LE(++taken, 2);
    }
    turns.end(turn, kMillisecond);
  }
}

TEST(MemberTurns, WhoWasAbsentHasSavedUpNothing) {
  MemberTurns turns({.places = 10, .most_running = 1});
  std::vector<IncomingRecord> records(20'000);
  std::size_t next = 0;
  MemberTurns::Turn turn;
  MemberTurns::Freed freed;
  std::map<std::uint64_t, int> served;
  std::map<const IncomingRecord*, std::uint64_t> member_of;
  const auto serve = [&](int handlers, const std::vector<std::uint64_t>& members) {
    for (int i = 0; i < handlers; ++i) {
      for (const std::uint64_t member : members) {
        records[next].priority = member == 3 ? 0 : 7;
        if (!turns.push(records[next], member, 0)) continue;
        member_of[&records[next++]] = member;
      }
      ++served[member_of[turns.pop(turn, freed)]];
      turns.end(turn, kMillisecond);
    }
  };
  serve(5'000, {1, 2});
  served.clear();
  serve(1'000, {1, 2, 3});
  EXPECT_GE(served[1], 1'000 / 6 - 10);
  EXPECT_GE(served[2], 1'000 / 6 - 10);
}

// ---- places of handlers --------------------------------------------------------------------------------------------

TEST(MemberTurns, HandlersThatBlockKeepHalfOfTheThreadsOfOneCertificate) {
  for (const std::size_t threads : {2u, 3u, 4u, 8u}) {
    Threads sim(threads, {{.member = certified(1), .priority = 0, .handler_ns = kForEver, .waiting = 100},
                          {.member = certified(2), .priority = 7, .handler_ns = kMillisecond, .waiting = 100}});
    sim.run_until(kSecond);
    EXPECT_EQ(sim.running(certified(1)), static_cast<int>((threads + 1) / 2));
    EXPECT_GE(sim.used[certified(2)], static_cast<std::int64_t>(threads / 2) * kSecond);
  }
}

TEST(MemberTurns, ALoneMemberMayUseHalfOfTheThreadsAndALonePathAll) {
  Threads certificate(4, {{.member = certified(1), .handler_ns = kMillisecond, .waiting = 100}});
  certificate.run_until(kSecond);
  EXPECT_EQ(certificate.used[certified(1)], 2 * kSecond);
  Threads path(4, {{.member = 1, .handler_ns = kMillisecond, .waiting = 100}});
  path.run_until(kSecond);
  EXPECT_EQ(path.used[1], 4 * kSecond);
}

TEST(MemberTurns, ALongHandlerIsNoReasonToWaitForHours) {
  MemberTurns turns({.places = 100, .most_running = 1});
  std::vector<IncomingRecord> records(20'000);
  std::size_t next = 0;
  ASSERT_TRUE(turns.push(records[next++], 1, 1));
  ASSERT_TRUE(turns.push(records[next++], 2, 1));
  MemberTurns::Turn turn;
  MemberTurns::Freed freed;
  ASSERT_NE(turns.pop(turn, freed), nullptr);
  turns.end(turn, kForEver);
  // From here on both want all they can get, and only one of them is urgent.
  std::int64_t without = 0;
  std::map<const MemberTurns::Member*, int> served;
  for (int i = 0; i < 5'000; ++i) {
    for (const std::uint64_t member : {1, 2}) {
      records[next].priority = member == 1 ? 7 : 0;
      if (turns.push(records[next], member, 0)) ++next;
    }
    ASSERT_NE(turns.pop(turn, freed), nullptr);
    ++served[turn.member];
    turns.end(turn, kMillisecond);
  }
  for (const auto& [member, count] : served) without += count < 600 ? 1 : 0;
  EXPECT_EQ(served.size(), 2u);
  EXPECT_EQ(without, 0) << "after two of five seconds both have their share";
}

// ---- places in the queue -------------------------------------------------------------------------------------------

TEST(MemberTurns, EachMemberHasPlacesOfItsOwnAtEachPriority) {
  MemberTurns turns({.places = 2, .most_running = 1});
  std::vector<IncomingRecord> records(10);
  records[3].priority = 5;
  EXPECT_TRUE(turns.push(records[0], 1, 1));
  EXPECT_TRUE(turns.push(records[1], 1, 1));
  EXPECT_FALSE(turns.push(records[2], 1, 1));
  EXPECT_FALSE(turns.push(records[2], 1, 4));
  EXPECT_TRUE(turns.push(records[3], 1, 1));
  EXPECT_TRUE(turns.push(records[4], 2, 1));
  MemberTurns::Turn turn;
  MemberTurns::Freed freed;
  std::set<std::uint64_t> told;
  while (turns.pop(turn, freed) != nullptr) {
    turns.end(turn, kMillisecond);
    if (freed.gates != 0) {
      EXPECT_EQ(freed.member, 1u);
      EXPECT_EQ(freed.gates, 5u);
      EXPECT_TRUE(told.insert(freed.member).second) << "once";
      freed = {};
    }
  }
  EXPECT_EQ(told.size(), 1u);
  EXPECT_TRUE(turns.push(records[5], 1, 1));
}

// ---- priorities ----------------------------------------------------------------------------------------------------

TEST(MemberTurns, OneMembersRequestsRunByPriority) {
  MemberTurns turns({.places = 100, .most_running = 1});
  std::vector<IncomingRecord> records(5);
  const std::vector<std::uint8_t> priorities{7, 7, 5, 0, 1};
  for (std::size_t i = 0; i < 5; ++i) {
    records[i].priority = priorities[i];
    ASSERT_TRUE(turns.push(records[i], 1, 1));
  }
  std::vector<int> order;
  MemberTurns::Turn turn;
  MemberTurns::Freed freed;
  while (const IncomingRecord* record = turns.pop(turn, freed)) {
    order.push_back(record->priority);
    turns.end(turn, -1);
  }
  EXPECT_EQ(order, (std::vector<int>{0, 1, 5, 7, 7}));
}

// Half of the time goes by priority. What is less urgent by two levels would get a fifth of the whole by weight, and
// has a quarter by member: the rest goes to the urgent.
TEST(MemberTurns, MembersWithUrgentRequestsGetMoreTime) {
  std::vector<Load> loads;
  for (const std::uint64_t member : {1, 2}) {
    loads.push_back({.member = member, .priority = 2, .handler_ns = kMillisecond, .waiting = 20});
    loads.push_back({.member = member + 10, .priority = 4, .handler_ns = kMillisecond, .waiting = 20});
  }
  Threads sim(1, loads);
  sim.run_until(10 * kSecond);
  for (const std::uint64_t member : {1, 2}) {
    EXPECT_NEAR(static_cast<double>(sim.used[member]), 10e9 * 0.375, 1e8);
    EXPECT_NEAR(static_cast<double>(sim.used[member + 10]), 10e9 * 0.125, 1e8);
  }
}

// Turns by member take the least urgent level far ahead of its weight. A level that was empty does not wait for it.
TEST(MemberTurns, ALevelThatComesBackDoesNotWaitForOneThatIsAhead) {
  MemberTurns turns({.places = 10'000, .most_running = 1});
  std::vector<IncomingRecord> urgent(6'000), bulk(6'000);
  for (IncomingRecord& record : urgent) {
    record.priority = 0;
    ASSERT_TRUE(turns.push(record, 1, 1));
  }
  for (IncomingRecord& record : bulk) {
    record.priority = 7;
    ASSERT_TRUE(turns.push(record, 2, 1));
  }
  MemberTurns::Turn turn;
  MemberTurns::Freed freed;
  for (int i = 0; i < 2'000; ++i) {
    ASSERT_NE(turns.pop(turn, freed), nullptr);
    turns.end(turn, kMicrosecond);
  }
  IncomingRecord late;
  late.priority = 1;
  ASSERT_TRUE(turns.push(late, 1, 1));
  int waited = 0;
  while (turns.pop(turn, freed) != &late) {
    turns.end(turn, kMicrosecond);
    ASSERT_LT(++waited, 16);
  }
  turns.end(turn, kMicrosecond);
}

// ---- bookkeeping ---------------------------------------------------------------------------------------------------

TEST(MemberTurns, RandomUseLosesNothing) {
  std::mt19937_64 random(11);
  MemberTurns turns({.places = 3, .most_running = 2});
  std::vector<IncomingRecord> records(3'000);
  std::vector<IncomingRecord*> free;
  for (IncomingRecord& record : records) free.push_back(&record);
  std::set<IncomingRecord*> queued;
  std::map<std::uint64_t, int> running;
  std::vector<std::pair<MemberTurns::Turn, std::uint64_t>> turns_taken;
  std::map<IncomingRecord*, std::uint64_t> member_of;
  for (int step = 0; step < 200'000; ++step) {
    const std::uint64_t what = random() % 8;
    if (what < 4 && !free.empty()) {
      IncomingRecord* const record = free.back();
      const std::uint64_t few = random() % 2'000;
      const std::uint64_t member = random() % 2 == 0 ? certified(few % 20) : few;
      record->priority = static_cast<std::uint8_t>(random() % 8);
      if (!turns.push(*record, member, 1)) continue;
      free.pop_back();
      member_of[record] = member;
      queued.insert(record);
    } else if (what < 6 && turns_taken.size() < 50) {
      MemberTurns::Turn turn;
      MemberTurns::Freed freed;
      const std::size_t ready = turns.ready();
      IncomingRecord* const record = turns.pop(turn, freed);
      ASSERT_EQ(record != nullptr, ready != 0);
      if (record == nullptr) continue;
      ASSERT_EQ(queued.erase(record), 1u);
      free.push_back(record);
      const std::uint64_t member = member_of[record];
      ++running[member];
      ASSERT_TRUE((member & engine::kCertificateBit) == 0 || running[member] <= 2);
      turns_taken.emplace_back(turn, member);
    } else if (!turns_taken.empty()) {
      const std::size_t which = random() % turns_taken.size();
      turns.end(turns_taken[which].first, static_cast<std::int64_t>(random() % 10'000'000) - 1);
      --running[turns_taken[which].second];
      turns_taken[which] = turns_taken.back();
      turns_taken.pop_back();
    }
  }
  while (IncomingRecord* const record = turns.take_any()) ASSERT_EQ(queued.erase(record), 1u);
  EXPECT_TRUE(queued.empty());
  EXPECT_EQ(turns.ready(), 0u);
}

// With more than 64 workers, gates share bits. One whose worker stands still is told of the same member again and
// again.
TEST(Places, HoldEachMemberOnce) {
  Places places;
  for (int i = 0; i < 1'000; ++i) {
    places.free(7);
    places.free(9);
  }
  std::vector<std::uint64_t> members;
  places.take_freed(members);
  EXPECT_EQ(members, (std::vector<std::uint64_t>{7, 9}));
  EXPECT_TRUE(places.were_freed());
  EXPECT_FALSE(places.were_freed());
}

}  // namespace
}  // namespace weir::pool
