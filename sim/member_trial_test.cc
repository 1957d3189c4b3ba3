// That the trial of members notices a server that does not tell them apart. Whether the real one passes, every scenario
// is asked in sim_test.cc.
#include "sim/member_trial.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "sim/simulation.h"

namespace weir::sim {
namespace {

TEST(MemberTrial, NoticesAServerThatForgetsWhoHasMadeItsPaths) {
  std::set<std::string> noticed;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    const Report report = run(*make_scenario("members", seed), {.sabotage = Sabotage::forgets_members});
    EXPECT_FALSE(report.violations.empty()) << "seed " << seed;
    for (const std::string& each : report.violations) {
      for (const std::string words : {" holds ", " paths of ", "it is due ", "the newcomer's first call took "}) {
        if (each.find(words) != std::string::npos) noticed.insert(words);
      }
    }
  }
  EXPECT_EQ(noticed.size(), 4u);
}

}  // namespace
}  // namespace weir::sim
