// The map of credentials: a reader finds what is there, whole, while the writer replaces, wipes and uses slots again.
#include <memory>
#include <vector>

#include "peer/secret_map.h"
#include "peer/secret_map_testing.h"
#include "tests/explore/finding.h"

namespace weir::explore {
namespace {

using namespace std::chrono_literals;
using peer::Credential;
using peer::SecretMap;
using peer::testing::numbered;
using peer::testing::numbered_address;
using peer::testing::numbered_id;

constexpr Instant kStart{1'000'000'000};

const std::vector<Credential>& prepared() {
  static const std::vector<Credential> all = [] {
    std::vector<Credential> made;
    for (std::uint64_t i = 0; i < 4; ++i) made.push_back(numbered(i, 1));
    return made;
  }();
  return all;
}

void put(SecretMap& map, std::size_t number, Instant now) {
  map.install(prepared()[number], now);
  map.confirm(prepared()[number].id, now);
}

// Two slots: the third credential takes the slot of the first.
void replace(Scene& run, bool by_address) {
  auto map = std::make_shared<SecretMap>(SecretMap::Options{.capacity = 2, .grace = 1ns});
  put(*map, 0, kStart);
  run.thread([map] {
    put(*map, 1, kStart + 1us);
    map->retire(prepared()[0].id, kStart + 1us);
    map->expire(kStart + 2us);
    put(*map, 2, kStart + 3us);
  });
  run.thread([map, by_address] {
    Credential out;
    if (by_address) {
      check(map->find_by_address(numbered_address(1), kStart, out), "the address always has a credential");
      const auto number = weir::load<std::uint64_t>(out.id.data());
      check(number < 3 && out == prepared()[number], "what is found is whole");
    } else if (map->find(numbered_id(0), kStart, out)) {
      check(out == prepared()[0], "what is found is whole");
    }
  });
}

void replace_by_id(Scene& run) { replace(run, false); }
void replace_by_address(Scene& run) { replace(run, true); }

TEST(ExploreSecretMap, AReaderFindsWholeCredentials) {
  prepared();
  expect_sound({.name = "secret map, by id", .preemptions = 1, .stale_reads = 1, .history = 2}, replace_by_id);
  expect_sound({.name = "secret map, by address", .preemptions = 1, .stale_reads = 1, .history = 2},
               replace_by_address);
  expect_sound({.name = "secret map, by id", .random_schedules = 1'000}, replace_by_id);
  expect_sound({.name = "secret map, by address", .random_schedules = 1'000}, replace_by_address);
}

TEST(ExploreSecretMap, DefectsAreFound) {
  prepared();
  for (const Fault& fault : {Fault{"secret_slot.h", "Slot::load(", Fault::Kind::relax, Operation::load},
                             Fault{"secret_slot.h", "Slot::store(", Fault::Kind::relax, Operation::store},
                             Fault{"secret_map.cc", "::remove(", Fault::Kind::skip, Operation::store}}) {
    expect_found({.name = "secret map, by id", .preemptions = 1, .stale_reads = 1, .history = 6}, fault, replace_by_id);
  }
}

}  // namespace
}  // namespace weir::explore
