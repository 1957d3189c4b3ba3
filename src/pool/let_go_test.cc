// A thread of the executor that was let go between taking a request and running its handler, when the pool and its
// methods have gone. The test holds the thread where it allocates the frame of the handler's coroutine, and overwrites
// memory that is given back.
#include <malloc.h>
#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <string_view>

#include "pool/pool_testing.h"

namespace {

constexpr std::size_t kSmallestFrame = 128;

std::atomic<bool> is_armed{false}, is_held{false}, is_released{false}, overwrites{false};

void hold_executor() {
  char name[16] = "";
  if (pthread_getname_np(pthread_self(), name, sizeof name) != 0) return;
  if (std::string_view(name) != "weir-executor" || !is_armed.exchange(false)) return;
  is_held = true;
  weir::testing::await([] { return is_released.load(); });
}

void* allocate(std::size_t bytes) {
  if (bytes >= kSmallestFrame && is_armed) hold_executor();
  void* const memory = std::malloc(bytes);
  if (memory == nullptr) std::abort();
  return memory;
}

void give_back(void* memory) {
  if (memory != nullptr && overwrites) {
    std::memset(memory, 0xdd, malloc_usable_size(memory));
    asm volatile("" : : "r"(memory) : "memory");  // the compiler may not leave it out
  }
  std::free(memory);
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes); }
void operator delete(void* memory) noexcept { give_back(memory); }
void operator delete(void* memory, std::size_t) noexcept { give_back(memory); }

namespace weir {
namespace {

using namespace std::chrono_literals;
using testing::await;
using testing::client_config;
using testing::open;
using testing::server_config;

TEST(LetGo, AHandlerThatWasTakenTouchesNothingOfThePoolThatHasGone) {
  const auto runs = std::make_shared<std::atomic<int>>(0);
  Pool client = open(client_config(1));
  {
    Pool server = open(server_config(1));
    ASSERT_TRUE(server.serve("task", [runs, to = server.peer("127.0.0.1:9")](Request) -> Task<Result<Reply>> {
      ++*runs;
      co_return co_await to.unary("nobody", "", {.deadline = 1h, .wait_for_ready = true});
    }));
    const Peer to = client.peer(server.listen_address());
    // The first one keeps its frame, so that the second needs another.
    to.unary("task", "", {.deadline = 1h}).then([](const Result<Reply>&) {});
    // Its thread allocates nothing large once its call has reached the worker: that happens when it awaits the call.
    await([&] { return server.counters().front().calls_started == 1; });
    is_armed = true;
    to.unary("task", "", {.deadline = 1h}).then([](const Result<Reply>&) {});
    await([] { return is_held.load(); });
    const Result<void> closed = server.close(10ms);
    ASSERT_FALSE(closed);
    EXPECT_NE(std::string(closed.error().message()).find("\"task\" (1)"), std::string::npos)
        << closed.error().message();
    overwrites = true;
  }
  is_released = true;
  await([&] { return runs.use_count() == 1; });
  // Whether the second one runs depends on when its thread looks. What has gone it must not touch in either case.
  EXPECT_GE(*runs, 1);
}

}  // namespace
}  // namespace weir
