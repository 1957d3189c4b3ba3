// Which paths have a model of their link, and what an engine tells it (docs/protocol.md, rule N-17).
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/core.h"
#include "engine/engine_access.h"
#include "engine/engines_testing.h"

namespace weir::engine {
namespace {

using testing::EngineAccess;
using testing::Engines;
using testing::TestCall;
using namespace std::chrono_literals;

constexpr std::uint64_t kRate = 250'000'000 / 8;

class LonePath : public ::testing::Test {
 protected:
  void make(std::size_t servers) {
    engines.keeps_departures = false;
    engines.add(false, nullptr);
    for (std::size_t i = 1; i <= servers; ++i) {
      engines.add(true, nullptr);
      engines.set_rate_to(i, kRate);
    }
  }
  // One message to each server, all at once.
  void send(std::size_t bytes) {
    const std::size_t servers = engines.addresses.size() - 1;
    std::vector<std::unique_ptr<TestCall>> calls;
    for (std::size_t to = 1; to <= servers; ++to) {
      calls.push_back(std::make_unique<TestCall>());
      engines.call(0, to, *calls.back(), bytes);
    }
    ASSERT_TRUE(engines.run_until(
        [&] { return std::ranges::all_of(calls, [](const auto& call) { return call->completions == 1; }); }));
    for (const auto& call : calls) EXPECT_FALSE(call->failed) << call->reply;
  }
  std::vector<const Path*> paths() {
    std::vector<const Path*> list;
    EngineAccess::core(engines.engine(0)).paths.for_each([&](Path& path) { list.push_back(&path); });
    return list;
  }
  std::size_t models() {
    return static_cast<std::size_t>(
        std::ranges::count_if(paths(), [](const Path* path) { return path->congestion.has_model(); }));
  }

  Engines engines;
};

TEST_F(LonePath, HasAModelOnceItFillsAPartOfItsWindow) {
  make(1);
  for (int i = 0; i < 20; ++i) send(4'000);
  EXPECT_EQ(models(), 0U) << "one small call at a time needs none";
  send(8u << 20);
  ASSERT_EQ(models(), 1U);
  const recovery::Bbr& model = *paths().front()->congestion.model();
  EXPECT_NEAR(static_cast<double>(model.maximum_rate()), kRate, 0.05 * kRate);
  EXPECT_FALSE(model.in_slow_start());
}

TEST_F(LonePath, HasNoneWhereItSharesItsLink) {
  engines.in_one_network = true;
  make(4);
  send(1u << 20);
  EXPECT_EQ(paths().size(), 4U);
  EXPECT_EQ(models(), 0U);
}

TEST_F(LonePath, LosesItWhenOthersCome) {
  engines.in_one_network = true;
  make(3);
  send(4u << 20);
  EXPECT_EQ(models(), 3U);
  engines.add(true, nullptr);
  send(1u << 20);
  EXPECT_EQ(models(), 0U);
}

TEST_F(LonePath, HasNoneOnALoopbackInterface) {
  make(1);
  for (Address& address : engines.addresses) address = Address::v4(0x7f000001, address.port);
  send(4u << 20);
  EXPECT_EQ(models(), 0U);
}

TEST_F(LonePath, GivesTheMemoryOfItsModelBackWhenItIsIdle) {
  make(1);
  send(4u << 20);
  ASSERT_EQ(models(), 1U);
  engines.run_for(2s);
  EXPECT_EQ(paths().size(), 1U);
  EXPECT_EQ(models(), 0U);
}

// A plateau of rates would end startup if these were taken for what the link carries.
TEST_F(LonePath, TellsItsModelThatTheApplicationSendsNoMore) {
  make(1);
  for (int i = 0; i < 60; ++i) send(40'000);
  ASSERT_EQ(models(), 1U);
  EXPECT_TRUE(paths().front()->congestion.model()->in_slow_start());
}

}  // namespace
}  // namespace weir::engine
