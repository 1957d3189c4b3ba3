#include "sim/agenda.h"

#include <gtest/gtest.h>

#include <map>
#include <utility>
#include <vector>

#include "base/random.h"

namespace weir::sim {
namespace {

TEST(Agenda, TellsTheEarliestPartAndOfEqualOnesTheFirst) {
  Agenda agenda;
  for (int i = 0; i < 3; ++i) agenda.add();
  EXPECT_TRUE(agenda.next().is_never());
  agenda.set(2, Instant{5});
  agenda.set(1, Instant{5});
  agenda.set(0, Instant{9});
  EXPECT_EQ(agenda.first(), 1u);
  agenda.set(1, Instant::never());
  EXPECT_EQ(agenda.first(), 2u);
  agenda.set(0, Instant{1});
  EXPECT_EQ(agenda.first(), 0u);
  EXPECT_EQ(agenda.next(), Instant{1});
  EXPECT_TRUE(agenda.when(1).is_never());
}

TEST(Agenda, AgreesWithASortedMapThroughManyChanges) {
  Agenda agenda;
  std::map<Agenda::Part, Instant> expected;
  Random random(7);
  constexpr std::uint64_t kParts = 100;
  for (std::uint64_t i = 0; i < kParts; ++i) agenda.add();
  for (int step = 0; step < 20'000; ++step) {
    const auto part = static_cast<Agenda::Part>(random.below(kParts));
    const Instant when = random.chance(0.3) ? Instant::never() : Instant{static_cast<std::int64_t>(random.below(50))};
    agenda.set(part, when);
    expected.erase(part);
    if (!when.is_never()) expected[part] = when;
    std::pair<Instant, Agenda::Part> least{Instant::never(), 0};
    for (const auto& [p, at] : expected) least = std::min(least, std::pair{at, p});
    ASSERT_EQ(agenda.next(), least.first);
    if (!expected.empty()) {
      ASSERT_EQ(agenda.first(), least.second);
    }
  }
}

}  // namespace
}  // namespace weir::sim
