// Hosts with several workers, what somebody on the wire makes of them, and hosts that die while others connect.
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "sim/scenario.h"
#include "sim/simulation.h"

namespace weir::sim {
namespace {

using namespace std::chrono_literals;

std::string all_violations(const Report& report) {
  std::string text = report.summary();
  for (const std::string& violation : report.violations) text += "\n  " + violation;
  return text;
}

TEST(SeveralWorkers, HandEachOtherDatagramsAndHearOfUnknownPaths) {
  std::uint64_t forwarded = 0, injected = 0, ok = 0;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    const Report report = run(make_scenario("workers", seed).value());
    EXPECT_TRUE(report.violations.empty()) << all_violations(report);
    forwarded += report.engines.datagrams_forwarded;
    injected += report.network.injected;
    ok += report.ok;
  }
  EXPECT_GT(forwarded, 100u);
  EXPECT_GT(injected, 1'000u);
  EXPECT_GT(ok, 1'000u);
}

// Without the comparison of workers in an UNKNOWN_SECRET (docs/protocol.md, rule R-3): it finds all of them equal.
TEST(SeveralWorkers, WhoseWordsAreTakenForEachOthersAreFoundToRunARequestTwice) {
  std::string texts;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const Scenario scenario = make_scenario("identity_workers", seed).value();
    ASSERT_TRUE(run(scenario).violations.empty()) << "seed " << seed;
    for (const std::string& violation : run(scenario, {.sabotage = Sabotage::share_a_name}).violations) {
      texts += violation + "\n";
    }
  }
  EXPECT_NE(texts.find(" ran 2 times"), std::string::npos) << texts;
}

// The callee dies once: before the n-th datagram of the run has arrived, while its receiver works on it, and when the
// answer is under way.
void expect_to_be_found_again(const std::string& name, std::uint32_t workers, Duration absence) {
  for (std::uint32_t datagram = 1; datagram <= 24; ++datagram) {
    for (const int latencies : {0, 1, 2}) {
      Scenario scenario = make_scenario(name, datagram).value();
      scenario.workers = workers;
      scenario.workload.calls_per_caller = 200;
      scenario.crashes_at = {
          {.host = 1, .datagram = datagram, .delay = latencies * scenario.link.latency + 2us, .absence = absence}};
      const Report report = run(scenario);
      EXPECT_EQ(report.crashes, 1u);
      EXPECT_TRUE(report.violations.empty())
          << name << ", " << workers << " workers, datagram " << datagram << ": " << all_violations(report);
    }
  }
}

TEST(Reconnection, IsQuickAfterADeathAtEveryStep) {
  for (const Duration absence : {Duration{1ms}, Duration{200ms}}) {
    expect_to_be_found_again("connecting", 1, absence);
    expect_to_be_found_again("connecting", 3, absence);
  }
}

TEST(Reconnection, IsQuickAfterADeathAtEveryStepWithIdentities) {
  for (const Duration absence : {Duration{1ms}, Duration{200ms}}) {
    expect_to_be_found_again("identity_connecting", 1, absence);
    expect_to_be_found_again("identity_connecting", 3, absence);
  }
}

// The caller does not believe what the new process says of the old one's credentials. It is found all the same where a
// datagram was on its way to the dead process, which its host then said.
TEST(Reconnection, IsFoundToBeSlowWhereTheRestartedHostHasLostItsSigner) {
  std::string texts;
  for (std::uint32_t datagram = 40; datagram < 44; ++datagram) {
    Scenario scenario = make_scenario("identity_connecting", datagram).value();
    scenario.crashes_at = {{.host = 1, .datagram = datagram, .absence = 1ms}};
    ASSERT_TRUE(run(scenario).violations.empty()) << all_violations(run(scenario));
    scenario.identity->keeps_signer = false;
    texts += all_violations(run(scenario)) + "\n";
  }
  EXPECT_NE(texts.find("gave its first reply"), std::string::npos) << texts;
}

}  // namespace
}  // namespace weir::sim
