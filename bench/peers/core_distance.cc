// How far apart two cores are: the time that a word takes from one to the other and back. A virtual machine's cores may
// share a cache in one minute and not in the next, and whatever passes between them costs several times as much then.
#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace {

constexpr long kRounds = 50'000;

alignas(128) std::atomic<long> word{0};

bool pin(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  return pthread_setaffinity_np(pthread_self(), sizeof set, &set) == 0;
}

void await(long value) {
  while (word.load(std::memory_order_acquire) != value) {
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: core_distance CORE CORE\nprints the round trip between two cores in ns\n");
    return 2;
  }
  const int here = std::atoi(argv[1]), there = std::atoi(argv[2]);
  if (here == there || !pin(here)) {
    std::fprintf(stderr, "error: give two cores that this process may run on\n");
    return 2;
  }
  std::atomic<bool> is_pinned{false}, has_failed{false};
  std::thread other([&] {
    has_failed = !pin(there);
    is_pinned = true;
    for (long i = 0; i < kRounds && !has_failed; ++i) {
      await(2 * i + 1);
      word.store(2 * i + 2, std::memory_order_release);
    }
  });
  while (!is_pinned) std::this_thread::yield();
  if (has_failed) {
    other.join();
    std::fprintf(stderr, "error: give two cores that this process may run on\n");
    return 2;
  }
  const auto begin = std::chrono::steady_clock::now();
  for (long i = 0; i < kRounds; ++i) {
    word.store(2 * i + 1, std::memory_order_release);
    await(2 * i + 2);
  }
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
  other.join();
  std::printf("%.0f\n", took.count() / kRounds);
  return 0;
}
