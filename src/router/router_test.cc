#include "router/router.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace weir::router {
namespace {

Address peer(std::uint32_t number) { return Address::v4(0x0a000000u + number, 4433); }

TEST(Router, KeepsAPeerWhereItIs) {
  Router router(8);
  std::vector<std::size_t> first;
  for (std::uint32_t i = 0; i < 100; ++i) first.push_back(router.worker_of(peer(i)));
  for (std::uint32_t i = 100; i < 1'000; ++i) router.worker_of(peer(i));
  for (std::uint32_t i = 0; i < 100; ++i) EXPECT_EQ(router.worker_of(peer(i)), first[i]);
}

TEST(Router, SpreadsPeersEvenly) {
  Router router(8);
  std::vector<int> loads(8, 0);
  for (std::uint32_t i = 0; i < 800; ++i) ++loads[router.worker_of(peer(i))];
  EXPECT_GE(*std::min_element(loads.begin(), loads.end()), 90);
  EXPECT_LE(*std::max_element(loads.begin(), loads.end()), 110);
}

TEST(Router, HasOnlyOneAnswerWithOneWorker) {
  Router router(1);
  for (std::uint32_t i = 0; i < 10; ++i) EXPECT_EQ(router.worker_of(peer(i)), 0u);
}

}  // namespace
}  // namespace weir::router
