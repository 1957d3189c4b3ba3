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

// Calls with continuations, kCallers at a time; each makes the next one.
class Continuations {
 public:
  Continuations(const Pool& pool, Peer to, std::string_view body) : pool_(pool), to_(std::move(to)), body_(body) {}

  void run(int calls, bool has_thread) {
    left_ = calls;
    callers_ = kCallers;
    for (int i = 0; i < kCallers; ++i) call_again();
    while (callers_ > 0) {
      if (has_thread) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      } else {
        pool_.poll_for(std::chrono::milliseconds(1));
      }
    }
  }

 private:
  void call_again() {
    if (left_.fetch_sub(1) <= 0) {
      --callers_;
      return;
    }
    to_.unary("echo", body_).then([this](Result<Reply> reply) {
      EXPECT_TRUE(reply);
      call_again();
    });
  }

  const Pool& pool_;
  const Peer to_;
  const std::string_view body_;
  std::atomic<int> left_{0};
  std::atomic<int> callers_{0};
};

// Two pools; a server without threads is turned by one of the test's.
class Both {
 public:
  explicit Both(const Setup& setup)
      : setup_(setup), server_(open(server_config(setup.server))), client_(open(client_config(setup.client))) {
    if (setup.server > 0) return;
    turner_ = std::thread([this] {
      while (!stop_) server_.poll_for(std::chrono::milliseconds(1));
    });
  }
  Both(const Both&) = delete;
  Both& operator=(const Both&) = delete;
  ~Both() {
    stop_ = true;
    if (turner_.joinable()) turner_.join();
  }
  Pool& server() { return server_; }
  const Pool& client() const { return client_; }
  Peer peer() const { return client_.peer(server_.listen_address()); }

  // Allocations while coroutines, or continuations, make kCalls calls after kWarmUp others.
  std::uint64_t count_with_coroutines(int warm_up, int calls) {
    const std::string body(setup_.bytes, 'x');
    client_.run(call_from_many(client_, peer(), body, warm_up));
    allocations = 0;
    is_counting = true;
    client_.run(call_from_many(client_, peer(), body, calls));
    is_counting = false;
    return allocations;
  }
  std::uint64_t count_with_continuations(int warm_up, int calls) {
    const std::string body(setup_.bytes, 'x');
    Continuations callers(client_, peer(), body);
    callers.run(warm_up, setup_.client > 0);
    allocations = 0;
    is_counting = true;
    callers.run(calls, setup_.client > 0);
    is_counting = false;
    return allocations;
  }

 private:
  const Setup setup_;
  Pool server_;
  Pool client_;
  std::atomic<bool> stop_{false};
  std::thread turner_;
};

TEST_P(Allocation, IsNoPartOfACall) {
  Both both(GetParam());
  serve_echo(both.server());
  // A task and its frame for each caller, where frames are not kept.
  EXPECT_LE(both.count_with_coroutines(kWarmUp, kCalls), kFew + 2 * (kCallers + 1));
}

TEST_P(Allocation, IsNoPartOfACallWithAContinuation) {
  Both both(GetParam());
  serve_echo(both.server());
  EXPECT_LE(both.count_with_continuations(kWarmUp, kCalls), kFew);
}

INSTANTIATE_TEST_SUITE_P(Pools, Allocation,
                         ::testing::Values(Setup{0, 0, 32}, Setup{1, 1, 32}, Setup{0, 0, 200}, Setup{1, 1, 200},
                                           Setup{1, 1, 4'000}, Setup{0, 0, 4'000}),
                         [](const auto& of) {
                           return "Server" + std::to_string(of.param.server) + "Client" +
                                  std::to_string(of.param.client) + "Bytes" + std::to_string(of.param.bytes);
                         });

// With requests and replies that fit into what a handler is given and returns: a larger Reply owns memory of its own.
class AllocationOnTheExecutor : public Allocation {
 protected:
  // Frames of coroutines are not kept under the address sanitizer, which so finds their use after the end.
#ifdef __SANITIZE_ADDRESS__
  static constexpr std::uint64_t kFrames = 3 * std::uint64_t{kCalls};
#else
  static constexpr std::uint64_t kFrames = 0;
#endif
};

TEST_P(AllocationOnTheExecutor, IsNoPartOfACallToAFunction) {
  Both both(GetParam());
  ASSERT_TRUE(both.server().serve("echo", [](Request request) { return Reply{request.text()}; }));
  EXPECT_LE(both.count_with_continuations(kWarmUp, kCalls), kFew + kFrames);
}

TEST_P(AllocationOnTheExecutor, IsNoPartOfACallToACoroutine) {
  Both both(GetParam());
  ASSERT_TRUE(both.server().serve("echo", [](Request request) -> Task<Reply> { co_return Reply{request.text()}; }));
  EXPECT_LE(both.count_with_continuations(kWarmUp, kCalls), kFew + kFrames);
}

INSTANTIATE_TEST_SUITE_P(Pools, AllocationOnTheExecutor, ::testing::Values(Setup{0, 0, 32}, Setup{1, 1, 32}),
                         [](const auto& of) { return "Server" + std::to_string(of.param.server); });

}  // namespace
}  // namespace weir
