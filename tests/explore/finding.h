// What tests of scenarios ask: that no schedule breaks the code, and that a deliberate defect is found.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>

#include "tests/explore/explorer.h"

namespace weir::explore {

using Script = std::function<void(Scene&)>;

inline Report expect_sound(const Options& options, const Script& script) {
  Report report = explore(options, script);
  EXPECT_FALSE(report.has_failed) << report.failure << "\n  " << report.schedule << "\n" << report.trace;
  EXPECT_TRUE(report.is_complete || options.random_schedules != 0) << report.summary();
  return report;
}

// The defect is found, and the schedule that is printed shows it again.
inline void expect_found(Options options, const Fault& fault, const Script& script) {
  options.faults = {fault};
  const Report report = explore(options, script);
  ASSERT_GT(report.faults_hit, 0u) << "no operation was changed: " << fault.file << " " << fault.function;
  ASSERT_TRUE(report.has_failed) << fault.file << " " << fault.function << ": " << report.summary();
  options.replay = report.schedule;
  const Report again = explore(options, script);
  EXPECT_TRUE(again.has_failed);
  EXPECT_EQ(again.failure, report.failure);
  EXPECT_EQ(again.trace, report.trace);
}

}  // namespace weir::explore
