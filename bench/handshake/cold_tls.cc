#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>
#include <unordered_map>

#include "bench/handshake/cold.h"
#include "bench/handshake/harness.h"

namespace weir::bench {

namespace {

constexpr int kEvents = 64;
constexpr int kPatienceMs = 30'000;

void watch(const Socket& poller, int descriptor, std::uint32_t events) {
  epoll_event event{.events = events, .data = {.fd = descriptor}};
  if (epoll_ctl(poller.get(), EPOLL_CTL_ADD, descriptor, &event) != 0) fail_with_errno("epoll_ctl");
}

int wait(const Socket& poller, std::array<epoll_event, kEvents>& events, int timeout_ms) {
  const int count = epoll_wait(poller.get(), events.data(), kEvents, timeout_ms);
  if (count < 0 && errno != EINTR) fail_with_errno("epoll_wait");
  return count < 0 ? 0 : count;
}

}  // namespace

ColdTls::ColdTls(const Identities& identities, std::size_t servers)
    : client_(identities, TlsContext::Role::client),
      server_(identities, TlsContext::Role::server),
      server_poller_(epoll_create1(EPOLL_CLOEXEC)),
      client_poller_(epoll_create1(EPOLL_CLOEXEC)),
      stop_(eventfd(0, EFD_CLOEXEC)) {
  for (std::size_t i = 0; i < servers; ++i) {
    std::uint16_t port = 0;
    listeners_.push_back(tcp_listen(port));
    ports_.push_back(port);
    watch(server_poller_, listeners_.back().get(), EPOLLIN);
  }
  watch(server_poller_, stop_.get(), EPOLLIN);
  thread_ = std::thread([this] { serve(); });
}

ColdTls::~ColdTls() {
  const std::uint64_t one = 1;
  if (write(stop_.get(), &one, sizeof(one)) < 0) fail_with_errno("eventfd");
  thread_.join();
}

void ColdTls::serve() {
  std::unordered_map<int, const Socket*> listeners;
  for (const Socket& listener : listeners_) listeners.emplace(listener.get(), &listener);
  std::unordered_map<int, std::unique_ptr<TlsSession>> sessions;
  std::array<epoll_event, kEvents> events{};
  for (;;) {
    const int count = wait(server_poller_, events, -1);
    for (int i = 0; i < count; ++i) {
      const int descriptor = events[static_cast<std::size_t>(i)].data.fd;
      if (descriptor == stop_.get()) return;
      if (const auto listener = listeners.find(descriptor); listener != listeners.end()) {
        Socket accepted = tcp_accept(*listener->second);
        if (accepted.get() < 0) continue;
        watch(server_poller_, accepted.get(), EPOLLIN | EPOLLRDHUP);
        auto session = std::make_unique<TlsSession>(server_, std::move(accepted), kBodyBytes);
        sessions.emplace(session->descriptor(), std::move(session));
        continue;
      }
      // A client that has its reply goes away.
      if ((events[static_cast<std::size_t>(i)].events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP)) != 0) {
        sessions.erase(descriptor);
      } else {
        sessions.at(descriptor)->advance();
      }
    }
  }
}

std::int64_t ColdTls::first_replies_ns(std::size_t count) {
  std::unordered_map<int, std::unique_ptr<TlsSession>> sessions;
  std::array<epoll_event, kEvents> events{};
  std::size_t answered = 0;

  std::this_thread::sleep_for(kPause);
  const std::int64_t began_ns = wall_ns();
  for (std::size_t i = 0; i < count; ++i) {
    Socket socket = tcp_connect(ports_[i]);
    // Edges: ready to write is news once, when the connection is there.
    watch(client_poller_, socket.get(), EPOLLIN | EPOLLOUT | EPOLLET);
    auto session = std::make_unique<TlsSession>(client_, std::move(socket), kBodyBytes);
    sessions.emplace(session->descriptor(), std::move(session));
  }
  while (answered < count) {
    const int ready = wait(client_poller_, events, kPatienceMs);
    if (ready == 0) fail("a TLS server did not answer");
    for (int i = 0; i < ready; ++i) {
      const auto found = sessions.find(events[static_cast<std::size_t>(i)].data.fd);
      if (found == sessions.end() || !found->second->advance()) continue;
      ++answered;
      // Kept open until the end, as a pool would; only no longer watched.
      epoll_ctl(client_poller_.get(), EPOLL_CTL_DEL, found->first, nullptr);
    }
  }
  return wall_ns() - began_ns;
}

}  // namespace weir::bench
