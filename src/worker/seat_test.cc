#include "worker/seat.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "base/address.h"
#include "base/segment.h"
#include "crypto/entropy.h"
#include "engine/engine.h"
#include "link/link.h"
#include "weir/event.h"

namespace weir::worker {
namespace {

TEST(Seat, HandsATrainOnWithItsBytes) {
  std::vector<std::byte> bytes(3'000);
  const link::Train train =
      train_for_link({.to = Address::v4(0x7f000001, 7), .ecn = 2, .bytes = bytes, .segment_size = 1'200, .path = 5});
  EXPECT_EQ(train.to, Address::v4(0x7f000001, 7));
  EXPECT_EQ(train.ecn, link::Ecn::ect0);
  EXPECT_EQ(train.bytes.data(), bytes.data());
  EXPECT_EQ(train.bytes.size(), bytes.size());
  EXPECT_EQ(train.segment_size, 1'200u);
  EXPECT_TRUE(train.segments.empty());
}

TEST(Seat, HandsATrainOnWithItsSegmentsWhereTheyAre) {
  const std::vector<std::byte> head(48);
  const std::vector<std::byte> body(1'424);
  const std::array<Segment, 2> segments{Segment{.head = head, .body = body}, Segment{.head = head, .body = {}}};
  const link::Train train =
      train_for_link({.to = Address::v4(0x7f000001, 7), .ecn = 1, .segment_size = 1'472, .segments = segments});
  EXPECT_EQ(train.ecn, link::Ecn::ect1);
  EXPECT_TRUE(train.bytes.empty());
  EXPECT_EQ(train.segment_size, 1'472u);
  EXPECT_EQ(train.segments.data(), segments.data());
  EXPECT_EQ(train.segments.size(), 2u);
}

// Sends into the void. Receives, once there is one, a datagram that is none of an engine's.
class FakeLink final : public link::Link {
 public:
  std::size_t receive(std::vector<link::Datagram>& out) override {
    if (!std::exchange(has_arrived, false)) return 0;
    out.push_back({.bytes = bytes_, .from = Address::v4(0x0a000002, 2)});
    return 1;
  }
  void recycle() override {}
  std::size_t send(std::span<link::Train> trains, std::span<link::SendStatus> statuses) override {
    for (std::size_t i = 0; i < trains.size(); ++i) statuses[i] = link::SendStatus::sent;
    return trains.size();
  }
  int descriptor() const override { return -1; }
  Address local() const override { return Address::v4(0x0a000001, 1); }
  bool take_unreachable(link::Unreachable&) override { return false; }
  void note_error() override {}
  link::LinkReport report() const override { return {}; }

  bool has_arrived = false;

 private:
  std::array<std::byte, 1> bytes_{};
};

class CountingHost final : public SeatHost {
 public:
  bool drain(Instant) override {
    ++drains;
    return false;
  }
  void flush(Instant) override {}

  int drains = 0;
};

// Code of the application, which returns in the child, too.
class Forker final : public Subscriber {
 public:
  void on(const event::PacketRejected&) override { child = fork(); }

  pid_t child = -1;
};

TEST(Seat, DoesNothingMoreInAChildThatWasForkedWhileItCaughtUp) {
  crypto::SystemEntropy entropy;
  Forker forker;
  CountingHost host;
  FakeLink link;
  Burst burst;
  engine::EngineConfig config{.secret = crypto::SharedSecret::from_text("a secret for tests only").value(),
                              .name = "client"};
  Instant now{std::chrono::nanoseconds(std::chrono::seconds(1)).count()};
  engine::Engine engine(config, entropy, &forker, 1, now);
  Seat seat(engine, link, burst, &host);
  transfer::OutgoingCall call;
  call.complete = [](transfer::OutgoingCall&, const transfer::Outcome&) {};
  call.method = 1;
  call.peer = engine.connect(Address::v4(0x0a000002, 2)).value();
  call.deadline = Instant::never();
  engine.submit(call, now);
  seat.poll_once(now);  // a hello leaves, and is to be repeated soon
  ASSERT_LT(engine.next_deadline(), now + std::chrono::seconds(1));
  host.drains = 0;
  link.has_arrived = true;
  now = now + std::chrono::seconds(1);
  seat.poll_once(now);
  if (forker.child == 0) _exit(host.drains);
  ASSERT_GT(forker.child, 0);
  int status = 0;
  ASSERT_EQ(waitpid(forker.child, &status, 0), forker.child);
  EXPECT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(host.drains, 1);
  engine.cancel(call, now);
  seat.poll_once(now);
}

}  // namespace
}  // namespace weir::worker
