#include "sim/cold_callers.h"

#include <gtest/gtest.h>

#include <chrono>

namespace weir::sim {
namespace {

using namespace std::chrono_literals;

// The scenarios of the command with a fifth of the callers, whose calls take as long.
ColdCallersShape smaller(std::string_view name) {
  ColdCallersShape shape = make_cold_scenario(name, 1).value();
  shape.callers /= 5;
  shape.service_time *= 5;
  shape.length = 10s;
  return shape;
}

std::string what_happened(const ColdCallersReport& report) {
  std::string text = "share of bytes sent again, by second:";
  for (const WireSecond& second : report.seconds) text += " " + std::to_string(second.share());
  return text + "; failed calls: " + std::to_string(report.failures());
}

TEST(ColdCallers, WaitForTheirTurnWithoutSendingRequestsAgain) {
  const ColdCallersReport report = ColdCallers(smaller("cold_callers")).run();
  EXPECT_TRUE(report.is_good()) << what_happened(report);
  EXPECT_GT(report.longest_call, 3s) << "the server was not overloaded";
  EXPECT_GT(report.calls, 1'000u);
}

TEST(ColdCallers, ThatComeBackAfterTheirPathsWereClosedDoNotEither) {
  const ColdCallersReport report = ColdCallers(smaller("cold_again")).run();
  EXPECT_TRUE(report.is_good()) << what_happened(report);
  EXPECT_GT(report.paths, 2 * report.shape.callers) << "hardly any path was closed";
}

TEST(ColdCallers, AreSeenToSendAgainWhatTheNetworkLoses) {
  ColdCallersShape shape = smaller("cold_again");
  shape.callers = 100;
  shape.length = 7s;
  shape.faults.loss = 0.1;
  const ColdCallersReport report = ColdCallers(shape).run();
  EXPECT_GT(report.worst_share(), kLargestRepeatedShare) << what_happened(report);
  std::uint64_t frames = 0, hellos = 0, firsts = 0;
  for (const WireSecond& second : report.seconds) {
    frames += second.frames;
    hellos += second.hellos;
    firsts += second.firsts;
  }
  EXPECT_GT(frames, 0u);
  EXPECT_GT(hellos, 0u);
  EXPECT_GT(firsts, 0u);
}

}  // namespace
}  // namespace weir::sim
