#include "apps/weir/process.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string_view>
#ifdef __linux__
#include <sched.h>
#endif

namespace weir::command {

namespace {
// The one thing that a signal handler may write.
volatile std::sig_atomic_t stop_flag = 0;
}  // namespace

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

Result<void> pin_to_core(int core) {
#ifdef __linux__
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (core >= 0 && core < CPU_SETSIZE) CPU_SET(static_cast<std::size_t>(core), &cores);
  if (sched_setaffinity(0, sizeof cores, &cores) == 0) return {};
  return std::unexpected(
      Error(Code::system, fmt::format("this process may not be pinned to core {}: {}", core, std::strerror(errno))));
#else
  return std::unexpected(Error(Code::system, fmt::format("this system cannot pin a thread to core {}", core)));
#endif
}

int usable_cores() {
#ifdef __linux__
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof cores, &cores) == 0) return CPU_COUNT(&cores);
#endif
  return static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
}

bool can_redraw(int descriptor, int columns) {
  if (isatty(descriptor) != 1) return false;
  const char* kind = std::getenv("TERM");
  if (kind != nullptr && std::string_view(kind) == "dumb") return false;
  winsize size{};
  // No width is told as 0; that is no reason to think it narrow.
  return ioctl(descriptor, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_col >= columns;
}

void catch_stop_signals() {
  struct sigaction action {};
  action.sa_handler = [](int) { stop_flag = 1; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool stop_requested() { return stop_flag != 0; }

}  // namespace weir::command
