// What links do when the socket has no room left. Loopback frees a sender's buffer before the send returns, so it is
// never full there: this program stands between the links and the kernel instead.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "link/gather_testing.h"
#include "link/link.h"
#include "link/link_testing.h"
#include "link/open.h"

namespace {

constexpr unsigned kNoLimit = std::numeric_limits<unsigned>::max();
unsigned messages_left = kNoLimit;  // until the socket is full
int failing_messages = 0;           // that fail with `failure`
int failure = 0;

// True if a message must not go; errno says why.
bool is_held_back() {
  if (messages_left == 0) {
    errno = EAGAIN;
    return true;
  }
  if (failing_messages > 0) {
    --failing_messages;
    errno = failure;
    return true;
  }
  return false;
}

}  // namespace

// These take precedence over the C library's.
extern "C" int sendmmsg(int descriptor, mmsghdr* messages, unsigned count, int flags) {
  if (is_held_back()) return -1;
  const long sent = syscall(SYS_sendmmsg, descriptor, messages, std::min(count, messages_left), flags);
  if (sent > 0 && messages_left != kNoLimit) messages_left -= static_cast<unsigned>(sent);
  return static_cast<int>(sent);
}

extern "C" ssize_t sendmsg(int descriptor, const msghdr* message, int flags) {
  if (is_held_back()) return -1;
  const long sent = syscall(SYS_sendmsg, descriptor, message, flags);
  if (sent >= 0 && messages_left != kNoLimit) --messages_left;
  return sent;
}

namespace weir::link::testing {
namespace {

class FullSocket : public LinkPair {
 protected:
  void TearDown() override {
    messages_left = kNoLimit;
    failing_messages = 0;
  }

  bool is_offloaded() const { return sender_->report().segmentation_offload; }
};

TEST_P(FullSocket, KeepsTheSegmentsThatWereNotSent) {
  const Gathered first({.size = 1'000, .segment_size = 1'000, .head_size = 48}, 1);
  const Gathered second({.size = 99 * 1'000 + 10, .segment_size = 1'000, .head_size = 48}, 2);  // in two messages
  const Gathered third({.size = 2'000, .segment_size = 1'000, .head_size = 48}, 300);
  std::vector<Train> trains{first.train(receiver_->local()), second.train(receiver_->local()),
                            third.train(receiver_->local())};
  std::vector<SendStatus> statuses(3, SendStatus::failed);
  messages_left = 2;
  ASSERT_EQ(sender_->send(trains, statuses), 1u);
  EXPECT_EQ(statuses, (std::vector{SendStatus::sent, SendStatus::would_block, SendStatus::failed}));
  const std::size_t gone = is_offloaded() ? 64 : 1;
  EXPECT_EQ(trains[1].segments.size(), 100 - gone);
  EXPECT_EQ(trains[1].segments.data(), second.segments.data() + gone);
  EXPECT_EQ(trains[2].segments.size(), 2u);

  // Still full: nothing changes.
  const std::span<Train> rest = std::span{trains}.subspan(1);
  ASSERT_EQ(sender_->send(rest, statuses), 0u);
  EXPECT_EQ(statuses[0], SendStatus::would_block);
  EXPECT_EQ(trains[1].segments.size(), 100 - gone);

  messages_left = kNoLimit;
  ASSERT_EQ(sender_->send(rest, statuses), 2u);
  EXPECT_EQ(statuses[0], SendStatus::sent);
  EXPECT_EQ(statuses[1], SendStatus::sent);
  std::vector<std::vector<std::byte>> wanted = first.datagrams;
  wanted.insert(wanted.end(), second.datagrams.begin(), second.datagrams.end());
  wanted.insert(wanted.end(), third.datagrams.begin(), third.datagrams.end());
  EXPECT_TRUE(bytes_of(receive_copies(*receiver_, wanted.size())) == wanted);
}

// The shorter last segment alone, after everything before it went.
TEST_P(FullSocket, SendsAShorterLastSegmentByItself) {
  const Gathered gathered({.size = 64 * 100 + 7, .segment_size = 100, .head_size = 5}, 1);
  Train train = gathered.train(receiver_->local());
  SendStatus status{};
  messages_left = is_offloaded() ? 1 : 64;
  ASSERT_EQ(sender_->send({&train, 1}, {&status, 1}), 0u);
  EXPECT_EQ(status, SendStatus::would_block);
  ASSERT_EQ(train.segments.size(), 1u);
  messages_left = kNoLimit;
  ASSERT_EQ(sender_->send({&train, 1}, {&status, 1}), 1u);
  EXPECT_EQ(status, SendStatus::sent);
  EXPECT_TRUE(bytes_of(receive_copies(*receiver_, 65)) == gathered.datagrams);
}

TEST_P(FullSocket, KeepsTheBytesThatWereNotSent) {
  std::vector<std::byte> bytes = pattern(100'010, 3);
  Train train{.to = receiver_->local(), .bytes = bytes, .segment_size = 1'000};
  SendStatus status{};
  messages_left = 1;
  ASSERT_EQ(sender_->send({&train, 1}, {&status, 1}), 0u);
  EXPECT_EQ(status, SendStatus::would_block);
  EXPECT_EQ(train.bytes.size(), bytes.size() - (is_offloaded() ? 64'000 : 1'000));
  messages_left = kNoLimit;
  ASSERT_EQ(sender_->send({&train, 1}, {&status, 1}), 1u);
  EXPECT_EQ(status, SendStatus::sent);
  std::vector<std::byte> joined;
  for (const Copy& copy : receive_copies(*receiver_, 101)) {
    joined.insert(joined.end(), copy.bytes.begin(), copy.bytes.end());
  }
  EXPECT_TRUE(joined == bytes);
}

// An error about an earlier datagram costs a gathered train nothing.
TEST_P(FullSocket, SendsSegmentsAgainAfterAnErrorAboutAnotherDatagram) {
  const Gathered gathered({.size = 5'000, .segment_size = 1'000, .head_size = 48}, 6);
  failing_messages = 2;
  failure = ECONNREFUSED;
  EXPECT_EQ(send_one(*sender_, gathered.train(receiver_->local())), SendStatus::sent);
  EXPECT_TRUE(bytes_of(receive_copies(*receiver_, 5)) == gathered.datagrams);
  EXPECT_EQ(sender_->report().stray_errors, 2u);
}

INSTANTIATE_TEST_SUITE_P(All, FullSocket, ::testing::ValuesIn(settings()),
                         [](const auto& parameter) { return name_of(parameter.param); });

#if !defined(WEIR_PORTABLE_UDP)

class FullOffloadingSocket : public FullSocket {};

// A device may say EIO, too.
TEST_P(FullOffloadingSocket, SendsSegmentsSinglyAfterAnInputOutputErrorAndKeepsWhatThenDoesNotFit) {
  const Gathered gathered({.size = 44 * 1'472, .segment_size = 1'472, .head_size = 48}, 5);
  Train train = gathered.train(receiver_->local(), Ecn::ect0);
  SendStatus status{};
  failing_messages = 1;
  failure = EIO;
  messages_left = 10;
  ASSERT_EQ(sender_->send({&train, 1}, {&status, 1}), 0u);
  EXPECT_EQ(status, SendStatus::would_block);
  EXPECT_EQ(train.segments.size(), 34u);
  EXPECT_EQ(sender_->report().offload_refusals, 1u);
  EXPECT_FALSE(is_offloaded());
  messages_left = kNoLimit;
  ASSERT_EQ(sender_->send({&train, 1}, {&status, 1}), 1u);
  EXPECT_EQ(status, SendStatus::sent);
  const std::vector<Copy> copies = receive_copies(*receiver_, 44);
  EXPECT_TRUE(bytes_of(copies) == gathered.datagrams);
  for (const Copy& copy : copies) EXPECT_EQ(copy.ecn, Ecn::ect0);
}

std::vector<Setting> offloading_settings() {
  std::vector<Setting> all = settings();
  std::erase_if(all, [](const Setting& setting) { return setting.sender != Kind::linux_offload; });
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, FullOffloadingSocket, ::testing::ValuesIn(offloading_settings()),
                         [](const auto& parameter) { return name_of(parameter.param); });

#endif

}  // namespace
}  // namespace weir::link::testing
