// What a run prints: people and scripts look for the hash at its end.
#include "sim/run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <string>

namespace weir::sim {
namespace {

using ::testing::MatchesRegex;

// What `write` writes to the file that it is given.
template <class Write>
std::string written(Write&& write) {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), std::fclose);
  write(file.get());
  std::string text(static_cast<std::size_t>(std::ftell(file.get())), '\0');
  std::rewind(file.get());
  EXPECT_EQ(std::fread(text.data(), 1, text.size(), file.get()), text.size());
  return text;
}

constexpr const char* kHashLine = "[^\n]* 2 violations, hash [0-9a-f]{16}\n";

TEST(Print, EndsWithTheHashAfterTheViolations) {
  Report report;
  report.seed = 9;
  report.scenario = "calm";
  report.violations = {"one", "another"};
  EXPECT_THAT(
      written([&](std::FILE* out) { print(out, report); }),
      MatchesRegex(std::string("VIOLATION seed 9 scenario calm: one\nVIOLATION seed 9 scenario calm: another\n") +
                   kHashLine));
}

TEST(RunMany, EndsWithTheHash) {
  constexpr std::string_view kScenarios[] = {"calm"};
  const std::string text =
      written([&](std::FILE* out) { run_many({.first_seed = 5, .count = 2, .scenarios = kScenarios, .out = out}); });
  EXPECT_THAT(text, MatchesRegex("2 runs of seeds 5 to 6, [0-9]+ calls, 0 violations, hash [0-9a-f]{16}\n"));
}

}  // namespace
}  // namespace weir::sim
