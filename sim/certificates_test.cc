// Certificates that end within a run, and whether the checkers notice what is wrong with them.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>

#include "sim/scenario.h"
#include "sim/simulation.h"

namespace weir::sim {
namespace {

using namespace std::chrono_literals;

Scenario short_certificates() { return make_scenario("identity_short", 3).value(); }

bool is_found(const Report& report, std::string_view sentence) {
  return std::ranges::any_of(report.violations,
                             [&](const std::string& violation) { return violation.contains(sentence); });
}

TEST(ShortCertificates, LoseNoCallWhileTheyAreReplaced) {
  const Report report = run(short_certificates());
  EXPECT_TRUE(report.violations.empty()) << report.violations[0];
  EXPECT_TRUE(report.failed.contains(Code::unauthenticated)) << "one of them was not replaced";
}

TEST(ShortCertificates, AreFoundToBeBelievedAfterTheirEnd) {
  const Report report = run(short_certificates(), {.sabotage = Sabotage::forgets_ends});
  EXPECT_TRUE(is_found(report, "ms after the end of its caller's certificate")) << report.summary();
}

TEST(ShortCertificates, ThatAreReplacedTooLateAreFoundToLoseCalls) {
  Scenario scenario = short_certificates();
  scenario.identity->certificates->life_seconds = 10;
  EXPECT_TRUE(is_found(run(scenario), "had to succeed, but failed with unauthenticated"));
}

TEST(ShortCertificates, AreFoundToTakeMoreHandshakesThanAllowed) {
  Scenario scenario = short_certificates();
  scenario.handshake_interval = 30s;
  EXPECT_TRUE(is_found(run(scenario), " handshakes, more than "));
}

TEST(ShortCertificates, AreFoundToBeOfNoUseLongBeforeTheirEnd) {
  Scenario scenario = short_certificates();
  scenario.workload.calls_per_caller = 20;
  EXPECT_TRUE(is_found(run(scenario), "a certificate was of no use long before its end"));
}

}  // namespace
}  // namespace weir::sim
