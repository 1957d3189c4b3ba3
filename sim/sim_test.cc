#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "buffer/work.h"
#include "crypto/nonce_ledger.h"
#include "sim/run.h"
#include "sim/scenario.h"
#include "sim/simulation.h"
#include "token/region_table.h"

namespace weir::sim {
namespace {

Report run_one(std::string_view name, std::uint64_t seed, const RunOptions& options = {}) {
  return run(make_scenario(name, seed).value(), options);
}

std::string all_violations(const Report& report) {
  std::string text = report.summary();
  for (const std::string& violation : report.violations) text += "\n  " + violation;
  return text;
}

class EveryScenario : public testing::TestWithParam<std::string_view> {};

TEST_P(EveryScenario, KeepsEveryRule) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    const Report report = run_one(GetParam(), seed);
    EXPECT_TRUE(report.violations.empty()) << all_violations(report);
    EXPECT_GT(report.ok, 0u) << report.summary();
  }
}

TEST_P(EveryScenario, ReplaysWithTheSameHash) {
  const Report once = run_one(GetParam(), 11);
  const Report again = run_one(GetParam(), 11);
  EXPECT_EQ(once.event_hash, again.event_hash);
  EXPECT_EQ(once.summary(), again.summary());
  EXPECT_NE(once.event_hash, run_one(GetParam(), 12).event_hash);
}

INSTANTIATE_TEST_SUITE_P(Sim, EveryScenario, testing::ValuesIn(scenario_names().begin(), scenario_names().end()),
                         [](const auto& test) { return std::string(test.param); });

// ---- the checkers can fail -----------------------------------------------------------------------------------------

struct Broken {
  const char* test;
  Sabotage sabotage;
  const char* sentence;
};

class ABrokenHost : public testing::TestWithParam<Broken> {};

TEST_P(ABrokenHost, IsCaught) {
  ASSERT_TRUE(run_one("calm", 5).violations.empty());
  const Report report = run_one("calm", 5, {.sabotage = GetParam().sabotage});
  ASSERT_FALSE(report.violations.empty());
  EXPECT_NE(all_violations(report).find(GetParam().sentence), std::string::npos) << all_violations(report);
  EXPECT_NE(report.violations[0].find("weir sim --seed 5 --scenario calm"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(
    Sim, ABrokenHost,
    testing::Values(Broken{"CompletesTwice", Sabotage::completes_twice, "completed again"},
                    Broken{"RunsTwice", Sabotage::runs_twice, "ran 2 times"},
                    Broken{"SwapsReplies", Sabotage::swaps_replies, "does not belong to it"},
                    Broken{"LeaksARequest", Sabotage::leaks_a_request, "shows a message's"},
                    Broken{"ForgetsAnAnswer", Sabotage::forgets_an_answer, "incoming transfers left over"},
                    Broken{"KeepsATimer", Sabotage::keeps_a_timer, " timers left over"},
                    Broken{"KeepsCredit", Sabotage::keeps_credit, " bytes of credit left over"},
                    Broken{"KeepsAReceiveBuffer", Sabotage::keeps_a_receive_buffer, " receive buffers left over"}),
    [](const auto& test) { return std::string(test.param.test); });

TEST(ABrokenHost, ThatDoesNotWaitForWhatItsCallsComeAfterIsCaught) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    ASSERT_TRUE(run_one("after", seed).violations.empty()) << all_violations(run_one("after", seed));
    const Report report = run_one("after", seed, {.sabotage = Sabotage::goes_on_early});
    EXPECT_NE(all_violations(report).find(", which it comes after"), std::string::npos) << all_violations(report);
  }
}

// Builds that watch every nonce watch those of the simulator, too.
TEST(ABrokenHostDeathTest, ThatRepeatsANonceIsStopped) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // sanitizers run threads of their own
  const auto sabotaged = [] { return run_one("calm", 5, {.sabotage = Sabotage::repeats_a_nonce}); };
  if (crypto::nonces_are_checked()) {
    EXPECT_DEATH(sabotaged(), "used twice under one key");
  } else {
    EXPECT_TRUE(sabotaged().violations.empty()) << "nobody is told of the second packet";
  }
}

TEST(Faults, HappenInTheScenariosNamedAfterThem) {
  EXPECT_GT(run_one("reorder", 2).network.reordered, 100u);
  EXPECT_GT(run_one("corrupt", 2).network.corrupted, 20u);
  EXPECT_GT(run_one("hostile", 2).network.injected, 500u);
  EXPECT_GT(run_one("rotate", 2).engines.key_rotations, 20u);
  std::uint64_t lost = 0, abandoned = 0, partitioned = 0, too_big = 0;
  std::uint64_t duplicated = 0, marked = 0, queue_drops = 0, stalls = 0;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    lost += run_one("lossy", seed).network.lost;
    abandoned += run_one("restart", seed).abandoned;
    partitioned += run_one("partition", seed).network.partition_drops;
    too_big += run_one("mtu", seed).network.too_big_drops;
    duplicated += run_one("reorder", seed).network.duplicated;
    stalls += run_one("stall", seed).stalls;
    const Report incast = run_one("incast", seed);
    marked += incast.network.marked;
    queue_drops += incast.network.queue_drops;
  }
  EXPECT_GT(duplicated, 100u);
  EXPECT_GT(stalls, 0u);
  EXPECT_GT(marked, 0u);
  EXPECT_GT(queue_drops, 0u);
  EXPECT_GT(lost, 100u);
  EXPECT_GT(abandoned, 0u);
  EXPECT_GT(partitioned, 0u);
  EXPECT_GT(too_big, 0u);
}

// Where nothing is in short supply, nobody has an advantage to be found.
TEST(SimulatedPriorities, AreFoundToBeOfNoUseWhereNobodyWaits) {
  Scenario scenario = make_scenario("priorities", 3).value();
  ASSERT_TRUE(run(scenario).violations.empty());
  scenario.workload.window = 1;
  scenario.workload.service_time = {};
  scenario.limits.request_bytes = 64u << 20;
  const Report report = run(scenario);
  ASSERT_FALSE(report.violations.empty());
  EXPECT_NE(report.violations[0].find("urgent calls take"), std::string::npos) << all_violations(report);
}

// ---- identities ----------------------------------------------------------------------------------------------------

TEST(Identities, AreMadeRenewedEvictedAndRefusedWhereTheScenarioSaysSo) {
  std::uint64_t lost = 0, evicted = 0, abandoned = 0, refused = 0;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    const Report lossy = run_one("identity_lossy", seed);
    lost += lossy.network.lost;
    EXPECT_GT(lossy.handshakes, 0u) << lossy.summary();
    evicted += run_one("identity_evict", seed).evicted;
    abandoned += run_one("identity_crash", seed).abandoned;
    Report clock = run_one("identity_clock", seed);
    refused += clock.failed[Code::unauthenticated];
  }
  EXPECT_GT(lost, 100u);
  EXPECT_GT(evicted, 10u);
  EXPECT_GT(abandoned, 0u);
  EXPECT_GT(refused, 0u);
  const Report renewed = run_one("identity_renew", 1);
  EXPECT_GT(renewed.credentials, 4u);
  EXPECT_GT(renewed.engines.key_rotations, 10u);
}

// A handshake, the path that is made under it and the first call are about a dozen datagrams.
void expect_to_survive_a_crash_at_every_step(const std::function<void(Scenario&)>& change, Duration from = {}) {
  for (std::uint32_t datagram = 1; datagram <= 24; ++datagram) {
    for (HostId host : {0u, 1u}) {
      for (const bool keeps_signer : {false, true}) {
        Scenario scenario = make_scenario("identity_crash", datagram).value();
        change(scenario);
        scenario.identity->keeps_signer = keeps_signer;
        scenario.crashes_at = {{.host = host,
                                .from = from,
                                .datagram = datagram,
                                .delay = scenario.link.latency + Duration{2'000},
                                .absence = Duration{3'000'000}}};
        const Report report = run(scenario);
        EXPECT_EQ(report.crashes, 1u);
        EXPECT_TRUE(report.violations.empty())
            << "host " << host << " crashed after datagram " << datagram << ": " << all_violations(report);
      }
    }
  }
}

TEST(Identities, SurviveACrashAtEveryStep) {
  expect_to_survive_a_crash_at_every_step([](Scenario&) {});
}

// Twice as many datagrams, of two handshakes that cross.
TEST(Identities, SurviveACrashAtEveryStepOfHandshakesOfBothSides) {
  expect_to_survive_a_crash_at_every_step([](Scenario& scenario) {
    scenario.workload.callers = scenario.workload.callees = {0, 1};
    scenario.workload.think_time = Duration{10'000};
  });
}

// Calls go on while it is under way, under the credential that it replaces.
TEST(Identities, SurviveACrashAtEveryStepOfARenewal) {
  expect_to_survive_a_crash_at_every_step(
      [](Scenario& scenario) {
        scenario.timeouts.credential = std::chrono::seconds(1);
        scenario.faults.loss = 0;  // else the first handshake may come so late
        scenario.workload.window = 1;
        scenario.workload.think_time = Duration{20'000'000};
      },
      std::chrono::milliseconds(300));
}

// ---- large messages ------------------------------------------------------------------------------------------------

TEST(LargeMessages, AreLostRevokedAwaitedAndAbandonedWhereTheScenarioSaysSo) {
  std::uint64_t received = 0, revoked = 0, refused = 0, awaited = 0, abandoned = 0, lost = 0, corrupted = 0, tokens = 0;
  const std::uint64_t bindings = buffer::thread_work.bindings;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    const Report report = run_one("large", seed);
    received += report.engines.large_messages_received;
    tokens += report.engines.tokens_used;
    lost += report.network.lost;
    corrupted += report.network.corrupted;
    const Report revoke = run_one("large_revoke", seed);
    revoked += revoke.engines.regions_lost;
    refused += revoke.engines.writes_refused;
    awaited += run_one("large_exhausted", seed).engines.regions_exhausted;
    abandoned += run_one("large_restart", seed).abandoned;
  }
  EXPECT_GT(received, 200u);
  EXPECT_GT(buffer::thread_work.bindings - bindings, 50u) << "hardly any were sealed by the application itself";
  EXPECT_GT(tokens, 20u);
  EXPECT_GT(lost, 100u);
  EXPECT_GT(corrupted, 20u);
  EXPECT_GT(revoked, 10u);
  EXPECT_GT(refused, 10u);
  EXPECT_GT(awaited, 20u);
  EXPECT_GT(abandoned, 0u);
}

// Of messages that take their time, so that regions are taken back after some of them was freed, too: the call fails
// and has not run, or all of it arrives.
TEST(LargeMessages, AreFreedAsTheyArrive) {
  const std::uint64_t before = buffer::work.freed_bytes.load();
  std::uint64_t revoked = 0;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    for (const std::string_view name : {"large", "large_revoke", "large_restart"}) {
      Scenario scenario = make_scenario(name, seed).value();
      scenario.hosts = 2;
      scenario.workload.callers = scenario.workload.callees = {0, 1};
      scenario.workload.calls_per_caller = 10;
      scenario.workload.largest_large_bytes = 8u << 20;
      scenario.workload.piece_bytes = 61'440;
      scenario.workload.large = 1;
      scenario.workload.nested = 0;
      scenario.faults.loss = std::min(scenario.faults.loss, 0.02);
      scenario.faults.corrupt = std::min(scenario.faults.corrupt, 0.01);
      scenario.least_success = 0;
      for (RevokeAt& revoke : scenario.revokes_at) revoke.host %= 2;
      const Report report = run(scenario);
      revoked += report.engines.regions_revoked;
      EXPECT_TRUE(report.violations.empty()) << name << " of seed " << seed << ": " << all_violations(report);
    }
  }
  EXPECT_GT(buffer::work.freed_bytes.load() - before, 50u << 20);
  EXPECT_GT(revoked, 5u);
}

// That some of a message may be free is a reason to fail only where a region was taken back.
TEST(LargeMessages, OfManyPiecesThatAreLostAreFound) {
  std::size_t found = 0;
  std::string texts;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    Scenario scenario = make_scenario("large", seed).value();
    scenario.hosts = 2;
    scenario.workload.callers = scenario.workload.callees = {0, 1};
    scenario.workload.calls_per_caller = 3;
    scenario.workload.largest_large_bytes = 8u << 20;
    scenario.workload.piece_bytes = 61'440;
    scenario.workload.large = 1;
    scenario.workload.nested = 0;
    scenario.workload.must_succeed = true;
    scenario.workload.shortest_deadline = scenario.workload.longest_deadline = std::chrono::milliseconds(50);
    scenario.faults.loss = 1;
    for (const std::string& violation : run(scenario).violations) {
      texts += violation + "\n";
      const std::size_t at = violation.find(" bytes");
      if (at == violation.npos || violation.find("had to succeed") == violation.npos) continue;
      const std::size_t begin = violation.rfind(' ', at - 1) + 1;
      if (std::stoull(violation.substr(begin, at - begin)) > token::kSmallestRange) ++found;
    }
  }
  EXPECT_GT(found, 0u) << texts;
}

TEST(LargeMessages, OutliveTheTokensAndRegionsThatExpireUnderThem) {
  std::uint64_t received = 0, used = 0, expired = 0, lost = 0;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    const Report report = run_one("large_expiry", seed);
    received += report.engines.large_messages_received;
    used += report.engines.tokens_used;
    expired += report.engines.regions_revoked;
    lost += report.engines.regions_lost;
  }
  EXPECT_GT(received, 200u);
  EXPECT_GT(used, 20u);
  EXPECT_GT(expired, 50u);
  EXPECT_GT(lost, 0u) << "no message lost its region";
}

// One caller and one callee, and regions that are taken back after each datagram in turn: before the grant has arrived,
// before the first byte, while they are written, afterwards.
TEST(LargeMessages, SurviveARevocationAtEveryStep) {
  std::uint64_t revoked = 0;
  for (std::uint32_t datagram = 1; datagram <= 60; ++datagram) {
    for (const HostId host : {0u, 1u}) {
      for (const bool reorders : {false, true}) {
        Scenario scenario = make_scenario("large_revoke", 1).value();
        scenario.hosts = 2;
        scenario.link.datagram_bytes = 8'972;
        scenario.workload.callers = {0};
        scenario.workload.callees = {1};
        scenario.workload.calls_per_caller = 3;
        scenario.workload.window = 1;
        scenario.workload.large = 1;
        scenario.workload.largest_large_bytes = 64 * 1024;
        scenario.faults = {.reorder = reorders ? 0.3 : 0, .reorder_delay = Duration{500'000}};
        scenario.revocations = 0;
        scenario.revokes_at = {{.host = host, .datagram = datagram, .delay = scenario.link.latency}};
        const Report report = run(scenario);
        revoked += report.engines.regions_revoked;
        EXPECT_TRUE(report.violations.empty())
            << "host " << host << " revoked after datagram " << datagram << ": " << all_violations(report);
      }
    }
  }
  EXPECT_GT(revoked, 20u);
}

TEST(LargeMessages, SurviveACrashAtEveryStep) {
  for (std::uint32_t datagram = 1; datagram <= 40; ++datagram) {
    for (const HostId host : {0u, 1u}) {
      Scenario scenario = make_scenario("large_restart", datagram).value();
      scenario.hosts = 2;
      scenario.workload.callers = {0};
      scenario.workload.callees = {1};
      scenario.workload.calls_per_caller = 6;
      scenario.workload.large = 1;
      scenario.workload.largest_large_bytes = 64 * 1024;
      scenario.crashes = scenario.closings = 0;
      scenario.crashes_at = {
          {.host = host, .datagram = datagram, .delay = scenario.link.latency, .absence = Duration{3'000'000}}};
      const Report report = run(scenario);
      EXPECT_TRUE(report.violations.empty())
          << "host " << host << " crashed after datagram " << datagram << ": " << all_violations(report);
    }
  }
}

TEST(LargeMessages, ThatAreSwappedOrKeptAreFound) {
  std::string swapped;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    Scenario scenario = make_scenario("large_exhausted", seed).value();
    scenario.workload.large = 1;
    swapped += all_violations(run(scenario, {.sabotage = Sabotage::swaps_replies}));
  }
  EXPECT_NE(swapped.find("does not belong to it"), std::string::npos) << swapped;
  const Report kept = run_one("large", 5, {.sabotage = Sabotage::keeps_a_large_request});
  EXPECT_NE(all_violations(kept).find("bytes of large messages left over"), std::string::npos) << all_violations(kept);
}

TEST(LargeMessages, TheRegionsOfWhichAreForgottenAreFound) {
  ASSERT_TRUE(run_one("large", 5).violations.empty());
  const Report report = run_one("large", 5, {.sabotage = Sabotage::keeps_regions});
  EXPECT_NE(all_violations(report).find(" regions left over"), std::string::npos) << all_violations(report);
}

TEST(Recovery, IsFoundToBeSlowWhereTheRestartedHostHasLostItsSigner) {
  std::string texts;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    Scenario scenario = make_scenario("identity_restart", seed).value();
    ASSERT_TRUE(run(scenario).violations.empty());
    scenario.identity->keeps_signer = false;
    texts += all_violations(run(scenario)) + "\n";
  }
  EXPECT_NE(texts.find("ran its first request"), std::string::npos) << texts;
}

// The caller gives its peer up while a handshake is under way that has spoken to nobody for long, and rarely tries.
TEST(Recovery, IsQuickAfterThePeerWasGivenUp) {
  for (const std::uint64_t seed : {550, 1086, 1296}) {
    const Report report = run_one("identity_restart", seed);
    EXPECT_TRUE(report.violations.empty()) << "seed " << seed << ": " << all_violations(report);
  }
}

TEST(Clocks, ThatAreRightAreNoReasonToRefuse) {
  Scenario scenario = make_scenario("identity_clock", 1).value();
  scenario.workload.untrusted = {0};
  scenario.identity->clock_error_seconds.clear();
  EXPECT_FALSE(run(scenario).violations.empty());
}

// ---- addresses that change -----------------------------------------------------------------------------------------

TEST(Addresses, ChangeAndAreCopiedWhereTheScenarioSaysSo) {
  std::uint64_t changes = 0, moved = 0, copies = 0, large = 0;
  Duration longest_search{0};
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    const Report report = run_one("address_change", seed);
    changes += report.rebindings;
    moved += report.engines.addresses_changed;
    copies += report.copies;
    large += report.engines.large_messages_received;
    longest_search = std::max(longest_search, report.longest_search);
  }
  EXPECT_GT(changes, 50u);
  EXPECT_GT(moved, 30u);
  EXPECT_GT(copies, 100u);
  EXPECT_GT(large, 10u);
  EXPECT_GT(longest_search, std::chrono::milliseconds(1)) << "nobody ever waits at a new address";
}

TEST(Addresses, ThatAreBelievedTooSoonOrNeverAreFound) {
  for (const auto& [sabotage, sentences] :
       {std::pair{Sabotage::moves_at_once, std::vector{"which is not validated", "to somebody who copies packets"}},
        std::pair{Sabotage::never_moves, std::vector{"was not found at its new address", "had to succeed"}}}) {
    std::string texts;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      texts += all_violations(run(make_scenario("address_change", seed).value(), {.sabotage = sabotage}));
    }
    for (const char* sentence : sentences) EXPECT_NE(texts.find(sentence), std::string::npos) << sentence;
  }
}

TEST(Scenarios, AreUnknownByAnyOtherName) { EXPECT_FALSE(make_scenario("sunny", 1).has_value()); }

}  // namespace
}  // namespace weir::sim
