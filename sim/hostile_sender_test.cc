// Hostile senders do what they are for, and those who look for the harm find it where there is some.
#include "sim/hostile_sender.h"

#include <gtest/gtest.h>

#include <string>

#include "sim/simulation.h"

namespace weir::sim {
namespace {

constexpr std::string_view kScenario = "large_hostile_sender";

std::string all_violations(const Report& report) {
  std::string text = report.summary();
  for (const std::string& violation : report.violations) text += "\n  " + violation;
  return text;
}

TEST(HostileSenders, DoAllThatTheyCanDoAndHarmNobody) {
  HostileSender::Totals did;
  HostileService::Totals found;
  Counters engines;
  std::uint64_t lost = 0, reordered = 0, duplicated = 0;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    const Report report = run(make_scenario(kScenario, seed).value());
    EXPECT_TRUE(report.violations.empty()) << all_violations(report);
    did += report.hostile;
    engines += report.engines;
    lost += report.network.lost;
    reordered += report.network.reordered;
    duplicated += report.network.duplicated;
    found.large += report.served.large;
    found.unopened += report.served.unopened;
    found.outlived += report.served.outlived;
    found.replies += report.served.replies;
    found.unopened_replies += report.served.unopened_replies;
  }
  EXPECT_GT(did.opened, 1'000u);
  EXPECT_GT(did.replies, 100u);
  EXPECT_GT(did.tokens_named, 100u);
  EXPECT_GT(did.finished, 50u);
  EXPECT_GT(did.outside, 100u);
  EXPECT_GT(did.foreign, 100u);
  EXPECT_GT(did.stale, 100u);
  EXPECT_GT(did.scribbles, 100u);
  EXPECT_GT(did.unasked, 100u);
  EXPECT_GT(did.cancelled, 20u);
  EXPECT_GT(did.broken, 10u);
  EXPECT_GT(did.silences, 5u);
  EXPECT_GT(did.answers, 200u) << "they are thrown out before they do anything";
  EXPECT_GT(engines.writes_refused, (did.outside + did.foreign + did.stale) / 2)
      << "what may not be written is counted";
  EXPECT_GT(engines.regions_revoked, 20u);
  EXPECT_GT(engines.regions_exhausted, 100u);
  EXPECT_GT(engines.tokens_used, 10u);
  EXPECT_GT(found.large, 200u);
  EXPECT_GT(found.unopened, 5u);
  EXPECT_GT(found.outlived, 50u);
  EXPECT_GT(found.replies, 50u);
  EXPECT_GT(found.unopened_replies, 0u);
  EXPECT_GT(lost, 100u);
  EXPECT_GT(reordered, 100u);
  EXPECT_GT(duplicated, 100u);
}

// The first seed after `seed` that is like this.
template <class Like>
Scenario find_scenario(std::uint64_t seed, Like like) {
  for (;; ++seed) {
    const Scenario scenario = make_scenario(kScenario, seed).value();
    if (like(scenario)) return scenario;
  }
}

TEST(HostileSenders, ThatKeepWhatTheyHaveMakeOthersWaitForAWhile) {
  Duration longest{0};
  std::uint64_t revoked = 0;
  for (std::uint64_t seed = 1; seed <= 60; seed += 20) {
    const Scenario scenario = find_scenario(seed, [](const Scenario& one) { return one.hostile.hoards; });
    const Report report = run(scenario);
    EXPECT_TRUE(report.violations.empty()) << all_violations(report);
    longest = std::max(longest, report.served.longest_starving);
    revoked += report.engines.regions_revoked;
  }
  EXPECT_GT(longest, std::chrono::seconds(1)) << "nobody ever waits";
  EXPECT_GT(revoked, 20u);
}

TEST(HostileSenders, MayHaveCertificates) {
  const Scenario scenario = find_scenario(1, [](const Scenario& one) { return one.identity.has_value(); });
  const Report report = run(scenario);
  EXPECT_TRUE(report.violations.empty()) << all_violations(report);
  EXPECT_GT(report.hostile.opened, 50u);
  EXPECT_EQ(report.event_hash, run(scenario).event_hash);
}

// ---- the checkers can fail -----------------------------------------------------------------------------------------

struct Broken {
  const char* test;
  Sabotage sabotage;
  const char* sentence;
};

class ABrokenVictim : public testing::TestWithParam<Broken> {};

TEST_P(ABrokenVictim, IsCaught) {
  std::string texts;
  for (std::uint64_t seed = 1; seed <= 20 && texts.find(GetParam().sentence) == std::string::npos; ++seed) {
    texts += all_violations(run(make_scenario(kScenario, seed).value(), {.sabotage = GetParam().sabotage}));
  }
  EXPECT_NE(texts.find(GetParam().sentence), std::string::npos) << texts;
}

INSTANTIATE_TEST_SUITE_P(
    Sim, ABrokenVictim,
    testing::Values(Broken{"LetsOthersWrite", Sabotage::lets_others_write, "cannot open a large request"},
                    Broken{"ShowsOldMemory", Sabotage::shows_old_memory, "some of which its sender never wrote"},
                    Broken{"GrantsTooMuch", Sabotage::grants_too_much, "; its share is"},
                    Broken{"KeepsRegions", Sabotage::keeps_regions, " regions left over"}),
    [](const auto& test) { return std::string(test.param.test); });

TEST(AVictim, ThatTakesNothingBackLetsOthersStarve) {
  constexpr const char* kSentence = "has waited for memory at host";
  std::string texts;
  for (std::uint64_t seed = 1; seed <= 120 && texts.find(kSentence) == std::string::npos; seed += 20) {
    Scenario scenario = find_scenario(seed, [](const Scenario& one) { return one.hostile.hoards; });
    scenario.span = std::chrono::seconds(160);
    scenario.workload.calls_per_caller = 1'000;
    texts += all_violations(run(scenario, {.sabotage = Sabotage::keeps_regions}));
  }
  EXPECT_NE(texts.find(kSentence), std::string::npos) << texts;
}

}  // namespace
}  // namespace weir::sim
