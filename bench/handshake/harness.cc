#include "bench/handshake/harness.h"

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace weir::bench {

namespace {

std::int64_t read(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

void fail(const std::string& sentence) {
  std::fprintf(stderr, "error: %s\n", sentence.c_str());
  std::_Exit(1);  // other threads are at work: no destructors
}

void fail_with_errno(const std::string& what) { fail(what + ": " + std::strerror(errno)); }

std::int64_t wall_ns() { return read(CLOCK_MONOTONIC); }
std::int64_t thread_cpu_ns() { return read(CLOCK_THREAD_CPUTIME_ID); }

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

Pinned::Pinned(int core) {
  if (core < 0) return;
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof(cores), &cores) != 0) fail_with_errno("cannot read the affinity");
  before_.resize(sizeof(cores));
  std::memcpy(before_.data(), &cores, sizeof(cores));
  CPU_ZERO(&cores);
  CPU_SET(static_cast<std::size_t>(core), &cores);
  if (sched_setaffinity(0, sizeof(cores), &cores) != 0) fail_with_errno("cannot pin to core " + std::to_string(core));
}

Pinned::~Pinned() {
  if (before_.empty()) return;
  cpu_set_t cores;
  std::memcpy(&cores, before_.data(), sizeof(cores));
  sched_setaffinity(0, sizeof(cores), &cores);
}

}  // namespace weir::bench
