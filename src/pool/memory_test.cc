// What an outstanding call costs the process that makes it, everything counted: the record, the engine's tables, the
// packets in flight. The callee is another process, so that the heap that is counted is the caller's alone.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "engine/allocation_testing.h"
#include "pool/call_record.h"
#include "pool/pool_testing.h"

namespace weir {
namespace {

using testing::client_config;
using testing::Heap;
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
  return config;
}

// A process that takes requests and never answers. Forked while this process has no other thread.
class Holder {
 public:
  Holder() {
    int to_parent[2], to_child[2];
    if (pipe(to_parent) != 0 || pipe(to_child) != 0) std::abort();
    child_ = fork();
    if (child_ == 0) {
      close(to_child[1]);
      hold(to_parent[1], to_child[0]);
    }
    close(to_parent[1]);
    close(to_child[0]);
    end_ = to_child[1];
    char text[64] = {};
    EXPECT_GT(read(to_parent[0], text, sizeof text - 1), 0);
    close(to_parent[0]);
    address_ = text;
  }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;
  ~Holder() {
    close(end_);
    waitpid(child_, nullptr, 0);
  }
  const std::string& address() const { return address_; }

 private:
  [[noreturn]] static void hold(int ready, int end) {
    // It must outlive the pool, and does: the process ends without destroying either.
    auto* held = new std::vector<Responder>;
    auto* pool = new Pool(open(with_room_for_many(server_config(1))));
    EXPECT_TRUE(pool->serve_inline("hold", [held](InlineRequest& request) { held->push_back(request.defer()); }));
    const std::string address = pool->listen_address();
    if (write(ready, address.data(), address.size()) < 0) std::abort();
    char byte;
    while (read(end, &byte, 1) > 0) {
    }
    _exit(0);
  }

  pid_t child_;
  int end_;
  std::string address_;
};

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

class Memory : public ::testing::TestWithParam<Setup> {};

TEST_P(Memory, OfAnOutstandingCallIsWithinItsBudget) {
  if (!Heap::counts_bytes) return;  // a sanitizer's heap has a price of its own
  const auto [workers, count] = GetParam();
  const Holder holder;
  Pool client = open(with_room_for_many(client_config(workers)));
  const Peer to = client.peer(holder.address());
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
INSTANTIATE_TEST_SUITE_P(Calls, Memory,
                         ::testing::Values(Setup{0, 1'000}, Setup{0, 1'030}, Setup{0, 16'500}, Setup{0, 20'000},
                                           Setup{1, 1'000}, Setup{1, 1'030}, Setup{1, 16'500}, Setup{1, 20'000}),
                         [](const auto& test) {
                           return std::string(test.param.workers == 0 ? "Direct" : "Lane") +
                                  std::to_string(test.param.calls);
                         });

}  // namespace
}  // namespace weir
