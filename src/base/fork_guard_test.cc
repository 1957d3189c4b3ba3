#include "base/fork_guard.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <thread>

namespace weir {
namespace {

// The exit status of a child that runs `run` and ends with what that returns.
template <class Run>
int status_of_child(Run run, pid_t child = fork()) {
  if (child == 0) _exit(run());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(ForkGuard, NoticesAChildAndTheChildOfThatChild) {
  const ForkGuard guard;
  EXPECT_FALSE(guard.is_in_child());
  const int status = status_of_child([&] {
    if (!guard.is_in_child()) return 1;
    const ForkGuard own;  // the child's number, from here on
    if (own.is_in_child() || !guard.is_in_child()) return 2;
    const int below = status_of_child([&] {
      const ForkGuard last;
      return guard.is_in_child() && own.is_in_child() && !last.is_in_child() ? 0 : 4;
    });
    if (own.is_in_child()) return 3;
    return below;
  });
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(guard.is_in_child());
}

#if defined(__linux__)
// No handler of pthread_atfork() runs then.
TEST(ForkGuard, NoticesAChildThatWasMadeWithoutTheLibraryOfC) {
  const ForkGuard guard;
  const auto child = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
  EXPECT_EQ(status_of_child([&] { return guard.is_in_child() ? 0 : 1; }, child), 0);
}
#endif

TEST(ForkGuard, AThreadIsNoChild) {
  const ForkGuard guard;
  std::thread([&] { EXPECT_FALSE(guard.is_in_child()); }).join();
}

struct Counted {
  explicit Counted(int& destroyed_) : destroyed(destroyed_) {}
  ~Counted() { ++destroyed; }
  int& destroyed;
};

TEST(SharedUnlessForked, IsDestroyedWhereItWasMadeAndNowhereElse) {
  int destroyed = 0;
  auto shared = make_shared_unless_forked<Counted>(destroyed);
  const int status = status_of_child([&] {
    shared.reset();
    return destroyed;
  });
  EXPECT_EQ(status, 0);
  shared.reset();
  EXPECT_EQ(destroyed, 1);
}

TEST(OnePerProcess, AChildHasItsOwn) {
  struct Number {
    int value = 0;
  };
  static OnePerProcess<Number> number;
  number.get().value = 7;
  const int status = status_of_child([] {
    if (number.get().value != 0) return 1;
    number.get().value = 8;
    return number.get().value == 8 ? 0 : 2;
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(number.get().value, 7);
}

}  // namespace
}  // namespace weir
