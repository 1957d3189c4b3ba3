// The life of a region (docs/protocol.md, rules G-4, G-6, G-9 and G-11).
#include "token/region_table.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "token/region_testing.h"

namespace weir::token {
namespace {

using namespace std::chrono_literals;
using Refusal = WriteRefusal;

constexpr std::uint64_t kOurs = 7;
constexpr std::uint64_t kTheirs = 8;

class Regions : public ::testing::Test {
 protected:
  Region* grant(TestLanding& landing, Fence::Kind fence = Fence::Kind::immediate) {
    return table.grant({.landing = &landing, .path = 1, .path_serial = kOurs, .regions = &regions, .fence = {fence}},
                       now);
  }
  Refusal write(std::uint64_t region, std::uint64_t offset, std::uint64_t length, std::uint64_t serial = kOurs) {
    const auto verdict =
        table.check_write({.region = region, .path_serial = serial, .offset = offset, .length = length});
    EXPECT_EQ(verdict.region == nullptr, verdict.refusal != Refusal::none);
    return verdict.refusal;
  }
  std::uint64_t refused(Refusal refusal) const { return table.counters().refused[static_cast<std::size_t>(refusal)]; }
  bool bind(Region& region, std::uint64_t bytes) {
    return table.bind(region, {.side = wire::Side::request, .transfer = 99, .bytes = bytes}, now);
  }

  TestLanding one{1'000}, two{1'000}, three{1'000};
  PathRegions regions;
  RegionTable table{{.max_regions = 4, .idle_timeout = 10ms, .lifetime = 100ms, .last_generation = 3}};
  Instant now{1'000'000};
};

TEST_F(Regions, AGrantedRegionIsFoundAndWritten) {
  Region* const region = grant(one);
  ASSERT_NE(region, nullptr);
  EXPECT_NE(region->id, wire::kNoRegion);
  EXPECT_EQ(table.find(region->id), region);
  EXPECT_EQ(write(region->id, 0, 1'000), Refusal::none);
  EXPECT_EQ(write(region->id, 999, 1), Refusal::none);
  EXPECT_EQ(regions.count, 1u);
}

TEST_F(Regions, AWriteOutsideItsBytesIsRefused) {
  const std::uint64_t id = grant(one)->id;
  EXPECT_EQ(write(id, 1'000, 1), Refusal::outside);
  EXPECT_EQ(write(id, 0, 1'001), Refusal::outside);
  EXPECT_EQ(write(id, ~std::uint64_t{0}, 2), Refusal::outside) << "the sum wraps around";
  EXPECT_EQ(write(id, 2, ~std::uint64_t{0}), Refusal::outside);
  EXPECT_EQ(write(id, 5, 0), Refusal::outside) << "nothing is no slice";
  EXPECT_EQ(refused(Refusal::outside), 5u);
}

TEST_F(Regions, ABoundRegionIsWrittenNoFurtherThanItsMessage) {
  Region* const region = grant(one);
  ASSERT_TRUE(bind(*region, 600));
  EXPECT_EQ(write(region->id, 0, 600), Refusal::none);
  EXPECT_EQ(write(region->id, 0, 601), Refusal::outside);
}

TEST_F(Regions, AWriteByAnotherPathIsRefused) {
  const std::uint64_t id = grant(one)->id;
  EXPECT_EQ(write(id, 0, 1, kTheirs), Refusal::foreign);
  EXPECT_EQ(refused(Refusal::foreign), 1u);
}

TEST_F(Regions, NamesThatWereNeverGrantedAreUnknown) {
  const RegionId id = RegionId::unpack(grant(one)->id);
  EXPECT_EQ(write(0, 0, 1), Refusal::unknown);
  EXPECT_EQ(write(~std::uint64_t{0}, 0, 1), Refusal::unknown);
  EXPECT_EQ(write(RegionId{id.slot, id.generation + 1}.packed(), 0, 1), Refusal::unknown);
  EXPECT_EQ(write(RegionId{id.slot + 1, 1}.packed(), 0, 1), Refusal::unknown);
  EXPECT_EQ(write(RegionId{id.slot, 0}.packed(), 0, 1), Refusal::unknown);
  EXPECT_EQ(refused(Refusal::unknown), 5u);
  EXPECT_EQ(table.find(0), nullptr);
  EXPECT_EQ(table.find(~std::uint64_t{0}), nullptr);
}

TEST_F(Regions, AWriteAfterRevocationIsRefusedAlsoWhenTheSlotIsGrantedAgain) {
  Region* const region = grant(one);
  const std::uint64_t id = region->id;
  table.revoke(*region, now);
  EXPECT_TRUE(one.came_back);
  EXPECT_EQ(write(id, 0, 1), Refusal::revoked);
  Region* const again = grant(two);
  ASSERT_EQ(again, region);
  EXPECT_NE(again->id, id);
  EXPECT_EQ(write(id, 0, 1), Refusal::revoked);
  EXPECT_EQ(write(again->id, 0, 1), Refusal::none);
  EXPECT_EQ(refused(Refusal::revoked), 2u);
}

TEST_F(Regions, AnotherGrantOfASlotRemembersNothingOfTheFirst) {
  Region* region = grant(one);
  ASSERT_TRUE(bind(*region, 600));
  ASSERT_TRUE(table.cover(*region, {100, 600}, now));
  region->renewed_bytes = region->moved_bytes = 500;
  table.revoke(*region, now);
  region = grant(two);
  EXPECT_FALSE(region->is_bound());
  EXPECT_EQ(region->renewed_bytes, 0u);
  EXPECT_EQ(region->moved_bytes, 0u);
  EXPECT_EQ(region->coverage.bytes(), 0u);
  ASSERT_TRUE(bind(*region, 600));
  EXPECT_FALSE(region->is_covered());
}

TEST_F(Regions, WhatAPeerMustAcknowledgeStaysInQuarantineUntilItDoes) {
  Region* const region = grant(one, Fence::Kind::peer_acknowledged);
  const std::uint64_t id = region->id;
  table.revoke(*region, now);
  EXPECT_EQ(region->state, RegionState::quarantined);
  EXPECT_FALSE(one.came_back);
  EXPECT_EQ(table.find(id), nullptr);
  EXPECT_EQ(write(id, 0, 1), Refusal::revoked);
  EXPECT_NE(grant(two), region) << "its slot is not granted before the fence";
  EXPECT_FALSE(table.on_fenced({.region = id, .path_serial = kTheirs})) << "another path's word is worth nothing";
  EXPECT_FALSE(table.on_fenced({.region = id + 1, .path_serial = kOurs}));
  EXPECT_FALSE(one.came_back);
  EXPECT_TRUE(table.on_fenced({.region = id, .path_serial = kOurs}));
  EXPECT_TRUE(one.came_back);
  EXPECT_FALSE(table.on_fenced({.region = id, .path_serial = kOurs})) << "once";
  EXPECT_EQ(grant(three), region);
}

TEST_F(Regions, AnAcknowledgementOfAGrantedRegionChangesNothing) {
  Region* const region = grant(one, Fence::Kind::peer_acknowledged);
  EXPECT_FALSE(table.on_fenced({.region = region->id, .path_serial = kOurs}));
  EXPECT_EQ(table.find(region->id), region);
}

TEST_F(Regions, ALeakedSlotIsNeverGrantedAgainAndItsMemoryNeverComesBack) {
  TestLanding rest[4];
  {
    RegionTable small({.max_regions = 2});
    Region* const leaked = small.grant({.landing = &rest[0], .fence = {Fence::Kind::none}}, now);
    const std::uint64_t id = leaked->id;
    small.revoke(*leaked, now);
    EXPECT_EQ(leaked->state, RegionState::leaked);
    EXPECT_EQ(small.counters().leaked, 1u);
    EXPECT_FALSE(small.on_fenced({.region = id}));
    Region* const other = small.grant({.landing = &rest[1]}, now);
    ASSERT_NE(other, nullptr);
    EXPECT_NE(other, leaked);
    EXPECT_EQ(small.grant({.landing = &rest[2]}, now), nullptr);
    EXPECT_TRUE(small.is_full());
    EXPECT_EQ(rest[2].references.load(), 1u) << "what was not granted is still the caller's";
  }
  EXPECT_FALSE(rest[0].came_back);
  EXPECT_TRUE(rest[1].came_back) << "a table that goes lets go of what is not leaked";
}

TEST_F(Regions, ASlotAtTheEndOfItsGenerationsIsNotUsedAgain) {
  std::set<std::uint64_t> ids;
  std::vector<TestLanding> landings(20);
  std::size_t granted = 0;
  while (granted < landings.size()) {
    Region* const region = grant(landings[granted]);
    if (region == nullptr) break;
    EXPECT_TRUE(ids.insert(region->id).second) << "a name was used twice";
    ++granted;
    table.revoke(*region, now);
  }
  EXPECT_EQ(granted, 4u * 3u) << "four slots, three generations";
  EXPECT_EQ(table.counters().out_of_generations, 4u);
  EXPECT_EQ(table.counters().leaked, 0u);
  for (std::size_t i = 0; i < granted; ++i) EXPECT_TRUE(landings[i].came_back) << "the memory is none the worse";
}

TEST_F(Regions, ACompleteRegionHandsItsMemoryOver) {
  Region* const region = grant(one);
  const std::uint64_t id = region->id;
  ASSERT_TRUE(bind(*region, 100));
  ASSERT_TRUE(table.cover(*region, {50, 100}, now));
  EXPECT_FALSE(region->is_covered());
  ASSERT_TRUE(table.cover(*region, {0, 50}, now));
  EXPECT_TRUE(region->is_covered());
  table.complete(*region);
  EXPECT_EQ(table.find(id), nullptr);
  EXPECT_EQ(write(id, 0, 1), Refusal::revoked) << "nobody writes into what is being read";
  EXPECT_TRUE(table.next_deadline().is_never());
  EXPECT_EQ(table.take_landing(*region), &one);
  EXPECT_FALSE(one.came_back);
  EXPECT_EQ(regions.count, 0u);
  EXPECT_EQ(table.live(), 0u);
  EXPECT_EQ(grant(two), region);
}

TEST_F(Regions, ARegionIsBoundToOneTransferAndOnlyIfTheMessageFits) {
  Region* const region = grant(one);
  EXPECT_FALSE(bind(*region, 1'001));
  EXPECT_FALSE(region->is_bound());
  EXPECT_TRUE(bind(*region, 1'000));
  EXPECT_FALSE(bind(*region, 10));
  EXPECT_EQ(region->bytes, 1'000u);
}

// The data of a token may overtake the message that names it.
TEST_F(Regions, WhoSendsIsToldOfEachEighthButNeverOfLessThanAMegabyte) {
  constexpr std::uint64_t kMega = 1u << 20;
  EXPECT_EQ(range_step(1), kMega);
  EXPECT_EQ(range_step(8 * kMega), kMega);
  EXPECT_EQ(range_step(80 * kMega), 10 * kMega);
  for (const std::uint64_t bytes : {std::uint64_t{1'000}, kMega, kMega + 1, 80 * kMega}) {
    TestLanding landing{bytes};
    Region* const region = grant(landing);
    EXPECT_EQ(region->range_due, kNeverTold) << "it is nobody's yet";
    ASSERT_TRUE(bind(*region, bytes));
    EXPECT_EQ(region->range_due, bytes <= kMega ? kNeverTold : range_step(bytes));
    EXPECT_FALSE(region->is_told());
    table.revoke(*region, now);
  }
}

TEST_F(Regions, WhatWasWrittenBeforeTheBindingCounts) {
  Region* const region = grant(one);
  ASSERT_TRUE(table.cover(*region, {0, 500}, now));
  EXPECT_FALSE(region->is_covered()) << "nobody knows how long its message is";
  ASSERT_TRUE(bind(*region, 400));
  EXPECT_TRUE(region->is_covered());
}

TEST_F(Regions, AHoleTooManyIsRefused) {
  Region* const region = grant(one);
  bool refused_one = false;
  for (std::uint64_t at = 1; at < 1'000 && !refused_one; at += 2) {
    refused_one = !table.cover(*region, {at, at + 1}, now);
  }
  EXPECT_TRUE(refused_one);
}

TEST_F(Regions, ATokenThatNobodyUsesExpiresAndIsNotIdle) {
  grant(one);
  EXPECT_EQ(table.next_deadline(), now + 100ms);
  int visits = 0;
  table.expire(now + 99ms, [&](Region&, RegionTable::Due) { ++visits; });
  EXPECT_EQ(visits, 0);
  table.expire(now + 100ms, [&](Region& region, RegionTable::Due due) {
    ++visits;
    EXPECT_EQ(due, RegionTable::Due::expired);
    EXPECT_EQ(region.landing, &one);
  });
  EXPECT_EQ(visits, 1);
  EXPECT_TRUE(one.came_back);
  EXPECT_EQ(table.counters().expired, 1u);
  EXPECT_TRUE(table.next_deadline().is_never());
}

TEST_F(Regions, ABoundRegionWithoutNewBytesIsIdle) {
  Region* const region = grant(one);
  now = now + 5ms;
  ASSERT_TRUE(bind(*region, 1'000));
  EXPECT_EQ(table.next_deadline(), now + 10ms);
  ASSERT_TRUE(table.cover(*region, {0, 10}, now + 6ms));
  EXPECT_EQ(table.next_deadline(), now + 16ms);
  ASSERT_TRUE(table.cover(*region, {0, 10}, now + 8ms));
  EXPECT_EQ(table.next_deadline(), now + 16ms) << "the same bytes again keep nothing alive";
  int visits = 0;
  table.expire(now + 16ms, [&](Region&, RegionTable::Due due) {
    ++visits;
    EXPECT_EQ(due, RegionTable::Due::idle);
  });
  EXPECT_EQ(visits, 1);
  EXPECT_TRUE(one.came_back);
}

TEST_F(Regions, TheOneThatWasWrittenLastIsIdleLast) {
  Region* const first = grant(one);
  Region* const second = grant(two);
  ASSERT_TRUE(bind(*first, 1'000) && bind(*second, 1'000));
  ASSERT_TRUE(table.cover(*first, {0, 1}, now + 3ms));
  std::vector<Region*> order;
  table.expire(now + 20ms, [&](Region& region, RegionTable::Due) { order.push_back(&region); });
  EXPECT_EQ(order, (std::vector<Region*>{second, first}));
}

TEST_F(Regions, AVisitorMayRenewOrRevokeByItself) {
  Region* const kept = grant(one);
  Region* const gone = grant(two);
  const Instant late = now + 100ms;
  int visits = 0;
  table.expire(late, [&](Region& region, RegionTable::Due) {
    ++visits;
    if (&region == kept) {
      table.renew(region, late);
    } else {
      table.revoke(region, late);
    }
  });
  EXPECT_EQ(visits, 2);
  EXPECT_FALSE(one.came_back);
  EXPECT_TRUE(two.came_back);
  EXPECT_EQ(gone->state, RegionState::free);
  EXPECT_EQ(table.next_deadline(), late + 100ms);
}

TEST_F(Regions, RenewingAnIdleRegionDoesNotKeepIt) {
  Region* const region = grant(one);
  ASSERT_TRUE(bind(*region, 1'000));
  table.renew(*region, now + 9ms);
  EXPECT_EQ(region->expires, now + 109ms);
  EXPECT_EQ(table.next_deadline(), now + 10ms);
  table.expire(now + 200ms, [&](Region& due_one, RegionTable::Due due) {
    EXPECT_EQ(due, RegionTable::Due::idle) << "expired too, but that could be mended";
    table.renew(due_one, now + 200ms);
  });
  EXPECT_TRUE(one.came_back);
}

// As when the timer is late. The visitor decides about each reason: it has to tell the sender of a region that goes.
TEST_F(Regions, ARegionThatIsIdleAndExpiredIsShownForBothReasons) {
  Region* const region = grant(one);
  ASSERT_TRUE(bind(*region, 1'000));
  const Instant late = now + 200ms;
  std::vector<RegionTable::Due> reasons;
  table.expire(late, [&](Region& due_one, RegionTable::Due due) {
    reasons.push_back(due);
    if (due == RegionTable::Due::idle) {
      table.excuse(due_one, late);
    } else {
      table.renew(due_one, late);
    }
  });
  EXPECT_EQ(reasons, (std::vector{RegionTable::Due::idle, RegionTable::Due::expired}));
  EXPECT_FALSE(one.came_back);
  EXPECT_EQ(table.next_deadline(), late + 10ms);
}

TEST_F(Regions, AClockThatStepsBackLeavesTheDeadlinesInOrder) {
  Region* const first = grant(one);
  now = Instant{500'000};
  Region* const second = grant(two);
  EXPECT_EQ(second->expires, first->expires);
  ASSERT_TRUE(bind(*first, 10) && bind(*second, 10));
  EXPECT_EQ(second->last_write, first->last_write);
  std::vector<buffer::Landing*> order;
  table.expire(first->expires, [&](Region& region, RegionTable::Due) { order.push_back(region.landing); });
  EXPECT_EQ(order, (std::vector<buffer::Landing*>{&one, &two}));
}

TEST_F(Regions, TheEndOfAPathTakesAllItsRegionsBack) {
  Region* const quarantined = grant(one, Fence::Kind::peer_acknowledged);
  const std::uint64_t id = quarantined->id;
  Region* const complete = grant(two);
  ASSERT_TRUE(bind(*complete, 1));
  ASSERT_TRUE(table.cover(*complete, {0, 1}, now));
  table.complete(*complete);
  grant(three);
  PathRegions others;
  TestLanding fourth;
  Region* const other = table.grant({.landing = &fourth, .path_serial = kTheirs, .regions = &others}, now);
  table.end_path(regions, now);
  EXPECT_EQ(regions.first, nullptr);
  EXPECT_EQ(regions.count, 0u);
  EXPECT_FALSE(one.came_back) << "its peer has not let go of it";
  EXPECT_TRUE(two.came_back);
  EXPECT_TRUE(three.came_back);
  EXPECT_EQ(table.find(other->id), other);
  EXPECT_TRUE(table.on_fenced({.region = id, .path_serial = kOurs}));
  EXPECT_TRUE(one.came_back);
  table.end_path(others, now);
}

TEST_F(Regions, AVisitorOfAPathMayRevokeWhatItSees) {
  grant(one), grant(two), grant(three);
  int visits = 0;
  table.for_each_of_path(regions, [&](Region& region) {
    ++visits;
    table.revoke(region, now);
  });
  EXPECT_EQ(visits, 3);
  EXPECT_EQ(regions.count, 0u);
}

TEST_F(Regions, AFullTableSaysNo) {
  TestLanding landings[5];
  for (int i = 0; i < 4; ++i) ASSERT_NE(grant(landings[i]), nullptr);
  EXPECT_TRUE(table.is_full());
  EXPECT_EQ(grant(landings[4]), nullptr);
  table.end_path(regions, now);
}

// Every state and event: what is not in this list changes nothing, and the table checks that it does not happen.
TEST(RegionState, OnlyTheseTransitionsExist) {
  using enum RegionState;
  using E = RegionEvent;
  struct Transition {
    RegionState from;
    RegionEvent event;
    RegionState to;
  };
  const Transition transitions[] = {
      {free, E::grant, granted},
      {free, E::run_out_of_ids, leaked},
      {granted, E::complete, RegionState::complete},
      {granted, E::revoke, revoked},
      {RegionState::complete, E::take, free},
      {RegionState::complete, E::revoke, revoked},
      {revoked, E::quarantine, quarantined},
      {quarantined, E::fence, fenced},
      {quarantined, E::lose_hope, leaked},
      {fenced, E::give_back, free},
  };
  for (std::size_t from = 0; from < kRegionStates; ++from) {
    for (std::size_t event = 0; event < kRegionEvents; ++event) {
      auto expected = static_cast<RegionState>(from);
      for (const Transition& one : transitions) {
        if (static_cast<std::size_t>(one.from) == from && static_cast<std::size_t>(one.event) == event) {
          expected = one.to;
        }
      }
      EXPECT_EQ(next_state(static_cast<RegionState>(from), static_cast<RegionEvent>(event)), expected)
          << "state " << from << ", event " << event;
    }
  }
}

TEST(RegionTableDeathTest, AnIncompleteRegionHandsNothingOver) {
  TestLanding landing;
  RegionTable table({.max_regions = 1});
  Region* const region = table.grant({.landing = &landing}, Instant{});
  EXPECT_DEATH((void)table.take_landing(*region), "cannot do that");
  EXPECT_DEATH(table.complete(*region), "every byte");
}

}  // namespace
}  // namespace weir::token
