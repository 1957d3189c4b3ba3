// What an outstanding call and an idle peer cost a process, everything counted: records, the engine's tables, the
// packets in flight. The other side is another process, so that the heap that is counted is one side's alone.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <string>
#include <vector>

#include "engine/allocation_testing.h"
#include "pool/call_record.h"
#include "pool/child_testing.h"
#include "pool/incoming_record.h"
#include "pool/pool_testing.h"

namespace weir {
namespace {

using testing::Child;
using testing::client_config;
using testing::Heap;
using testing::Lines;
using testing::open;
using testing::server_config;

constexpr double kBudget = 256;  // beyond the payload
constexpr std::size_t kPayload = 32;
constexpr std::size_t kFirstCalls = 32;  // they pay for what a pool, a worker and a path take once

Config with_room_for_many(Config config) {
  config.limits.calls_per_peer = 64 * 1024;
  config.limits.request_bytes_per_peer = 256u << 20;
  config.limits.request_bytes = 512u << 20;
  config.limits.reply_bytes = 4ull << 30;
  config.limits.answer_bytes = 4ull << 30;
  return config;
}

// Takes requests and never answers.
void hold(Lines& lines) {
  auto* held = new std::vector<Responder>;
  auto* pool = new Pool(open(with_room_for_many(server_config(1))));
  EXPECT_TRUE(pool->serve_inline("hold", [held](InlineRequest& request) { held->push_back(request.defer()); }));
  lines.say(pool->listen_address());
}

// Hears an address, and then how many calls to make to it.
void call(Lines& lines) {
  auto* pool = new Pool(open(with_room_for_many(client_config(1))));
  auto* calls = new std::vector<Call>;
  const Peer to = pool->peer(lines.hear());
  for (std::string count = lines.hear(); !count.empty(); count = lines.hear()) {
    for (int i = 0; i < std::stoi(count); ++i) {
      calls->push_back(to.unary("hold", std::string(kPayload, 'x'), {.deadline = std::chrono::hours(1)}));
    }
  }
}

constexpr int kPeers = 128;  // twice: the first pay for what a pool takes once

Config one_of_many(Config config, Workers& workers) {
  config.on = &workers;
  config.executor_threads = 0;
  config.limits.receive_buffers = 64;
  return config;
}

void serve_from_many(Lines& lines) {
  auto* workers = new Workers(Workers::open({.threads = 1}).value());
  auto* pools = new std::vector<Pool>;
  for (int i = 0; i < 2 * kPeers; ++i) {
    pools->push_back(open(one_of_many(server_config(1), *workers)));
    testing::serve_echo(pools->back());
    lines.say(pools->back().listen_address());
  }
}

// Hears an address, and whenever it hears anything more calls it from so many new peers.
void call_from_many(Lines& lines) {
  auto* workers = new Workers(Workers::open({.threads = 1}).value());
  auto* pools = new std::vector<Pool>;
  const std::string address = lines.hear();
  while (!lines.hear().empty()) {
    for (int i = 0; i < kPeers; ++i) {
      pools->push_back(open(one_of_many(client_config(1), *workers)));
      for (int round = 0; round < 3; ++round) {
        EXPECT_TRUE(pools->back().peer(address).unary("echo", std::string(kPayload, 'x')).get());
      }
    }
    lines.say("done");
  }
}

struct Setup {
  int workers;  // 0: the calls are direct; 1: they pass through a lane
  std::size_t calls;
};

// Without the buffers that the link receives into: how many it keeps follows from the traffic, and has its own bound.
std::int64_t live_bytes() { return Heap::live_bytes - Heap::live_page_bytes; }

void turn(const Pool& client, int workers) {
  if (workers == 0) {
    client.poll_for(std::chrono::milliseconds(1));
  } else {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void print_request(const char* kind, std::size_t count, double each) {
  std::printf("%zu %s requests of %zu bytes: %.1f bytes each, %.1f beyond the payload; the record is %zu\n", count,
              kind, kPayload, each, each - kPayload, sizeof(detail::IncomingRecord));
}

class MemoryOfCalls : public ::testing::TestWithParam<Setup> {};

TEST_P(MemoryOfCalls, WhileOutstandingIsWithinItsBudget) {
  if (!Heap::counts_bytes) return;  // a sanitizer's heap has a price of its own
  const auto [workers, count] = GetParam();
  Child holder(hold);
  Pool client = open(with_room_for_many(client_config(workers)));
  const Peer to = client.peer(holder.lines().hear());
  const std::string body(kPayload, 'x');
  std::vector<Call> calls;
  calls.reserve(kFirstCalls + count);  // handles are the application's
  std::uint64_t payload = 0;
  const auto make = [&](std::size_t more) {
    for (std::size_t i = 0; i < more; ++i) {
      calls.push_back(to.unary("hold", body, {.deadline = std::chrono::hours(1)}));
    }
    payload += more * kPayload;
    while (client.counters()[0].payload_bytes_sent < payload) turn(client, workers);
  };
  make(kFirstCalls);
  // Until something was received: what receiving takes is a worker's price, too.
  while (client.counters()[0].handshakes_completed == 0) turn(client, workers);
  const std::int64_t before = live_bytes();
  make(count);
  const double each = static_cast<double>(live_bytes() - before) / static_cast<double>(count);
  std::printf("%zu outstanding %s calls of %zu bytes: %.1f bytes each, %.1f beyond the payload; the record is %zu\n",
              count, workers == 0 ? "direct" : "lane", kPayload, each, each - kPayload, sizeof(detail::CallRecord));
  for (const Call& call : calls) ASSERT_FALSE(detail::call_ready(call.record()));
  EXPECT_LE(each - kPayload, kBudget);
}

// Some just above a power of two, where tables that double are at their worst.
INSTANTIATE_TEST_SUITE_P(Calls, MemoryOfCalls,
                         ::testing::Values(Setup{0, 1'000}, Setup{0, 1'030}, Setup{0, 16'500}, Setup{0, 20'000},
                                           Setup{1, 1'000}, Setup{1, 1'030}, Setup{1, 16'500}, Setup{1, 20'000}),
                         [](const auto& test) {
                           return std::string(test.param.workers == 0 ? "Direct" : "Lane") +
                                  std::to_string(test.param.calls);
                         });

// The same call as the callee has it, until it is answered.
using MemoryOfRequests = MemoryOfCalls;

TEST_P(MemoryOfRequests, WhoseAnswersAreDeferredIsWithinItsBudget) {
  if (!Heap::counts_bytes) return;
  const auto [workers, count] = GetParam();
  Child caller(call);
  Pool server = open(with_room_for_many(server_config(workers)));
  std::vector<Responder> held;
  held.reserve(kFirstCalls + count);  // handles are the application's
  std::atomic<std::size_t> arrived{0};
  ASSERT_TRUE(server.serve_inline("hold", [&](InlineRequest& request) {
    held.push_back(request.defer());
    ++arrived;
  }));
  caller.lines().say(server.listen_address());
  const auto take = [&](std::size_t more) {
    const std::size_t wanted = arrived + more;
    caller.lines().say(std::to_string(more));
    while (arrived < wanted) turn(server, workers);
  };
  take(kFirstCalls);
  const std::int64_t before = live_bytes();
  take(count);
  const double each = static_cast<double>(live_bytes() - before) / static_cast<double>(count);
  print_request("deferred", count, each);
  EXPECT_LE(each - kPayload, kBudget);
}

TEST_P(MemoryOfRequests, ThatWaitForTheExecutorIsWithinItsBudget) {
  if (!Heap::counts_bytes) return;
  const auto [workers, count] = GetParam();
  if (workers == 0) return;  // there is no executor
  Child caller(call);
  Pool server = open(with_room_for_many(server_config(workers)));
  std::atomic<bool> is_held{true};
  ASSERT_TRUE(server.serve("hold", [&](Request request) {
    testing::await([&] { return !is_held; });
    return Reply{request.text()};
  }));
  caller.lines().say(server.listen_address());
  std::uint64_t arrived = 0;
  const auto take = [&](std::size_t more) {
    arrived += more;
    caller.lines().say(std::to_string(more));
    while (server.counters()[0].requests_dispatched < arrived) turn(server, workers);
  };
  take(kFirstCalls);
  const std::int64_t before = live_bytes();
  take(count);
  const double each = static_cast<double>(live_bytes() - before) / static_cast<double>(count);
  print_request("queued", count, each);
  EXPECT_LE(each - kPayload, kBudget);
  is_held = false;
}

INSTANTIATE_TEST_SUITE_P(Calls, MemoryOfRequests,
                         ::testing::Values(Setup{0, 1'000}, Setup{0, 1'030}, Setup{0, 16'500}, Setup{0, 20'000},
                                           Setup{1, 1'000}, Setup{1, 1'030}, Setup{1, 16'500}, Setup{1, 20'000}),
                         [](const auto& test) {
                           return std::string(test.param.workers == 0 ? "Direct" : "Lane") +
                                  std::to_string(test.param.calls);
                         });

constexpr double kIdlePeerBudget = 2'048;
constexpr auto kAllAreIdle = std::chrono::milliseconds(2'500);  // after their last packet

// Until an idle peer costs no more than it may: it gives up its key schedules some time after its last packet.
double bytes_of_idle_peer(std::int64_t before) {
  const auto each = [&] { return static_cast<double>(live_bytes() - before) / kPeers; };
  for (int i = 0; i < 2'000 && each() > kIdlePeerBudget; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return each();
}

TEST(Memory, OfAnIdlePeerThatIsCalledIsWithinItsBudget) {
  if (!Heap::counts_bytes) return;
  Child servers(serve_from_many);
  Pool client = open(client_config(1));
  const auto meet = [&] {
    for (int i = 0; i < kPeers; ++i) {
      const Peer to = client.peer(servers.lines().hear());
      for (int round = 0; round < 3; ++round) ASSERT_TRUE(to.unary("echo", std::string(kPayload, 'x')).get());
    }
  };
  meet();
  std::this_thread::sleep_for(kAllAreIdle);
  const std::int64_t before = live_bytes();
  meet();
  const double each = bytes_of_idle_peer(before);
  std::printf("an idle peer that was called: at most %.0f bytes\n", each);
  EXPECT_LE(each, kIdlePeerBudget);
}

TEST(Memory, OfAnIdlePeerThatCalledIsWithinItsBudget) {
  if (!Heap::counts_bytes) return;
  Child callers(call_from_many);
  Pool server = open(server_config(1));
  testing::serve_echo(server);
  callers.lines().say(server.listen_address());
  const auto meet = [&] {
    callers.lines().say("more");
    ASSERT_EQ(callers.lines().hear(), "done");
  };
  meet();
  std::this_thread::sleep_for(kAllAreIdle);
  const std::int64_t before = live_bytes();
  meet();
  const double each = bytes_of_idle_peer(before);
  std::printf("an idle peer that called: at most %.0f bytes\n", each);
  EXPECT_LE(each, kIdlePeerBudget);
}

}  // namespace
}  // namespace weir
