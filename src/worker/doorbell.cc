#include "worker/doorbell.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>

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

Doorbell::~Doorbell() {
  if (!is_open()) return;
  close(read_end_);
  if (write_end_ != read_end_) close(write_end_);
}

void Doorbell::wake() noexcept {
  const std::uint64_t one = 1;
  // A full counter or pipe is readable already, so a failed write has nothing to add.
  [[maybe_unused]] const auto written = write(write_end_, &one, sizeof one);
}

void Doorbell::clear_descriptor() noexcept {
  std::uint64_t ignored[16];
  while (read(read_end_, ignored, sizeof ignored) == static_cast<ssize_t>(sizeof ignored)) {
  }
}

}  // namespace weir::worker
