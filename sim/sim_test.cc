#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sim/run.h"
#include "sim/scenario.h"
#include "sim/simulation.h"

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

INSTANTIATE_TEST_SUITE_P(Sim, ABrokenHost,
                         testing::Values(Broken{"CompletesTwice", Sabotage::completes_twice, "completed again"},
                                         Broken{"RunsTwice", Sabotage::runs_twice, "ran 2 times"},
                                         Broken{"SwapsReplies", Sabotage::swaps_replies, "does not belong to it"},
                                         Broken{"ForgetsAnAnswer", Sabotage::forgets_an_answer, "left over"}),
                         [](const auto& test) { return std::string(test.param.test); });

TEST(Faults, HappenInTheScenariosNamedAfterThem) {
  EXPECT_GT(run_one("reorder", 2).network.reordered, 100u);
  EXPECT_GT(run_one("corrupt", 2).network.corrupted, 20u);
  EXPECT_GT(run_one("hostile", 2).network.injected, 500u);
  EXPECT_GT(run_one("rotate", 2).engines.key_rotations, 20u);
  std::uint64_t lost = 0, abandoned = 0, partitioned = 0, too_big = 0;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    lost += run_one("lossy", seed).network.lost;
    abandoned += run_one("restart", seed).abandoned;
    partitioned += run_one("partition", seed).network.partition_drops;
    too_big += run_one("mtu", seed).network.too_big_drops;
  }
  EXPECT_GT(lost, 100u);
  EXPECT_GT(abandoned, 0u);
  EXPECT_GT(partitioned, 0u);
  EXPECT_GT(too_big, 0u);
}

TEST(Scenarios, AreUnknownByAnyOtherName) { EXPECT_FALSE(make_scenario("sunny", 1).has_value()); }

}  // namespace
}  // namespace weir::sim
