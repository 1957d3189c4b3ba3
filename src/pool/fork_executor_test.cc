// A handler that forks while another thread holds the executor's lock, and while a coroutine of its own thread is to be
// resumed. In the child nobody gives the lock back. The test holds the worker where it allocates the executor's record
// of a member, under that lock.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <unordered_map>
#include <utility>

#include "pool/member_turns.h"
#include "pool/pool_testing.h"

namespace {

// What a node of std::unordered_map is: a link and the value.
constexpr std::size_t kMemberBytes =
    sizeof(void*) + sizeof(std::pair<const std::uint64_t, weir::pool::MemberTurns::Member>);

std::atomic<bool> is_armed{false}, is_held{false}, is_released{false};

void* allocate(std::size_t bytes) {
  if (bytes == kMemberBytes && is_armed.exchange(false)) {
    is_held = true;
    weir::testing::await([] { return is_released.load(); });
  }
  void* const memory = std::malloc(bytes);
  if (memory == nullptr) std::abort();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace weir {
namespace {

using namespace std::chrono_literals;
using testing::await;
using testing::client_config;
using testing::open;
using testing::server_config;

// Its status; one that does not end is killed.
int wait_for(pid_t child) {
  int status = 0;
  for (int i = 0; i < 30'000; ++i) {
    if (waitpid(child, &status, WNOHANG) == child) return status;
    usleep(1'000);
  }
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  return status;
}

TEST(ForkInAHandler, WaitsForNoLockOfTheExecutorsInTheChild) {
  Pool far = open(server_config(1));
  std::optional<Responder> late;
  std::atomic<bool> is_asked{false};
  ASSERT_TRUE(far.serve_inline("late", [&](InlineRequest& request) {
    late = request.defer();
    is_asked = true;
  }));
  Pool server = open(server_config(1));
  std::atomic<pid_t> child{-1};
  std::atomic<bool> is_running{false};
  ASSERT_TRUE(server.serve("awaits", [to = server.peer(far.listen_address())](Request) -> Task<Result<Reply>> {
    co_return co_await to.unary("late", "", {.deadline = 1h});
  }));
  ASSERT_TRUE(server.serve("forks", [&](Request) {
    is_running = true;
    await([] { return is_held.load(); });
    child = fork();
    return Reply("");
  }));
  ASSERT_TRUE(server.serve("echo", [](Request) { return Reply("echo"); }));
  Pool client = open(client_config(1));
  const Peer to = client.peer(server.listen_address());
  Call awaits = to.unary("awaits", "", {.deadline = 1h});
  await([&] { return is_asked.load(); });
  Call forks = to.unary("forks", "", {.deadline = 1h});
  await([&] { return is_running.load(); });
  // What the coroutine awaits comes while its thread runs the other handler.
  late->reply("late");
  await([&] { return server.counters().front().calls_completed == 1; });
  is_armed = true;
  Pool other = open(client_config(1));
  Call echo = other.peer(server.listen_address()).unary("echo", "", {.deadline = 1h});
  await([&] { return child != -1; });
  is_released = true;
  const int status = wait_for(child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  for (Call* call : {&awaits, &forks, &echo}) EXPECT_TRUE(call->get());
}

}  // namespace
}  // namespace weir
