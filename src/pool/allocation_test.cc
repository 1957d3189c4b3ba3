// Counts every heap allocation of the process: a call in the steady state makes none.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <vector>

#include "pool/pool_testing.h"

namespace {
std::atomic<std::uint64_t> allocations{0};
std::atomic<bool> is_counting{false};
inline void count() {
  if (is_counting.load(std::memory_order_relaxed)) allocations.fetch_add(1, std::memory_order_relaxed);
}
}  // namespace

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// malloc itself, so that nothing escapes: operator new ends up here too.
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
void* malloc(std::size_t size) {
  count();
  return __libc_malloc(size);
}
void* calloc(std::size_t number, std::size_t size) {
  count();
  return __libc_calloc(number, size);
}
void* realloc(void* memory, std::size_t size) {
  count();
  return __libc_realloc(memory, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) {
  count();
  return __libc_memalign(alignment, size);
}
}
#else
void* operator new(std::size_t size) {
  count();
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
#endif

namespace weir {
namespace {

using testing::client_config;
using testing::open;
using testing::serve_echo;
using testing::server_config;

constexpr int kCallers = 32;

struct Setup {
  int server;
  int client;
  std::size_t bytes;
};

class Allocation : public ::testing::TestWithParam<Setup> {
 protected:
  static constexpr int kWarmUp = 6'000;
  static constexpr int kCalls = 6'000;
  // Far fewer than one per call: what a table does when it grows once more, or a timer of the machine's.
  static constexpr std::uint64_t kFew = 20;
};

struct Progress {
  int left = 0;     // calls to make
  int callers = 0;  // coroutines that still do
};

Task<void> call_again_and_again(Peer to, std::string_view body, Progress& progress) {
  while (progress.left > 0) {
    --progress.left;
    Result<Reply> reply = co_await to.unary("echo", body);
    EXPECT_TRUE(reply);
  }
  --progress.callers;
}

Task<void> call_from_many(const Pool& pool, Peer to, std::string_view body, int calls) {
  Progress progress{.left = calls, .callers = kCallers};
  for (int i = 0; i < kCallers; ++i) pool.spawn(call_again_and_again(to, body, progress));
  while (progress.callers > 0) EXPECT_TRUE(co_await to.unary("echo", body));
}

TEST_P(Allocation, IsNoPartOfACall) {
  Pool server = open(server_config(GetParam().server));
  serve_echo(server);
  Pool client = open(client_config(GetParam().client));
  const Peer to = client.peer(server.listen_address());
  const std::string body(GetParam().bytes, 'x');
  std::atomic<bool> stop{false};
  std::thread turner([&] {
    while (GetParam().server == 0 && !stop) server.poll_for(std::chrono::milliseconds(1));
  });
  client.run(call_from_many(client, to, body, kWarmUp));
  allocations = 0;
  is_counting = true;
  client.run(call_from_many(client, to, body, kCalls));
  is_counting = false;
  EXPECT_LE(allocations, kFew + 2 * (kCallers + 1));  // a task and its frame for each caller, where frames are not kept
  stop = true;
  turner.join();
}

INSTANTIATE_TEST_SUITE_P(Pools, Allocation,
                         ::testing::Values(Setup{0, 0, 32}, Setup{1, 1, 32}, Setup{0, 0, 200}, Setup{1, 1, 200},
                                           Setup{1, 1, 4'000}, Setup{0, 0, 4'000}),
                         [](const auto& of) {
                           return "Server" + std::to_string(of.param.server) + "Client" +
                                  std::to_string(of.param.client) + "Bytes" + std::to_string(of.param.bytes);
                         });

}  // namespace
}  // namespace weir
