// What tests of fork() share: this program stands between the pool and the system, to see which process touches which
// descriptor, and to record every datagram. Included by one file of a program.
#pragma once

#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>

#include "pool/identity_testing.h"
#include "pool/pool_testing.h"
#include "wire/packet.h"

namespace weir::testing {

// One datagram that a process gave to the kernel.
struct Sent {
  bool is_childs = false;
  std::uint16_t to_port = 0;
  std::array<std::byte, wire::kHeaderBytes> header{};
  std::uint64_t digest = 0;  // of all its bytes
};

// Shared by all processes of a test.
struct Record {
  static constexpr std::size_t kMaxSent = 1u << 16;
  std::atomic<std::uint32_t> touches{0};  // of inherited descriptors, by children, but for close()
  char first_touch[64]{};
  std::atomic<std::uint32_t> sent{0};
  Sent datagrams[kMaxSent]{};
};

inline Record* record = nullptr;
inline pid_t parent = 0;  // whose descriptors they are
inline constexpr int kMaxDescriptors = 1024;
inline bool is_inherited[kMaxDescriptors] = {};  // at the fork, and not closed since

inline bool is_child() { return parent != 0 && static_cast<pid_t>(syscall(SYS_getpid)) != parent; }

inline void note_touch(int descriptor, const char* by) {
  if (descriptor < 0 || descriptor >= kMaxDescriptors || !is_inherited[descriptor] || !is_child()) return;
  if (record->touches.fetch_add(1) == 0) std::snprintf(record->first_touch, sizeof record->first_touch, "%s", by);
}

// Of everything that a pool may have open: sockets, epoll, eventfd, timerfd.
inline void note_descriptors() {
  for (int descriptor = 3; descriptor < kMaxDescriptors; ++descriptor) {
    char target[64] = {};
    const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
    const auto bytes = readlink(link.c_str(), target, sizeof target - 1);
    const std::string_view name(target, bytes < 0 ? 0 : static_cast<std::size_t>(bytes));
    is_inherited[descriptor] = name.starts_with("socket:") || name.starts_with("anon_inode:");
  }
}

inline void note_datagram(const sockaddr_in& to, const std::byte* bytes, std::size_t size) {
  const std::uint32_t at = record->sent.fetch_add(1);
  if (at >= Record::kMaxSent || size < wire::kHeaderBytes) return;
  Sent& sent = record->datagrams[at];
  sent.is_childs = is_child();
  sent.to_port = ntohs(to.sin_port);
  std::memcpy(sent.header.data(), bytes, sent.header.size());
  sent.digest = 0xcbf29ce484222325;
  for (std::size_t i = 0; i < size; ++i) {
    sent.digest = (sent.digest ^ static_cast<std::uint8_t>(bytes[i])) * 0x100000001b3;
  }
}

inline void note_message(const msghdr& message) {
  if (record == nullptr || message.msg_namelen < sizeof(sockaddr_in)) return;
  std::string all;
  for (std::size_t i = 0; i < message.msg_iovlen; ++i) {
    all.append(static_cast<const char*>(message.msg_iov[i].iov_base), message.msg_iov[i].iov_len);
  }
  std::size_t segment = all.size();
  for (cmsghdr* control = CMSG_FIRSTHDR(&message); control != nullptr;
       control = CMSG_NXTHDR(const_cast<msghdr*>(&message), control)) {
    if (control->cmsg_level != SOL_UDP || control->cmsg_type != UDP_SEGMENT) continue;
    std::uint16_t size = 0;
    std::memcpy(&size, CMSG_DATA(control), sizeof size);
    segment = size;
  }
  sockaddr_in to{};
  std::memcpy(&to, message.msg_name, sizeof to);
  for (std::size_t at = 0; at < all.size(); at += segment) {
    note_datagram(to, reinterpret_cast<const std::byte*>(all.data()) + at, std::min(segment, all.size() - at));
  }
}

}  // namespace weir::testing

// These take precedence over the C library's.
extern "C" int sendmmsg(int socket, mmsghdr* messages, unsigned count, int flags) {
  weir::testing::note_touch(socket, "sendmmsg");
  const auto sent = static_cast<int>(syscall(SYS_sendmmsg, socket, messages, count, flags));
  for (int i = 0; i < sent; ++i) weir::testing::note_message(messages[i].msg_hdr);
  return sent;
}
extern "C" ssize_t sendmsg(int socket, const msghdr* message, int flags) {
  weir::testing::note_touch(socket, "sendmsg");
  const ssize_t sent = syscall(SYS_sendmsg, socket, message, flags);
  if (sent >= 0) weir::testing::note_message(*message);
  return sent;
}
extern "C" int recvmmsg(int socket, mmsghdr* messages, unsigned count, int flags, timespec* limit) {
  weir::testing::note_touch(socket, "recvmmsg");
  return static_cast<int>(syscall(SYS_recvmmsg, socket, messages, count, flags, limit));
}
extern "C" ssize_t recvmsg(int socket, msghdr* message, int flags) {
  weir::testing::note_touch(socket, "recvmsg");
  return syscall(SYS_recvmsg, socket, message, flags);
}
extern "C" int setsockopt(int socket, int level, int option, const void* value, socklen_t size) noexcept {
  weir::testing::note_touch(socket, "setsockopt");
  return static_cast<int>(syscall(SYS_setsockopt, socket, level, option, value, size));
}
extern "C" int shutdown(int socket, int how) noexcept {
  weir::testing::note_touch(socket, "shutdown");
  return static_cast<int>(syscall(SYS_shutdown, socket, how));
}
extern "C" int epoll_ctl(int epoll, int operation, int descriptor, epoll_event* event) noexcept {
  weir::testing::note_touch(epoll, "epoll_ctl");
  return static_cast<int>(syscall(SYS_epoll_ctl, epoll, operation, descriptor, event));
}
extern "C" int epoll_wait(int epoll, epoll_event* events, int count, int milliseconds) {
  weir::testing::note_touch(epoll, "epoll_wait");
  return static_cast<int>(syscall(SYS_epoll_pwait, epoll, events, count, milliseconds, nullptr, 8));
}
extern "C" int epoll_pwait2(int epoll, epoll_event* events, int count, const timespec* limit, const sigset_t* mask) {
  weir::testing::note_touch(epoll, "epoll_pwait2");
  return static_cast<int>(syscall(SYS_epoll_pwait2, epoll, events, count, limit, mask, 8));
}
extern "C" ssize_t write(int descriptor, const void* from, std::size_t bytes) {
  weir::testing::note_touch(descriptor, "write");
  return syscall(SYS_write, descriptor, from, bytes);
}
extern "C" ssize_t read(int descriptor, void* to, std::size_t bytes) {
  weir::testing::note_touch(descriptor, "read");
  return syscall(SYS_read, descriptor, to, bytes);
}
extern "C" int close(int descriptor) {
  if (weir::testing::is_child() && descriptor >= 0 && descriptor < weir::testing::kMaxDescriptors) {
    weir::testing::is_inherited[descriptor] = false;
  }
  return static_cast<int>(syscall(SYS_close, descriptor));
}

namespace weir::testing {

inline constexpr std::chrono::seconds kPatience{60};

// How a process ended: its exit status, 1000 and more for a signal, -1 if it was still there after kPatience.
inline int wait_for(pid_t process) {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  for (;;) {
    int status = 0;
    if (waitpid(process, &status, WNOHANG) == process) {
      return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
    }
    if (std::chrono::steady_clock::now() > until) {
      kill(process, SIGKILL);
      waitpid(process, &status, 0);
      return -1;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// Runs a program in a process of its own, made while this one has no other thread: `program` is its main(), what that
// returns its exit status. A forked child of that process returns from it, too.
inline int run_program(const std::function<int()>& program) {
  if (record == nullptr) {
    void* const shared = mmap(nullptr, sizeof(Record), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    record = ::new (shared) Record;
  }
  record->touches = 0;
  record->sent = 0;
  const pid_t process = ::fork();
  if (process == 0) {
    parent = static_cast<pid_t>(syscall(SYS_getpid));
    std::exit(program());
  }
  return wait_for(process);
}

// In a program: the child has 0, as from fork().
inline pid_t fork_program() {
  note_descriptors();
  return ::fork();
}

// What is wrong with the datagrams that were recorded; empty: nothing.
inline std::string judge_record() {
  if (record->touches != 0) return std::string("a child touched a descriptor of its parent: ") + record->first_touch;
  if (record->sent > Record::kMaxSent) return "too many datagrams for the record";
  std::map<std::tuple<std::uint16_t, std::uint64_t>, std::uint64_t> digests;  // by receiver, and key and number
  for (std::size_t i = 0; i < record->sent; ++i) {
    const Sent& sent = record->datagrams[i];
    const wire::PacketHeader header = wire::decode_header(sent.header.data());
    if (header.type != wire::PacketType::sealed) continue;
    // A packet of QUIC has this bit set; of sealed ones only those under later keys than any here.
    if ((sent.header[0] & std::byte{0x40}) != std::byte{0}) continue;
    std::uint64_t name = 0;
    std::memcpy(&name, sent.header.data(), sizeof name);
    const auto [at, is_new] = digests.try_emplace({sent.to_port, name}, sent.digest);
    if (!is_new && at->second != sent.digest) {
      return "two packets have the number " + std::to_string(header.number_low) + " on path " +
             std::to_string(header.path) + (sent.is_childs ? ", the second one a child's" : "");
    }
  }
  return {};
}

inline bool has_sent_something() { return record->sent != 0; }

// Ends a program with a sentence.
#define WEIR_EXPECT(condition)                                                      \
  do {                                                                              \
    if (!(condition)) {                                                             \
      std::fprintf(stderr, "%s:%d: %s is false\n", __FILE__, __LINE__, #condition); \
      std::_Exit(99);                                                               \
    }                                                                               \
  } while (false)

template <class T>
bool says_forked(const Result<T>& result) {
  return !result && result.error().code() == Code::closed &&
         result.error().message().find("is a fork of the one that opened the pool") != std::string_view::npos;
}

}  // namespace weir::testing
