// What the tests of both UDP links share.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "link/open.h"

namespace weir::link::testing {

inline constexpr int kPatienceMs = 10'000;  // only a failing test waits this long

struct Setting {
  Kind sender;
  Kind receiver;
  bool is_v6;
};

inline const char* name_of(Kind kind) { return kind == Kind::portable ? "Portable" : "Linux"; }
inline std::string name_of(const Setting& setting) {
  return std::string{name_of(setting.sender)} + "To" + name_of(setting.receiver) + (setting.is_v6 ? "V6" : "V4");
}
inline void PrintTo(const Setting& setting, std::ostream* out) { *out << name_of(setting); }

inline Address any_port(bool is_v6) { return *Address::parse(is_v6 ? "[::1]:0" : "127.0.0.1:0"); }

inline std::vector<Kind> kinds() {
#if defined(__linux__) && !defined(WEIR_PORTABLE_UDP)
  return {Kind::linux_offload, Kind::portable};
#else
  return {Kind::portable};
#endif
}

// Every pair of kinds, over IPv6 too where this machine has it.
inline std::vector<Setting> settings() {
  ReceiveBufferPool pool{{}};
  std::vector<Setting> all;
  for (const bool is_v6 : {false, true}) {
    if (!open_udp({.bind = any_port(is_v6)}, pool)) continue;
    for (const Kind sender : kinds()) {
      for (const Kind receiver : kinds()) all.push_back({sender, receiver, is_v6});
    }
  }
  return all;
}

struct Copy {
  std::vector<std::byte> bytes;
  Address from;
  Ecn ecn;

  bool operator==(const Copy&) const = default;
};

// Bytes that differ within a datagram and between datagrams.
inline std::vector<std::byte> pattern(std::size_t size, std::uint32_t seed) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>((i * 131 + seed * 29 + (i >> 8)) & 0xff);
  return bytes;
}

inline std::vector<std::byte> bytes_of(MutableByteSpan span) { return {span.begin(), span.end()}; }

inline bool wait_readable(const Link& link) {
  pollfd poller{link.descriptor(), POLLIN, 0};
  return ::poll(&poller, 1, kPatienceMs) > 0;
}

// Receives until `count` datagrams came, or nothing more did for a long time.
inline std::vector<Copy> receive_copies(Link& link, std::size_t count) {
  std::vector<Copy> copies;
  std::vector<Datagram> burst;
  burst.reserve(kReceiveBurst);
  while (copies.size() < count && wait_readable(link)) {
    burst.clear();
    link.receive(burst);
    for (const Datagram& datagram : burst) {
      copies.push_back({bytes_of(datagram.bytes), datagram.from, datagram.ecn});
    }
    link.recycle();
  }
  return copies;
}

inline SendStatus send_one(Link& link, Train train) {
  SendStatus status = SendStatus::failed;
  EXPECT_EQ(link.send({&train, 1}, {&status, 1}), 1u);
  return status;
}

// A sender and a receiver, each with its own pool.
class LinkPair : public ::testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    sender_ = open(GetParam().sender, sender_pool_);
    receiver_ = open(GetParam().receiver, receiver_pool_);
    ASSERT_TRUE(sender_ && receiver_);
  }

  std::unique_ptr<Link> open(Kind kind, ReceiveBufferPool& pool) {
    Result<std::unique_ptr<Link>> link = open_udp({.bind = any_port(GetParam().is_v6), .kind = kind}, pool);
    if (!link) {
      ADD_FAILURE() << link.error().to_string();
      return nullptr;
    }
    return std::move(*link);
  }

  ReceiveBufferPool sender_pool_{{.max_buffers = 64}};
  ReceiveBufferPool receiver_pool_{{.max_buffers = 64}};
  std::unique_ptr<Link> sender_;
  std::unique_ptr<Link> receiver_;
};

}  // namespace weir::link::testing
