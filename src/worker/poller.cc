#include "worker/poller.h"

#include <algorithm>
#include <cerrno>
#include <ctime>

#if defined(__linux__)
#include <sys/epoll.h>
#else
#include <poll.h>
#endif
#include <unistd.h>

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

#if defined(__linux__)

Poller::Poller() : epoll_(epoll_create1(EPOLL_CLOEXEC)) {}

Poller::~Poller() {
  if (epoll_ >= 0) close(epoll_);
}

bool Poller::is_open() const { return epoll_ >= 0; }

void Poller::add(int descriptor, void* tag) {
  epoll_event event{.events = EPOLLIN, .data = {.ptr = tag}};
  WEIR_CHECK(epoll_ctl(epoll_, EPOLL_CTL_ADD, descriptor, &event) == 0, "a descriptor could not be added to epoll");
}

void Poller::want(int descriptor, void* tag, Wanted wanted) {
  epoll_event event{.events = (wanted.read ? std::uint32_t{EPOLLIN} : 0) | (wanted.write ? std::uint32_t{EPOLLOUT} : 0),
                    .data = {.ptr = tag}};
  epoll_ctl(epoll_, EPOLL_CTL_MOD, descriptor, &event);
}

void Poller::remove(int descriptor) { epoll_ctl(epoll_, EPOLL_CTL_DEL, descriptor, nullptr); }

std::size_t Poller::wait(Duration at_most) {
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

bool Poller::is_open() const { return true; }

void Poller::add(int descriptor, void* tag) { watched_.push_back({descriptor, tag, {}}); }

void Poller::want(int descriptor, void* tag, Wanted wanted) {
  for (Watched& watched : watched_) {
    if (watched.descriptor == descriptor && watched.tag == tag) watched.wanted = wanted;
  }
}

void Poller::remove(int descriptor) {
  std::erase_if(watched_, [&](const Watched& watched) { return watched.descriptor == descriptor; });
}

std::size_t Poller::wait(Duration at_most) {
  std::vector<pollfd> descriptors;
  descriptors.reserve(watched_.size());
  for (const Watched& watched : watched_) {
    const int events = (watched.wanted.read ? POLLIN : 0) | (watched.wanted.write ? POLLOUT : 0);
    descriptors.push_back({watched.descriptor, static_cast<short>(events), 0});
  }
  if (::poll(descriptors.data(), static_cast<nfds_t>(descriptors.size()), to_milliseconds(at_most)) <= 0) return 0;
  std::size_t count = 0;
  for (std::size_t i = 0; i < descriptors.size() && count < kMaxReady; ++i) {
    if (descriptors[i].revents == 0) continue;
    ready_[count++] = {.tag = watched_[i].tag, .error = (descriptors[i].revents & POLLERR) != 0};
  }
  return count;
}

#endif

}  // namespace weir::worker
