#include "worker/poller.h"

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <utility>

// WEIR_PORTABLE_UDP leaves out what only Linux has, as other systems do.
#if defined(__linux__) && !defined(WEIR_PORTABLE_UDP)
#define WEIR_HAS_EPOLL 1
#include <sys/epoll.h>
#include <unistd.h>
#endif

#include "base/check.h"

namespace weir::worker {
namespace {

// Rounded up: waking too early would only make the loop turn for nothing.
int to_milliseconds(Duration at_most) {
  if (at_most == Duration::max()) return -1;
  constexpr std::int64_t kLongest = 1'000'000;
  return static_cast<int>(std::min<std::int64_t>((at_most.count() + 999'999) / 1'000'000, kLongest));
}

}  // namespace

#if defined(WEIR_HAS_EPOLL)

Poller::Poller() : epoll_(epoll_create1(EPOLL_CLOEXEC)) {}

Poller::~Poller() {
  if (epoll_ >= 0) close(epoll_);
}

void Poller::close_in_child() noexcept {
  if (fork_guard_.is_in_child() && epoll_ >= 0) close(std::exchange(epoll_, -1));
}

bool Poller::is_open() const { return epoll_ >= 0; }

void Poller::add(int descriptor, void* tag) {
  if (fork_guard_.is_in_child()) return;
  epoll_event event{.events = EPOLLIN, .data = {.ptr = tag}};
  WEIR_CHECK(epoll_ctl(epoll_, EPOLL_CTL_ADD, descriptor, &event) == 0, "a descriptor could not be added to epoll");
}

void Poller::want(int descriptor, void* tag, Wanted wanted) {
  if (fork_guard_.is_in_child()) return;
  epoll_event event{.events = (wanted.read ? std::uint32_t{EPOLLIN} : 0) | (wanted.write ? std::uint32_t{EPOLLOUT} : 0),
                    .data = {.ptr = tag}};
  epoll_ctl(epoll_, EPOLL_CTL_MOD, descriptor, &event);
}

void Poller::remove(int descriptor) {
  if (!fork_guard_.is_in_child()) epoll_ctl(epoll_, EPOLL_CTL_DEL, descriptor, nullptr);
}

std::size_t Poller::wait(Duration at_most) {
  if (fork_guard_.is_in_child()) return 0;
  epoll_event events[kMaxReady];
  int count = -1;
  const bool is_timed = at_most > Duration::zero() && at_most != Duration::max();
  if (is_timed && has_nanoseconds_) {
    const timespec limit{.tv_sec = static_cast<time_t>(at_most.count() / 1'000'000'000),
                         .tv_nsec = static_cast<long>(at_most.count() % 1'000'000'000)};
    count = epoll_pwait2(epoll_, events, kMaxReady, &limit, nullptr);
    if (count < 0 && errno != EINTR) has_nanoseconds_ = false;  // an older kernel, or a filter that does not know it
  }
  if (count < 0 && !(is_timed && has_nanoseconds_))
    count = epoll_wait(epoll_, events, kMaxReady, to_milliseconds(at_most));
  for (int i = 0; i < count; ++i) {
    ready_[i] = {.tag = events[i].data.ptr, .error = (events[i].events & EPOLLERR) != 0};
  }
  return static_cast<std::size_t>(std::max(count, 0));
}

#else

Poller::Poller() = default;
Poller::~Poller() = default;

void Poller::close_in_child() noexcept {}

bool Poller::is_open() const { return true; }

void Poller::add(int descriptor, void* tag) {
  watched_.push_back({.fd = descriptor, .events = POLLIN, .revents = 0});
  tags_.push_back(tag);
}

void Poller::want(int descriptor, void* tag, Wanted wanted) {
  for (std::size_t i = 0; i < watched_.size(); ++i) {
    if (watched_[i].fd != descriptor || tags_[i] != tag) continue;
    watched_[i].events = static_cast<short>((wanted.read ? POLLIN : 0) | (wanted.write ? POLLOUT : 0));
  }
}

void Poller::remove(int descriptor) {
  const auto found = std::ranges::find(watched_, descriptor, &pollfd::fd);
  if (found == watched_.end()) return;
  tags_.erase(tags_.begin() + (found - watched_.begin()));
  watched_.erase(found);
}

std::size_t Poller::wait(Duration at_most) {
  if (fork_guard_.is_in_child()) return 0;
  if (::poll(watched_.data(), static_cast<nfds_t>(watched_.size()), to_milliseconds(at_most)) <= 0) return 0;
  // From where the last one ended: otherwise those behind kMaxReady that are always ready would never be reported.
  std::size_t count = 0;
  std::size_t at = first_ < watched_.size() ? first_ : 0;
  for (std::size_t looked = 0; looked < watched_.size() && count < kMaxReady; ++looked) {
    if (const short found = watched_[at].revents; found != 0) {
      ready_[count++] = {.tag = tags_[at], .error = (found & POLLERR) != 0};
    }
    if (++at == watched_.size()) at = 0;
  }
  first_ = at;
  return count;
}

#endif

}  // namespace weir::worker
