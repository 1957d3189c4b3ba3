// What tests of identities over real sockets share: an authority that lives now, and a subscriber that remembers.
#pragma once

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/address.h"
#include "base/bytes.h"
#include "handshake/authority.h"
#include "handshake/directory_testing.h"
#include "handshake/identity.h"
#include "handshake/identity_testing.h"
#include "pool/pool_testing.h"

namespace weir::testing {

using handshake::testing::kDaySeconds;
using handshake::testing::TestDirectory;

// Seconds from now, both ends included.
struct Span {
  std::int64_t from = -kDaySeconds;
  std::int64_t until = kDaySeconds;

  handshake::Validity validity() const {
    const std::int64_t now = handshake::wall_clock_seconds();
    return {now + from, now + until};
  }
};

// A certificate authority in memory, valid by the wall clock. Vouches for whomever a test asks it to.
class TestAuthority {
 public:
  explicit TestAuthority(std::string name = "test authority")
      : authority_(handshake::testing::make_authority(std::move(name), handshake::KeyType::ed25519,
                                                      Span{-10 * kDaySeconds, 10 * kDaySeconds}.validity())) {}

  handshake::Issued issue(std::vector<std::string> names, Span span = {}) const {
    return handshake::testing::value_of(authority_.issue({.names = std::move(names), .validity = span.validity()}));
  }
  // An authority below this one.
  handshake::Authority intermediate(Span span) const {
    const auto issued = handshake::testing::value_of(
        authority_.issue({.names = {"intermediate.test"}, .validity = span.validity(), .authority = true}));
    return handshake::testing::value_of(handshake::Authority::from_pem(issued.chain_pem, issued.key_pem));
  }
  std::string roots() const { return authority_.certificate_pem(); }

  Identity identity(std::vector<std::string> names, Span span = {}) const {
    const handshake::Issued issued = issue(std::move(names), span);
    return Identity::from_pem(issued.chain_pem, issued.key_pem, roots());
  }
  // Shows a certificate of this authority, trusts those of another.
  Identity identity_that_trusts(std::vector<std::string> names, const TestAuthority& other) const {
    const handshake::Issued issued = issue(std::move(names));
    return Identity::from_pem(issued.chain_pem, issued.key_pem, other.roots());
  }

 private:
  handshake::Authority authority_;
};

// Remembers what was said. Any thread.
class Listener : public Subscriber {
 public:
  struct Failure {
    std::string peer;
    Code code;
    std::string sentence;
  };

  void on(const event::HandshakeFailed& e) override {
    std::lock_guard lock(mutex_);
    failures_.push_back({std::string(e.peer), e.code, std::string(e.sentence)});
  }
  void on(const event::Degraded& e) override {
    std::lock_guard lock(mutex_);
    degraded_.emplace_back(e.what, e.sentence);
  }
  std::vector<Failure> failures() const {
    std::lock_guard lock(mutex_);
    return failures_;
  }
  // The sentences about one subject.
  std::vector<std::string> degraded(std::string_view what) const {
    std::lock_guard lock(mutex_);
    std::vector<std::string> sentences;
    for (const auto& [subject, sentence] : degraded_) {
      if (subject == what) sentences.push_back(sentence);
    }
    return sentences;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<Failure> failures_;
  std::vector<std::pair<std::string, std::string>> degraded_;
};

// A plain UDP socket on loopback (IPv4) for those who are no pools.
class DatagramSocket {
 public:
  explicit DatagramSocket(const std::string& bind_to = "127.0.0.1:0")
      : descriptor_(::socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
    const sockaddr_in name = to_system(*Address::parse(bind_to));
    if (::bind(descriptor_, reinterpret_cast<const sockaddr*>(&name), sizeof(name)) != 0) {
      ADD_FAILURE() << bind_to << ": " << std::strerror(errno);
    }
  }
  DatagramSocket(DatagramSocket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  ~DatagramSocket() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  int descriptor() const { return descriptor_; }
  Address local() const { return local_of(descriptor_); }
  void send(ByteSpan bytes, const Address& to) const {
    const sockaddr_in name = to_system(to);
    static_cast<void>(
        ::sendto(descriptor_, bytes.data(), bytes.size(), 0, reinterpret_cast<const sockaddr*>(&name), sizeof(name)));
  }
  void wait(std::chrono::milliseconds at_most) const {
    pollfd waiting{descriptor_, POLLIN, 0};
    ::poll(&waiting, 1, static_cast<int>(at_most.count()));
  }
  // False: there is nothing now.
  bool receive(std::vector<std::byte>& out, Address& from) const {
    sockaddr_in name{};
    out.resize(65'536);
    for (;;) {
      socklen_t size = sizeof(name);
      const ssize_t got = ::recvfrom(descriptor_, out.data(), out.size(), 0, reinterpret_cast<sockaddr*>(&name), &size);
      if (got < 0 && errno == ECONNREFUSED) continue;  // about something sent earlier
      if (got < 0) return false;
      out.resize(static_cast<std::size_t>(got));
      from = from_system(name);
      return true;
    }
  }

  // Unspecified if it is no IPv4 socket.
  static Address local_of(int descriptor) {
    sockaddr_in name{};
    socklen_t size = sizeof(name);
    if (::getsockname(descriptor, reinterpret_cast<sockaddr*>(&name), &size) != 0 || name.sin_family != AF_INET) {
      return {};
    }
    return from_system(name);
  }

 private:
  static sockaddr_in to_system(const Address& address) {
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_port = htons(address.port);
    std::memcpy(&name.sin_addr, address.ip.data() + 12, 4);
    return name;
  }
  static Address from_system(const sockaddr_in& name) {
    return Address::v4(ntohl(name.sin_addr.s_addr), ntohs(name.sin_port));
  }

  int descriptor_;
};

inline Config identity_server(Identity identity, int workers = 1) {
  return {.listen = "127.0.0.1:0", .identity = std::move(identity), .workers = workers};
}
inline Config identity_client(Identity identity, int workers = 1) {
  return {.identity = std::move(identity), .workers = workers};
}

inline Code code_of(const Result<Reply>& result) { return result ? Code{} : result.error().code(); }
inline std::string sentence_of(const Result<Reply>& result) {
  return result ? "it worked" : std::string(result.error().message());
}

inline Counters total(const Pool& pool) {
  Counters sum;
  for (const Counters& each : pool.counters()) sum += each;
  return sum;
}

}  // namespace weir::testing
