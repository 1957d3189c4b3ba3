#include "worker/doorbell.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

// WEIR_PORTABLE_UDP leaves out what only Linux has, as other systems do.
#if defined(__linux__) && !defined(WEIR_PORTABLE_UDP)
#define WEIR_HAS_EVENTFD 1
#include <sys/eventfd.h>
#endif

namespace weir::worker {

Doorbell::Doorbell() {
#if defined(WEIR_HAS_EVENTFD)
  read_end_ = write_end_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
#else
  int ends[2];
  if (pipe(ends) != 0) return;
  for (int end : ends) {
    fcntl(end, F_SETFD, FD_CLOEXEC);
    fcntl(end, F_SETFL, O_NONBLOCK);
  }
  read_end_ = ends[0];
  write_end_ = ends[1];
#endif
}

Doorbell::~Doorbell() { close_ends(); }

void Doorbell::close_ends() noexcept {
  if (!is_open()) return;
  const int read_end = std::exchange(read_end_, -1);
  const int write_end = std::exchange(write_end_, -1);
  close(read_end);
  if (write_end != read_end) close(write_end);
}

void Doorbell::close_in_child() noexcept {
  if (fork_guard_.is_in_child()) close_ends();
}

void Doorbell::wake() noexcept {
  if (fork_guard_.is_in_child()) return;
  const std::uint64_t one = 1;
  // A full counter or pipe is readable already, so a failed write has nothing to add.
  [[maybe_unused]] const auto written = write(write_end_, &one, sizeof one);
}

void Doorbell::clear_descriptor() noexcept {
  if (fork_guard_.is_in_child()) return;
  std::uint64_t ignored[16];
  while (read(read_end_, ignored, sizeof ignored) == static_cast<ssize_t>(sizeof ignored)) {
  }
}

}  // namespace weir::worker
